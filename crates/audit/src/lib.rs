//! The auditor: checks a snapshot of the API server's objects against the rules, while the operator is idle.
//!
//! Pure: objects go in, findings come out, each with its rule and advice. It implements the rules in the most literal
//! way and shares no code with the operator's decisions, so that it can check the operator: in random orders of events
//! (`crates/operator/tests/schedules`), on a real API server (`e2e`), and in a cluster, as the subcommand `check`.
//!
//! "Idle" means that the operator is leader and has nothing to reconcile, and that kube-vip, if it runs, has announced
//! all requested addresses. At any other time a finding may be work in progress.
//!
//! | module | owns |
//! |---|---|
//! | `kinds` | the kinds of findings: severity, meaning, advice |
//! | `finding` | findings |
//! | `snapshot` | the objects to check |
//! | `meta` | accessors for fields of objects |
//! | `unknown` | objects that cannot be decoded |
//! | `machines` | virtual machines and nodes, indexed for look-ups |
//! | `objects` | the snapshot, indexed for look-ups |
//! | `exclusions` | the list of addresses that a pool excludes (EXC-1) |
//! | `ranges` | the addresses of a pool |
//! | `selection` | the pool that section 5 selects for a load balancer |
//! | `lease_records`, `leases` | the records of DHCP leases; what load balancers have by them |
//! | `load_balancers` | the address of a load balancer |
//! | `waiting` | why a load balancer has no address |
//! | `sharing` | load balancers that share an address (SHR-1 to SHR-8) |
//! | `pairs` | two objects with one address |
//! | `spec` | the validity of a load balancer's spec |
//! | `owned_objects` | Service and EndpointSlice |
//! | `announcement` | the address that kube-vip announces |
//! | `details` | the conditions that say which part of a load balancer works |
//! | `backends` | the virtual machines behind a load balancer |
//! | `pools` | the status of pools |
//! | `records` | IPAllocations, and leftovers of deleted objects |
//! | `before_import` | the objects of the Go operator, before its addresses are imported |
//! | `leader` | the process that holds the Lease |
//! | `surroundings` | webhooks, CustomResourceDefinitions, other operators |

mod announcement;
mod backends;
mod before_import;
mod details;
mod exclusions;
mod finding;
pub mod kinds;
mod leader;
mod lease_records;
mod leases;
mod load_balancers;
mod machines;
mod meta;
mod objects;
mod owned_objects;
mod pairs;
mod pools;
mod ranges;
mod records;
mod selection;
mod sharing;
mod snapshot;
mod spec;
mod surroundings;
#[cfg(test)]
mod tests;
mod unknown;
mod waiting;

pub use before_import::State;
pub use finding::{Finding, ObjectRef, Report, Waiting};
pub use kinds::{Class, Kind, Severity};
pub use leader::Leader;
pub use snapshot::{Cluster, Snapshot, UndecodableObject};
pub use surroundings::{DEPLOYMENT_NAME, DEPLOYMENT_NAMESPACE, Surroundings, check_surroundings};

use objects::{Lb, Objects};

/// Checks everything: first the IPAllocations, then load balancers, pools, and leftovers of deleted objects. Reports
/// only the first violation of each object, because others may follow from it.
pub fn audit(snapshot: &Snapshot) -> Report {
    let objects = Objects::sort(snapshot);
    let mut report = report(snapshot, &objects);
    records::check(&objects, &mut report);
    for lb in objects.lbs.values() {
        match load_balancers::check(&objects, lb) {
            Ok(None) => {}
            Ok(Some(reason)) => report.waiting.push(waiting(lb, reason)),
            Err(finding) => report.findings.push(finding),
        }
    }
    for pool in objects.pools.values() {
        report.findings.extend(pools::check(&objects, pool).err());
        pools::check_truncated(pool, &mut report);
    }
    pairs::check(&objects, &mut report);
    records::check_leftovers(&objects, &mut report);
    leases::check_leftovers(&objects, &mut report);
    report
}

/// Checks objects of the Go operator that are not imported yet ([`State::NotImported`]): what is wrong with them already.
pub fn audit_before_import(snapshot: &Snapshot) -> Report {
    let objects = Objects::sort(snapshot);
    let mut report = report(snapshot, &objects);
    for lb in objects.lbs.values() {
        if let Some(reason) = before_import::check(&objects, lb, &mut report) {
            report.waiting.push(waiting(lb, reason));
        }
    }
    for pool in objects.pools.values() {
        let finding = before_import::check_pool(&objects, pool).err();
        report.findings.extend(finding);
    }
    pairs::check_claims(&objects, &mut report);
    records::check_owned_leftovers(&objects, &mut report);
    report
}

/// The numbers of objects, and those that are not checked.
fn report(snapshot: &Snapshot, objects: &Objects<'_>) -> Report {
    let mut report = Report {
        load_balancers: objects.lbs.len(),
        bound: objects.bound.len(),
        released: objects.records.len() - objects.bound.len(),
        ..Report::default()
    };
    for object in &snapshot.undecodable {
        // IPA-8: of a later kind.
        if object.kind == "IPAllocation" && meta::address_of_name(&object.name).is_none() {
            continue;
        }
        let id = ObjectRef {
            kind: object.kind,
            namespace: object.namespace.clone(),
            name: object.name.clone(),
        };
        let (kind, text) = (&kinds::OBJECT_UNDECODABLE, object.error.clone());
        report
            .findings
            .push(Finding::new(kind, "section 2", id, text));
    }
    records::check_names(snapshot, &mut report);
    report
}

fn waiting(lb: &Lb<'_>, reason: &str) -> Waiting {
    Waiting {
        lb: lb.key.clone(),
        reason: reason.to_owned(),
    }
}
