use super::*;
use crate::pool_spec::pool_spec;
use crate::status::event_drafts;
use harvester_lb_fixtures::{self as fixtures, subnet as range};
use harvester_lb_ipam::{Micros, Owner, Phase, Record, RecordSpec, Settings};

/// Later than anything in these tests.
const NOW: Micros = Micros(2_000_000_000_000_000);
const T1: &str = "2026-01-01T00:00:00Z";
const T2: &str = "2026-01-01T00:00:05Z";

fn stored(value: Value) -> Pool {
    Pool::valid(serde_json::from_value(value).unwrap())
}

/// A pool without a status.
fn fresh(name: &str, subnet: &str, created: &str) -> Pool {
    let mut pool = fixtures::stored(fixtures::pool(name, &[range(subnet)]), "u-pool", 7);
    pool["metadata"]["creationTimestamp"] = created.into();
    stored(pool)
}

fn example() -> Pool {
    fresh("p", "172.20.1.0/29", "2026-01-01T00:00:00Z")
}

fn ledger(pools: &[(&str, &Pool)]) -> Ledger {
    let mut ledger = Ledger::new(Settings::default());
    for (name, pool) in pools {
        ledger.set_pool(pool_spec(&(*name).into(), pool, NOW));
    }
    ledger
}

/// A record of the pool `p`; Released if a release time is given.
fn record(addr: &str, owner: &str, bound_at: i64, released_at: Option<i64>) -> Record {
    Record {
        spec: RecordSpec {
            addr: addr.parse().unwrap(),
            pool: "p".into(),
            owner: Owner::new("shop", owner, &format!("uid-{owner}")),
            phase: if released_at.is_some() {
                Phase::Released
            } else {
                Phase::Bound
            },
            bound_at: Micros(bound_at),
            released_at: released_at.map(Micros),
        },
        version: harvester_lb_object::Version(u64::try_from(bound_at).unwrap()),
    }
}

fn observed(records: Vec<Record>) -> Ledger {
    let mut ledger = ledger(&[("p", &example())]);
    for record in records {
        assert!(ledger.observe(record));
    }
    ledger
}

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries
        .iter()
        .map(|(a, id)| ((*a).to_owned(), (*id).to_owned()))
        .collect()
}

#[test]
fn pool_1_counters_and_maps() {
    let ledger = observed(vec![
        record("172.20.1.2", "a", 1, None),
        record("172.20.1.4", "c", 3, None),
        record("172.20.1.3", "b", 2, Some(9)),
    ]);
    assert_eq!(
        project(&ledger, "p", usize::MAX),
        Some(Projection {
            total: 5,
            available: 3,
            last_allocated: "172.20.1.4".into(),
            allocated: map(&[("172.20.1.2", "shop/a"), ("172.20.1.4", "shop/c")]),
            history: map(&[("172.20.1.3", "shop/b")]),
            truncated: 0,
        })
    );
    assert_eq!(project(&ledger, "q", usize::MAX), None);
    let empty = Projection {
        total: 5,
        available: 5,
        ..Projection::default()
    };
    assert_eq!(project(&observed(vec![]), "p", usize::MAX), Some(empty));
}

#[test]
fn pool_5_the_status_does_not_wait_until_the_history_that_is_too_much_is_deleted() {
    let mut ledger = Ledger::new(Settings {
        history_per_pool: 2,
        ..Settings::default()
    });
    ledger.set_pool(pool_spec(&"p".into(), &example(), NOW));
    let released = [(2, 20), (3, 40), (4, 30), (5, 10)];
    for (octet, at) in released {
        let addr = format!("172.20.1.{octet}");
        assert!(ledger.observe(record(&addr, "a", octet, Some(at))));
    }
    // Outside of the ranges (POOL-1).
    assert!(ledger.observe(record("172.20.9.9", "b", 9, Some(50))));
    let status = project(&ledger, "p", usize::MAX).unwrap();
    let newest = map(&[("172.20.1.3", "shop/a"), ("172.20.1.4", "shop/a")]);
    assert_eq!(status.history, newest);
    // Its deletion changes nothing.
    for excess in ledger.history_excess(99) {
        ledger.forget(excess.spec.addr, excess.version);
        assert_eq!(project(&ledger, "p", usize::MAX).unwrap(), status);
    }
}

/// Bytes of an entry of a map, as JSON counts them.
fn size(address: &str, id: &str) -> usize {
    let entry = serde_json::to_string(&map(&[(address, id)])).unwrap();
    // Less the braces, and with a comma.
    entry.len() - 2 + 1
}

