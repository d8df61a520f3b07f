//! Worked examples and single rules. The properties are in `properties`, the ledger against a
//! naive model in `machine`.

mod machine;
mod properties;

use super::*;
use crate::range::{PoolRanges, RangeSpec};
use crate::select::{Selector, Tuple, Workload};
use crate::types::PoolName;

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(super) fn global() -> Selector {
    Selector {
        scope: vec![Tuple::new("*", "*", "*")],
        ..Selector::default()
    }
}

pub(super) fn range(subnet: &str, start: &str, end: &str) -> RangeSpec {
    RangeSpec {
        subnet: subnet.into(),
        start: Some(start.into()),
        end: Some(end.into()),
        gateway: None,
    }
}

pub(super) fn pool(name: &str, ranges: &[RangeSpec]) -> PoolSpec {
    PoolSpec {
        name: name.into(),
        created: Micros(0),
        ranges: PoolRanges::parse(ranges),
        selector: global(),
        last_allocated: None,
    }
}

/// A ledger together with what the API server stores: versions grow, writes carry one.
pub(super) struct World {
    pub(super) ledger: Ledger,
    pub(super) now: i64,
    version: u64,
}

impl World {
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
        })
    }

    /// Asks, and writes what the answer says; the address, if there is one.
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

    pub(super) fn release(&mut self, addr: IpAddr, uid: &str) {
        self.now += 1;
        let record = self
            .ledger
            .may_release(addr, &Uid::new(uid), Micros(self.now))
            .unwrap();
        self.store(record.spec);
    }

    /// The load balancer is deleted, and everything it holds is released.
    fn delete(&mut self, name: &str) {
        let id = OwnerId::new("ns", name);
        self.ledger.withdraw(&id);
        for record in self.ledger.records_of(&id) {
            if record.spec.phase == Phase::Bound {
                self.release(record.spec.addr, &record.spec.owner.uid.to_string());
            }
        }
    }

    /// "last octet=name" of one of the maps.
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
pub(super) fn lb(name: &str) -> Request {
    lb_uid(name, &format!("{name}-1"))
}

