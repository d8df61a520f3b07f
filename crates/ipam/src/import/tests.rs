use super::*;
use crate::ledger::Settings;
use crate::ledger::{AllocationReason, Decision, PoolSpec, Request};
use crate::range::{PoolRanges, RangeSpec};
use crate::select::{Requirement, Selector, Tuple, Workload};
use crate::types::Record;
use harvester_lb_object::Version;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn ledger() -> Ledger {
    let mut ledger = Ledger::new(Settings::default());
    for (name, subnet, scope) in [
        ("p", "10.0.1.0/28", "*"),
        ("q", "10.0.2.0/28", "nobody"),
        ("old", "10.0.1.0/29", "nobody"),
    ] {
        let spec = RangeSpec {
            subnet: subnet.into(),
            ..RangeSpec::default()
        };
        ledger.set_pool(PoolSpec {
            name: name.into(),
            created: Micros(0),
            ranges: PoolRanges::parse(&[spec]),
            selector: Selector {
                scope: vec![Tuple::new(scope, scope, scope)],
                ..Selector::default()
            },
            withheld: None,
            last_allocated: None,
        });
    }
    ledger
}

fn maps(name: &str, allocated: &[(&str, &str)], history: &[(&str, &str)]) -> PoolMaps {
    let own = |map: &[(&str, &str)]| {
        map.iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    };
    let created = Micros(i64::from(name != "old"));
    PoolMaps {
        name: name.into(),
        created,
        allocated: own(allocated),
        history: own(history),
    }
}

fn lb(name: &str, created: i64, status: &str) -> ExistingLb {
    ExistingLb {
        owner: Owner::new("ns", name, name),
        created: Micros(created),
        status: (!status.is_empty()).then(|| StatusAddress {
            pool: Some("p".into()),
            addr: ip(status),
        }),
        wants: true,
    }
}

fn bound(ledger: &mut Ledger, addr: &str, name: &str, phase: Phase) {
    let spec = RecordSpec {
        addr: ip(addr),
        pool: "p".into(),
        owner: Owner::new("ns", name, name),
        phase,
        bound_at: Micros(1),
        released_at: None,
        group: None,
    };
    assert!(ledger.observe(Record {
        spec,
        version: Version(1)
    }));
}

fn make(ledger: &Ledger, maps: &[PoolMaps], existing: &[ExistingLb]) -> Plan {
    plan(ledger, maps, existing, Micros(77))
}

fn claims(plan: &Plan) -> Vec<(String, String, bool)> {
    plan.claims
        .iter()
        .map(|claim| {
            let trusted = matches!(claim.evidence, Evidence::Trusted(_));
            (
                claim.addr.to_string(),
                claim.owner.id.name().to_owned(),
                trusted,
            )
        })
        .collect()
}

fn released(plan: &Plan) -> Vec<(String, String)> {
    let show = |spec: &RecordSpec| (spec.addr.to_string(), spec.owner.id.name().to_owned());
    plan.released.iter().map(show).collect()
}

fn claim(addr: &str, name: &str, trusted: bool) -> (String, String, bool) {
    (addr.into(), name.into(), trusted)
}

#[test]
fn ipa_1_swap_from_the_go_operator() {
    let ledger = ledger();
    let maps = [maps(
        "p",
        &[
            ("10.0.1.2", "ns/a"),
            ("10.0.1.3", "ns/dead"),
            ("10.0.1.4", "ns/c"),
            ("10.0.9.9", "ns/d"),
        ],
        &[
            ("10.0.1.5", "ns/gone"),
            ("10.0.1.2", "ns/before"),
            ("10.0.8.8", "ns/far"),
        ],
    )];
    let existing = [
        lb("a", 1, "10.0.1.2"),
        lb("b", 2, "10.0.1.6"),
        lb("c", 3, ""),
        lb("d", 4, "10.0.9.9"),
        ExistingLb {
            wants: false,
            ..lb("dhcp", 5, "10.0.1.7")
        },
    ];
    let plan = make(&ledger, &maps, &existing);
    assert_eq!(
        claims(&plan),
        [
            claim("10.0.1.2", "a", true),
            claim("10.0.1.4", "c", true),
            claim("10.0.1.6", "b", false),
            claim("10.0.9.9", "d", true),
        ]
    );
    assert_eq!(plan.losers, []);
    let remembered =
        [("10.0.1.3", "dead"), ("10.0.1.5", "gone")].map(|(a, n)| (a.to_owned(), n.to_owned()));
    assert_eq!(released(&plan), remembered);
    let spec = &plan.released[0];
    assert_eq!(
        (spec.bound_at, spec.released_at),
        (Micros(0), Some(Micros(77)))
    );
    assert!(spec.owner.uid.is_empty() && spec.phase == Phase::Released);
    let skipped: Vec<_> = plan
        .skipped
        .iter()
        .map(|it| (it.key.as_str(), it.reason))
        .collect();
    assert_eq!(skipped, [("10.0.8.8", SkipReason::OutOfRange)]);
}