#[test]
fn pool_3_held_goes_before_remembered_and_the_newest_of_the_past_first() {
    let ledger = observed(vec![
        record("172.20.1.2", "a", 1, Some(20)),
        record("172.20.1.3", "b", 2, Some(40)),
        record("172.20.1.4", "c", 3, Some(30)),
        record("172.20.1.5", "d", 4, None),
        record("172.20.1.6", "e", 5, None),
    ]);
    let one = size("172.20.1.2", "shop/a");
    // The limit; the last octets of bound and of remembered addresses; the number of missing bound ones.
    let cases: [(usize, &[u8], &[u8], usize); 8] = [
        (5 * one, &[5, 6], &[2, 3, 4], 0),
        (5 * one - 1, &[5, 6], &[3, 4], 0),
        (4 * one, &[5, 6], &[3, 4], 0),
        (3 * one, &[5, 6], &[3], 0),
        (2 * one, &[5, 6], &[], 0),
        (2 * one - 1, &[5], &[], 1),
        (one, &[5], &[], 1),
        (0, &[], &[], 2),
    ];
    let octets = |of: &BTreeMap<String, String>| -> Vec<u8> {
        of.keys()
            .map(|a| a.rsplit('.').next().unwrap().parse().unwrap())
            .collect()
    };
    for (limit, held, remembered, truncated) in cases {
        let projection = project(&ledger, "p", limit).unwrap();
        assert_eq!(octets(&projection.allocated), held, "{limit}");
        assert_eq!(octets(&projection.history), remembered, "{limit}");
        assert_eq!(projection.truncated, truncated, "{limit}");
        assert_eq!((projection.total, projection.available), (5, 3), "{limit}");
    }
}

#[test]
fn pool_3_nothing_is_remembered_where_something_held_is_missing() {
    let long = "x".repeat(60);
    let ledger = observed(vec![
        record("172.20.1.2", &long, 1, None),
        record("172.20.1.3", "b", 2, Some(9)),
    ]);
    let projection = project(&ledger, "p", size("172.20.1.3", "shop/b")).unwrap();
    assert_eq!(projection.truncated, 1);
    assert_eq!(projection.allocated, map(&[]));
    assert_eq!(projection.history, map(&[]));
}

#[test]
fn pool_3_the_limit_holds_for_what_is_written() {
    let records = (0..200_u32)
        .map(|n| {
            let addr = std::net::Ipv4Addr::from(0x0a00_0002 + n).to_string();
            record(
                &addr,
                &format!("lb-{n}"),
                i64::from(n) + 1,
                (n % 2 == 0).then_some(500),
            )
        })
        .collect::<Vec<_>>();
    let mut ledger = ledger(&[("p", &fresh("p", "10.0.0.0/16", T1))]);
    for record in records {
        assert!(ledger.observe(record));
    }
    for limit in [0, 100, 1_000, 2_000, 3_333, 10_000] {
        let projection = project(&ledger, "p", limit).unwrap();
        let written = serde_json::to_string(&projection.allocated).unwrap().len()
            + serde_json::to_string(&projection.history).unwrap().len();
        assert!(written <= limit + 4, "{written} for {limit}");
        assert_eq!(
            projection.allocated.len() + projection.truncated,
            100,
            "{limit}"
        );
    }
}

fn conditions_of(ledger: &Ledger, name: &str, pool: &Pool, now: &str) -> Vec<Condition> {
    let projection = project(ledger, name, usize::MAX).unwrap();
    conditions(ledger, name, pool, &projection, now)
}

fn condition(type_: &str, status: &str, reason: &str, message: Option<&str>) -> Condition {
    Condition {
        type_: type_.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: message.map(Into::into),
        last_update_time: Some(T1.into()),
        last_transition_time: Some(T1.into()),
    }
}

fn ready() -> Condition {
    condition(READY, "True", "Ready", None)
}

#[test]
fn pool_1_ready_and_not_said_twice() {
    let mut pool = example();
    let ledger = ledger(&[("p", &pool)]);
    assert_eq!(conditions_of(&ledger, "p", &pool, T1), [ready()]);
    pool.conditions = vec![ready()];
    assert_eq!(conditions_of(&ledger, "p", &pool, T2), [ready()]);
}

