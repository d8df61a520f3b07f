//! The addresses of a pool (section 4), parsed and counted in the most literal way.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use harvester_lb_api::ippool::Range;

/// The ranges of a pool, parsed.
#[derive(Debug)]
pub(crate) enum Ranges {
    /// One of them is invalid (RNG-1, RNG-3).
    Invalid,
    /// There is none, or one is of a kind that this module does not handle: a subnet of one or two addresses, or /0.
    Unknown,
    /// All are valid, and of subnets that this module handles.
    Plain(Plain),
}

/// Ranges that this module handles.
#[derive(Debug, Default)]
pub(crate) struct Plain {
    spans: Vec<Span>,
    gateways: BTreeSet<IpAddr>,
    /// The addresses that the pool excludes, in its ranges or not (EXC-2).
    excluded: Vec<Span>,
    /// The addresses that are not excluded, as spans that do not overlap; gateways included.
    left: Vec<Span>,
}

/// Addresses of one family, first and last inclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    v4: bool,
    bits: RangeInclusive<u128>,
}

impl Span {
    fn contains(&self, addr: IpAddr) -> bool {
        self.v4 == addr.is_ipv4() && self.bits.contains(&bits(addr))
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.v4 == other.v4
            && self.bits.start() <= other.bits.end()
            && other.bits.start() <= self.bits.end()
    }

    fn addr(&self, bits: u128) -> IpAddr {
        match u32::try_from(bits) {
            Ok(bits) if self.v4 => Ipv4Addr::from_bits(bits).into(),
            _ => Ipv6Addr::from_bits(bits).into(),
        }
    }
}

fn bits(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(addr) => addr.to_bits().into(),
        IpAddr::V6(addr) => addr.to_bits(),
    }
}

impl Ranges {
    /// Reads the ranges of a pool. `excluded`: first and last address of each entry of its list.
    pub(crate) fn read(ranges: &[Range], excluded: &[(IpAddr, IpAddr)]) -> Self {
        let excluded = excluded.iter().map(|(first, last)| Span {
            v4: first.is_ipv4(),
            bits: bits(*first)..=bits(*last),
        });
        let mut plain = Plain {
            excluded: excluded.collect(),
            ..Plain::default()
        };
        let mut unknown = ranges.is_empty();
        for range in ranges {
            match one(range) {
                Err(NotCounted::Invalid) => return Self::Invalid,
                Err(NotCounted::Unknown) => unknown = true,
                Ok((span, gateway)) => {
                    plain.spans.push(span);
                    plain.gateways.insert(gateway);
                }
            }
        }
        if unknown {
            Self::Unknown
        } else {
            plain.left = plain.all_left();
            Self::Plain(plain)
        }
    }

    /// The ranges, if they are plain.
    pub(crate) fn plain(&self) -> Option<&Plain> {
        match self {
            Self::Plain(plain) => Some(plain),
            Self::Invalid | Self::Unknown => None,
        }
    }
}

/// Why a range is not counted here.
enum NotCounted {
    Invalid,
    Unknown,
}

/// A range and its gateway.
fn one(range: &Range) -> Result<(Span, IpAddr), NotCounted> {
    let (network, prefix) = range.subnet.split_once('/').ok_or(NotCounted::Invalid)?;
    let network: IpAddr = network.parse().map_err(|_| NotCounted::Invalid)?;
    let digits = prefix.bytes().all(|b| b.is_ascii_digit());
    let prefix: u32 = prefix.parse().map_err(|_| NotCounted::Invalid)?;
    if !digits || network.to_canonical() != network {
        return Err(NotCounted::Invalid);
    }
    let (v4, width) = (network.is_ipv4(), if network.is_ipv4() { 32 } else { 128 });
    if prefix > width {
        return Err(NotCounted::Invalid);
    }
    if prefix > width - 2 || prefix == 0 {
        return Err(NotCounted::Unknown);
    }
    let size = 1_u128 << (width - prefix);
    let network = bits(network) & !(size - 1);
    // Without the first and the last address of the subnet, which no field may name (RNG-3).
    let hosts = network + 1..=network + (size - 2);
    let given = |text: Option<&String>, otherwise: u128| {
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            return Ok(otherwise);
        };
        let addr: IpAddr = text.parse().map_err(|_| NotCounted::Invalid)?;
        let addr = addr.to_canonical();
        let inside = addr.is_ipv4() == v4 && hosts.contains(&bits(addr));
        inside.then(|| bits(addr)).ok_or(NotCounted::Invalid)
    };
    let last = if v4 { *hosts.end() } else { hosts.end() + 1 };
    let start = given(range.range_start.as_ref(), *hosts.start())?;
    let end = given(range.range_end.as_ref(), last)?;
    let gateway = given(range.gateway.as_ref(), *hosts.start())?;
    // RNG-4.
    let bits = start.min(end)..=start.max(end);
    let span = Span { v4, bits };
    let gateway = span.addr(gateway);
    Ok((span, gateway))
}