pub(super) fn lb_uid(name: &str, uid: &str) -> Request {
    Request {
        owner: Owner::new("ns", name, uid),
        created: Micros(0),
        pool: None,
        requirement: Requirement::default(),
        workload: Workload::Vm,
        status: None,
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

fn in_pool(request: Request, pool: &str) -> Request {
    Request {
        pool: Some(PoolName::from(pool)),
        ..request
    }
}

#[track_caller]
fn taken(decision: Decision) -> (String, Why, Option<Version>) {
    match decision {
        Decision::Take {
            grant,
            spec,
            why,
            over,
            ..
        } => {
            assert_eq!(grant.addr, spec.addr);
            assert_eq!(grant.pool, spec.pool);
            (grant.addr.to_string(), why, over)
        }
        other => panic!("not taken: {other:?}"),
    }
}

#[track_caller]
fn held(decision: Decision) -> (Grant, Vec<Record>) {
    match decision {
        Decision::Held { grant, surplus } => (grant, surplus),
        other => panic!("not held: {other:?}"),
    }
}

#[track_caller]
fn waits(decision: Decision) -> (WaitReason, String, Option<Lost>, Vec<Record>) {
    match decision {
        Decision::Wait {
            reason,
            explanation,
            lost,
            surplus,
        } => (reason, explanation.to_string(), lost, surplus),
        other => panic!("does not wait: {other:?}"),
    }
}

#[allow(clippy::needless_pass_by_value)]
fn names(wakes: Vec<OwnerId>) -> Vec<String> {
    wakes.iter().map(|id| id.name().to_owned()).collect()
}

/// The long worked example of 6.1, row by row.
#[test]
fn alc_worked_example() {
    let mut world = World::example();
    let mut row = |delete: &str,
                   asks: &str,
                   answer: &[Option<u8>],
                   last: &str,
                   allocated: &str,
                   history: &str,
                   available: i64| {
        if !delete.is_empty() {
            world.delete(delete);
        }
        for (name, answer) in asks.split_whitespace().zip(answer) {
            let got = world.ask(&lb(name));
            assert_eq!(got, answer.map(|n| IpAddr::from([172, 20, 1, n])), "{name}");
        }
        let view = world.ledger.projection("p").unwrap();
        let shown = view.last_allocated.map(|addr| addr.to_string()).unwrap();
        assert_eq!(shown, format!("172.20.1{last}"));
        assert_eq!((view.total, view.available), (5, available));
        assert_eq!(world.map("p", false), allocated);
        assert_eq!(world.map("p", true), history);
    };
    row("", "a", &[Some(2)], ".2", "2=a", "", 4);
    row("", "b", &[Some(3)], ".3", "2=a 3=b", "", 3);
    row("a", "", &[], ".3", "3=b", "2=a", 4);
    row(
        "",
        "c d e",
        &[Some(4), Some(5), Some(6)],
        ".6",
        "3=b 4=c 5=d 6=e",
        "2=a",
        1,
    );
    row("", "f", &[Some(2)], ".2", "2=f 3=b 4=c 5=d 6=e", "", 0);
    row("", "g", &[None], ".2", "2=f 3=b 4=c 5=d 6=e", "", 0);
    // g gives up; it would be served before a otherwise, if it were the older one.
    row("g", "", &[], ".2", "2=f 3=b 4=c 5=d 6=e", "", 0);
    row("d", "a", &[Some(5)], ".5", "2=f 3=b 4=c 5=a 6=e", "", 0);
    row("c", "c", &[Some(4)], ".4", "2=f 3=b 4=c 5=a 6=e", "", 0);
    row("b", "h", &[Some(3)], ".3", "2=f 3=h 4=c 5=a 6=e", "", 0);
    let before = world.version;
    assert!(matches!(world.decide(&lb("a")), Decision::Held { .. }));
    assert_eq!(world.ask(&lb("a")), Some(ip("172.20.1.5")));
    assert_eq!(world.version, before, "nothing is written");
}

#[test]
fn alc_worked_example_of_two_ranges() {
    let ranges = [
        range("172.20.1.0/24", "172.20.1.10", "172.20.1.11"),
        range("172.20.2.0/30", "", ""),
    ];
    let mut world = World::new(&[pool("p", &ranges)]);
    for (name, addr) in [
        ("a", "172.20.1.10"),
        ("b", "172.20.1.11"),
        ("c", "172.20.2.2"),
    ] {
        assert_eq!(world.ask(&lb(name)), Some(ip(addr)));
    }
    assert_eq!(world.ask(&lb("d")), None);
    world.delete("d");
    world.delete("a");
    assert_eq!(world.ask(&lb("d")), Some(ip("172.20.1.10")));
}

#[test]
fn alc_1_same_name_other_uid_adopts() {
    let mut world = World::example();
    world.bind("172.20.1.4", "p", "a", "old");
    let Decision::Adopt {
        grant,
        record,
        surplus,
    } = world.decide(&lb_uid("a", "new"))
    else {
        panic!("not adopted");
    };
    assert_eq!(grant.addr, ip("172.20.1.4"));
    assert_eq!(
        (record.spec.owner.uid, record.version),
        (Uid::new("new"), Version(1))
    );
    assert_eq!(record.spec.phase, Phase::Bound);
    assert_eq!(surplus, []);
    assert_eq!(world.ask(&lb_uid("a", "new")), Some(ip("172.20.1.4")));
    held(world.decide(&lb_uid("a", "new")));
}

#[test]
fn alc_2_lowest_of_history_unless_unusable() {
    let mut world = World::example();
    for addr in ["172.20.1.1", "172.20.1.9", "172.20.1.4", "172.20.1.3"] {
        world.bind(addr, "p", "a", "x");
    }
    world.delete("a");
    let Decision::Take {
        grant,
        why,
        over,
        stale,
        ..
    } = world.decide(&lb("a"))
    else {
        panic!("not taken");
    };
    assert_eq!((grant.addr, why), (ip("172.20.1.3"), Why::Sticky));
    assert_eq!(
        over,
        world
            .ledger
            .record(ip("172.20.1.3"))
            .map(|record| record.version)
    );
    let stale: Vec<_> = stale.iter().map(|record| record.spec.addr).collect();
    assert_eq!(stale, [ip("172.20.1.1"), ip("172.20.1.9")]);
    // The gateway and the address outside are listed as excess too, whoever asks.
    let excess: Vec<_> = world
        .ledger
        .history_excess(10)
        .iter()
        .map(|it| it.spec.addr)
        .collect();
    assert_eq!(excess, stale);
}

#[test]
fn alc_2_history_shown_by_a_foreign_service_is_passed_over() {
    let mut world = World::example();
    world.bind("172.20.1.4", "p", "a", "x");
    world.delete("a");
    world
        .ledger
        .set_shown(&OwnerId::new("ns", "other"), &[ip("172.20.1.4")]);
    assert_eq!(taken(world.decide(&lb("a"))).1, Why::Fresh);
    // A Service of its own is no obstacle.
    let mut world = World::example();
    world.bind("172.20.1.4", "p", "a", "x");
    world.delete("a");
    world
        .ledger
        .set_shown(&OwnerId::new("ns", "a"), &[ip("172.20.1.4")]);
    assert_eq!(taken(world.decide(&lb("a"))).0, "172.20.1.4");
}

#[test]
fn alc_3_starts_at_last_allocated_of_the_status() {
    let start = |last: Option<(&str, i64)>, record: bool| {
        let mut spec = pool("p", &[range("172.20.1.0/29", "", "")]);
        spec.last_allocated = last.map(|(addr, at)| (ip(addr), Micros(at)));
        let mut world = World::new(&[spec]);
        if record {
            world.bind("172.20.1.2", "p", "x", "x");
        }
        taken(world.decide(&lb("a"))).0
    };
    assert_eq!(start(None, false), "172.20.1.2");
    assert_eq!(start(Some(("172.20.1.4", i64::MIN)), false), "172.20.1.5");
    assert_eq!(start(Some(("9.9.9.9", i64::MIN)), false), "172.20.1.2");
    // Every record corrects our own projection, none an older than what somebody else wrote.
    assert_eq!(start(Some(("172.20.1.4", i64::MIN)), true), "172.20.1.3");
    assert_eq!(start(Some(("172.20.1.4", 1 << 40)), true), "172.20.1.5");
}

#[test]
fn alc_3_a_record_of_the_future_does_not_stop_the_turn() {
    let mut world = World::example();
    let mut spec = world.bind("172.20.1.2", "p", "x", "x").spec;
    spec.bound_at = Micros(i64::MAX);
    world.store(spec);
    assert_eq!(world.ask(&lb("a")), Some(ip("172.20.1.3")));
    world.delete("a");
    world.ledger.forget(ip("172.20.1.3"), Version(99));
    assert_eq!(world.ask(&lb("b")), Some(ip("172.20.1.4")));
}

#[test]
fn alc_5_missing_invalid_and_full_pools() {
    let mut world = World::new(&[]);
    let (reason, text, ..) = waits(world.decide(&lb("a")));
    assert_eq!(
        (reason, text.as_str()),
        (WaitReason::NoMatchedPool, "there are no pools")
    );
    let (reason, text, ..) = waits(world.decide(&in_pool(lb("b"), "p")));
    assert_eq!(
        (reason, text.as_str()),
        (WaitReason::PoolNotFound, "pool p: does not exist")
    );
    assert_eq!(names(world.ledger.take_wakes()), [""; 0]);
    world
        .ledger
        .set_pool(pool("p", &[range("172.20.1.0/30", "x", "")]));
    assert_eq!(names(world.ledger.take_wakes()), ["a", "b"]);
    let (reason, text, ..) = waits(world.decide(&lb("a")));
    assert_eq!(reason, WaitReason::PoolInvalid);
    assert!(text.contains("rangeStart"), "{text}");
    waits(world.decide(&in_pool(lb("b"), "p")));
    // One address for two: the older is woken to get it, the other to be told why it gets none.
    world
        .ledger
        .set_pool(pool("p", &[range("172.20.1.0/30", "", "")]));
    assert_eq!(names(world.ledger.take_wakes()), ["a", "b"]);
    let (reason, text, ..) = waits(world.decide(&in_pool(lb("b"), "p")));
    assert_eq!(reason, WaitReason::NoAvailableIp);
    assert_eq!(
        text,
        "pool p: 1 older load balancers wait for its free addresses"
    );
    assert_eq!(world.ask(&lb("a")), Some(ip("172.20.1.2")));
    let (_, text, ..) = waits(world.decide(&in_pool(lb("b"), "p")));
    assert_eq!(text, "pool p: all addresses are taken");
    assert_eq!(names(world.ledger.take_wakes()), [""; 0]);
    world.delete("a");
    assert_eq!(names(world.ledger.take_wakes()), ["b"]);
    assert_eq!(names(world.ledger.take_wakes()), [""; 0]);
    world.ledger.remove_pool("p");
    assert_eq!(names(world.ledger.take_wakes()), [""; 0], "woken already");
}

#[test]
fn alc_6_mask_and_gateway() {
    let specs = [
        pool("v4", &[range("172.20.1.0/29", "", "")]),
        pool("v6", &[range("fd10:5::/64", "", "")]),
        pool("host", &[range("10.0.0.1/32", "", "")]),
    ];
    let mut world = World::new(&specs);
    for (pool, addr, mask, gateway) in [
        ("v4", "172.20.1.2", "255.255.255.248", Some("172.20.1.1")),
        (
            "v6",
            "fd10:5::2",
            "ffff:ffff:ffff:ffff::",
            Some("fd10:5::1"),
        ),
        ("host", "10.0.0.1", "255.255.255.255", None),
    ] {
        let Decision::Take { grant, .. } = world.decide(&in_pool(lb(pool), pool)) else {
            panic!("not taken");
        };
        assert_eq!((grant.addr, grant.mask.as_deref()), (ip(addr), Some(mask)));
        assert_eq!((grant.gateway, grant.out_of_pool), (gateway.map(ip), false));
    }
}

#[test]
fn alc_7_status_without_record() {
    let network = |name: &str, subnet: &str, network: &str| PoolSpec {
        selector: Selector {
            network: network.into(),
            scope: vec![Tuple::new("*", "*", "*"), Tuple::new("", "", "x")],
            priority: 0,
        },
        ..pool(name, &[range(subnet, "", "")])
    };
    let mut world = World::new(&[
        network("p", "172.20.1.0/29", ""),
        network("q", "172.20.2.0/29", "other"),
    ]);
    // Free, in range, in the pool that is selected now.
    let (addr, why, _) = taken(world.decide(&with_status(lb("a"), "p", "172.20.1.5")));
    assert_eq!((addr.as_str(), why), ("172.20.1.5", Why::Recorded));
    // In the words of the status the pool may be any: the address decides.
    let (addr, ..) = taken(world.decide(&with_status(lb("b"), "q", "172.20.1.6")));
    assert_eq!(addr, "172.20.1.6");
    // Held or reserved by another, the gateway, or another pool's: a new address.
    for (name, addr, holder) in [
        ("c", "172.20.1.5", Some("a")),
        ("d", "172.20.1.1", None),
        ("e", "172.20.2.4", None),
    ] {
        let decision = world.decide(&with_status(lb(name), "p", addr));
        let Decision::Take { grant, why, .. } = decision else {
            panic!("{decision:?}")
        };
        assert_eq!(why, Why::Fresh);
        let holder = holder.map(|name| OwnerId::new("ns", name));
        assert_eq!(
            grant.lost,
            Some(Lost {
                addr: ip(addr),
                holder
            })
        );
    }
    // The named pool counts before the selected one.
    let request = in_pool(with_status(lb("f"), "q", "172.20.2.4"), "q");
    assert_eq!(taken(world.decide(&request)).1, Why::Recorded);
}

#[test]
fn alc_7_a_status_does_not_jump_the_queue() {
    let mut world = World::new(&[pool("p", &[range("172.20.1.0/30", "", "")])]);
    world.bind("172.20.1.2", "p", "x", "x");
    waits(world.decide(&lb("a")));
    world.delete("x");
    waits(world.decide(&with_status(lb("b"), "p", "172.20.1.2")));
    assert_eq!(names(world.ledger.take_wakes()), ["a"]);
    assert_eq!(world.ask(&lb("a")), Some(ip("172.20.1.2")));
}

#[test]
fn alc_8_conflict_is_proposed_anew() {
    let mut world = World::example();
    let first = world.decide(&lb("a"));
    assert_eq!(
        taken(first.clone()),
        ("172.20.1.2".into(), Why::Fresh, None)
    );
    world.now += 60;
    assert_eq!(
        world.decide(&lb("a")),
        first,
        "the same question, the same answer"
    );
    // Somebody else's record was first.
    world.bind("172.20.1.2", "p", "b", "b-1");
    assert_eq!(names(world.ledger.take_wakes()), ["a"]);
    assert_eq!(taken(world.decide(&lb("a"))).0, "172.20.1.3");
    // A Released record that was not known: the same address, over it.
    world.bind("172.20.1.3", "p", "z", "z");
    world.release(ip("172.20.1.3"), "z");
    assert_eq!(taken(world.decide(&lb("a"))).0, "172.20.1.4");
    let mut spec = world.bind("172.20.1.6", "p", "y", "y").spec;
    spec.addr = ip("172.20.1.4");
    spec.phase = Phase::Released;
    let version = world.store(spec).version;
    assert_eq!(
        taken(world.decide(&lb("a"))),
        ("172.20.1.4".into(), Why::Fresh, Some(version))
    );
    // Given up for good.
    world
        .ledger
        .abandon(&OwnerId::new("ns", "a"), ip("172.20.1.4"));
    assert_eq!(world.ledger.counts().reserved, 0);
}

#[test]
fn alc_8_bound_at_grows_strictly() {
    let mut ledger = Ledger::new(Settings::default());
    ledger.set_pool(pool("p", &[range("172.20.1.0/24", "", "")]));
    let mut last = Micros::MIN;
    for n in 0..5 {
        let Decision::Take { spec, .. } = ledger.decide(&lb(&format!("a{n}")), Micros(7)) else {
            panic!("not taken");
        };
        assert!(spec.bound_at > last);
        last = spec.bound_at;
    }
}

#[test]
fn sel_1_explicit_pool_is_taken_as_is_and_sel_8_address_stays() {
    let other = PoolSpec {
        selector: Selector::default(),
        ..pool("q", &[range("10.0.0.0/29", "", "")])
    };
    let mut world = World::new(&[pool("p", &[range("172.20.1.0/29", "", "")]), other]);
    assert_eq!(world.ask(&in_pool(lb("a"), "q")), Some(ip("10.0.0.2")));
    // spec.ipPool cleared, and nothing matches any more: nothing moves.
    assert_eq!(world.ask(&lb("a")), Some(ip("10.0.0.2")));
    world.ledger.remove_pool("p");
    assert_eq!(world.ask(&lb("a")), Some(ip("10.0.0.2")));
}

#[test]
fn sel_7_waiting_are_selected_anew_before_anybody_is_served() {
    let mut world = World::new(&[]);
    waits(world.decide(&lb("a")));
    waits(world.decide(&lb("b")));
    world
        .ledger
        .set_pool(pool("p", &[range("172.20.1.0/30", "", "")]));
    // A newcomer comes before the wakes are handled.
    waits(world.decide(&lb("c")));
    assert_eq!(names(world.ledger.take_wakes()), ["a", "b"]);
    assert_eq!(world.ask(&lb("a")), Some(ip("172.20.1.2")));
}

#[test]
fn fairness_enlisted_are_woken_oldest_first() {
    let mut world = World::new(&[pool("p", &[range("172.20.1.0/29", "", "")])]);
    world.bind("172.20.1.4", "p", "holder", "holder-1");
    for (name, created) in [("x", 3), ("y", 1), ("z", 2), ("holder", 9)] {
        world.ledger.enlist(Request {
            created: Micros(created),
            ..lb(name)
        });
    }
    assert_eq!(world.ledger.counts().waiting, 3);
    assert_eq!(names(world.ledger.take_wakes()), ["holder", "y", "z", "x"]);
    assert_eq!(
        world.ask(&Request {
            created: Micros(1),
            ..lb("y")
        }),
        Some(ip("172.20.1.5"))
    );
}

#[test]
fn fairness_a_waiter_that_leaves_lets_the_next_in() {
    let mut world = World::new(&[pool("p", &[range("172.20.1.0/30", "", "")])]);
    world.bind("172.20.1.2", "p", "x", "x");
    waits(world.decide(&lb("a")));
    waits(world.decide(&lb("b")));
    world.delete("x");
    waits(world.decide(&lb("b")));
    assert_eq!(names(world.ledger.take_wakes()), ["a"]);
    world.ledger.withdraw(&OwnerId::new("ns", "a"));
    assert_eq!(names(world.ledger.take_wakes()), ["b"]);
    // Made anew under the same name it is another one, and must not wait for itself.
    assert_eq!(world.ask(&lb_uid("b", "b-2")), Some(ip("172.20.1.2")));
}

#[test]
fn rel_4_moves_and_releases_when_the_service_has_switched() {
    let mut world = World::new(&[
        pool("p", &[range("172.20.1.0/29", "", "")]),
        pool("q", &[range("172.20.2.0/30", "", "")]),
    ]);
    let a = || with_status(lb("a"), "p", "172.20.1.2");
    assert_eq!(world.ask(&in_pool(lb("a"), "p")), Some(ip("172.20.1.2")));
    world
        .ledger
        .set_shown(&lb("a").owner.id, &[ip("172.20.1.2")]);
    let Decision::Take {
        grant,
        spec,
        why,
        surplus,
        ..
    } = world.decide(&in_pool(a(), "q"))
    else {
        panic!("not taken");
    };
    assert_eq!(
        (grant.addr, why, grant.lost),
        (ip("172.20.2.2"), Why::Moved, None)
    );
    assert_eq!(surplus[0].spec.addr, ip("172.20.1.2"));
    world.store(spec);
    let (grant, surplus) = held(world.decide(&in_pool(a(), "q")));
    assert_eq!((grant.addr, surplus.len()), (ip("172.20.2.2"), 1));
    let release = |world: &World| {
        world
            .ledger
            .may_release(ip("172.20.1.2"), &Uid::new("a-1"), Micros(9))
            .map(|it| it.version)
    };
    assert_eq!(
        release(&world),
        Err(Blocked::Shown {
            owner: OwnerId::new("ns", "a")
        })
    );
    world
        .ledger
        .set_shown(&lb("a").owner.id, &[ip("172.20.2.2")]);
    assert_eq!(release(&world), Ok(Version(1)));
}

#[test]
fn rel_4_full_pool_leaves_no_address_and_the_old_record_to_be_released() {
    let mut world = World::new(&[
        pool("p", &[range("172.20.1.0/29", "", "")]),
        pool("q", &[range("172.20.2.0/30", "", "")]),
    ]);
    world.bind("172.20.2.2", "q", "x", "x");
    world.ask(&in_pool(lb("a"), "p"));
    let request = in_pool(with_status(lb("a"), "p", "172.20.1.2"), "q");
    let (reason, _, lost, surplus) = waits(world.decide(&request));
    assert_eq!((reason, lost), (WaitReason::NoAvailableIp, None));
    assert_eq!(surplus[0].spec.addr, ip("172.20.1.2"));
    world.release(ip("172.20.1.2"), "a-1");
    world.delete("x");
    assert_eq!(names(world.ledger.take_wakes()), ["a"]);
    assert_eq!(world.ask(&request), Some(ip("172.20.2.2")));
}

#[test]
fn ipa_1_claims_and_shown_addresses_count_as_taken() {
    let mut world = World::new(&[pool("p", &[range("172.20.1.0/29", "", "")])]);
    world
        .ledger
        .claim(ip("172.20.1.2"), lb("a").owner, Evidence::Status);
    world.ledger.claim(
        ip("172.20.1.3"),
        lb("b").owner,
        Evidence::Trusted("p".into()),
    );
    world.ledger.set_shown(
        &OwnerId::new("ns", "s"),
        &[ip("172.20.1.4"), ip("172.20.1.4")],
    );
    assert!(world.ledger.block_name("172.20.1.5"));
    assert!(!world.ledger.block_name("dhcp-1234"));
    assert_eq!(world.ask(&lb("z")), Some(ip("172.20.1.6")));
    waits(world.decide(&lb("y")));
    assert_eq!(
        taken(world.decide(&lb("a"))),
        ("172.20.1.2".into(), Why::Recorded, None)
    );
    assert_eq!(taken(world.decide(&lb("b"))).0, "172.20.1.3");
    assert_eq!(world.ledger.projection("p").unwrap().available, 4);
    assert_eq!(world.ledger.take_wakes(), []);
    assert!(world.ledger.unblock_name("172.20.1.5"));
    assert_eq!(names(world.ledger.take_wakes()), ["y"]);
}

#[test]
fn ipa_1_unreadable_record_of_its_own_address_makes_it_wait() {
    let mut world = World::example();
    world.ledger.block_name("172.20.1.4");
    let request = with_status(lb("a"), "p", "172.20.1.4");
    let (reason, text, ..) = waits(world.decide(&request));
    assert_eq!(reason, WaitReason::RecordUnreadable);
    assert_eq!(
        text,
        "pool p: IPAllocation 172.20.1.4 cannot be read; repair or delete it"
    );
    assert_eq!(world.ledger.take_wakes(), []);
    assert_eq!(world.ledger.counts().waiting, 1);
    // It stands in nobody's way.
    for name in ["b", "c", "d", "e"] {
        assert!(world.ask(&lb(name)).is_some());
    }
    world.ledger.unblock_name("172.20.1.4");
    assert_eq!(names(world.ledger.take_wakes()), ["a"]);
    assert_eq!(
        taken(world.decide(&request)),
        ("172.20.1.4".into(), Why::Recorded, None)
    );
}

#[test]
fn ipa_1_an_unreadable_record_is_not_released() {
    let mut world = World::example();
    world.bind("172.20.1.4", "p", "a", "a-1");
    world.ledger.block_name("172.20.1.4");
    let release = |world: &World| {
        let uid = Uid::new("a-1");
        world.ledger.may_release(ip("172.20.1.4"), &uid, Micros(5))
    };
    assert_eq!(release(&world), Err(Blocked::Unreadable));
    world.ledger.unblock_name("172.20.1.4");
    assert!(release(&world).is_ok());
}

#[test]
fn alc_5_nobody_waits_behind_one_that_does_not_ask() {
    let mut world = World::new(&[pool("p", &[range("172.20.1.0/30", "", "")])]);
    assert!(world.ask(&lb("holder")).is_some());
    waits(world.decide(&lb("a")));
    waits(world.decide(&lb("b")));
    // `a` was edited so that it cannot be served: it keeps what it claims, but not its place.
    world.ledger.dequeue(&OwnerId::new("ns", "a"));
    world.delete("holder");
    assert_eq!(names(world.ledger.take_wakes()), ["b"]);
    assert_eq!(world.ask(&lb("b")), Some(ip("172.20.1.2")));
}

#[test]
fn ipa_3_release_touches_only_the_uid_that_went() {
    let mut world = World::example();
    world.bind("172.20.1.4", "p", "a", "new");
    let id = OwnerId::new("ns", "a");
    let release = |world: &World, uid| {
        world
            .ledger
            .may_release(ip("172.20.1.4"), &Uid::new(uid), Micros(5))
            .map(|it| it.spec)
    };
    assert_eq!(
        release(&world, "old"),
        Err(Blocked::OtherOwner { owner: id.clone() })
    );
    world.ledger.set_shown(&id, &[ip("172.20.1.4")]);
    assert_eq!(
        release(&world, "new"),
        Err(Blocked::Shown { owner: id.clone() })
    );
    world.ledger.set_shown(&id, &[]);
    let spec = release(&world, "new").unwrap();
    assert_eq!(
        (spec.phase, spec.released_at),
        (Phase::Released, Some(Micros(5)))
    );
    world.store(spec);
    assert_eq!(release(&world, "new"), Err(Blocked::NotBound));
    assert_eq!(
        world
            .ledger
            .may_release(ip("172.20.1.5"), &Uid::new("new"), Micros(5)),
        Err(Blocked::NoRecord)
    );
}

#[test]
fn ipa_4_overlapping_pools_share_each_address() {
    let old = pool("z-old", &[range("172.20.1.0/29", "", "")]);
    let young = PoolSpec {
        created: Micros(1),
        ..pool("a-young", &[range("172.20.1.0/30", "", "")])
    };
    let mut world = World::new(&[young, old]);
    assert_eq!(world.ledger.overlaps("a-young").as_deref(), Some("z-old"));
    assert_eq!(world.ledger.overlaps("z-old"), None);
    assert_eq!(
        world.ask(&in_pool(lb("a"), "z-old")),
        Some(ip("172.20.1.2"))
    );
    let view = world.ledger.projection("a-young").unwrap();
    assert_eq!((view.total, view.available, view.allocated_len), (1, 0, 0));
    waits(world.decide(&in_pool(lb("b"), "a-young")));
    world.delete("a");
    assert_eq!(names(world.ledger.take_wakes()), ["b"]);
    assert_eq!(
        world.ask(&in_pool(lb("b"), "a-young")),
        Some(ip("172.20.1.2"))
    );
    assert_eq!(world.map("z-old", true), "");
}

#[test]
fn ipa_6_several_records_keep_the_named_else_the_lowest() {
    let mut world = World::example();
    for addr in ["172.20.1.5", "172.20.1.3", "172.20.1.4"] {
        world.bind(addr, "p", "a", "a-1");
    }
    let (grant, surplus) = held(world.decide(&lb("a")));
    assert_eq!(grant.addr, ip("172.20.1.3"));
    let surplus: Vec<_> = surplus.iter().map(|record| record.spec.addr).collect();
    assert_eq!(surplus, [ip("172.20.1.4"), ip("172.20.1.5")]);
    let (grant, _) = held(world.decide(&with_status(lb("a"), "p", "172.20.1.4")));
    assert_eq!((grant.addr, grant.lost), (ip("172.20.1.4"), None));
}

#[test]
fn ipa_6_late_record_of_a_waiter_serves_it() {
    let mut world = World::example();
    assert_eq!(taken(world.decide(&lb("a"))).0, "172.20.1.2");
    world.ledger.abandon(&lb("a").owner.id, ip("172.20.1.2"));
    world.bind("172.20.1.2", "p", "a", "a-1");
    assert_eq!(held(world.decide(&lb("a"))).0.addr, ip("172.20.1.2"));
}

#[test]
fn ipa_7_edit_or_deletion_of_the_pool_keeps_the_address() {
    let mut world = World::example();
    world.ask(&lb("a"));
    world.ledger.set_pool(pool(
        "p",
        &[range("172.20.1.0/24", "172.20.1.100", "172.20.1.109")],
    ));
    let (grant, _) = held(world.decide(&lb("a")));
    assert!(grant.out_of_pool);
    assert_eq!(grant.mask.as_deref(), Some("255.255.255.0"));
    assert_eq!(world.ledger.out_of_pool("p")[0].spec.addr, ip("172.20.1.2"));
    let view = world.ledger.projection("p").unwrap();
    assert_eq!(
        (view.total, view.available, view.allocated_len),
        (10, 10, 1)
    );
    assert_eq!(world.map("p", false), "2=a");
    world.ledger.remove_pool("p");
    let (grant, _) = held(world.decide(&lb("a")));
    assert_eq!(
        (grant.out_of_pool, grant.mask, grant.gateway),
        (true, None, None)
    );
    assert!(world.ledger.projection("p").is_none());
    assert_eq!(world.ledger.out_of_pool("p").len(), 1);
    world
        .ledger
        .set_pool(pool("p", &[range("172.20.1.0/29", "", "")]));
    assert!(!held(world.decide(&lb("a"))).0.out_of_pool);
    assert_eq!(world.ledger.projection("p").unwrap().available, 4);
}

#[test]
fn ipa_7_gateway_moved_onto_an_address() {
    let mut world = World::example();
    world.ask(&lb("a"));
    let mut moved = range("172.20.1.0/29", "", "");
    moved.gateway = Some("172.20.1.2".into());
    world.ledger.set_pool(pool("p", &[moved]));
    assert!(held(world.decide(&lb("a"))).0.out_of_pool);
    assert_eq!(world.ledger.projection("p").unwrap().available, 5);
}

#[test]
fn ipa_7_record_deleted_by_hand_is_made_again() {
    let mut world = World::new(&[pool("p", &[range("172.20.1.0/30", "", "")])]);
    world.ask(&lb("a"));
    waits(world.decide(&lb("b")));
    world.ledger.take_wakes();
    world.ledger.remove_pool("p");
    world.ledger.take_wakes();
    world.ledger.forget(ip("172.20.1.2"), Version(50));
    world.version = 60;
    assert!(names(world.ledger.take_wakes()).contains(&"a".to_owned()));
    assert_eq!(
        taken(world.decide(&lb("a"))),
        ("172.20.1.2".into(), Why::Recorded, None)
    );
    // Its owner is gone: the address is free.
    world
        .ledger
        .set_pool(pool("p", &[range("172.20.1.0/30", "", "")]));
    waits(world.decide(&lb("b")));
    world.ledger.take_wakes();
    world.ledger.withdraw(&lb("a").owner.id);
    assert_eq!(names(world.ledger.take_wakes()), ["b"]);
}

#[test]
fn observe_ignores_what_is_older() {
    let mut world = World::example();
    let first = world.bind("172.20.1.4", "p", "a", "a-1");
    let second = world.bind("172.20.1.4", "p", "b", "b-1");
    assert!(!world.ledger.observe(first.clone()));
    assert_eq!(world.ledger.record(ip("172.20.1.4")), Some(second.clone()));
    world.ledger.forget(ip("172.20.1.4"), first.version);
    assert!(
        world.ledger.record(ip("172.20.1.4")).is_some(),
        "a later one was created since"
    );
    world.ledger.forget(ip("172.20.1.4"), Version(10));
    assert!(
        !world.ledger.observe(second),
        "the late answer of a write before the deletion"
    );
    assert!(world.ledger.record(ip("172.20.1.4")).is_none());
}

#[test]
fn pool_1_history_is_bounded_oldest_first() {
    let mut ledger = Ledger::new(Settings {
        history_per_pool: 3,
        history_total: 4,
    });
    for name in ["p", "q"] {
        let subnet = if name == "p" {
            "10.0.1.0/24"
        } else {
            "10.0.2.0/24"
        };
        ledger.set_pool(pool(name, &[range(subnet, "", "")]));
    }
    let mut add = |pool: &str, addr: &str, released: i64| {
        let spec = RecordSpec {
            addr: ip(addr),
            pool: pool.into(),
            owner: Owner::new("ns", "x", "x"),
            phase: Phase::Released,
            bound_at: Micros(0),
            released_at: Some(Micros(released)),
        };
        assert!(ledger.observe(Record {
            spec,
            version: Version(1)
        }));
    };
    for n in 0..5 {
        add("p", &format!("10.0.1.{}", 20 - n), 100 + n);
    }
    add("q", "10.0.2.2", 50);
    add("q", "10.0.2.3", 200);
    add("q", "10.0.9.9", 300);
    let excess: Vec<_> = ledger
        .history_excess(99)
        .iter()
        .map(|record| record.spec.addr.to_string())
        .collect();
    assert_eq!(excess, ["10.0.1.19", "10.0.1.20", "10.0.2.2", "10.0.9.9"]);
    assert_eq!(ledger.history_excess(1).len(), 1);
    ledger.set_pool(pool("q", &[range("10.0.2.0/24", "x", "")]));
    let excess: Vec<_> = ledger
        .history_excess(99)
        .iter()
        .map(|record| record.spec.addr.to_string())
        .collect();
    assert_eq!(excess, ["10.0.1.18", "10.0.1.19", "10.0.1.20", "10.0.2.2"]);
    ledger.remove_pool("q");
    assert_eq!(ledger.history_excess(99).len(), 5);
}

#[test]
fn rng_8_a_huge_pool_costs_no_more() {
    for (subnet, first) in [("fd10:5::/64", "fd10:5::2"), ("10.0.0.0/8", "10.0.0.2")] {
        let mut world = World::new(&[pool("p", &[range(subnet, "", "")])]);
        let total = world.ledger.projection("p").unwrap().total;
        assert_eq!(world.ask(&lb("a")), Some(ip(first)));
        assert_eq!(world.ledger.projection("p").unwrap().available, total - 1);
    }
}

#[test]
fn tidy_forgets_missing_pools_that_nobody_names_any_more() {
    let mut world = World::new(&[]);
    for n in 0..100 {
        waits(world.decide(&in_pool(lb("a"), &format!("missing{n}"))));
    }
    assert!(world.ledger.pools.all().len() <= 2);
    assert_eq!(
        world.ledger.counts(),
        Counts {
            waiting: 1,
            ..Counts::default()
        }
    );
}
