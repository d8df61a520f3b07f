use proptest::prelude::*;

use super::*;
use crate::range::{PoolRanges, RangeSpec};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn spans(text: &str) -> Vec<(String, String)> {
    let all = Exclusions::parse(text).unwrap();
    let text = |(first, last): &(IpAddr, IpAddr)| (first.to_string(), last.to_string());
    all.spans().iter().map(text).collect()
}

#[test]
fn exc_1_lists_that_are_accepted() {
    for (text, expected) in [
        ("", &[][..]),
        ("  ,, ,", &[]),
        ("10.0.0.5", &[("10.0.0.5", "10.0.0.5")]),
        (
            "10.0.0.5, 10.0.0.8-10.0.0.12,10.0.1.0/28",
            &[
                ("10.0.0.5", "10.0.0.5"),
                ("10.0.0.8", "10.0.0.12"),
                ("10.0.1.0", "10.0.1.15"),
            ],
        ),
        // Blanks, order and overlap do not matter.
        (
            " 10.0.0.9 - 10.0.0.9 ,\t10.0.0.0/24,10.0.0.3 ",
            &[
                ("10.0.0.9", "10.0.0.9"),
                ("10.0.0.0", "10.0.0.255"),
                ("10.0.0.3", "10.0.0.3"),
            ],
        ),
        // Host bits are masked off, as in ranges.
        ("10.0.0.77/30", &[("10.0.0.76", "10.0.0.79")]),
        (
            "10.0.0.7/32,0.0.0.0/0",
            &[("10.0.0.7", "10.0.0.7"), ("0.0.0.0", "255.255.255.255")],
        ),
        (
            "fd10::5, fd10::8-fd10::c, fd10:1::/126",
            &[
                ("fd10::5", "fd10::5"),
                ("fd10::8", "fd10::c"),
                ("fd10:1::", "fd10:1::3"),
            ],
        ),
        ("::ffff:10.0.0.5-10.0.0.6", &[("10.0.0.5", "10.0.0.6")]),
    ] {
        let expected: Vec<(String, String)> = expected
            .iter()
            .map(|(first, last)| ((*first).to_owned(), (*last).to_owned()))
            .collect();
        assert_eq!(spans(text), expected, "{text:?}");
    }
}

#[test]
fn exc_1_lists_that_are_refused() {
    use ExcludeProblem::{NotAddresses, Reversed, TwoFamilies};
    for (text, entry, problem) in [
        ("none", "none", NotAddresses),
        ("10.0.0.5;10.0.0.6", "10.0.0.5;10.0.0.6", NotAddresses),
        ("10.0.0.5 10.0.0.6", "10.0.0.5 10.0.0.6", NotAddresses),
        ("10.0.0.05", "10.0.0.05", NotAddresses),
        ("10.0.0.5, 10.0.0.256", "10.0.0.256", NotAddresses),
        ("10.0.0.5-", "10.0.0.5-", NotAddresses),
        ("10.0.0.5-6", "10.0.0.5-6", NotAddresses),
        (
            "10.0.0.5-10.0.0.6-10.0.0.7",
            "10.0.0.5-10.0.0.6-10.0.0.7",
            NotAddresses,
        ),
        ("10.0.0.0/33", "10.0.0.0/33", NotAddresses),
        ("10.0.0.0/", "10.0.0.0/", NotAddresses),
        ("10.0.0.0/+8", "10.0.0.0/+8", NotAddresses),
        ("10.0.0.0/24/24", "10.0.0.0/24/24", NotAddresses),
        (
            "10.0.0.0/24-10.0.1.0/24",
            "10.0.0.0/24-10.0.1.0/24",
            NotAddresses,
        ),
        ("fd10::5%eth0", "fd10::5%eth0", NotAddresses),
        ("10.0.0.5-fd10::5", "10.0.0.5-fd10::5", TwoFamilies),
        ("10.0.0.9-10.0.0.8", "10.0.0.9-10.0.0.8", Reversed),
    ] {
        let expected = ExcludeError::Invalid {
            entry: entry.to_owned(),
            problem,
        };
        assert_eq!(Exclusions::parse(text), Err(expected), "{text:?}");
    }
}

#[test]
fn exc_1_the_number_of_entries_is_limited_and_a_quote_is_short() {
    let list = |count: usize| vec!["10.0.0.5"; count].join(",");
    assert!(Exclusions::parse(&list(MAX_ENTRIES)).is_ok());
    let count = MAX_ENTRIES + 1;
    assert_eq!(
        Exclusions::parse(&list(count)),
        Err(ExcludeError::TooMany { count })
    );
    let message = Exclusions::parse(&"é".repeat(1000))
        .unwrap_err()
        .to_string();
    assert!(message.len() < 300, "{message}");
}

