use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::addr;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn neighbours_become_one_interval() {
    let mut set = IntervalSet::new();
    for last in [1u8, 3, 5, 2, 4] {
        assert!(set.insert([10, 0, 0, last].into()));
    }
    assert!(!set.insert(ip("10.0.0.3")));
    assert_eq!(set.intervals(), 1);
    assert_eq!(set.first_absent_from(ip("10.0.0.1")), Some(ip("10.0.0.6")));
    assert!(set.remove(ip("10.0.0.3")));
    assert!(!set.remove(ip("10.0.0.3")));
    assert_eq!(set.intervals(), 2);
    assert_eq!(set.first_absent_from(ip("10.0.0.1")), Some(ip("10.0.0.3")));
    assert_eq!(set.count(ip("10.0.0.2"), ip("10.0.0.4")), 2);
}

#[test]
fn families_do_not_meet() {
    let mut set = IntervalSet::new();
    set.insert(ip("255.255.255.255"));
    assert_eq!(set.first_absent_from(ip("255.255.255.255")), None);
    set.insert(ip("::"));
    assert_eq!(set.intervals(), 2);
    assert!(!set.contains(ip("::ffff:255.255.255.255")));
    assert_eq!(set.count(ip("::"), ip("::ff")), 1);
    assert_eq!(set.count(ip("0.0.0.0"), ip("::ff")), 0);
    set.insert_span(ip("10.0.0.0"), ip("::5"));
    assert_eq!(set.intervals(), 2);
}

#[test]
fn the_whole_of_a_family() {
    let (first, last) = (ip("::"), ip("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"));
    let mut set = IntervalSet::new();
    assert_eq!(set.gaps(first, last), [(first, last)]);
    set.insert_span(first, last);
    assert_eq!(set.first_absent_from(first), None);
    assert_eq!(set.gaps(first, last), []);
    assert_eq!(set.count(first, last), u128::MAX);
    assert!(set.remove(last));
    assert_eq!(set.first_absent_from(first), Some(last));
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u8),
    InsertSpan(u8, u8),
    Remove(u8),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        any::<u8>().prop_map(Op::Insert),
        (any::<u8>(), 0u8..20).prop_map(|(a, n)| Op::InsertSpan(a, a.saturating_add(n))),
        any::<u8>().prop_map(Op::Remove),
    ]
}

/// Both ends of the IPv4 space and a part of the IPv6 space, so that the ends are covered.
fn base(which: u8, offset: u8) -> IpAddr {
    match which {
        0 => IpAddr::from([0, 0, 0, offset]),
        1 => IpAddr::from([255, 255, 255, offset]),
        _ => IpAddr::from((u128::MAX - 255 + u128::from(offset)).to_be_bytes()),
    }
}

proptest! {
    #[test]
    fn behaves_as_a_plain_set(
        which in 0u8..3,
        ops in prop::collection::vec(op(), 0..120),
        from: u8, to: u8,
    ) {
        let at = |offset| base(which, offset);
        let mut set = IntervalSet::new();
        let mut naive = BTreeSet::new();
        for op in ops {
            match op {
                Op::Insert(a) => prop_assert_eq!(set.insert(at(a)), naive.insert(a)),
                Op::InsertSpan(a, b) => {
                    set.insert_span(at(a), at(b));
                    naive.extend(a..=b);
                }
                Op::Remove(a) => prop_assert_eq!(set.remove(at(a)), naive.remove(&a)),
            }
        }
        for offset in 0..=255 {
            prop_assert_eq!(set.contains(at(offset)), naive.contains(&offset));
            let absent = (offset..=255).find(|o| !naive.contains(o)).map(at);
            let found = set.first_absent_from(at(offset));
            prop_assert_eq!(found.filter(|a| *a <= at(255)), absent);
        }
        let breaks = (0..=255u8)
            .filter(|o| naive.contains(o) && (*o == 0 || !naive.contains(&(o - 1))))
            .count();
        prop_assert_eq!(set.intervals(), breaks);
        let inside = if from <= to { naive.range(from..=to).count() } else { 0 };
        prop_assert_eq!(set.count(at(from), at(to)), inside as u128);
        let holes: Vec<IpAddr> = (from..=to).filter(|o| !naive.contains(o)).map(at).collect();
        let listed: Vec<IpAddr> = set
            .gaps(at(from), at(to))
            .into_iter()
            .flat_map(|(a, b)| std::iter::successors(Some(a), move |x| {
                if *x == b { None } else { addr::next(*x) }
            }))
            .collect();
        prop_assert_eq!(listed, holes);
    }
}
