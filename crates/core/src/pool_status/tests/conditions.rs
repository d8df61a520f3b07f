//! The conditions and their Events.

use super::*;
use crate::status::event_drafts;

fn conditions_of(ledger: &Ledger, name: &str, pool: &Pool, now: &str) -> Vec<Condition> {
    let projection = project(ledger, name, usize::MAX).unwrap();
    conditions(ledger, name, pool, &projection, now)
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

/// A pool with this list of excluded addresses.
fn excluding(pool: Pool, list: &str) -> Pool {
    let mut meta = pool.meta.clone();
    let annotations = meta.annotations.get_or_insert_default();
    annotations.insert(keys::ANNOTATION_EXCLUDE.to_owned(), list.to_owned());
    Pool { meta, ..pool }
}

#[test]
fn exc_1_an_invalid_list_is_quoted() {
    let pool = excluding(example(), "172.20.1.3,172.20.1.x");
    let ledger = ledger(&[("p", &pool)]);
    let message = "IPPool p: annotation loadbalancer.harvesterhci.io/exclude: the entry \"172.20.1.x\" is no address, range or subnet; write 10.0.0.5, 10.0.0.8-10.0.0.12 or 10.0.1.0/28; until it is corrected no new address is allocated, and addresses in use stay allocated";
    let expected = [condition(READY, "False", INVALID_EXCLUDE, Some(message))];
    assert_eq!(conditions_of(&ledger, "p", &pool, T1), expected);
}

#[test]
fn exc_3_excluded_addresses_that_are_held() {
    let pool = excluding(example(), "172.20.1.3-172.20.1.4, 172.20.9.9");
    let mut ledger = ledger(&[("p", &pool)]);
    assert!(ledger.observe(record("172.20.1.4", "a", 1, None)));
    assert!(ledger.observe(record("172.20.1.2", "b", 2, None)));
    let expected = |message| {
        [
            ready(),
            condition(ADDRESS_EXCLUDED, "True", ADDRESS_EXCLUDED, Some(message)),
        ]
    };
    let one = expected(
        "1 excluded address is held, 172.20.1.4 of LoadBalancer shop/a; it stays allocated until its owner is deleted, and is not allocated again",
    );
    assert_eq!(conditions_of(&ledger, "p", &pool, T1), one);
    assert!(ledger.observe(record("172.20.1.3", "c", 3, None)));
    let two = expected(
        "2 excluded addresses are held, the first is 172.20.1.3 of LoadBalancer shop/c; they stay allocated until their owners are deleted, and are not allocated again",
    );
    assert_eq!(conditions_of(&ledger, "p", &pool, T1), two);
    assert!(ledger.observe(record("172.20.1.3", "c", 10, Some(11))));
    assert!(ledger.observe(record("172.20.1.4", "a", 10, Some(11))));
    let pool = Pool {
        conditions: one.to_vec(),
        ..pool
    };
    assert_eq!(conditions_of(&ledger, "p", &pool, T2), [ready()]);
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
