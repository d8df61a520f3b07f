//! Names and arithmetic of addresses.
//!
//! IPv4 and IPv6 are separate: `::ffff:10.0.0.1` is never `10.0.0.1`, and no arithmetic crosses
//! from one family into the other. The canonical text of an address is what `IpAddr` displays.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Parses an address: no whitespace, no zone, no leading zeros in an octet.
pub fn parse(text: &str) -> Option<IpAddr> {
    text.parse().ok()
}

/// Name of the IPAllocation of an address: the text of an IPv4 address; all 32 digits of an IPv6
/// address with `-` for `:`, because an object name must not contain `:` nor end in `-`.
pub fn record_name(addr: IpAddr) -> String {
    match addr {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => v6.segments().map(|group| format!("{group:04x}")).join("-"),
    }
}

/// The address that an IPAllocation is named after; `None` for every name that [`record_name`]
/// does not make.
pub fn parse_record_name(name: &str) -> Option<IpAddr> {
    if !name.contains('-') {
        return name.parse().ok().map(IpAddr::V4);
    }
    let mut groups = [0u16; 8];
    let mut parts = name.split('-');
    for group in &mut groups {
        let part = parts.next()?;
        let plain = part.len() == 4
            && part
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        *group = if plain {
            u16::from_str_radix(part, 16).ok()?
        } else {
            return None;
        };
    }
    parts
        .next()
        .is_none()
        .then(|| Ipv6Addr::from(groups).into())
}

/// The address after this one in its family.
pub fn next(addr: IpAddr) -> Option<IpAddr> {
    match addr {
        IpAddr::V4(v4) => v4
            .to_bits()
            .checked_add(1)
            .map(|bits| Ipv4Addr::from_bits(bits).into()),
        IpAddr::V6(v6) => v6
            .to_bits()
            .checked_add(1)
            .map(|bits| Ipv6Addr::from_bits(bits).into()),
    }
}

/// The address before this one in its family.
pub fn prev(addr: IpAddr) -> Option<IpAddr> {
    match addr {
        IpAddr::V4(v4) => v4
            .to_bits()
            .checked_sub(1)
            .map(|bits| Ipv4Addr::from_bits(bits).into()),
        IpAddr::V6(v6) => v6
            .to_bits()
            .checked_sub(1)
            .map(|bits| Ipv6Addr::from_bits(bits).into()),
    }
}

/// Number of addresses in `start..=end`: 0 when there are none or the families differ. Saturates
/// for all of IPv6, the only number that does not fit.
pub fn span(start: IpAddr, end: IpAddr) -> u128 {
    match (start, end) {
        (IpAddr::V4(a), IpAddr::V4(b)) if a <= b => u128::from(b.to_bits() - a.to_bits()) + 1,
        (IpAddr::V6(a), IpAddr::V6(b)) if a <= b => (b.to_bits() - a.to_bits()).saturating_add(1),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
