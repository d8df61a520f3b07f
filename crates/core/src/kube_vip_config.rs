//! Migration from the ConfigMaps of kube-vip's cloud provider (section 7): address ranges become IPPools, announced
//! addresses become history. Pure.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use harvester_lb_api::{IPPoolSpec, Range, Selector, Tuple};
use harvester_lb_ipam::{IntervalSet, OwnerId, PoolRanges, RangeSpec, addr};
use harvester_lb_object::is_dns_label;
use serde_json::{Map, Value};

/// Name of the ConfigMaps.
pub const CONFIG_MAP: &str = "kubevip";
/// Namespace of the ConfigMap with the address ranges.
pub const CONFIG_NAMESPACE: &str = "kube-system";
/// Key of the announced addresses, in a ConfigMap of any namespace.
pub const SERVICES: &str = "kubevip-services";
/// The namespace in a key, and the pool, that stand for all namespaces.
pub const GLOBAL: &str = "global";

/// Characters of a value that a message quotes.
const QUOTED: usize = 64;

/// A pool to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPool {
    /// Its name: the namespace that it serves, or [`GLOBAL`].
    pub name: String,
    /// Its spec.
    pub spec: IPPoolSpec,
}

/// Why a key, an item of its value, or an announced address is skipped (MIG-4).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The key is none of this format.
    #[error("key {key:?} begins neither with cidr- nor with range-")]
    Key {
        /// The key.
        key: String,
    },
    /// The namespace in the key cannot be the name of a pool.
    #[error("key {key:?} does not end in the name of a namespace")]
    Namespace {
        /// The key.
        key: String,
    },
    /// Another key of the namespace counts.
    #[error("key {key:?} is not used, because there is cidr-{namespace}")]
    CidrWins {
        /// The key.
        key: String,
        /// The namespace.
        namespace: String,
    },
    /// The value has no valid item.
    #[error("key {key:?} has no valid range")]
    Empty {
        /// The key.
        key: String,
    },
    /// An item is not what the key says.
    #[error("key {key:?}: {item:?} is not {expected}")]
    Item {
        /// The key.
        key: String,
        /// The item, shortened.
        item: String,
        /// What is expected, with an example.
        expected: &'static str,
    },
    /// An item repeats addresses of an earlier one, which a pool must not (PV-2).
    #[error("key {key:?}: {item:?} overlaps an earlier item")]
    Overlap {
        /// The key.
        key: String,
        /// The item, shortened.
        item: String,
    },
    /// The list of announced addresses is no JSON of the expected form.
    #[error("key \"kubevip-services\" cannot be decoded: {error}")]
    Services {
        /// The decoder's error.
        error: String,
    },
}

