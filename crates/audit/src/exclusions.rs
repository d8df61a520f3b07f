//! The list of addresses that a pool excludes (EXC-1), read in the most literal way.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use harvester_lb_api::{IPPool, keys};

use crate::meta::annotation;

/// Most entries of a list.
const MOST: usize = 1_024;

/// First and last address of each entry; `None`: the list is invalid.
pub(crate) fn excluded(pool: &IPPool) -> Option<Vec<(IpAddr, IpAddr)>> {
    let list = annotation(&pool.metadata, keys::ANNOTATION_EXCLUDE).unwrap_or_default();
    let entries = list.split(',').map(str::trim);
    let entries: Vec<&str> = entries.filter(|entry| !entry.is_empty()).collect();
    if entries.len() > MOST {
        return None;
    }
    entries.into_iter().map(entry).collect()
}

fn entry(text: &str) -> Option<(IpAddr, IpAddr)> {
    if let Some((first, last)) = text.split_once('-') {
        let (first, last) = (address(first)?, address(last)?);
        return (first.is_ipv4() == last.is_ipv4() && first <= last).then_some((first, last));
    }
    let Some((network, prefix)) = text.split_once('/') else {
        let address = address(text)?;
        return Some((address, address));
    };
    if !prefix.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let prefix: u32 = prefix.parse().ok()?;
    match address(network)? {
        IpAddr::V4(network) => {
            let hosts = u32::MAX.checked_shr(prefix).unwrap_or(0);
            let first = network.to_bits() & !hosts;
            let [first, last] = [first, first | hosts].map(Ipv4Addr::from_bits);
            (prefix <= 32).then_some((first.into(), last.into()))
        }
        IpAddr::V6(network) => {
            let hosts = u128::MAX.checked_shr(prefix).unwrap_or(0);
            let first = network.to_bits() & !hosts;
            let [first, last] = [first, first | hosts].map(Ipv6Addr::from_bits);
            (prefix <= 128).then_some((first.into(), last.into()))
        }
    }
}

fn address(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.trim().parse().ok()?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(list: &str) -> Option<String> {
        let pool: IPPool = serde_json::from_value(json!({
            "metadata": {"name": "p", "annotations": {keys::ANNOTATION_EXCLUDE: list}},
            "spec": {"ranges": []},
        }))
        .unwrap();
        let spans = excluded(&pool)?.into_iter();
        let texts: Vec<String> = spans.map(|(a, b)| format!("{a}-{b}")).collect();
        Some(texts.join(" "))
    }

    #[test]
    fn exc_1_lists_are_read() {
        for (list, expected) in [
            ("", ""),
            (" , ", ""),
            (
                "10.0.0.5, 10.0.0.8-10.0.0.12,10.0.1.0/28",
                "10.0.0.5-10.0.0.5 10.0.0.8-10.0.0.12 10.0.1.0-10.0.1.15",
            ),
            ("10.0.1.9/28", "10.0.1.0-10.0.1.15"),
            ("0.0.0.0/0", "0.0.0.0-255.255.255.255"),
            ("10.0.0.5/32", "10.0.0.5-10.0.0.5"),
            ("fd10::/127", "fd10::-fd10::1"),
            ("::ffff:10.0.0.5", "10.0.0.5-10.0.0.5"),
        ] {
            assert_eq!(of(list).as_deref(), Some(expected), "{list:?}");
        }
        for list in [
            "x",
            "10.0.0.5-x",
            "10.0.0.5-fd10::5",
            "10.0.0.12-10.0.0.8",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "fd10::/129",
            &vec!["10.0.0.5"; 1_025].join(","),
        ] {
            assert_eq!(of(list), None, "{list:?}");
        }
    }
}
