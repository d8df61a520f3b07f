//! Ranges of a pool (RNG-1 to RNG-10) and interval sets, compared with arithmetic on plain 128-bit numbers.
//!
//! The first line of the input is steps of an interval set; each further line is `subnet start end gateway`, separated
//! by `|`.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use harvester_lb_ipam::{IntervalSet, PoolRanges, Range, RangeSpec};

/// Runs an input; returns whether it got past the decoder.
pub fn run(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let mut lines = text.split('\n');
    intervals(lines.next().unwrap_or_default().as_bytes());
    let specs: Vec<RangeSpec> = lines.take(24).map(spec).collect();
    let parsed: Vec<Option<Naive>> = specs.iter().map(naive).collect();
    for (spec, wanted) in specs.iter().zip(&parsed) {
        one(spec, wanted.as_ref());
    }
    let naive: Option<Vec<Naive>> = parsed.into_iter().collect();
    match (PoolRanges::parse(&specs), naive) {
        (Ok(ranges), Some(naive)) => all(&ranges, &naive),
        (Err(error), naive) => {
            assert!(naive.is_none() || specs.is_empty());
            assert!(error.to_string().len() < 1_024);
        }
        (Ok(_), None) => panic!("a bad range was taken"),
    }
    true
}

fn spec(line: &str) -> RangeSpec {
    let mut parts = line.split('|');
    let subnet = parts.next().unwrap_or_default().to_owned();
    let mut rest = || parts.next().map(str::to_owned);
    RangeSpec {
        subnet,
        start: rest(),
        end: rest(),
        gateway: rest(),
    }
}

/// A range as numbers.
#[derive(Clone, Copy, Debug)]
struct Naive {
    v6: bool,
    start: u128,
    end: u128,
    gateway: Option<u128>,
}

fn bits(addr: IpAddr) -> (bool, u128) {
    match addr {
        IpAddr::V4(v4) => (false, u128::from(u32::from(v4))),
        IpAddr::V6(v6) => (true, u128::from(v6)),
    }
}

fn addr(v6: bool, bits: u128) -> IpAddr {
    if v6 {
        Ipv6Addr::from(bits).into()
    } else {
        Ipv4Addr::from(u32::try_from(bits).unwrap()).into()
    }
}

/// The rules, implemented literally.
fn naive(spec: &RangeSpec) -> Option<Naive> {
    let (address, prefix) = spec.subnet.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let (v6, address) = bits(address);
    let width = if v6 { 128 } else { 32 };
    if prefix.is_empty()
        || !prefix.bytes().all(|b| b.is_ascii_digit())
        || prefix.parse::<u8>().is_err()
    {
        return None;
    }
    let prefix: u32 = prefix.parse().ok()?;
    if prefix > width || (v6 && address >> 32 == 0xffff) {
        return None;
    }
    let hosts = width - prefix;
    let free = if hosts == 128 {
        u128::MAX
    } else {
        (1 << hosts) - 1
    };
    let (network, last) = (address & !free, address | free);
    let explicit = |text: &Option<String>| -> Result<Option<u128>, ()> {
        let Some(text) = text.as_deref().filter(|t| !t.is_empty()) else {
            return Ok(None);
        };
        let (mut of_v6, mut at) = bits(text.parse::<IpAddr>().map_err(|_| ())?);
        if of_v6 && at >> 32 == 0xffff {
            (of_v6, at) = (false, at & 0xffff_ffff);
        }
        let inside = of_v6 == v6 && network <= at && at <= last;
        let edge = hosts > 0 && (at == network || at == last);
        if inside && !edge {
            Ok(Some(at))
        } else {
            Err(())
        }
    };
    let start = explicit(&spec.start).ok()?;
    let end = explicit(&spec.end).ok()?;
    let gateway = explicit(&spec.gateway).ok()?;
    if hosts == 0 {
        return gateway.is_none().then_some(Naive {
            v6,
            start: network,
            end: network,
            gateway: None,
        });
    }
    let default_end = if v6 { last } else { last - 1 };
    let (a, b) = (start.unwrap_or(network + 1), end.unwrap_or(default_end));
    Some(Naive {
        v6,
        start: a.min(b),
        end: a.max(b),
        gateway: Some(gateway.unwrap_or(network + 1)),
    })
}

fn one(spec: &RangeSpec, wanted: Option<&Naive>) {
    match (Range::parse(spec), wanted) {
        (Ok(range), Some(wanted)) => {
            assert_eq!(bits(range.start()), (wanted.v6, wanted.start));
            assert_eq!(bits(range.end()), (wanted.v6, wanted.end));
            assert_eq!(range.gateway().map(|g| bits(g).1), wanted.gateway);
            let inside = wanted
                .gateway
                .is_some_and(|g| wanted.start <= g && g <= wanted.end);
            let total = (wanted.end - wanted.start) + 1 - u128::from(inside);
            assert_eq!(range.total(), i64::try_from(total).unwrap_or(i64::MAX));
            assert!(range.mask().parse::<IpAddr>().is_ok());
        }
        (Err(error), None) => assert!(error.to_string().contains("spec.ranges[0].")),
        (got, wanted) => panic!("{spec:?}: {got:?}, not {wanted:?}"),
    }
}