#[test]
fn pool_2_ranges_that_cannot_be() {
    let cases = [
        (
            json!([{"subnet": "172.20.1.0"}]),
            "IPPool p: spec.ranges[0].subnet \"172.20.1.0\" has no prefix length; write address/prefix, such as 10.10.5.0/24 or fd10:5::/64",
        ),
        (
            json!([{"subnet": "172.20.1.0/29"}, {"subnet": "10.0.0.0/24", "gateway": "10.0.1.1"}]),
            "IPPool p: spec.ranges[1].gateway \"10.0.1.1\" is outside the subnet 10.0.0.0/24; choose an address of the subnet",
        ),
        (
            json!([]),
            "IPPool p: the pool has no range; add at least one to spec.ranges",
        ),
    ];
    for (ranges, message) in cases {
        let mut pool = stored(json!({"metadata": {"name": "p"}, "spec": {"ranges": ranges}}));
        let of_bad = ledger(&[("p", &pool)]);
        let expected = [condition(READY, "False", INVALID_RANGES, Some(message))];
        assert_eq!(conditions_of(&of_bad, "p", &pool, T1), expected);
        assert_eq!(
            project(&of_bad, "p", usize::MAX),
            Some(Projection::default())
        );

        pool.conditions = expected.to_vec();
        pool.spec = example().spec;
        let of_good = ledger(&[("p", &pool)]);
        assert_eq!(
            conditions_of(&of_good, "p", &pool, T1),
            [ready()],
            "repaired"
        );
    }
}

#[test]
fn ipa_4_the_younger_of_two_that_overlap_says_so() {
    let old = fresh("old", "172.20.1.0/28", "2026-01-01T00:00:00Z");
    let mut young = fresh("young", "172.20.1.0/29", "2026-01-01T00:00:01Z");
    let both = ledger(&[("old", &old), ("young", &young)]);
    assert_eq!(conditions_of(&both, "old", &old, T1), [ready()]);
    let message = "shares addresses with the older IPPool old; an address allocated from one is taken in both";
    young.conditions = vec![
        ready(),
        condition(OVERLAPS, "True", OVERLAPS, Some(message)),
    ];
    assert_eq!(conditions_of(&both, "young", &young, T2), young.conditions);

    let alone = ledger(&[("young", &young)]);
    assert_eq!(
        conditions_of(&alone, "young", &young, T2),
        [ready()],
        "it ends"
    );
}

#[test]
fn ipa_7_addresses_out_of_the_pool() {
    let pool = example();
    let mut ledger = observed(vec![
        record("172.20.1.4", "a", 1, None),
        record("172.20.9.9", "b", 2, None),
        record("172.20.9.8", "c", 3, None),
        record("172.20.9.7", "d", 4, Some(5)),
    ]);
    let message = "2 held addresses are no longer in spec.ranges, the first is 172.20.9.8 of LoadBalancer shop/c; they stay allocated until their owners are deleted";
    let expected = [
        ready(),
        condition(
            ADDRESS_OUT_OF_POOL,
            "True",
            ADDRESS_OUT_OF_POOL,
            Some(message),
        ),
    ];
    assert_eq!(
        conditions_of(&ledger, "p", &pool, T1),
        expected,
        "Ready is unchanged"
    );

    for (addr, owner) in [("172.20.9.9", "b"), ("172.20.9.8", "c")] {
        assert!(ledger.observe(record(addr, owner, 10, Some(11))));
    }
    let pool = Pool {
        conditions: expected.to_vec(),
        ..pool
    };
    assert_eq!(
        conditions_of(&ledger, "p", &pool, T2),
        [ready()],
        "their owners are gone"
    );
}

#[test]
fn pool_3_a_map_that_is_not_complete_says_so() {
    let pool = example();
    let ledger = observed(vec![
        record("172.20.1.2", "a", 1, None),
        record("172.20.1.3", "b", 2, None),
    ]);
    let short = project(&ledger, "p", size("172.20.1.2", "shop/a")).unwrap();
    let message = "status.allocated lacks 1 addresses, they do not fit; see the IPAllocations. Going back to the Go operator is not possible";
    let expected = [
        ready(),
        condition(
            ALLOCATED_MAP_TRUNCATED,
            "True",
            ALLOCATED_MAP_TRUNCATED,
            Some(message),
        ),
    ];
    assert_eq!(conditions(&ledger, "p", &pool, &short, T1), expected);
    let pool = Pool {
        conditions: expected.to_vec(),
        ..pool
    };
    assert_eq!(
        conditions_of(&ledger, "p", &pool, T2),
        [ready()],
        "it fits again"
    );
}