impl Plain {
    /// Whether an address can be allocated (RNG-5, EXC-2).
    pub(crate) fn contains(&self, addr: IpAddr) -> bool {
        !self.gateways.contains(&addr)
            && self.spans.iter().any(|span| span.contains(addr))
            && !self.excludes(addr)
    }

    /// Whether an address is in a range and excluded (EXC-3).
    pub(crate) fn excludes(&self, addr: IpAddr) -> bool {
        let is_in = |spans: &[Span]| spans.iter().any(|span| span.contains(addr));
        is_in(&self.spans) && is_in(&self.excluded)
    }

    /// Whether any address is excluded.
    pub(crate) fn has_exclusions(&self) -> bool {
        !self.excluded.is_empty()
    }

    /// Number of addresses that can be allocated (RNG-10). `v4`: only IPv4 addresses.
    pub(crate) fn size(&self, v4: bool) -> u128 {
        let spans = self.left.iter().filter(|span| span.v4 || !v4);
        let size = |span: &Span| (span.bits.end() - span.bits.start()).saturating_add(1);
        let all = spans.clone().map(size).fold(0, u128::saturating_add);
        let gateways = self.gateways.iter();
        let inside = gateways.filter(|gateway| spans.clone().any(|span| span.contains(**gateway)));
        all - inside.count() as u128
    }

    /// Number of addresses of a set that can be allocated.
    pub(crate) fn count(&self, all: &BTreeSet<IpAddr>) -> usize {
        let inside = self.left.iter().flat_map(|span| {
            let (first, last) = (span.addr(*span.bits.start()), span.addr(*span.bits.end()));
            all.range(first..=last)
        });
        inside.filter(|addr| !self.gateways.contains(*addr)).count()
    }

    /// The first address in the order written that can be allocated and is not taken. `v4`: only IPv4 addresses.
    pub(crate) fn first_free(&self, taken: &BTreeSet<IpAddr>, v4: bool) -> Option<IpAddr> {
        let spans = self.spans.iter().filter(|span| span.v4 || !v4);
        let mut all = spans.flat_map(|span| {
            let left = without(span.clone(), &self.excluded).into_iter();
            left.flat_map(|span| span.bits.clone().map(move |bits| span.addr(bits)))
        });
        all.find(|addr| !taken.contains(addr) && !self.gateways.contains(addr))
    }

    fn all_left(&self) -> Vec<Span> {
        let disjoint = self.disjoint().into_iter();
        disjoint
            .flat_map(|span| without(span, &self.excluded))
            .collect()
    }

    /// The same addresses as spans that do not overlap.
    fn disjoint(&self) -> Vec<Span> {
        let mut spans = self.spans.clone();
        spans.sort_by_key(|span| (span.v4, *span.bits.start()));
        let mut disjoint: Vec<Span> = Vec::new();
        for span in spans {
            match disjoint.last_mut().filter(|last| last.overlaps(&span)) {
                Some(last) => {
                    let end = *last.bits.end().max(span.bits.end());
                    last.bits = *last.bits.start()..=end;
                }
                None => disjoint.push(span),
            }
        }
        disjoint
    }
}

/// A span without others: what is left of it.
fn without(span: Span, others: &[Span]) -> Vec<Span> {
    let mut left = vec![span];
    for other in others {
        left = left
            .into_iter()
            .flat_map(|span| {
                if !span.overlaps(other) {
                    return vec![span];
                }
                let (first, last) = (*span.bits.start(), *span.bits.end());
                let before = other.bits.start().checked_sub(1).map(|end| first..=end);
                let after = other.bits.end().checked_add(1).map(|start| start..=last);
                let v4 = span.v4;
                let both = before.into_iter().chain(after);
                both.filter(|bits| !bits.is_empty())
                    .map(|bits| Span { v4, bits })
                    .collect()
            })
            .collect();
    }
    left
}