#[test]
fn ipa_1_claims_turn_into_records() {
    let mut ledger = ledger();
    let maps = [maps(
        "q",
        &[("10.0.2.4", "ns/a"), ("10.0.9.9", "ns/b")],
        &[],
    )];
    let existing = [
        lb("a", 1, ""),
        lb("b", 2, ""),
        lb("c", 3, "10.0.1.9"),
        lb("d", 4, "10.0.2.9"),
    ];
    let plan = make(&ledger, &maps, &existing);
    for NewClaim {
        addr,
        owner,
        evidence,
    } in plan.claims
    {
        ledger.claim(addr, owner, evidence);
    }
    // An address that a map names stays in its pool, although section 5 would choose p now (SEL-8). One
    // that only a status names must be in the pool that section 5 chooses (ALC-7).
    for (lb, addr, reason) in [
        (0, "10.0.2.4", AllocationReason::Recorded),
        (1, "10.0.9.9", AllocationReason::Recorded),
        (2, "10.0.1.9", AllocationReason::Recorded),
        (3, "10.0.1.2", AllocationReason::Fresh),
    ] {
        let request = Request {
            owner: existing[lb].owner.clone(),
            created: existing[lb].created,
            pool: None,
            requirement: Requirement::default(),
            workload: Workload::Vm,
            status: existing[lb].status.clone(),
            requested: None,
        };
        match ledger.decide(&request, Micros(100)) {
            Decision::Take {
                grant, reason: got, ..
            } => {
                assert_eq!((grant.addr, got), (ip(addr), reason));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn ipa_2_several_claimants() {
    // The owner in the IPAllocation wins over all that name the address.
    let mut with_record = ledger();
    bound(&mut with_record, "10.0.1.2", "b", Phase::Bound);
    let existing = [
        lb("a", 1, "10.0.1.2"),
        lb("b", 2, "10.0.1.2"),
        lb("c", 0, "10.0.1.2"),
    ];
    let in_map = [maps("p", &[("10.0.1.2", "ns/a")], &[])];
    let plan = make(&with_record, &in_map, &existing);
    assert_eq!(claims(&plan), []);
    let losers = |plan: &Plan| -> Vec<String> {
        let mut names: Vec<_> = plan
            .losers
            .iter()
            .map(|it| format!("{}<{}", it.owner.id.name(), it.keeper.name()))
            .collect();
        names.sort();
        names
    };
    assert_eq!(losers(&plan), ["a<b", "c<b"]);
    // Else the owner in the map.
    let plan = make(&ledger(), &in_map, &existing);
    assert_eq!(claims(&plan), [claim("10.0.1.2", "a", true)]);
    assert_eq!(losers(&plan), ["b<a", "c<a"]);
    // Else the oldest load balancer.
    let plan = make(&ledger(), &[], &existing);
    assert_eq!(claims(&plan), [claim("10.0.1.2", "c", false)]);
    assert_eq!(losers(&plan), ["a<c", "b<c"]);
}

#[test]
fn ipa_2_a_map_entry_of_one_that_lives_elsewhere_is_a_leftover() {
    let in_map = [maps(
        "p",
        &[
            ("10.0.1.2", "ns/a"),
            ("10.0.1.3", "ns/a"),
            ("10.0.1.4", "ns/a"),
        ],
        &[],
    )];
    // a shows .3; x, whose status alone names .2, keeps that.
    let plan = make(
        &ledger(),
        &in_map,
        &[lb("a", 1, "10.0.1.3"), lb("x", 2, "10.0.1.2")],
    );
    assert_eq!(
        claims(&plan),
        [claim("10.0.1.2", "x", false), claim("10.0.1.3", "a", true)]
    );
    assert_eq!(released(&plan), [("10.0.1.4".into(), "a".into())]);
    // Without a status the lowest is kept, and a status of another does not take it away.
    let plan = make(
        &ledger(),
        &in_map,
        &[lb("a", 9, ""), lb("x", 2, "10.0.1.2")],
    );
    assert_eq!(claims(&plan), [claim("10.0.1.2", "a", true)]);
    assert_eq!(plan.losers[0].owner.id.name(), "x");
    assert_eq!(released(&plan).len(), 2);
    // A load balancer with a record gets no claim.
    let mut with_record = ledger();
    bound(&mut with_record, "10.0.1.9", "a", Phase::Bound);
    let plan = make(&with_record, &in_map, &[lb("a", 9, "10.0.1.2")]);
    assert_eq!(claims(&plan), []);
    assert_eq!(released(&plan).len(), 3);
}

#[test]
fn ipa_1_one_record_for_an_address_of_two_pools() {
    let both = [
        maps("p", &[("10.0.1.2", "ns/x")], &[("10.0.1.3", "ns/x")]),
        maps("old", &[("10.0.1.3", "ns/z")], &[("10.0.1.2", "ns/y")]),
    ];
    let plan = make(&ledger(), &both, &[]);
    let mut specs: Vec<_> = plan
        .released
        .iter()
        .map(|it| format!("{} {} {}", it.addr, it.pool, it.owner.id.name()))
        .collect();
    specs.sort();
    assert_eq!(specs, ["10.0.1.2 p x", "10.0.1.3 old z"]);
    // An existing record is left alone.
    let mut with_record = ledger();
    bound(&mut with_record, "10.0.1.2", "w", Phase::Released);
    assert_eq!(make(&with_record, &both, &[]).released.len(), 1);
}

#[test]
fn pool_2_garbage_in_the_maps_is_named() {
    let bad = [maps(
        "p",
        &[("10.0.1", "ns/a"), ("10.0.1.2", "a"), (" 10.0.1.3", "ns/a")],
        &[("", ""), ("10.0.1.1", "ns/gateway")],
    )];
    let plan = make(&ledger(), &bad, &[]);
    let skipped: Vec<_> = plan
        .skipped
        .iter()
        .map(|it| (it.key.as_str(), it.field, it.reason))
        .collect();
    assert_eq!(
        skipped,
        [
            ("10.0.1", MapField::Allocated, SkipReason::NotAnAddress),
            ("10.0.1.2", MapField::Allocated, SkipReason::NotAnOwner),
            (" 10.0.1.3", MapField::Allocated, SkipReason::NotAnAddress),
            ("", MapField::History, SkipReason::NotAnAddress),
            ("10.0.1.1", MapField::History, SkipReason::OutOfRange),
        ]
    );
    assert_eq!(plan.released, []);
}

#[test]
fn ipa_1_history_within_the_settings() {
    let entries: Vec<_> = (2..8)
        .map(|n| (format!("10.0.1.{n}"), "ns/x".to_owned()))
        .collect();
    let maps = [PoolMaps {
        name: "p".into(),
        created: Micros(0),
        allocated: Vec::new(),
        history: entries,
    }];
    let mut ledger = ledger();
    ledger.settings = Settings {
        history_per_pool: 4,
        history_total: 3,
    };
    let plan = plan(&ledger, &maps, &[], Micros(1));
    assert_eq!((plan.released.len(), plan.skipped.len()), (3, 3));
    assert!(
        plan.skipped
            .iter()
            .all(|it| it.reason == SkipReason::HistoryFull)
    );
}
