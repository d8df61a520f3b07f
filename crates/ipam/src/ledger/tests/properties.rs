//! Properties of the ledger: which load balancers are served, and in which order.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

proptest! {
    /// ALC-3: while no address is released, addresses are allocated in the order written.
    #[test]
    fn alc_3_order_is_round_robin(
        bounds in prop::collection::vec((0u8..8, 1u8..30, 1u8..30), 1..5),
        start in 0u8..8,
        offset in 0u8..32,
    ) {
        let mut ranges = Vec::new();
        let mut listed = Vec::new();
        let mut used = BTreeSet::new();
        for (net, low, high) in bounds {
            if !used.insert(net) {
                continue;
            }
            let (low, high) = (low.min(high), low.max(high));
            let text = |last: u8| format!("10.0.{net}.{last}");
            ranges.push(range(&format!("10.0.{net}.0/27"), &text(low), &text(high)));
            listed.extend((low..=high).filter(|last| *last != 1).map(|last| (net, last)));
        }
        let mut spec = pool("p", &ranges);
        let last = IpAddr::from([10, 0, start, offset]);
        spec.last_allocated = Some((last, Micros::MIN));
        // Where the search begins, according to the rule.
        let inside = spec.ranges.as_ref().unwrap().contains(last);
        let first = if inside {
            let in_range = listed.iter().position(|(n, l)| *n == start && *l > offset);
            let order: Vec<u8> = ranges
                .iter()
                .map(|r| r.subnet.split('.').nth(2).unwrap().parse().unwrap())
                .collect();
            let own = order.iter().position(|n| *n == start).unwrap();
            let later =
                listed.iter().position(|(n, _)| order.iter().position(|o| o == n).unwrap() > own);
            in_range.or(later).unwrap_or(0)
        } else {
            0
        };
        let mut fixture = Fixture::new(&[spec]);
        for step in 0..listed.len() {
            let (net, host) = listed[(first + step) % listed.len()];
            let got = fixture.ask(&lb(&format!("lb{step:04}")));
            prop_assert_eq!(got, Some(IpAddr::from([10, 0, net, host])));
        }
        prop_assert_eq!(fixture.ask(&lb("zz")), None);
    }

    /// For any events: no address is allocated twice, none outside of the ranges, no gateway, and no
    /// load balancer is served before an older one that waits.
    #[test]
    fn fairness_nobody_is_served_before_an_older_one_that_waits(
        events in prop::collection::vec((0u8..20, 0u8..3), 1..200),
    ) {
        let mut fixture = Fixture::new(&[pool("p", &[range("172.20.1.0/29", "", "")])]);
        let mut holders: BTreeMap<IpAddr, u8> = BTreeMap::new();
        let mut waiting: BTreeSet<(u8, u8)> = BTreeSet::new();
        // Ages are not in the order of the names.
        let age = |n: u8| n.wrapping_mul(7) % 20;
        let request = |n: u8| Request { created: Micros(age(n).into()), ..lb(&format!("lb{n:02}")) };
        for (n, event) in events {
            let mut queue = vec![n];
            if event == 0 {
                // It leaves, so that others can be served.
                queue.clear();
                fixture.delete(&format!("lb{n:02}"));
                holders.retain(|_, holder| *holder != n);
                waiting.remove(&(age(n), n));
            }
            if event != 1 {
                let woken = fixture.ledger.take_wakes();
                queue.extend(woken.iter().map(|id| id.name()[2..].parse::<u8>().unwrap()));
            }
            for n in queue {
                let held = holders.values().any(|holder| *holder == n);
                let free = 5 - holders.len();
                let older = waiting.range(..(age(n), n)).count();
                let got = fixture.ask(&request(n));
                prop_assert_eq!(got.is_some(), held || free > older);
                match got {
                    Some(addr) => {
                        prop_assert!(matches!(addr, IpAddr::V4(v4) if (2..=6).contains(&v4.octets()[3])));
                        let before = holders.insert(addr, n);
                        prop_assert!(before.is_none_or(|before| before == n));
                        waiting.remove(&(age(n), n));
                    }
                    None => {
                        waiting.insert((age(n), n));
                    }
                }
            }
        }
        // In the end all that can be served were woken.
        let woken = fixture.ledger.take_wakes();
        for id in woken {
            fixture.ask(&request(id.name()[2..].parse().unwrap()));
        }
        let view = fixture.ledger.projection("p").unwrap();
        prop_assert!(view.waiting == 0 || view.available == 0);
    }

    /// The decision depends on the pools, not on the order in which they were added.
    #[test]
    fn sel_order_of_events_does_not_matter(
        priorities in prop::collection::vec(0u32..3, 1..6), turn in 0usize..6,
    ) {
        let mut pools: Vec<_> = priorities.iter().enumerate().map(|(n, priority)| PoolSpec {
            selector: Selector {
                priority: *priority,
                network: String::new(),
                scope: vec![Tuple::new("", "ns", "")],
            },
            ..pool(&format!("p{n}"), &[range(&format!("10.0.{n}.0/29"), "", "")])
        }).collect();
        let first = Fixture::new(&pools).decide(&lb("a"));
        let turn = turn % pools.len();
        pools.rotate_left(turn);
        prop_assert_eq!(Fixture::new(&pools).decide(&lb("a")), first);
    }
}

/// 60,000 scattered records: every second address of a /15. A linear search would take minutes here.
#[test]
fn alc_3_scattered_records_are_not_scanned() {
    let mut fixture = Fixture::new(&[pool("p", &[range("10.0.0.0/15", "", "")])]);
    for n in 0..60_000u32 {
        let addr = std::net::Ipv4Addr::from_bits(0x0a00_0002 + 2 * n);
        fixture.bind(&addr.to_string(), "p", &format!("lb{n}"), "u");
    }
    for n in 0..10_000u32 {
        let name = format!("new{n}");
        assert!(fixture.ask(&lb(&name)).is_some());
    }
    let view = fixture.ledger.projection("p").unwrap();
    assert_eq!(view.available, view.total - 70_000);
    assert_eq!(view.allocated().count(), 70_000);
}

/// A pool of 10,000 ranges, all full but one in the middle.
#[test]
fn alc_3_full_ranges_are_not_scanned() {
    let ranges: Vec<_> = (0..10_000u32)
        .map(|n| {
            range(
                &format!("{}/30", std::net::Ipv4Addr::from_bits(0x0a00_0000 + 4 * n)),
                "",
                "",
            )
        })
        .collect();
    let mut fixture = Fixture::new(&[pool("p", &ranges)]);
    for n in 0..10_000u32 {
        fixture.ask(&lb(&format!("lb{n}")));
    }
    for _ in 0..1_000 {
        fixture.delete("lb5000");
        assert_eq!(fixture.ask(&lb("other")), Some(ip("10.0.78.34")));
        fixture.delete("other");
        assert_eq!(fixture.ask(&lb("lb5000")), Some(ip("10.0.78.34")));
    }
}
