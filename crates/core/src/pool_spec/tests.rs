use super::*;
use harvester_lb_api::{IPPool, keys, projection};
use serde_json::{Value, json};

/// Later than anything in these tests.
const NOW: Micros = Micros(2_000_000_000_000_000);

fn pool(value: Value) -> Pool {
    Pool::valid(serde_json::from_value::<IPPool>(value).unwrap())
}

fn spec_of(value: Value) -> PoolSpec {
    pool_spec(&"p".into(), &pool(value), NOW)
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
    let spec = pool_spec(&"p".into(), &undecodable, NOW);
    assert!(spec.ranges.is_err());
    assert_eq!(spec.selector, Selector::default());
    assert_eq!(spec.withheld, Some(Withheld::Undecodable("why".to_owned())));
}

#[test]
fn exc_1_the_list_of_exclusions_is_a_part_of_the_spec() {
    let of = |list: Option<&str>, ranges: Value| {
        let mut pool = json!({"metadata": {"name": "p"}, "spec": {"ranges": ranges}});
        if let Some(list) = list {
            pool["metadata"]["annotations"] = json!({ keys::ANNOTATION_EXCLUDE: list });
        }
        spec_of(pool)
    };
    let range = |start: &str, end: &str| json!([{"subnet": "10.0.0.0/16", "rangeStart": start, "rangeEnd": end}]);
    let all = range("10.0.0.5", "10.0.1.5");
    let accepted = "10.0.0.5, 10.0.0.8-10.0.0.12,10.0.1.0/28";
    for (list, total) in [(None, 257), (Some(" "), 257), (Some(accepted), 245)] {
        let spec = of(list, all.clone());
        assert_eq!(spec.withheld, None, "{list:?}");
        assert_eq!(spec.ranges.unwrap().total(), total, "{list:?}");
    }
    for list in ["nonsense", "10.0.0.5-fd10::5", "10.0.0.9-10.0.0.8"] {
        let spec = of(Some(list), all.clone());
        let error = Exclusions::parse(list).unwrap_err();
        assert_eq!(spec.withheld, Some(Withheld::InvalidExclude(error)));
        // What is excluded is not known.
        assert_eq!(spec.ranges.unwrap().total(), 257, "{list}");
    }
    let spec = of(Some(accepted), range("x", ""));
    assert!(spec.ranges.is_err() && spec.withheld.is_none());
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