#[test]
fn sel_7_conditions_in_the_words_of_an_earlier_version_are_no_reason_to_write() {
    let old = fresh("old", "172.20.1.0/28", "2026-01-01T00:00:00Z");
    let mut young = fresh("p", "172.20.1.0/29", "2026-01-01T00:00:01Z");
    let mut ledger = ledger(&[("old", &old), ("p", &young)]);
    assert!(ledger.observe(record("172.20.9.8", "c", 3, None)));
    let stored = |older: &str| {
        let overlaps = format!(
            "shares addresses with the older IPPool {older}; what one gives out is taken for the other"
        );
        let outside = "1 held addresses are no longer in spec.ranges, the first is 172.20.9.8 of LoadBalancer shop/c; they are kept until their owners go";
        vec![
            ready(),
            condition(OVERLAPS, "True", OVERLAPS, Some(&overlaps)),
            condition(
                ADDRESS_OUT_OF_POOL,
                "True",
                ADDRESS_OUT_OF_POOL,
                Some(outside),
            ),
        ]
    };
    young.conditions = stored("old");
    let after = conditions_of(&ledger, "p", &young, T2);
    assert_eq!(after, young.conditions);
    assert_eq!(event_drafts(Some(&young.conditions), &after), []);
    young.conditions = stored("older");
    assert_ne!(conditions_of(&ledger, "p", &young, T2), young.conditions);
}

#[test]
fn conditions_of_others_stay() {
    let other = condition("Blessed", "False", "Why", Some("by somebody"));
    let pool = Pool {
        conditions: vec![other.clone()],
        ..example()
    };
    let ledger = ledger(&[("p", &pool)]);
    assert_eq!(conditions_of(&ledger, "p", &pool, T1), [other, ready()]);
}

#[test]
fn section_9_the_events_of_a_pool_speak_of_no_load_balancer() {
    let refused = [condition(READY, "False", INVALID_RANGES, Some("why"))];
    let again = event_drafts(Some(&refused), &[ready()]);
    assert_eq!(again.len(), 1);
    assert_eq!(
        (again[0].warning, again[0].text.as_str()),
        (false, "no longer InvalidRanges")
    );
}

/// The projection of the pool of [`written`].
fn projection() -> Projection {
    Projection {
        total: 5,
        available: 4,
        last_allocated: "172.20.1.2".into(),
        allocated: map(&[("172.20.1.2", "shop/a")]),
        history: map(&[("172.20.1.3", "shop/b")]),
        truncated: 0,
    }
}

fn digest_of(projection: &Projection) -> String {
    projection::digest(Some(&projection.allocated), Some(&projection.history))
}

/// A pool after the write of [`projection`].
fn written() -> Value {
    json!({
        "metadata": {
            "name": "p", "resourceVersion": "7",
            "annotations": {"a": "b", keys::ANNOTATION_PROJECTION: digest_of(&projection())},
        },
        "spec": {"ranges": [{"subnet": "172.20.1.0/29"}]},
        "status": status(),
    })
}

fn status() -> Value {
    json!({
        "total": 5, "available": 4, "lastAllocated": "172.20.1.2",
        "allocated": {"172.20.1.2": "shop/a"},
        "allocatedHistory": {"172.20.1.3": "shop/b"},
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "Ready", "lastUpdateTime": T1, "lastTransitionTime": T1,
        }],
    })
}

fn patch_of(pool: &Value, release_processed: bool) -> Vec<Value> {
    let projection = projection();
    let pool = stored(pool.clone());
    patch(&pool, &projection, &[ready()], release_processed).unwrap_or_default()
}

const NOTHING: [Value; 0] = [];

fn version_only() -> Value {
    json!({"op": "replace", "path": "/metadata/resourceVersion", "value": "7"})
}

const PROJECTION_PATH: &str = "/metadata/annotations/loadbalancer.harvesterhci.io~1projection";

fn annotate() -> Value {
    json!({"op": "add", "path": PROJECTION_PATH, "value": digest_of(&projection())})
}

fn set_status() -> Value {
    json!({"op": "add", "path": "/status", "value": status()})
}

#[test]
fn rec_5_nothing_differs_nothing_is_written() {
    assert_eq!(patch_of(&written(), false), NOTHING);
}

#[test]
fn pool_3_any_difference_of_the_status_writes_all_of_it() {
    let cases = [
        ("total", json!(6)),
        ("available", json!(3)),
        ("lastAllocated", json!("")),
        ("conditions", json!([])),
    ];
    for (field, value) in cases {
        let mut pool = written();
        pool["status"][field] = value;
        assert_eq!(
            patch_of(&pool, false),
            [version_only(), set_status()],
            "{field}"
        );
    }
    // Maps of another writer no longer match the annotation, which stays as it is.
    for (map, value) in [
        ("allocated", json!({})),
        ("allocatedHistory", json!({"172.20.1.3": "shop/c"})),
    ] {
        let mut pool = written();
        pool["status"][map] = value;
        assert_eq!(
            patch_of(&pool, false),
            [version_only(), set_status()],
            "{map}"
        );
    }
}

