//! Fixture of the ledger's tests. The tests of single rules are in one module per subject, properties in `properties`,
//! the comparison with a naive model in `machine`.

mod allocation;
mod exclusions;
mod keep;
mod machine;
mod properties;
mod records;
mod release;
mod requested;
mod shared;
mod waiting;
mod withheld;

use super::*;
use crate::exclude::Exclusions;
use crate::range::{PoolRanges, RangeSpec};
use crate::select::{Selector, Tuple, Workload};
use crate::types::{Owner, PoolName};

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn global() -> Selector {
    Selector {
        scope: vec![Tuple::new("*", "*", "*")],
        ..Selector::default()
    }
}

pub(crate) fn range(subnet: &str, start: &str, end: &str) -> RangeSpec {
    RangeSpec {
        subnet: subnet.into(),
        start: Some(start.into()),
        end: Some(end.into()),
        gateway: None,
    }
}

pub(crate) fn pool(name: &str, ranges: &[RangeSpec]) -> PoolSpec {
    PoolSpec {
        name: name.into(),
        created: Micros(0),
        ranges: PoolRanges::parse(ranges),
        selector: global(),
        withheld: None,
        last_allocated: None,
    }
}

/// A ledger, and the versions of the stored records.
pub(super) struct Fixture {
    pub(super) ledger: Ledger,
    pub(super) now: i64,
    version: u64,
}

impl Fixture {
    pub(super) fn new(pools: &[PoolSpec]) -> Self {
        let mut ledger = Ledger::new(Settings::default());
        for pool in pools {
            ledger.set_pool(pool.clone());
        }
        ledger.take_wakes();
        Self {
            ledger,
            now: 1_000,
            version: 0,
        }
    }

    /// The pool of the long worked example.
    fn example() -> Self {
        Self::new(&[pool("p", &[range("172.20.1.0/29", "", "")])])
    }

    pub(super) fn decide(&mut self, request: &Request) -> Decision {
        self.now += 1;
        self.ledger.decide(request, Micros(self.now))
    }

    pub(super) fn store(&mut self, spec: RecordSpec) -> Record {
        self.version += 1;
        let record = Record {
            spec,
            version: Version(self.version),
        };
        assert!(self.ledger.observe(record.clone()));
        record
    }

    pub(super) fn bind(&mut self, addr: &str, pool: &str, name: &str, uid: &str) -> Record {
        self.now += 1;
        self.store(RecordSpec {
            addr: ip(addr),
            pool: pool.into(),
            owner: Owner::new("ns", name, uid),
            phase: Phase::Bound,
            bound_at: Micros(self.now),
            released_at: None,
            group: None,
        })
    }

    /// Decides, and stores the record of the decision; the address, if there is one.
    fn ask(&mut self, request: &Request) -> Option<IpAddr> {
        match self.decide(request) {
            Decision::Held { grant, .. } => Some(grant.addr),
            Decision::Adopt { grant, record, .. } => {
                self.store(record.spec);
                Some(grant.addr)
            }
            Decision::Take { grant, spec, .. } => {
                self.store(spec);
                Some(grant.addr)
            }
            Decision::Wait { .. } => None,
        }
    }

    /// The load balancers whose explanation is outdated.
    fn outdated(&mut self) -> Vec<String> {
        names(self.ledger.take_outdated_explanations(99, 99))
    }

    pub(super) fn release(&mut self, addr: IpAddr, uid: &str) {
        self.now += 1;
        let record = self
            .ledger
            .may_release(addr, &Uid::new(uid), Micros(self.now))
            .unwrap();
        self.store(record.spec);
    }

    /// Deletes the load balancer, and releases all its records.
    fn delete(&mut self, name: &str) {
        let id = OwnerId::new("ns", name);
        self.ledger.withdraw(&id);
        for record in self.ledger.records_of(&id) {
            if record.spec.phase == Phase::Bound {
                self.release(record.spec.addr, &record.spec.owner.uid.to_string());
            }
        }
    }

    /// One of the pool's maps, as "last octet=name".
    fn map(&self, pool: &str, history: bool) -> String {
        let view = self.ledger.projection(pool).unwrap();
        let show = |(addr, id): (IpAddr, &OwnerId)| {
            format!(
                "{}={}",
                addr.to_string().rsplit('.').next().unwrap(),
                id.name()
            )
        };
        let entries: Vec<_> = if history {
            view.history()
                .map(|(addr, id, _)| show((addr, id)))
                .collect()
        } else {
            view.allocated().map(show).collect()
        };
        assert_eq!(
            entries.len(),
            if history {
                view.history_len
            } else {
                view.allocated_len
            }
        );
        entries.join(" ")
    }
}

use crate::types::Uid;

/// A load balancer whose age is the order of its name.
pub(crate) fn lb(name: &str) -> Request {
    lb_uid(name, &format!("{name}-1"))
}

pub(crate) fn lb_uid(name: &str, uid: &str) -> Request {
    Request {
        owner: Owner::new("ns", name, uid),
        created: Micros(0),
        pool: None,
        requirement: Requirement::default(),
        workload: Workload::Vm,
        status: None,
        requested: None,
    }
}

fn with_status(request: Request, pool: &str, addr: &str) -> Request {
    Request {
        status: Some(StatusAddress {
            pool: Some(pool.into()),
            addr: ip(addr),
        }),
        ..request
    }
}

/// A load balancer of a guest cluster.
fn guest(name: &str) -> Request {
    Request {
        workload: Workload::Cluster,
        ..lb(name)
    }
}

fn in_pool(request: Request, pool: &str) -> Request {
    Request {
        pool: Some(PoolName::from(pool)),
        ..request
    }
}

#[track_caller]
fn taken(decision: Decision) -> (String, AllocationReason, Option<Version>) {
    match decision {
        Decision::Take {
            grant,
            spec,
            reason,
            replaces,
            ..
        } => {
            assert_eq!(grant.addr, spec.addr);
            assert_eq!(grant.pool, spec.pool);
            (grant.addr.to_string(), reason, replaces)
        }
        other => panic!("not taken: {other:?}"),
    }
}

#[track_caller]
fn held(decision: Decision) -> (Grant, Vec<Record>) {
    match decision {
        Decision::Held {
            grant,
            extra_records,
        } => (grant, extra_records),
        other => panic!("not held: {other:?}"),
    }
}

#[track_caller]
fn waits(decision: Decision) -> (WaitReason, String, Option<AddressConflict>, Vec<Record>) {
    match decision {
        Decision::Wait {
            reason,
            explanation,
            address_conflict,
            extra_records,
            ..
        } => (
            reason,
            explanation.to_string(),
            address_conflict,
            extra_records,
        ),
        other => panic!("does not wait: {other:?}"),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "what take_wakes gives")]
fn names(wakes: Vec<OwnerId>) -> Vec<String> {
    wakes.iter().map(|id| id.name().to_owned()).collect()
}