/// The ranges of two subnets with their gateways 10.0.0.1 and 10.0.1.1, without these addresses.
fn ranges(exclude: &str) -> PoolRanges {
    let subnet = |text: &str| RangeSpec {
        subnet: text.to_owned(),
        ..RangeSpec::default()
    };
    let ranges = [subnet("10.0.0.0/28"), subnet("10.0.1.0/28")];
    PoolRanges::parse(&ranges)
        .unwrap()
        .without(&Exclusions::parse(exclude).unwrap())
}

#[test]
fn exc_2_excluded_addresses_are_in_no_count_and_no_turn() {
    for (exclude, total) in [
        ("", 26),
        ("10.0.0.5", 25),
        // Gateways, and what is outside of the ranges, were not counted before.
        ("10.0.0.0/31,10.0.9.0/24,fd10::/64", 26),
        ("10.0.0.4-10.0.0.6,10.0.0.5,10.0.0.6-10.0.0.7", 22),
        ("10.0.0.0/28", 13),
        ("0.0.0.0/0", 0),
    ] {
        let ranges = ranges(exclude);
        assert_eq!(ranges.total(), total, "{exclude:?}");
        // Mask and gateway of an excluded address are known all the same.
        assert!(ranges.range_of(ip("10.0.0.5")).is_some());
    }
    assert_eq!(ranges("0.0.0.0/0").search_start(None), None);
    let last = Some(ip("10.0.0.14"));
    let (_, next) = ranges("10.0.1.2-10.0.1.9").search_start(last).unwrap();
    assert_eq!(next, ip("10.0.1.10"));
}

#[test]
fn exc_1_which_ranges_have_nothing_left_and_which_entries_lie_outside() {
    for (exclude, empty) in [
        ("", &[] as &[usize]),
        ("10.0.0.0-10.0.1.0", &[0]),
        ("10.0.0.2-10.0.0.13", &[]),
        // The gateway is not handed out anyway.
        ("10.0.1.2-10.0.1.14", &[1]),
        ("10.0.0.0/16", &[0, 1]),
    ] {
        assert_eq!(ranges(exclude).empty_ranges(), empty, "{exclude:?}");
    }
    let plain = ranges("");
    for (first, last, is_inside) in [
        ("10.0.0.1", "10.0.0.14", true),
        ("10.0.0.5", "10.0.0.5", true),
        ("10.0.0.0", "10.0.0.5", false),
        ("10.0.0.5", "10.0.1.5", false),
        ("fd10::1", "fd10::1", false),
    ] {
        assert_eq!(plain.contains_all(ip(first), ip(last)), is_inside);
    }
    let adjacent =
        [("10.0.0.8", "10.0.0.9"), ("10.0.0.4", "10.0.0.7")].map(|(start, end)| RangeSpec {
            subnet: "10.0.0.0/24".to_owned(),
            start: Some(start.to_owned()),
            end: Some(end.to_owned()),
            gateway: None,
        });
    let adjacent = PoolRanges::parse(&adjacent).unwrap();
    assert!(adjacent.contains_all(ip("10.0.0.5"), ip("10.0.0.9")));
    assert!(!adjacent.contains_all(ip("10.0.0.5"), ip("10.0.0.10")));
}

#[test]
fn exc_3_excluded_is_what_the_ranges_have() {
    let ranges = ranges("10.0.0.1, 10.0.0.5, 10.0.9.9");
    for (addr, is_excluded) in [
        ("10.0.0.1", true),
        ("10.0.0.5", true),
        ("10.0.0.6", false),
        ("10.0.9.9", false),
    ] {
        assert_eq!(ranges.excludes(ip(addr)), is_excluded, "{addr}");
    }
}

proptest! {
    /// Whatever is excluded: an address can be allocated if and only if it could before and is not excluded.
    #[test]
    fn exc_2_usable_is_what_was_usable_and_is_not_excluded(
        spans in prop::collection::vec((0u8..40, 0u8..12), 0..8),
        last in 0u8..40,
    ) {
        let at = |host: u8| IpAddr::from([10, 0, host / 20, host % 20]);
        let entries: Vec<String> = spans.iter().map(|(first, more)| {
            let (first, last) = (at(*first), at(first.saturating_add(*more).min(39)));
            format!("{first}-{last}")
        }).collect();
        let text = entries.join(",");
        let exclusions = Exclusions::parse(&text).unwrap();
        let (before, after) = (ranges(""), ranges(&text));
        let mut total = 0;
        for host in 0..40 {
            let addr = at(host);
            let expected = before.usable(addr) && !exclusions.contains(addr);
            prop_assert_eq!(after.usable(addr), expected, "{}", addr);
            total += i64::from(expected);
        }
        prop_assert_eq!(after.total(), total);
        if let Some((at, from)) = after.search_start(Some(at(last))) {
            prop_assert_eq!(after.segment_of(from).unwrap_or(at), at);
        }
    }
}