fn all(ranges: &PoolRanges, naive: &[Naive]) {
    let inside = |v6: bool, at: u128| {
        naive
            .iter()
            .any(|r| r.v6 == v6 && r.start <= at && at <= r.end)
    };
    let is_gateway = |v6: bool, at: u128| naive.iter().any(|r| r.v6 == v6 && r.gateway == Some(at));
    // The boundaries at which the result can change.
    let mut edges = BTreeSet::new();
    for range in naive {
        let max = if range.v6 {
            u128::MAX
        } else {
            u128::from(u32::MAX)
        };
        let gateway = range.gateway.unwrap_or(range.start);
        for at in [range.start, range.end, gateway, 0, max] {
            edges.extend(
                [at, at.saturating_sub(1), at.saturating_add(1).min(max)].map(|at| (range.v6, at)),
            );
        }
    }
    for (v6, at) in edges {
        let addr = addr(v6, at);
        assert_eq!(ranges.contains(addr), inside(v6, at), "{addr}");
        assert_eq!(
            ranges.usable(addr),
            inside(v6, at) && !is_gateway(v6, at),
            "{addr}"
        );
        let first = naive
            .iter()
            .position(|r| r.v6 == v6 && r.start <= at && at <= r.end);
        let found = ranges
            .range_of(addr)
            .map(|r| ranges.ranges().iter().position(|o| o == r).unwrap());
        match (found, first) {
            // Of equal ranges the first counts.
            (Some(found), Some(first)) => {
                assert_eq!(ranges.ranges()[found], ranges.ranges()[first]);
            }
            (found, first) => assert_eq!(found, first, "{addr}"),
        }
    }
    // RNG-10 where ranges overlap: each address counts once.
    let mut total = 0u128;
    for v6 in [false, true] {
        let mut spans: Vec<(u128, u128)> = naive
            .iter()
            .filter(|r| r.v6 == v6)
            .map(|r| (r.start, r.end))
            .collect();
        spans.sort_unstable();
        let mut next = 0u128;
        let mut done = false;
        for (start, end) in spans {
            let from = start.max(next);
            if done || from > end {
                continue;
            }
            total = total.saturating_add((end - from).saturating_add(1));
            (next, done) = end.checked_add(1).map_or((0, true), |next| (next, false));
        }
        let gateways: BTreeSet<u128> = naive
            .iter()
            .filter(|r| r.v6 == v6)
            .filter_map(|r| r.gateway)
            .filter(|g| inside(v6, *g))
            .collect();
        total = total.saturating_sub(gateways.len() as u128);
    }
    assert_eq!(ranges.total(), i64::try_from(total).unwrap_or(i64::MAX));
    let meets = |a: &Naive, b: &Naive| a.v6 == b.v6 && a.start <= b.end && b.start <= a.end;
    let overlap = naive
        .iter()
        .enumerate()
        .any(|(n, a)| naive[..n].iter().any(|b| meets(a, b)));
    assert_eq!(!ranges.own_overlaps().is_empty(), overlap);
    for (a, b) in ranges.own_overlaps() {
        assert!(a < b && meets(&naive[*a], &naive[*b]));
    }
    for (a, b) in ranges.overlaps(ranges) {
        assert!(meets(&naive[a], &naive[b]));
    }
    for (n, range) in ranges.ranges().iter().enumerate() {
        assert_eq!(ranges.empty_ranges().contains(&n), range.total() == 0);
    }
}

/// Steps of two bytes each on the last 64 addresses of a family, where arithmetic overflows.
fn intervals(steps: &[u8]) {
    const SIZE: u8 = 64;
    let mut set = IntervalSet::new();
    let mut model = [[false; SIZE as usize]; 2];
    let at = |v6: bool, n: u8| {
        let max = if v6 { u128::MAX } else { u128::from(u32::MAX) };
        addr(v6, max - u128::from(SIZE - 1 - n % SIZE))
    };
    for step in steps.chunks_exact(3).take(200) {
        let (v6, a, b) = (step[0] & 1 == 1, step[1] % SIZE, step[2] % SIZE);
        let of = &mut model[usize::from(v6)];
        match step[0] >> 1 & 3 {
            0 => {
                assert_eq!(set.insert(at(v6, a)), !of[usize::from(a)]);
                of[usize::from(a)] = true;
            }
            1 => {
                assert_eq!(set.remove(at(v6, a)), of[usize::from(a)]);
                of[usize::from(a)] = false;
            }
            _ => {
                set.insert_span(at(v6, a), at(v6, b));
                if a <= b {
                    of[usize::from(a)..=usize::from(b)].fill(true);
                }
            }
        }
        let (low, high) = (usize::from(a.min(b)), usize::from(a.max(b)));
        let (from, to) = (at(v6, a.min(b)), at(v6, a.max(b)));
        let held = of[low..=high].iter().filter(|held| **held).count();
        assert_eq!(set.count(from, to), held as u128);
        let free: u128 = set
            .gaps(from, to)
            .iter()
            .map(|(a, b)| bits(*b).1 - bits(*a).1 + 1)
            .sum();
        assert_eq!(free, (high - low + 1 - held) as u128);
        let absent = (low..usize::from(SIZE)).find(|n| !of[*n]);
        assert_eq!(
            set.first_absent_from(from),
            absent.map(|n| at(v6, u8::try_from(n).unwrap()))
        );
        assert_eq!(set.contains(from), of[low]);
        assert_eq!(set.first_within(from, to).is_some(), held > 0);
    }
    let spans: usize = model
        .iter()
        .map(|of| {
            (0..usize::from(SIZE))
                .filter(|n| of[*n] && (*n == 0 || !of[n - 1]))
                .count()
        })
        .sum();
    assert_eq!(set.intervals(), spans);
}
