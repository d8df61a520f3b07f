//! One range of a pool: parses and validates the raw strings of the CRD.
//!
//! [`PoolRanges`], the ranges of a pool, is in the submodule `pool`.

mod pool;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::{IpNetwork, Ipv4Network, Ipv6Network};

use crate::addr;

pub use pool::PoolRanges;
pub(crate) use pool::Segment;

/// A range as written in a pool. An empty field counts as absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RangeSpec {
    /// `subnet`: address and prefix.
    pub subnet: String,
    /// `rangeStart`.
    pub start: Option<String>,
    /// `rangeEnd`.
    pub end: Option<String>,
    /// `gateway`.
    pub gateway: Option<String>,
}

/// A range that passed RNG-1 to RNG-7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    start: IpAddr,
    end: IpAddr,
    gateway: Option<IpAddr>,
    subnet: IpNetwork,
}

/// Field of a range that is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeField {
    /// `subnet`
    Subnet,
    /// `rangeStart`
    Start,
    /// `rangeEnd`
    End,
    /// `gateway`
    Gateway,
}

impl RangeField {
    /// The field's name in the CRD.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Subnet => "subnet",
            Self::Start => "rangeStart",
            Self::End => "rangeEnd",
            Self::Gateway => "gateway",
        }
    }
}

impl fmt::Display for RangeField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is wrong with a field, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeProblem {
    /// The subnet has no `/`.
    #[error("has no prefix length; write address/prefix, such as 10.10.5.0/24 or fd10:5::/64")]
    NoPrefix,
    /// Not the text of an address.
    #[error(
        "is not an IP address; write four octets without leading zeros or an IPv6 address, \
         without blanks and without a zone"
    )]
    NotAnAddress,
    /// The prefix is no number or too long.
    #[error("has no valid prefix length; write a number from 0 to {max}")]
    BadPrefix {
        /// The maximum of the address family.
        max: u8,
    },
    /// An IPv4-mapped IPv6 subnet.
    #[error("is an IPv4-mapped IPv6 subnet; write it as an IPv4 subnet")]
    Mapped,
    /// The address belongs to another subnet or family.
    #[error("is outside the subnet {subnet}; choose an address of the subnet")]
    Outside {
        /// The subnet, host bits masked off.
        subnet: String,
    },
    /// The first address of the subnet.
    #[error("is the network address of {subnet}; choose a later address")]
    Network {
        /// The subnet, host bits masked off.
        subnet: String,
    },
    /// The last address of the subnet.
    #[error("is the last address of {subnet}, which is reserved; choose an earlier address")]
    Last {
        /// The subnet, host bits masked off.
        subnet: String,
    },
    /// A gateway for a subnet of a single address.
    #[error("cannot be set, because {subnet} is a single address; leave it out")]
    HostGateway {
        /// The subnet.
        subnet: String,
    },
}

/// Why the ranges of a pool are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// PV-1: a pool has at least one range.
    #[error("the pool has no range; add at least one to spec.ranges")]
    Empty,
    /// The first field that is invalid.
    #[error("spec.ranges[{index}].{field} {value:?} {problem}")]
    Invalid {
        /// Position of the range in the list.
        index: usize,
        /// The field.
        field: RangeField,
        /// Its text, truncated to 64 characters.
        value: String,
        /// What is wrong with it.
        problem: RangeProblem,
    },
}

/// Characters of an invalid value that an error quotes.
const VALUE_SHOWN: usize = 64;

impl RangeError {
    fn new(field: RangeField, value: &str, problem: RangeProblem) -> Self {
        let value = value.chars().take(VALUE_SHOWN).collect();
        Self::Invalid {
            index: 0,
            field,
            value,
            problem,
        }
    }

    /// The same error for the range at this position.
    #[must_use]
    pub fn at(self, position: usize) -> Self {
        match self {
            Self::Empty => self,
            Self::Invalid {
                field,
                value,
                problem,
                ..
            } => Self::Invalid {
                index: position,
                field,
                value,
                problem,
            },
        }
    }
}

impl Range {
    /// Parses a range (RNG-1 to RNG-7). If start is after end, the two are swapped (RNG-4).
    ///
    /// # Errors
    ///
    /// The first invalid field, in the order subnet, start, end, gateway.
    pub fn parse(spec: &RangeSpec) -> Result<Self, RangeError> {
        let subnet = parse_subnet(&spec.subnet)
            .map_err(|problem| RangeError::new(RangeField::Subnet, &spec.subnet, problem))?;
        let explicit = |field: RangeField, text: &Option<String>| {
            text.as_deref()
                .filter(|text| !text.is_empty())
                .map(|text| {
                    parse_inside(subnet, field, text)
                        .map_err(|problem| RangeError::new(field, text, problem))
                })
                .transpose()
        };
        let start = explicit(RangeField::Start, &spec.start)?;
        let end = explicit(RangeField::End, &spec.end)?;
        let gateway = explicit(RangeField::Gateway, &spec.gateway)?;

        let network = subnet.network();
        if is_host(subnet) {
            return Ok(Self {
                start: network,
                end: network,
                gateway: None,
                subnet,
            });
        }
        let (first, last) = default_bounds(subnet);
        let (start, end) = (start.unwrap_or(first), end.unwrap_or(last));
        // A /31 relies on it too: its default start is after its default end.
        let (start, end) = (start.min(end), start.max(end));
        Ok(Self {
            start,
            end,
            gateway: Some(gateway.unwrap_or(first)),
            subnet,
        })
    }

