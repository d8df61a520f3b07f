use super::*;
use harvester_lb_api::{IPAllocation, IPPool, keys, projection};
use harvester_lb_ipam::{Ledger, Settings};
use serde_json::{Value, json};

fn pool(value: Value) -> Pool {
    Pool::valid(serde_json::from_value::<IPPool>(value).unwrap())
}

fn spec_of(value: Value) -> PoolSpec {
    pool_spec(&"p".into(), &pool(value))
}

fn ranges() -> Value {
    json!([
        {"subnet": "172.20.1.0/24", "rangeStart": "172.20.1.10", "rangeEnd": "172.20.1.11", "gateway": "172.20.1.9"},
        {"subnet": "172.20.2.0/30"},
    ])
}

#[test]
fn section_2_2_the_ranges_as_written() {
    let spec = spec_of(json!({
        "metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"ranges": ranges()},
    }));
    assert_eq!(&*spec.name, "p");
    assert_eq!(spec.created, Micros(1_767_225_600_000_000));
    assert_eq!(spec.last_allocated, None);
    let parsed = PoolRanges::parse(&[
        harvester_lb_ipam::RangeSpec {
            subnet: "172.20.1.0/24".into(),
            start: Some("172.20.1.10".into()),
            end: Some("172.20.1.11".into()),
            gateway: Some("172.20.1.9".into()),
        },
        harvester_lb_ipam::RangeSpec {
            subnet: "172.20.2.0/30".into(),
            ..harvester_lb_ipam::RangeSpec::default()
        },
    ]);
    assert!(parsed.is_ok());
    assert_eq!(spec.ranges, parsed);
}

#[test]
fn pool_2_ranges_that_cannot_be_are_kept_as_an_error() {
    let spec = spec_of(json!({"metadata": {"name": "p"}, "spec": {"ranges": [{"subnet": "x"}]}}));
    assert!(spec.ranges.is_err());
    let undecodable = Pool {
        spec: Err("why".into()),
        ..pool(json!({"metadata": {"name": "p"}, "spec": {"ranges": ranges()}}))
    };
    let spec = pool_spec(&"p".into(), &undecodable);
    assert!(spec.ranges.is_err());
    assert_eq!(spec.selector, Selector::default());
    assert_eq!(spec.withheld, Some(Withheld::Undecodable("why".to_owned())));
}

#[test]
fn ipa_9_a_pool_with_exclusions_hands_out_nothing_new() {
    let withheld = |list: &str| {
        spec_of(json!({
            "metadata": {"name": "p", "annotations": { keys::ANNOTATION_EXCLUDE: list }},
            "spec": {"ranges": ranges()},
        }))
        .withheld
    };
    let expected = Some(Withheld::Unsupported(keys::ANNOTATION_EXCLUDE));
    assert_eq!(withheld("172.20.1.10"), expected);
    assert_eq!(withheld("nonsense"), expected);
    assert_eq!(withheld(" "), None);
}

#[test]
fn run_1_a_pool_is_not_written_before_all_it_says_is_imported() {
    let mut lead = lead();
    let spec = |addr: &str, pool: &str| RecordSpec {
        addr: addr.parse().unwrap(),
        pool: pool.into(),
        owner: harvester_lb_ipam::Owner::new("ns", "a", "a-1"),
        phase: Phase::Bound,
        bound_at: Micros(1),
        released_at: None,
    };
    let (of_p, of_q) = (spec("172.20.2.2", "p"), spec("172.20.3.2", "q"));
    lead.import([of_p.clone(), of_q.clone()]);
    assert_eq!(lead.unimported("p"), std::slice::from_ref(&of_p));
    assert_eq!(
        lead.unimported_pools(),
        BTreeSet::from(["p".into(), "q".into()])
    );
    lead.imported(of_p.addr);
    assert!(lead.unimported("p").is_empty());
    let dirty: Vec<PoolName> = lead
        .take_dirty()
        .into_iter()
        .map(|(pool, _)| pool)
        .collect();
    assert_eq!(dirty, ["p".into()], "now its status may be written");
    assert_eq!(lead.unimported("q"), [of_q]);
}