/// The names of those pools whose ranges overlap those of a pool, by its name; gateways do not matter (IPA-4).
pub(crate) fn overlaps<'a, 'p>(
    pools: impl Iterator<Item = (&'a str, &'p Plain)>,
) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut spans: Vec<(&Span, &str)> = pools
        .flat_map(|(name, plain)| plain.spans.iter().map(move |span| (span, name)))
        .collect();
    spans.sort_by_key(|(span, name)| (span.v4, *span.bits.start(), *name));
    let mut overlaps: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    // Those that reach as far as the one under consideration; of pools that do not overlap at most one.
    let mut open: Vec<(&Span, &str)> = Vec::new();
    for (span, name) in spans {
        open.retain(|(other, _)| other.overlaps(span));
        for (_, other) in open.iter().filter(|(_, other)| *other != name) {
            overlaps.entry(name).or_default().insert(other);
            overlaps.entry(other).or_default().insert(name);
        }
        open.push((span, name));
    }
    overlaps
}

#[cfg(test)]
mod tests {
    use harvester_lb_fixtures::{part, subnet};
    use serde_json::{Value, json};

    use super::*;

    fn read(ranges: &[Value]) -> Ranges {
        let ranges: Vec<Range> = serde_json::from_value(json!(ranges)).unwrap();
        Ranges::read(&ranges, &[])
    }

    #[test]
    fn exc_2_what_is_excluded_is_not_counted() {
        let ranges = [subnet("10.0.0.0/24"), subnet("fd10:5::/124")];
        let ranges: Vec<Range> = serde_json::from_value(json!(ranges)).unwrap();
        let all = [
            ("10.0.0.0", "10.0.0.4"),
            ("10.0.0.9", "10.0.0.9"),
            ("10.0.0.8", "10.0.0.10"),
            ("10.0.9.0", "10.0.9.9"),
            ("fd10:5::2", "fd10:5::3"),
        ];
        let all = all.map(|(first, last)| (first.parse().unwrap(), last.parse().unwrap()));
        let ranges = Ranges::read(&ranges, &all);
        let plain = ranges.plain().unwrap();
        assert_eq!((plain.size(true), plain.size(false)), (247, 247 + 12));
        let first = plain.first_free(&BTreeSet::new(), false).unwrap();
        assert_eq!(first.to_string(), "10.0.0.5");
        for (address, can_be, is_excluded) in [
            ("10.0.0.1", false, true),
            ("10.0.0.5", true, false),
            ("10.0.0.9", false, true),
            ("10.0.9.1", false, false),
            ("fd10:5::3", false, true),
            ("fd10:5::4", true, false),
        ] {
            let address = address.parse().unwrap();
            let is = (plain.contains(address), plain.excludes(address));
            assert_eq!(is, (can_be, is_excluded), "{address}");
            let counted = plain.count(&BTreeSet::from([address]));
            assert_eq!(counted, usize::from(can_be), "{address}");
        }
    }

    fn total(ranges: &[Value]) -> Option<u128> {
        read(ranges).plain().map(|plain| plain.size(false))
    }

    #[test]
    fn rng_10_ranges_are_counted() {
        let with_gateway = |gateway: &str| {
            let mut range = part("10.10.5.0/24", "10.10.5.31", "10.10.5.40");
            range["gateway"] = gateway.into();
            range
        };
        let cases: [(&[Value], u128); 13] = [
            (&[subnet("10.0.0.0/24")], 253),
            (&[subnet("10.0.0.9/24"), subnet("10.0.1.0/24")], 506),
            (&[subnet("10.0.0.0/30")], 1),
            (&[subnet("10.0.0.0/16")], 65_533),
            (&[part("10.0.0.0/24", "10.0.0.5", "10.0.0.9")], 5),
            (&[part("10.0.0.0/24", "10.0.0.9", "10.0.0.5")], 5),
            (&[with_gateway("10.10.5.35")], 9),
            (&[with_gateway("")], 10),
            (&[subnet("10.0.0.0/24"), subnet("10.0.0.0/25")], 253),
            (&[subnet("fd10:5::/124")], 14),
            (&[part("fd10:5::/64", "fd10:5::100", "fd10:5::1ff")], 256),
            (&[subnet("fd10:5::/64")], (1 << 64) - 2),
            (&[subnet("fd10:5::/124"), subnet("10.0.0.0/30")], 15),
        ];
        for (ranges, addresses) in cases {
            assert_eq!(total(ranges), Some(addresses), "{ranges:?}");
        }
    }

