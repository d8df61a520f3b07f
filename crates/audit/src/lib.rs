//! The auditor: checks a snapshot of the API server's objects against the rules, while the operator is idle.
//!
//! Pure: objects go in, findings come out, each with its rule and advice. It implements the rules in the most literal
//! way and shares no code with the operator's decisions, so that it can check the operator: in random orders of events
//! (`crates/operator/tests/schedules`), on a real API server (`e2e`), and in a cluster.
//!
//! "Idle" means that the operator is leader and has nothing to reconcile, and that kube-vip, if it runs, has announced
//! all requested addresses. At any other time a finding may be work in progress.
//!
//! | module | owns |
//! |---|---|
//! | `snapshot` | the objects to check |
//! | `finding` | findings, and advice about them |
//! | `meta` | accessors for fields of objects |
//! | `objects` | the snapshot, indexed for look-ups |
//! | `ranges` | the addresses of a pool |
//! | `selection` | the pool that section 5 selects for a load balancer |
//! | `later` | features of later versions of the operator (IPA-9) |
//! | `load_balancers` | the address of a load balancer, or why it has none |
//! | `owned_objects` | Service and EndpointSlice |
//! | `details` | the conditions that say which part of a load balancer works |
//! | `backends` | the virtual machines behind a load balancer |
//! | `pools` | the status of pools |
//! | `records` | IPAllocations, and leftovers of deleted objects |

mod backends;
mod details;
mod finding;
mod later;
mod load_balancers;
mod meta;
mod objects;
mod owned_objects;
mod pools;
mod ranges;
mod records;
mod selection;
mod snapshot;
#[cfg(test)]
mod tests;

pub use finding::{Finding, Report, Waiting};
pub use snapshot::{Cluster, Snapshot};

use objects::Objects;

/// Checks everything: first the IPAllocations, then load balancers, pools, and leftovers of deleted objects. Reports
/// only the first violation of each object, because others may follow from it.
pub fn audit(snapshot: &Snapshot) -> Report {
    let objects = Objects::sort(snapshot);
    let mut report = Report {
        load_balancers: objects.lbs.len(),
        ..Report::default()
    };
    records::check(&objects, &mut report);
    for lb in objects.lbs.values() {
        match load_balancers::check(&objects, lb) {
            Ok(None) => {}
            Ok(Some(reason)) => report.waiting.push(Waiting {
                lb: lb.key.clone(),
                reason: reason.to_owned(),
            }),
            Err(finding) => report.findings.push(finding),
        }
    }
    for pool in objects.pools.values() {
        report.findings.extend(pools::check(&objects, pool).err());
    }
    load_balancers::check_pairs(&objects, &mut report);
    records::check_leftovers(&objects, &mut report);
    report
}
