use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

fn segment(start: IpAddr, end: IpAddr) -> Segment {
    Segment {
        start,
        end,
        range: 0,
    }
}

fn v4(start: u32, end: u32) -> Segment {
    let addr = |bits: u32| IpAddr::from(Ipv4Addr::from_bits(bits));
    segment(addr(start), addr(end))
}

#[test]
fn longest_of_a_class() {
    assert_eq!(class(7, 7), 0);
    assert_eq!(class(7, 8), 1);
    assert_eq!(class(0, u128::MAX), 128);
    for (class, length) in [(0, 0), (1, 1), (8, 255), (128, u128::MAX)] {
        assert_eq!(longest(class), length, "{class}");
    }
}

#[test]
fn families_do_not_meet() {
    let mut near = Near::default();
    let all = segment("::".parse().unwrap(), "ffff::".parse().unwrap());
    near.insert(1, &[all]);
    near.insert(2, &[v4(0, u32::MAX)]);
    let at = |text: &str| near.at(text.parse().unwrap()).collect::<Vec<_>>();
    assert_eq!(at("10.0.0.1"), [2]);
    assert_eq!(at("fd00::1"), [1]);
}

proptest! {
    /// Finds the same pools as a linear search, after any insertions and removals.
    #[test]
    fn ipa_4_those_that_a_look_at_all_finds(
        spans in prop::collection::vec((0u32..600, 0u32..200), 1..24),
        gone in prop::collection::vec(any::<bool>(), 24),
        asked in prop::collection::vec((0u32..900, 0u32..100), 8),
    ) {
        let mut near = Near::default();
        let mut kept = Vec::new();
        for (pool, (start, length)) in (0u32..).zip(&spans) {
            near.insert(pool, &[v4(*start, start + length)]);
        }
        for (pool, (start, length)) in (0u32..).zip(&spans) {
            if gone[pool as usize] {
                near.remove(pool, &[v4(*start, start + length)]);
            } else {
                kept.push((pool, *start, start + length));
            }
        }
        for (from, length) in asked {
            let to = from + length;
            let met = kept.iter().filter(|(_, start, end)| *start <= to && from <= *end);
            let met: BTreeSet<u32> = met.map(|(pool, ..)| *pool).collect();
            prop_assert_eq!(near.around(&[v4(from, to)]), met);
            let at = kept.iter().filter(|(_, start, end)| *start <= from && from <= *end);
            let at: BTreeSet<u32> = at.map(|(pool, ..)| *pool).collect();
            let found: Vec<u32> = near.at(v4(from, from).start).collect();
            prop_assert_eq!(found.len(), at.len());
            prop_assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), at);
        }
    }
}