#[test]
fn run_1_an_address_that_is_not_imported_yet_stays_taken() {
    let mut lead = lead();
    let range = harvester_lb_ipam::RangeSpec {
        subnet: "172.20.2.2/32".to_owned(),
        start: None,
        end: None,
        gateway: None,
    };
    lead.ledger.set_pool(PoolSpec {
        name: "p".into(),
        created: Micros(0),
        ranges: PoolRanges::parse(&[range]),
        selector: Selector::default(),
        withheld: None,
        last_allocated: None,
    });
    let holder = harvester_lb_ipam::Owner::new("ns", "a", "a-1");
    let asks = harvester_lb_ipam::Owner::new("ns", "b", "b-1");
    let addr: IpAddr = "172.20.2.2".parse().unwrap();
    let of_map = RecordSpec {
        addr,
        pool: "p".into(),
        owner: holder.clone(),
        phase: Phase::Bound,
        bound_at: Micros(1),
        released_at: None,
    };
    lead.import([of_map]);
    // Its holder is on its way out, or wants an address of another pool: its claim is gone.
    lead.ledger.withdraw(&holder.id);
    assert!(!lead.keep_unimported(addr, &holder), "its own");
    assert!(lead.keep_unimported(addr, &asks));
    let request = Request {
        owner: asks.clone(),
        created: Micros(2),
        pool: Some("p".into()),
        requirement: harvester_lb_ipam::Requirement::default(),
        workload: harvester_lb_ipam::Workload::Cluster,
        status: None,
    };
    let waits = |lead: &mut Lead| {
        let decision = lead.ledger.decide(&request, Micros(3));
        matches!(decision, harvester_lb_ipam::Decision::Wait { .. })
    };
    assert!(waits(&mut lead), "its one address is taken");
    lead.imported(addr);
    assert!(!lead.keep_unimported(addr, &asks), "now its record says so");
}

#[test]
fn gc_2_the_removals_that_are_remembered_are_bounded() {
    let mut lead = lead();
    for n in 0..REMOVED_CLUSTERS + 5 {
        let at = Micros(i64::try_from(n).unwrap());
        lead.guest_cluster_removed(&Key::new("ns", format!("gc{n}")), at);
    }
    assert_eq!(lead.removed_clusters.len(), REMOVED_CLUSTERS);
    assert!(!lead.removed_clusters.contains_key(&Key::new("ns", "gc4")));
    let last = Key::new("ns", format!("gc{}", REMOVED_CLUSTERS + 4));
    lead.guest_cluster_removed(&last, Micros(0));
    let at = i64::try_from(REMOVED_CLUSTERS + 4).unwrap();
    assert_eq!(
        lead.removed_clusters[&last],
        Micros(at),
        "the last one counts"
    );
}

#[test]
fn section_2_2_defaults_of_the_selector() {
    let selector = |value: Value| {
        spec_of(json!({"metadata": {"name": "p"}, "spec": {"ranges": ranges(), "selector": value}}))
            .selector
    };
    let expected = |priority, network: &str, scope: Vec<Tuple>| Selector {
        priority,
        network: network.into(),
        scope,
    };
    let cases = [
        ("absent", json!(null), expected(0, "", vec![])),
        ("empty", json!({}), expected(0, "", vec![])),
        (
            "absent parts of a tuple are empty",
            json!({"priority": 5, "network": "net/v20", "scope": [{}, {"namespace": "shop"}]}),
            expected(
                5,
                "net/v20",
                vec![Tuple::default(), Tuple::new("", "shop", "")],
            ),
        ),
        (
            "each part in its place",
            json!({"scope": [{"project": "p1", "namespace": "shop", "guestCluster": "gc1"}]}),
            expected(0, "", vec![Tuple::new("p1", "shop", "gc1")]),
        ),
        (
            "below the schema",
            json!({"priority": -1}),
            expected(0, "", vec![]),
        ),
        (
            "above the schema",
            json!({"priority": i64::MAX}),
            expected(u32::MAX, "", vec![]),
        ),
    ];
    for (what, value, wanted) in cases {
        assert_eq!(selector(value), wanted, "{what}");
    }
}