    /// The size is the number of addresses that one gets one by one.
    #[test]
    fn rng_10_the_size_is_what_can_be_taken_one_by_one() {
        for ranges in [
            vec![subnet("10.0.0.0/29"), subnet("10.0.0.0/28")],
            vec![
                part("10.0.0.0/24", "10.0.0.1", "10.0.0.9"),
                part("10.0.0.0/24", "10.0.0.9", "10.0.0.12"),
                subnet("fd10:5::/124"),
            ],
        ] {
            let read = read(&ranges);
            let plain = read.plain().unwrap();
            for v4 in [false, true] {
                let mut taken = BTreeSet::new();
                while let Some(addr) = plain.first_free(&taken, v4) {
                    assert!(plain.contains(addr) && taken.insert(addr), "{addr}");
                }
                assert_eq!(plain.count(&taken), taken.len());
                let gateways = plain.gateways.iter().copied();
                taken.extend(
                    gateways
                        .chain(["10.0.0.0", "10.9.9.9", "fd10:6::1"].map(|a| a.parse().unwrap())),
                );
                let free = taken.iter().filter(|addr| plain.contains(**addr));
                assert_eq!(plain.count(&taken), free.count());
                taken.retain(|addr| plain.contains(*addr));
                assert_eq!(taken.len() as u128, plain.size(v4), "{ranges:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_is_told_from_what_is_not_known() {
        let plain = || subnet("10.9.0.0/24");
        for range in [
            subnet("10.0.0.0"),
            subnet("10.0.0.300/24"),
            subnet("10.0.0.0/33"),
            subnet("10.0.0.0/+24"),
            subnet("::ffff:10.0.0.0/120"),
            part("10.0.0.0/24", "10.0.1.5", ""),
            part("10.0.0.0/24", "x", ""),
            part("10.0.0.0/24", "10.0.0.0", ""),
            part("10.0.0.0/24", "", "10.0.0.255"),
            part("fd10:5::/64", "10.0.0.1", ""),
        ] {
            let read = read(&[plain(), range.clone()]);
            assert!(matches!(read, Ranges::Invalid), "{range}: {read:?}");
        }
        for ranges in [
            &[][..],
            &[plain(), subnet("10.0.0.0/31")],
            &[subnet("fd10:5::9/128")],
        ] {
            assert!(matches!(read(ranges), Ranges::Unknown), "{ranges:?}");
        }
    }

    #[test]
    fn pools_that_touch_do_not_overlap() {
        let read = |start: &str, end: &str| read(&[part("10.0.0.0/24", start, end)]);
        let a = read("10.0.0.10", "10.0.0.20");
        let overlap = |b: &Ranges| {
            let pools = [("a", &a), ("b", b)].into_iter();
            let found = overlaps(pools.filter_map(|(name, ranges)| Some((name, ranges.plain()?))));
            let both = BTreeMap::from([("a", BTreeSet::from(["b"])), ("b", BTreeSet::from(["a"]))]);
            assert!(found.is_empty() || found == both, "{found:?}");
            !found.is_empty()
        };
        assert!(!overlap(&read("10.0.0.21", "10.0.0.30")));
        assert!(overlap(&read("10.0.0.20", "10.0.0.30")));
        assert!(overlap(&read("10.0.0.12", "10.0.0.13")));
    }

    /// The same as comparing each with each.
    #[test]
    fn ipa_4_all_pools_that_overlap() {
        let pools: Vec<(String, Ranges)> = (0_u8..60)
            .map(|n| {
                let at = |step: u8| n.wrapping_mul(step) % 120 + 1;
                let one = |start: u8, size: u8| {
                    part(
                        "10.0.0.0/24",
                        &format!("10.0.0.{start}"),
                        &format!("10.0.0.{}", start + size),
                    )
                };
                let other = part(
                    "fd10::/112",
                    &format!("fd10::{n:x}1"),
                    &format!("fd10::{n:x}5"),
                );
                (
                    n.to_string(),
                    read(&[one(at(37), n % 4), one(at(11), 0), other]),
                )
            })
            .collect();
        let plain = || {
            let pools = pools.iter();
            pools.map(|(name, ranges)| (&**name, ranges.plain().unwrap()))
        };
        let found = overlaps(plain());
        let mut pairs = 0;
        for (a, one) in plain() {
            for (b, other) in plain().filter(|(b, _)| *b != a) {
                let meets = |span: &Span| other.spans.iter().any(|it| it.overlaps(span));
                let expected = one.spans.iter().any(meets);
                let is = found.get(a).is_some_and(|all| all.contains(b));
                assert_eq!(is, expected, "{a} and {b}");
                pairs += usize::from(is);
            }
        }
        assert!(pairs > 20 && pairs < 60 * 59 / 2, "{pairs}");
    }
}
