//! The counters and maps.

use super::*;

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