#[test]
fn ipa_1_the_digest_is_written_with_the_maps() {
    let mut foreign = written();
    foreign["metadata"]["annotations"] = json!({"a": "b"});
    assert_eq!(
        patch_of(&foreign, false),
        [version_only(), set_status(), annotate()],
        "beside other annotations"
    );

    foreign["metadata"]["annotations"] = json!({keys::ANNOTATION_PROJECTION: "0000000000000000"});
    assert_eq!(
        patch_of(&foreign, false),
        [version_only(), set_status(), annotate()],
        "over one of an earlier state"
    );

    let whole = json!({"op": "add", "path": "/metadata/annotations", "value": {
        keys::ANNOTATION_PROJECTION: digest_of(&projection()),
    }});
    for annotations in [json!(null), json!({})] {
        foreign["metadata"]["annotations"] = annotations.clone();
        let patch = patch_of(&foreign, false);
        let expected = if annotations.is_null() {
            [version_only(), set_status(), whole.clone()]
        } else {
            [version_only(), set_status(), annotate()]
        };
        assert_eq!(patch, expected, "{annotations}");
    }

    // The cached pool lacks kubectl's annotation; the stored object has it and must keep it.
    foreign["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": "{}"});
    assert_eq!(
        patch_of(&foreign, false),
        [version_only(), set_status(), annotate()]
    );
}

#[test]
fn section_6_4_the_wish_is_taken_off() {
    let mut pool = written();
    pool["metadata"]["annotations"][keys::ANNOTATION_MANUALLY_RELEASE_IP] =
        json!("172.20.1.5: default/x");
    let remove = json!({
        "op": "remove",
        "path": "/metadata/annotations/loadbalancer.harvesterhci.io~1manuallyReleaseIP",
    });
    assert_eq!(patch_of(&pool, true), [version_only(), remove]);
    assert_eq!(patch_of(&pool, false), NOTHING, "an empty one stays");
}

#[test]
fn fin_2_finalizers_of_old_are_taken_off_pools() {
    let [lb_controller, ipam_controller] = keys::LEGACY_FINALIZERS;
    for (before, after) in [
        (json!([ipam_controller]), json!([])),
        (
            json!(["x/y", ipam_controller, lb_controller]),
            json!(["x/y"]),
        ),
    ] {
        let mut pool = written();
        pool["metadata"]["finalizers"] = before;
        let keep = json!({"op": "add", "path": "/metadata/finalizers", "value": after});
        assert_eq!(patch_of(&pool, false), [version_only(), keep]);
    }
    let mut pool = written();
    pool["metadata"]["finalizers"] = json!(["x/y"]);
    assert_eq!(patch_of(&pool, false), NOTHING);
}

#[test]
fn rec_5_the_patch_leads_to_a_pool_with_nothing_to_write() {
    let [lb_controller, _] = keys::LEGACY_FINALIZERS;
    let wish = keys::ANNOTATION_MANUALLY_RELEASE_IP;
    let cases = [
        ("fresh", json!({"name": "p", "resourceVersion": "7"}), false),
        (
            "everything at once",
            json!({
                "name": "p", "resourceVersion": "7", "finalizers": [lb_controller, "x/y"],
                "annotations": {wish: "172.20.1.5: default/x", "a": "b"},
            }),
            true,
        ),
    ];
    for (what, metadata, release_processed) in cases {
        let mut object =
            json!({"metadata": metadata, "spec": {"ranges": [{"subnet": "172.20.1.0/29"}]}});
        let operations: json_patch::Patch =
            serde_json::from_value(Value::Array(patch_of(&object, release_processed))).unwrap();
        json_patch::patch(&mut object, &operations).unwrap();
        assert_eq!(patch_of(&object, false), NOTHING, "{what}");
        assert_eq!(object["status"], status(), "{what}");
        assert_eq!(object["metadata"]["annotations"].get(wish), None, "{what}");
        let pool = stored(object);
        assert!(pool.is_our_projection(), "{what}");
        assert!(pool.foreign_maps.is_none(), "{what}");
    }
}

#[test]
fn rfc_6901_slashes_and_tildes_are_escaped() {
    for (key, path) in [
        ("plain", "/metadata/annotations/plain"),
        ("a.b/c", "/metadata/annotations/a.b~1c"),
        ("a~b/c", "/metadata/annotations/a~0b~1c"),
        ("~1", "/metadata/annotations/~01"),
    ] {
        assert_eq!(annotation_path(key), path);
    }
}
