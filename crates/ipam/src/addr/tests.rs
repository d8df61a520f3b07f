use super::*;
use proptest::prelude::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn record_names() {
    for (addr, name) in [
        ("172.20.1.5", "172.20.1.5"),
        ("fd10:5::9", "fd10-0005-0000-0000-0000-0000-0000-0009"),
        ("::", "0000-0000-0000-0000-0000-0000-0000-0000"),
        ("::ffff:10.0.0.1", "0000-0000-0000-0000-0000-ffff-0a00-0001"),
    ] {
        assert_eq!(record_name(ip(addr)), name);
        assert_eq!(parse_record_name(name), Some(ip(addr)));
    }
}

#[test]
fn record_names_that_are_none() {
    for name in [
        "",
        "a",
        "10.0.0",
        "10.0.0.01",
        "10.0.0.256",
        "::1",
        "fd10-5-0-0-0-0-0-9",
        "FD10-0005-0000-0000-0000-0000-0000-0009",
        "fd10-0005-0000-0000-0000-0000-0000",
        "fd10-0005-0000-0000-0000-0000-0000-0009-0001",
        "+d10-0005-0000-0000-0000-0000-0000-0009",
        "dhcp-0f5a3b1c-9d2e-4c7b-8a6f-00112233aabb",
    ] {
        assert_eq!(parse_record_name(name), None, "{name}");
    }
}

#[test]
fn arithmetic_stays_in_the_family() {
    assert_eq!(next(ip("10.0.0.255")), Some(ip("10.0.1.0")));
    assert_eq!(next(ip("255.255.255.255")), None);
    assert_eq!(next(ip("::ffff:255.255.255.255")), Some(ip("::1:0:0:0")));
    assert_eq!(next(ip("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")), None);
    assert_eq!(prev(ip("0.0.0.0")), None);
    assert_eq!(prev(ip("::")), None);
    assert_eq!(
        prev(ip("fd::")),
        Some(ip("fc:ffff:ffff:ffff:ffff:ffff:ffff:ffff"))
    );
    assert_eq!(span(ip("10.0.0.1"), ip("10.0.0.1")), 1);
    assert_eq!(span(ip("10.0.0.2"), ip("10.0.0.1")), 0);
    assert_eq!(span(ip("0.0.0.0"), ip("255.255.255.255")), 1 << 32);
    assert_eq!(
        span(ip("::"), ip("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")),
        u128::MAX
    );
    assert_eq!(span(ip("10.0.0.1"), ip("::ffff:10.0.0.2")), 0);
}

proptest! {
    #[test]
    fn record_name_is_one_to_one(addr: IpAddr) {
        let name = record_name(addr);
        prop_assert_eq!(parse_record_name(&name), Some(addr));
        prop_assert!(name.len() <= 63);
    }

    #[test]
    fn record_name_has_one_spelling(name in "[0-9a-fA-F.:-]{0,45}") {
        if let Some(addr) = parse_record_name(&name) {
            prop_assert_eq!(record_name(addr), name);
        }
    }
}
