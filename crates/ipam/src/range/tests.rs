use proptest::prelude::*;

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn spec(subnet: &str, start: &str, end: &str, gateway: &str) -> RangeSpec {
    let some = |text: &str| Some(text.to_owned());
    RangeSpec {
        subnet: subnet.into(),
        start: some(start),
        end: some(end),
        gateway: some(gateway),
    }
}

fn range(subnet: &str, start: &str, end: &str, gateway: &str) -> Result<Range, RangeError> {
    Range::parse(&spec(subnet, start, end, gateway))
}

fn pool(subnets: &[(&str, &str, &str)]) -> PoolRanges {
    let specs: Vec<_> = subnets.iter().map(|(s, a, b)| spec(s, a, b, "")).collect();
    PoolRanges::parse(&specs).unwrap()
}

fn refused(result: Result<Range, RangeError>) -> (RangeField, RangeProblem) {
    match result {
        Err(RangeError::Invalid { field, problem, .. }) => (field, problem),
        other => panic!("accepted: {other:?}"),
    }
}

/// The table of the section.
#[test]
fn rng_table() {
    for (subnet, start, end, gateway, want_start, want_end, want_gateway, total) in [
        (
            "10.10.5.0/24",
            "",
            "",
            "",
            "10.10.5.1",
            "10.10.5.254",
            "10.10.5.1",
            253,
        ),
        (
            "10.10.5.9/24",
            "",
            "",
            "",
            "10.10.5.1",
            "10.10.5.254",
            "10.10.5.1",
            253,
        ),
        (
            "10.10.5.0/24",
            "10.10.5.40",
            "10.10.5.31",
            "",
            "10.10.5.31",
            "10.10.5.40",
            "10.10.5.1",
            10,
        ),
        (
            "10.10.5.0/24",
            "10.10.5.31",
            "10.10.5.40",
            "10.10.5.35",
            "10.10.5.31",
            "10.10.5.40",
            "10.10.5.35",
            9,
        ),
        (
            "10.10.5.0/24",
            "",
            "10.10.5.3",
            "",
            "10.10.5.1",
            "10.10.5.3",
            "10.10.5.1",
            2,
        ),
        (
            "10.10.5.64/26",
            "",
            "",
            "",
            "10.10.5.65",
            "10.10.5.126",
            "10.10.5.65",
            61,
        ),
        (
            "10.10.5.6/31",
            "",
            "",
            "",
            "10.10.5.6",
            "10.10.5.7",
            "10.10.5.7",
            1,
        ),
        (
            "10.10.5.4/30",
            "",
            "",
            "",
            "10.10.5.5",
            "10.10.5.6",
            "10.10.5.5",
            1,
        ),
        (
            "fd10:5::/124",
            "",
            "",
            "",
            "fd10:5::1",
            "fd10:5::f",
            "fd10:5::1",
            14,
        ),
        (
            "fd10:5::/64",
            "fd10:5::100",
            "fd10:5::1ff",
            "",
            "fd10:5::100",
            "fd10:5::1ff",
            "fd10:5::1",
            256,
        ),
        (
            "fd10:5::/127",
            "",
            "",
            "",
            "fd10:5::1",
            "fd10:5::1",
            "fd10:5::1",
            0,
        ),
        (
            "0.0.0.0/0",
            "",
            "",
            "",
            "0.0.0.1",
            "255.255.255.254",
            "0.0.0.1",
            (1 << 32) - 3,
        ),
    ] {
        let range = range(subnet, start, end, gateway).unwrap();
        assert_eq!(
            (range.start(), range.end(), range.gateway(), range.total()),
            (ip(want_start), ip(want_end), Some(ip(want_gateway)), total),
            "{subnet} {start} {end} {gateway}"
        );
    }
}

