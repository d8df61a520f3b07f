//! The addresses of a pool, counted one by one: what `status.total` is held against. Slow, and short enough to be believed.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use harvester_lb_api::ippool::Range;

/// What ranges come to.
#[derive(Debug)]
pub(super) struct Counted {
    /// What can be given (RNG-5, RNG-10).
    pub(super) addresses: BTreeSet<Ipv4Addr>,
    /// What could be given if the ranges were as wide as their subnets. Where the search goes on after an edit may be
    /// outside of the new ranges (ALC-3), and nobody can tell from the present ones what they were before.
    pub(super) near: BTreeSet<Ipv4Addr>,
}

/// Counts ranges; none if one of them is not of the plain kind: IPv4, from 4 to 65,536 addresses in its subnet, and in order.
pub(super) fn count(ranges: &[Range]) -> Option<Counted> {
    let (mut addresses, mut near) = (BTreeSet::new(), BTreeSet::new());
    let mut gateways = BTreeSet::new();
    for range in ranges {
        let (network, prefix) = range.subnet.split_once('/')?;
        let prefix: u32 = prefix.parse().ok()?;
        if !(16..=30).contains(&prefix) {
            return None;
        }
        let size = 1_u32 << (32 - prefix);
        let network = u32::from(network.parse::<Ipv4Addr>().ok()?) & !(size - 1);
        // Without the network's address and the broadcast address.
        let hosts = network + 1..=network + (size - 2);
        let given = |text: Option<&String>, otherwise: u32| {
            let Some(text) = text.filter(|t| !t.is_empty()) else {
                return Some(otherwise);
            };
            let address = u32::from(text.parse::<Ipv4Addr>().ok()?);
            hosts.contains(&address).then_some(address)
        };
        let start = given(range.range_start.as_ref(), *hosts.start())?;
        let end = given(range.range_end.as_ref(), *hosts.end())?;
        gateways.insert(given(range.gateway.as_ref(), *hosts.start())?);
        // RNG-4.
        addresses.extend(start.min(end)..=start.max(end));
        near.extend(hosts);
    }
    let given = |all: BTreeSet<u32>| {
        let all = all.difference(&gateways);
        all.copied().map(Ipv4Addr::from).collect()
    };
    Some(Counted {
        addresses: given(addresses),
        near: given(near),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn counted(ranges: Value) -> Option<usize> {
        let ranges: Vec<Range> = serde_json::from_value(ranges).unwrap();
        count(&ranges).map(|c| c.addresses.len())
    }

    #[test]
    fn rng_10_ranges_are_counted() {
        for (ranges, total) in [
            (json!([{"subnet": "10.0.0.0/24"}]), 253),
            (
                json!([{"subnet": "10.0.0.9/24"}, {"subnet": "10.0.1.0/24"}]),
                506,
            ),
            (json!([{"subnet": "10.0.0.0/30"}]), 1),
            (json!([{"subnet": "10.0.0.0/16"}]), 65_533),
            (
                json!([{"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.5", "rangeEnd": "10.0.0.9"}]),
                5,
            ),
            (
                json!([{"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.9", "rangeEnd": "10.0.0.5"}]),
                5,
            ),
            (
                json!([{"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.5", "rangeEnd": "10.0.0.9", "gateway": "10.0.0.7"}]),
                4,
            ),
            (
                json!([{"subnet": "10.0.0.0/24"}, {"subnet": "10.0.0.0/25"}]),
                253,
            ),
        ] {
            assert_eq!(counted(ranges.clone()), Some(total), "{ranges}");
        }
    }

    #[test]
    fn what_is_not_plain_is_not_counted() {
        for range in [
            json!({"subnet": "fd10:5::/120"}),
            json!({"subnet": "10.0.0.0/31"}),
            json!({"subnet": "10.0.0.0/8"}),
            json!({"subnet": "10.0.0.0"}),
            json!({"subnet": "10.0.0.0/24", "rangeStart": "10.0.1.5"}),
            json!({"subnet": "10.0.0.0/24", "gateway": "10.0.0.255"}),
        ] {
            let plain = json!({"subnet": "10.9.0.0/24"});
            assert_eq!(counted(json!([plain, range])), None, "{range}");
        }
    }
}