/// The pools of a ConfigMap's data, by name, and what is skipped (MIG-1 to MIG-4).
pub fn pools(data: &BTreeMap<String, String>) -> (Vec<NewPool>, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut pools: BTreeMap<&str, IPPoolSpec> = BTreeMap::new();
    // In the order of the keys: cidr- comes before range-.
    for (key, value) in data {
        if key == SERVICES {
            continue;
        }
        let kind = match key.split_once('-') {
            Some(("cidr", namespace)) => Ok((namespace, Form::Cidr)),
            Some(("range", namespace)) => Ok((namespace, Form::Range)),
            _ => Err(Problem::Key { key: key.clone() }),
        };
        let (namespace, form) = match kind {
            Ok(kind) => kind,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        if !is_dns_label(namespace) {
            problems.push(Problem::Namespace { key: key.clone() });
        } else if pools.contains_key(namespace) {
            let namespace = namespace.to_owned();
            problems.push(Problem::CidrWins {
                key: key.clone(),
                namespace,
            });
        } else {
            let ranges = ranges(key, value, form, &mut problems);
            if ranges.is_empty() {
                problems.push(Problem::Empty { key: key.clone() });
            } else {
                pools.insert(namespace, pool_for(namespace, ranges));
            }
        }
    }
    let pools = pools.into_iter().map(|(name, spec)| NewPool {
        name: name.to_owned(),
        spec,
    });
    (pools.collect(), problems)
}

/// The form of the items of a value.
#[derive(Clone, Copy)]
enum Form {
    Cidr,
    Range,
}

/// MIG-1: the pool of a namespace, or of all of them.
fn pool_for(namespace: &str, ranges: Vec<Range>) -> IPPoolSpec {
    let any = || Some("*".to_owned());
    let namespace = if namespace == GLOBAL { "*" } else { namespace };
    let scope = vec![Tuple {
        project: any(),
        namespace: Some(namespace.to_owned()),
        guest_cluster: any(),
    }];
    IPPoolSpec {
        description: None,
        ranges,
        selector: Some(Selector {
            scope: Some(scope),
            ..Selector::default()
        }),
    }
}

/// The ranges of a value. Blanks around items, and empty items, do not matter (MIG-1).
fn ranges(key: &str, value: &str, form: Form, problems: &mut Vec<Problem>) -> Vec<Range> {
    let mut ranges = Vec::new();
    let mut covered = IntervalSet::new();
    for item in value.split(',').map(str::trim).filter(|i| !i.is_empty()) {
        let quoted = || item.chars().take(QUOTED).collect::<String>();
        let (read, expected) = match form {
            Form::Cidr => (cidr(item), "a subnet such as 10.10.7.0/24"),
            Form::Range => (range(item), "a range such as 10.10.8.10-10.10.8.30"),
        };
        let Some((of_item, parsed)) = read.and_then(|ranges| Some((parse(&ranges)?, ranges)))
        else {
            problems.push(Problem::Item {
                key: key.to_owned(),
                item: quoted(),
                expected,
            });
            continue;
        };
        let mut spans = of_item.ranges().iter();
        if spans.any(|span| covered.first_within(span.start(), span.end()).is_some()) {
            problems.push(Problem::Overlap {
                key: key.to_owned(),
                item: quoted(),
            });
            continue;
        }
        for span in of_item.ranges() {
            covered.insert_span(span.start(), span.end());
        }
        ranges.extend(parsed);
    }
    ranges
}

/// The ranges by the rules of section 4; `None` if one is invalid.
fn parse(ranges: &[Range]) -> Option<PoolRanges> {
    let specs: Vec<RangeSpec> = ranges
        .iter()
        .map(|range| RangeSpec {
            subnet: range.subnet.clone(),
            start: range.range_start.clone(),
            end: range.range_end.clone(),
            gateway: None,
        })
        .collect();
    PoolRanges::parse(&specs).ok()
}

/// MIG-2: a subnet, host bits masked off.
fn cidr(item: &str) -> Option<Vec<Range>> {
    let (address, prefix) = item.split_once('/')?;
    let address = addr::parse(address)?;
    let digits = !prefix.is_empty() && prefix.bytes().all(|b| b.is_ascii_digit());
    let prefix: u32 = prefix.parse().ok().filter(|_| digits)?;
    (prefix <= width(address)).then(|| vec![whole(address, prefix)])
}

/// MIG-2, MIG-3: a range as a part of the smallest subnet that has it. Its first and last address belong to no range
/// (RNG-3): a range that touches them is shortened, one of one or two addresses becomes single addresses.
fn range(item: &str) -> Option<Vec<Range>> {
    let (a, b) = item.split_once('-')?;
    let (a, b) = (addr::parse(a.trim())?, addr::parse(b.trim())?);
    if a.is_ipv4() != b.is_ipv4() {
        return None;
    }
    let (a, b) = (a.min(b), a.max(b));
    let width = width(a);
    let differing = 128 - (bits(a) ^ bits(b)).leading_zeros();
    Some(match differing {
        0 => vec![whole(a, width)],
        1 => vec![whole(a, width), whole(b, width)],
        _ => {
            let subnet = whole(a, width - differing);
            let mask = (1_u128 << (differing - 1) << 1).wrapping_sub(1);
            let start = bits(a) + u128::from(bits(a) & mask == 0);
            let end = bits(b) - u128::from(bits(b) & mask == mask);
            let text = |bits| Some(address(a, bits).to_string());
            vec![Range {
                range_start: text(start),
                range_end: text(end),
                ..subnet
            }]
        }
    })
}

/// The subnet of an address.
fn whole(of: IpAddr, prefix: u32) -> Range {
    let hosts = width(of) - prefix;
    let mask = u128::MAX.checked_shl(hosts).unwrap_or(0);
    let network = address(of, bits(of) & mask);
    Range {
        subnet: format!("{network}/{prefix}"),
        ..Range::default()
    }
}

const fn width(addr: IpAddr) -> u32 {
    match addr {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn bits(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(addr) => addr.to_bits().into(),
        IpAddr::V6(addr) => addr.to_bits(),
    }
}

/// The address with these bits, of the family of another.
fn address(family: IpAddr, bits: u128) -> IpAddr {
    match u32::try_from(bits) {
        Ok(bits) if family.is_ipv4() => Ipv4Addr::from_bits(bits).into(),
        _ => Ipv6Addr::from_bits(bits).into(),
    }
}

/// An announced address, and the Service that had it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// The address.
    pub address: IpAddr,
    /// Namespace and name of the Service, hence of a load balancer that gets the address back (ALC-2).
    pub owner: OwnerId,
}

/// MIG-5: the announced addresses in a ConfigMap of this namespace. Those without a valid address or name, and 0.0.0.0, are
/// left out.
///
/// # Errors
/// The text is not the JSON that kube-vip writes.
pub fn announced(namespace: &str, services: &str) -> Result<Vec<Announced>, Problem> {
    let unreadable = |error: String| Problem::Services { error };
    let list: Map<String, Value> =
        serde_json::from_str(services).map_err(|error| unreadable(error.to_string()))?;
    let list = match list.get("services") {
        None | Some(Value::Null) => &[],
        Some(Value::Array(list)) => &**list,
        Some(_) => return Err(unreadable("services is no list".to_owned())),
    };
    let services = list.iter().filter_map(|service| {
        let address = addr::parse(service["vip"].as_str()?)?;
        let name = service["serviceName"].as_str()?;
        let owner = OwnerId::parse(&format!("{namespace}/{name}"))?;
        (!address.is_unspecified()).then_some(Announced { address, owner })
    });
    Ok(services.collect())
}

/// MIG-5: the pool that remembers an address announced in a namespace: the one of the namespace's name, else the global one,
/// if it can allocate the address. `ranges` are those of a pool by its name.
pub fn pool_of<'a>(
    announced: &'a Announced,
    ranges: impl Fn(&str) -> Option<&'a PoolRanges>,
) -> Option<&'a str> {
    let names = [announced.owner.namespace(), GLOBAL];
    names
        .into_iter()
        .find(|name| ranges(name).is_some_and(|ranges| ranges.usable(announced.address)))
}

#[cfg(test)]
mod tests;