#[test]
fn rng_1_strict_subnet() {
    for (subnet, problem) in [
        ("", RangeProblem::NoPrefix),
        ("10.10.5.0", RangeProblem::NoPrefix),
        ("10.10.5/24", RangeProblem::NotAnAddress),
        ("10.10.5.256/24", RangeProblem::NotAnAddress),
        ("10.10.05.0/24", RangeProblem::NotAnAddress),
        (" 10.10.5.0/24", RangeProblem::NotAnAddress),
        ("fe80::1%eth0/64", RangeProblem::NotAnAddress),
        ("10.10.5.0/24 ", RangeProblem::BadPrefix { max: 32 }),
        ("10.10.5.0/", RangeProblem::BadPrefix { max: 32 }),
        ("10.10.5.0/33", RangeProblem::BadPrefix { max: 32 }),
        ("10.10.5.0/+24", RangeProblem::BadPrefix { max: 32 }),
        ("10.10.5.0/-1", RangeProblem::BadPrefix { max: 32 }),
        (
            "10.10.5.0/255.255.255.0",
            RangeProblem::BadPrefix { max: 32 },
        ),
        ("10.10.5.0/24/24", RangeProblem::BadPrefix { max: 32 }),
        ("fd10::/129", RangeProblem::BadPrefix { max: 128 }),
        ("fd10::/256", RangeProblem::BadPrefix { max: 128 }),
        ("::ffff:10.10.5.0/120", RangeProblem::Mapped),
    ] {
        assert_eq!(
            refused(range(subnet, "", "", "")),
            (RangeField::Subnet, problem),
            "{subnet}"
        );
    }
}

#[test]
fn rng_2_defaults() {
    let of = |start, end, gateway| {
        let range = range("10.10.5.0/24", start, end, gateway).unwrap();
        (range.start(), range.end(), range.gateway())
    };
    let (first, last) = (ip("10.10.5.1"), ip("10.10.5.254"));
    assert_eq!(of("", "", ""), (first, last, Some(first)));
    // Each by itself.
    let value = ip("10.10.5.9");
    assert_eq!(of("10.10.5.9", "", ""), (value, last, Some(first)));
    assert_eq!(of("", "10.10.5.9", ""), (first, value, Some(first)));
    assert_eq!(of("", "", "10.10.5.9"), (first, last, Some(value)));
    // IPv6 has no broadcast address.
    let range = range("fd10:5::/124", "", "", "").unwrap();
    assert_eq!(
        (range.start(), range.end()),
        (ip("fd10:5::1"), ip("fd10:5::f"))
    );
    assert_eq!(range.gateway(), Some(ip("fd10:5::1")));
}

#[test]
fn rng_3_explicit_values() {
    let outside = || RangeProblem::Outside {
        subnet: "10.10.5.0/24".into(),
    };
    let network = || RangeProblem::Network {
        subnet: "10.10.5.0/24".into(),
    };
    let last = || RangeProblem::Last {
        subnet: "10.10.5.0/24".into(),
    };
    for (value, problem) in [
        ("10.10.5.0", network()),
        ("10.10.5.255", last()),
        ("10.10.6.1", outside()),
        ("fd10::1", outside()),
        ("::ffff:10.10.5.0", network()),
        ("10.10.5", RangeProblem::NotAnAddress),
        ("10.10.5.1 ", RangeProblem::NotAnAddress),
        ("10.10.5.01", RangeProblem::NotAnAddress),
    ] {
        let subnet = "10.10.5.9/24";
        assert_eq!(
            refused(range(subnet, value, "", "")),
            (RangeField::Start, problem.clone())
        );
        assert_eq!(
            refused(range(subnet, "", value, "")),
            (RangeField::End, problem.clone())
        );
        assert_eq!(
            refused(range(subnet, "", "", value)),
            (RangeField::Gateway, problem)
        );
    }
    let last6 = RangeProblem::Last {
        subnet: "fd10:5::/124".into(),
    };
    assert_eq!(
        refused(range("fd10:5::/124", "", "fd10:5::f", "")),
        (RangeField::End, last6)
    );
    let mapped = range("10.10.5.0/24", "::ffff:10.10.5.31", "::ffff:10.10.5.40", "").unwrap();
    assert_eq!(
        (mapped.start(), mapped.end()),
        (ip("10.10.5.31"), ip("10.10.5.40"))
    );
}

#[test]
fn rng_3_first_failure_in_the_order_of_the_fields() {
    let error = |subnet, start, end, gateway| refused(range(subnet, start, end, gateway)).0;
    assert_eq!(error("x", "x", "x", "x"), RangeField::Subnet);
    assert_eq!(error("10.0.0.0/24", "x", "x", "x"), RangeField::Start);
    assert_eq!(error("10.0.0.0/24", "10.0.0.1", "x", "x"), RangeField::End);
    assert_eq!(
        error("10.0.0.0/24", "10.0.0.1", "10.0.0.2", "x"),
        RangeField::Gateway
    );
}