    /// First address of the range.
    pub const fn start(&self) -> IpAddr {
        self.start
    }

    /// Last address of the range.
    pub const fn end(&self) -> IpAddr {
        self.end
    }

    /// The gateway, which may lie outside the range; a single address has none (RNG-5, RNG-6).
    pub const fn gateway(&self) -> Option<IpAddr> {
        self.gateway
    }

    /// The subnet's mask as text: dotted for IPv4, in colons for IPv6 (ALC-6).
    pub fn mask(&self) -> String {
        self.subnet.mask().to_string()
    }

    /// Whether the address lies between start and end, the gateway included.
    pub fn contains(&self, addr: IpAddr) -> bool {
        self.start <= addr && addr <= self.end
    }

    /// Whether the address lies in the subnet, inside the range or outside of it.
    pub(crate) fn subnet_contains(&self, addr: IpAddr) -> bool {
        self.subnet.contains(addr)
    }

    /// RNG-5, RNG-8: number of addresses that can be allocated.
    pub fn total(&self) -> i64 {
        let gateway_inside = self.gateway.is_some_and(|gateway| self.contains(gateway));
        saturate(addr::span(self.start, self.end) - u128::from(gateway_inside))
    }

    /// Whether the two ranges have an address in common. Subnets and gateways do not count;
    /// ranges of different address families never overlap.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }
}

/// RNG-8: a count that fits the status field.
pub(crate) fn saturate(count: u128) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// RNG-6: whether the subnet is a single address.
fn is_host(subnet: IpNetwork) -> bool {
    subnet.prefix() == if subnet.is_ipv4() { 32 } else { 128 }
}

/// RNG-1: strict `address/prefix`; host bits are allowed and masked off.
fn parse_subnet(text: &str) -> Result<IpNetwork, RangeProblem> {
    let (address, prefix) = text.split_once('/').ok_or(RangeProblem::NoPrefix)?;
    let address = addr::parse(address).ok_or(RangeProblem::NotAnAddress)?;
    let max = if address.is_ipv4() { 32 } else { 128 };
    let prefix = Some(prefix)
        .filter(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
        .and_then(|digits| digits.parse::<u8>().ok())
        .filter(|prefix| *prefix <= max)
        .ok_or(RangeProblem::BadPrefix { max })?;
    if matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
        return Err(RangeProblem::Mapped);
    }
    let subnet = IpNetwork::new(address, prefix).map_err(|_| RangeProblem::BadPrefix { max })?;
    // Masks off the host bits, so that the subnet has one spelling.
    IpNetwork::new(subnet.network(), prefix).map_err(|_| RangeProblem::BadPrefix { max })
}

/// RNG-3 and the explicit half of RNG-6: an address inside the subnet, neither its first nor its
/// last one.
fn parse_inside(subnet: IpNetwork, field: RangeField, text: &str) -> Result<IpAddr, RangeProblem> {
    // Only here an IPv4-mapped IPv6 address means the IPv4 address.
    let address = addr::parse(text)
        .ok_or(RangeProblem::NotAnAddress)?
        .to_canonical();
    if !subnet.contains(address) {
        return Err(RangeProblem::Outside {
            subnet: subnet.to_string(),
        });
    }
    if is_host(subnet) {
        return match field {
            RangeField::Gateway => Err(RangeProblem::HostGateway {
                subnet: subnet.to_string(),
            }),
            _ => Ok(address),
        };
    }
    if address == subnet.network() {
        return Err(RangeProblem::Network {
            subnet: subnet.to_string(),
        });
    }
    if address == subnet.broadcast() {
        return Err(RangeProblem::Last {
            subnet: subnet.to_string(),
        });
    }
    Ok(address)
}

/// RNG-2 and RNG-7: default start (which is also the default gateway) and end of a subnet of two
/// addresses or more.
fn default_bounds(subnet: IpNetwork) -> (IpAddr, IpAddr) {
    match subnet {
        IpNetwork::V4(v4) => {
            let (network, broadcast) = v4_bounds(v4);
            (
                Ipv4Addr::from_bits(network + 1).into(),
                Ipv4Addr::from_bits(broadcast - 1).into(),
            )
        }
        IpNetwork::V6(v6) => {
            let (network, last) = v6_bounds(v6);
            (
                Ipv6Addr::from_bits(network + 1).into(),
                Ipv6Addr::from_bits(last).into(),
            )
        }
    }
}

fn v4_bounds(subnet: Ipv4Network) -> (u32, u32) {
    (subnet.network().to_bits(), subnet.broadcast().to_bits())
}

fn v6_bounds(subnet: Ipv6Network) -> (u128, u128) {
    (subnet.network().to_bits(), subnet.broadcast().to_bits())
}

#[cfg(test)]
mod tests;