#[test]
fn alc_3_last_allocated_of_our_own_status_is_behind_every_record() {
    let last = |annotation: Option<String>, last: &str| {
        spec_of(json!({
            "metadata": {"name": "p", "annotations": annotation.map(|a| json!({keys::ANNOTATION_PROJECTION: a}))},
            "spec": {"ranges": ranges()},
            "status": {"total": 3, "available": 3, "lastAllocated": last},
        }))
        .last_allocated
    };
    let addr = "172.20.1.10".parse().unwrap();
    let ours = projection::digest(None, None);
    assert_eq!(
        last(Some(ours.clone()), "172.20.1.10"),
        Some((addr, Micros::MIN))
    );
    for (what, annotation) in [("absent", None), ("another", Some("0".repeat(16)))] {
        let (found, as_of) = last(annotation, "172.20.1.10").unwrap();
        assert_eq!(found, addr, "{what}");
        assert!(
            as_of > Micros(0),
            "{what}: somebody else's is of the present"
        );
    }
    for text in ["", "x", "172.20.1.10/24"] {
        assert_eq!(last(Some(ours.clone()), text), None, "{text:?}");
    }
}

/// A leader that knows the pool `p` of 172.20.2.2 alone.
fn lead() -> Lead {
    let mut lead = Lead::new(Ledger::new(Settings::default()));
    let object =
        json!({"metadata": {"name": "p"}, "spec": {"ranges": [{"subnet": "172.20.2.0/30"}]}});
    lead.set_pool(&Key::new("", "p"), &pool(object));
    lead.take_dirty();
    lead
}

/// The record of 172.20.2.2 in a version; one that bears another name cannot be read.
fn allocation(version: u64, phase: &str, is_readable: bool) -> Allocation {
    let name = if is_readable {
        "172.20.2.2"
    } else {
        "172.20.2.3"
    };
    let object: IPAllocation = serde_json::from_value(json!({
        "metadata": {"name": name, "uid": "r", "resourceVersion": version.to_string()},
        "spec": {
            "address": "172.20.2.2", "pool": "p", "owner": {"namespace": "n", "name": "a", "uid": "u"},
            "phase": phase, "boundAt": "2026-01-01T00:00:00.000001Z",
        },
    }))
    .unwrap();
    Allocation::decoded(&object)
}

#[test]
fn pool_3_a_pool_that_is_empty_or_full_is_told_apart() {
    let mut lead = lead();
    for (version, phase) in [(1, "Bound"), (2, "Released")] {
        lead.observe_allocation("172.20.2.2", &allocation(version, phase, true));
        assert_eq!(lead.take_dirty(), [("p".into(), true)], "{phase}");
    }
    let object =
        json!({"metadata": {"name": "p"}, "spec": {"ranges": [{"subnet": "172.20.2.0/29"}]}});
    lead.set_pool(&Key::new("", "p"), &pool(object));
    lead.observe_allocation("172.20.2.2", &allocation(3, "Bound", true));
    assert_eq!(lead.take_dirty(), [("p".into(), false)], "one of five");
}

/// A live read may be overtaken by the watch.
#[test]
fn ipa_1_an_unreadable_copy_from_before_blocks_nothing() {
    let mut lead = lead();
    lead.observe_allocation("172.20.2.2", &allocation(6, "Bound", true));
    let unreadable = allocation(5, "Bound", false);
    assert!(matches!(unreadable, Allocation::Unreadable { .. }));
    lead.observe_allocation("172.20.2.2", &unreadable);
    assert_eq!(lead.ledger.counts().blocked, 0);
    lead.observe_allocation("172.20.2.2", &allocation(7, "Bound", false));
    assert_eq!(lead.ledger.counts().blocked, 1);
    lead.forget("172.20.2.2", harvester_lb_ipam::Version(7));
    assert_eq!(lead.ledger.counts().blocked, 0);
}