#[test]
fn rng_4_swapped() {
    let a = range("10.10.5.0/24", "10.10.5.40", "10.10.5.31", "").unwrap();
    assert_eq!(
        a,
        range("10.10.5.0/24", "10.10.5.31", "10.10.5.40", "").unwrap()
    );
}

#[test]
fn rng_5_no_gateway_of_any_range_is_handed_out() {
    let specs = [
        spec("10.0.0.0/24", "10.0.0.10", "10.0.0.20", "10.0.0.1"),
        spec("10.0.0.0/24", "10.0.0.1", "10.0.0.9", "10.0.0.254"),
    ];
    let pool = PoolRanges::parse(&specs).unwrap();
    assert!(pool.contains(ip("10.0.0.1")));
    assert!(!pool.usable(ip("10.0.0.1")));
    assert_eq!(pool.total(), 11 + 8);
}

#[test]
fn rng_6_host_prefix() {
    for (subnet, address) in [
        ("10.10.5.8/32", "10.10.5.8"),
        ("255.255.255.255/32", "255.255.255.255"),
        ("fd10:5::9/128", "fd10:5::9"),
    ] {
        for (start, end) in [("", ""), (address, ""), ("", address), (address, address)] {
            let host = range(subnet, start, end, "").unwrap();
            assert_eq!((host.start(), host.end()), (ip(address), ip(address)));
            assert_eq!((host.gateway(), host.total()), (None, 1));
        }
        let (field, problem) = refused(range(subnet, "", "", address));
        assert_eq!(field, RangeField::Gateway);
        assert!(matches!(problem, RangeProblem::HostGateway { .. }));
        let (_, problem) = refused(range(subnet, "10.10.5.9", "", ""));
        assert!(matches!(problem, RangeProblem::Outside { .. }));
    }
}

#[test]
fn rng_7_two_address_subnets_take_no_explicit_value() {
    for (subnet, low, high) in [
        ("10.10.5.6/31", "10.10.5.6", "10.10.5.7"),
        ("fd10:5::/127", "fd10:5::", "fd10:5::1"),
    ] {
        for value in [low, high] {
            assert_eq!(refused(range(subnet, value, "", "")).0, RangeField::Start);
            assert_eq!(refused(range(subnet, "", value, "")).0, RangeField::End);
            assert_eq!(refused(range(subnet, "", "", value)).0, RangeField::Gateway);
        }
    }
    let pair = pool(&[("10.10.5.6/31", "", "")]);
    assert!(pair.usable(ip("10.10.5.6")) && !pair.usable(ip("10.10.5.7")));
}

#[test]
fn rng_8_total_saturates() {
    for subnet in ["fd10:5::/64", "fd10:5::/63", "::/0"] {
        assert_eq!(
            range(subnet, "", "", "").unwrap().total(),
            i64::MAX,
            "{subnet}"
        );
    }
    assert_eq!(
        range("fd10:5::/66", "", "", "").unwrap().total(),
        (1 << 62) - 2
    );
    assert_eq!(
        pool(&[("::/1", "", ""), ("8000::/1", "", "")]).total(),
        i64::MAX
    );
}

#[test]
fn rng_9_nothing_to_hand_out_is_accepted() {
    let pool = pool(&[
        ("10.0.0.0/30", "", ""),
        ("10.0.1.0/24", "10.0.1.1", "10.0.1.1"),
    ]);
    assert_eq!(pool.empty_ranges(), [1]);
    assert_eq!(pool.total(), 1);
}

#[test]
fn rng_10_total_is_the_sum() {
    let pool = pool(&[("10.10.5.0/28", "", ""), ("10.10.6.0/28", "", "")]);
    assert_eq!(pool.total(), 26);
    let starts: Vec<_> = pool.ranges().iter().map(Range::start).collect();
    assert_eq!(starts, [ip("10.10.5.1"), ip("10.10.6.1")]);
}

#[test]
fn rng_error_names_range_field_value_and_remedy() {
    let specs = [
        spec("10.0.0.0/24", "", "", ""),
        spec("10.0.1.0/24", "", "10.0.2.7", ""),
    ];
    assert_eq!(
        PoolRanges::parse(&specs).unwrap_err().to_string(),
        "spec.ranges[1].rangeEnd \"10.0.2.7\" is outside the subnet 10.0.1.0/24; \
         choose an address of the subnet"
    );
    assert_eq!(PoolRanges::parse(&[]), Err(RangeError::Empty));
    let long = PoolRanges::parse(&[spec(&"9".repeat(100_000), "", "", "")]).unwrap_err();
    assert!(long.to_string().len() < 300);
}

