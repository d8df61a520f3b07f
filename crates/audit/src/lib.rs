//! The auditor: what is wrong with all that the API server holds at one quiet moment.
//!
//! Pure: copies of objects go in, findings come out, each with its rule and with what to do. It is written from the rules
//! alone, in the plainest way that they can be read, and shares no code with what the operator decides by: so it can judge
//! the operator, in random orders of events (`crates/operator/tests/schedules`), on a real API server (`e2e`), and in a
//! cluster.
//!
//! "Quiet" means that the operator leads and has nothing to do, and that kube-vip, if it is at work, has announced what it is
//! asked for. At any other moment a finding may be work that is under way.
//!
//! | module | owns |
//! |---|---|
//! | `snapshot` | what there is to be judged |
//! | `finding` | what was found, and what to do about it |
//! | `meta` | small things that are read of objects |
//! | `objects` | the snapshot, sorted for look-ups |
//! | `ranges` | the addresses of a pool |
//! | `selection` | which pool serves whom |
//! | `later` | what only a later version of the operator can do |
//! | `load_balancers` | addresses, and why somebody has none |
//! | `owned_objects` | Service and EndpointSlice |
//! | `backends` | which virtual machines stand behind a load balancer |
//! | `pools` | the status of pools |
//! | `records` | IPAllocations, and what is left of what is gone |

mod backends;
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

/// Names every wrong: first of the records, then of load balancers, pools, and of what is left of objects that are gone. Of
/// one object the first wrong alone, since others may follow from it.
pub fn audit(snapshot: &Snapshot) -> Report {
    let objects = Objects::sort(snapshot);
    let mut report = Report {
        load_balancers: objects.lbs.len(),
        ..Report::default()
    };
    records::judge(&objects, &mut report);
    for lb in objects.lbs.values() {
        match load_balancers::judge(&objects, lb) {
            Ok(None) => {}
            Ok(Some(reason)) => report.waiting.push(Waiting {
                lb: lb.key.clone(),
                reason: reason.to_owned(),
            }),
            Err(finding) => report.findings.push(finding),
        }
    }
    for pool in objects.pools.values() {
        report.findings.extend(pools::judge(&objects, pool).err());
    }
    load_balancers::judge_pairs(&objects, &mut report);
    records::judge_left(&objects, &mut report);
    report
}