#[test]
fn alc_6_mask_text() {
    for (subnet, mask) in [
        ("10.10.5.0/24", "255.255.255.0"),
        ("10.10.5.64/26", "255.255.255.192"),
        ("10.10.5.8/32", "255.255.255.255"),
        ("0.0.0.0/0", "0.0.0.0"),
        ("fd10:5::/64", "ffff:ffff:ffff:ffff::"),
        ("fd10:5::9/128", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ] {
        assert_eq!(range(subnet, "", "", "").unwrap().mask(), mask);
    }
}

#[test]
fn overlap_by_end_points() {
    let part = |start, end| range("10.10.5.0/24", start, end, "").unwrap();
    let (low, high) = (
        part("10.10.5.10", "10.10.5.20"),
        part("10.10.5.21", "10.10.5.30"),
    );
    assert!(!low.overlaps(&high) && !high.overlaps(&low));
    assert!(low.overlaps(&low));
    let whole = part("", "");
    assert!(whole.overlaps(&low) && low.overlaps(&whole));
    let six = range("::/64", "", "", "").unwrap();
    assert!(!six.overlaps(&whole) && !whole.overlaps(&six));
}

#[test]
fn pv_2_own_overlaps_are_named_and_counted_once() {
    let pool = pool(&[
        ("10.10.5.0/24", "", ""),
        ("10.10.5.0/24", "10.10.5.10", "10.10.5.20"),
    ]);
    assert_eq!(pool.own_overlaps(), [(0, 1)]);
    assert_eq!(pool.total(), 253);
}

#[test]
fn pv_3_overlaps_between_pools() {
    let a = pool(&[("10.10.6.0/24", "", ""), ("10.10.5.0/25", "", "")]);
    let b = pool(&[("10.10.5.128/25", "", ""), ("fd10::/64", "", "")]);
    assert_eq!(a.overlaps(&b), []);
    let c = pool(&[
        ("10.10.5.0/24", "10.10.5.100", "10.10.5.200"),
        ("10.10.0.0/16", "", ""),
    ]);
    assert_eq!(a.overlaps(&c), [(0, 1), (1, 0), (1, 1)]);
    assert_eq!(b.overlaps(&c), [(0, 0), (0, 1)]);
}

#[test]
fn alc_3_search_start() {
    let pool = pool(&[
        ("172.20.1.0/24", "172.20.1.10", "172.20.1.11"),
        ("172.20.2.0/30", "", ""),
    ]);
    for (last, segment, from) in [
        (None, 0, "172.20.1.10"),
        (Some("9.9.9.9"), 0, "172.20.1.10"),
        (Some("172.20.1.1"), 0, "172.20.1.10"),
        (Some("172.20.1.10"), 0, "172.20.1.11"),
        (Some("172.20.1.11"), 1, "172.20.2.2"),
        (Some("172.20.2.1"), 1, "172.20.2.2"),
        (Some("172.20.2.2"), 0, "172.20.1.10"),
    ] {
        assert_eq!(
            pool.search_start(last.map(ip)),
            Some((segment, ip(from))),
            "{last:?}"
        );
    }
}

#[test]
fn ten_thousand_ranges_are_no_burden() {
    let specs: Vec<_> = (0..10_000u32)
        .map(|n| {
            let base = Ipv4Addr::from_bits(0x0a00_0000 + n * 8);
            RangeSpec {
                subnet: format!("{base}/29"),
                ..RangeSpec::default()
            }
        })
        .collect();
    let pool = PoolRanges::parse(&specs).unwrap();
    assert_eq!(pool.total(), 50_000);
    assert_eq!(pool.own_overlaps(), []);
    assert_eq!(pool.overlaps(&pool).len(), 10_000);
    assert!(pool.usable(ip("10.0.0.2")) && !pool.usable(ip("10.0.0.9")));
    let same = vec![specs[0].clone(); 10_000];
    assert_eq!(
        PoolRanges::parse(&same).unwrap().own_overlaps().len(),
        9_999
    );
}

/// A small subnet with optional explicit values, as offsets from its first address.
fn small() -> impl Strategy<Value = (bool, u8, u32, [Option<u32>; 3])> {
    let offset = || prop::option::of(0u32..70);
    (
        any::<bool>(),
        26u8..=32,
        0u32..256,
        [offset(), offset(), offset()],
    )
}

fn render((six, prefix, base, offsets): (bool, u8, u32, [Option<u32>; 3])) -> RangeSpec {
    let text = |n: u32| {
        if six {
            Ipv6Addr::from_bits((0xfd10 << 112) + u128::from(n)).to_string()
        } else {
            Ipv4Addr::from_bits(0x0a0a_0500 + n).to_string()
        }
    };
    let size = 1u32 << (32 - prefix);
    let network = base / size * size;
    let [start, end, gateway] =
        offsets.map(|offset| offset.map(|n| text(network + n % (size + 2))));
    let prefix = if six { prefix + 96 } else { prefix };
    RangeSpec {
        subnet: format!("{}/{prefix}", text(base)),
        start,
        end,
        gateway,
    }
}

proptest! {
    #[test]
    fn rng_5_total_is_what_can_be_enumerated(shape in small()) {
        if let Ok(range) = Range::parse(&render(shape)) {
            let all = std::iter::successors(Some(range.start()), |a| addr::next(*a))
                .take_while(|a| *a <= range.end());
            let free = all.filter(|a| Some(*a) != range.gateway()).count();
            prop_assert_eq!(usize::try_from(range.total()).unwrap(), free);
            prop_assert!(range.start() <= range.end());
            prop_assert!(range.subnet_contains(range.start()));
            prop_assert!(range.subnet_contains(range.end()));
        }
    }

    #[test]
    fn rng_10_pool_agrees_with_enumeration(shapes in prop::collection::vec(small(), 1..6)) {
        let specs: Vec<_> = shapes.into_iter().map(render)
            .filter(|spec| Range::parse(spec).is_ok()).collect();
        if specs.is_empty() {
            return Ok(());
        }
        let pool = PoolRanges::parse(&specs).unwrap();
        let gateways: Vec<_> = pool.ranges().iter().filter_map(Range::gateway).collect();
        let mut free = 0;
        for n in 0..340u32 {
            for at in [
                IpAddr::from(Ipv4Addr::from_bits(0x0a0a_0500 + n)),
                IpAddr::from(Ipv6Addr::from_bits((0xfd10 << 112) + u128::from(n))),
            ] {
                let first = pool.ranges().iter().position(|range| range.contains(at));
                prop_assert_eq!(pool.contains(at), first.is_some());
                prop_assert_eq!(pool.range_of(at), first.map(|n| &pool.ranges()[n]));
                let usable = first.is_some() && !gateways.contains(&at);
                prop_assert_eq!(pool.usable(at), usable);
                free += i64::from(usable);
            }
        }
        prop_assert_eq!(pool.total(), free);
        let meets = |n: usize| pool.ranges()[..n].iter().any(|r| r.overlaps(&pool.ranges()[n]));
        let later: Vec<_> = (0..specs.len()).filter(|n| meets(*n)).collect();
        let named: Vec<_> = pool.own_overlaps().iter().map(|(_, later)| *later).collect();
        prop_assert_eq!(named, later);
    }

    #[test]
    fn pv_3_overlaps_agree_with_pairs(
        ours in prop::collection::vec(small(), 1..5),
        theirs in prop::collection::vec(small(), 1..5),
    ) {
        let read = |shapes: Vec<_>| {
            let specs: Vec<_> = shapes.into_iter().map(render).collect();
            PoolRanges::parse(&specs).ok().filter(|pool| pool.own_overlaps().is_empty())
        };
        if let (Some(ours), Some(theirs)) = (read(ours), read(theirs)) {
            let mut pairs = Vec::new();
            for (i, a) in ours.ranges().iter().enumerate() {
                for (j, b) in theirs.ranges().iter().enumerate() {
                    if a.overlaps(b) {
                        pairs.push((i, j));
                    }
                }
            }
            prop_assert_eq!(ours.overlaps(&theirs), pairs);
        }
    }

    #[test]
    fn rng_1_any_text_is_judged_without_panic(
        subnet in ".{0,30}|[0-9a-f.:/]{0,24}", start in "[0-9a-f.:]{0,20}",
    ) {
        let _ = range(&subnet, &start, "", "");
    }
}
