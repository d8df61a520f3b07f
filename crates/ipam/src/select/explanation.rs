//! Why a pool serves a load balancer, or does not: the verdicts and their wording.

use std::fmt;
use std::net::IpAddr;

use super::{Fit, Requirement, Selector, Workload, fit, select};
use crate::range::PoolRanges;
use crate::types::{OwnerId, PoolName};

/// Why a pool serves a load balancer, or does not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Chosen, and an address is free.
    Serves,
    /// Chosen, but all its addresses are taken.
    Full,
    /// Chosen, but older load balancers wait for its free addresses.
    OthersFirst,
    /// Chosen, but its ranges are invalid.
    RangesInvalid {
        /// The reason.
        error: String,
    },
    /// The object cannot be decoded, so neither its ranges nor its selector are known.
    Undecodable {
        /// The reason.
        error: String,
    },
    /// Chosen, but its list of excluded addresses is invalid (EXC-1).
    InvalidExclude {
        /// The reason.
        error: String,
    },
    /// Chosen, but it excludes all its addresses, gateways aside (EXC-2).
    AllExcluded,
    /// It has the requested address, and another load balancer holds that (REQ-3).
    AddressHeld {
        /// The address.
        addr: IpAddr,
        /// The holder.
        holder: OwnerId,
    },
    /// It has the requested address, and an older load balancer requests that too (REQ-3).
    AddressAwaited {
        /// The address.
        addr: IpAddr,
        /// The older one.
        by: OwnerId,
    },
    /// It excludes the requested address (REQ-3, EXC-2).
    AddressExcluded {
        /// The address.
        addr: IpAddr,
    },
    /// The requested address is a gateway (REQ-3, RNG-5).
    AddressIsGateway {
        /// The address.
        addr: IpAddr,
    },
    /// It has the requested address, which is IPv6, and the load balancer is of VM type (REQ-3, BE-7).
    AddressOfOtherFamily {
        /// The address.
        addr: IpAddr,
    },
    /// Chosen, but only IPv6 addresses are free (BE-7).
    FullOfFamily,
    /// Chosen, but it has only IPv6 addresses (BE-7).
    OtherFamily,
    /// Named in the spec, but there is no such pool.
    Missing,
    /// It has the load balancer's address, but the IPAllocation of that address cannot be read.
    RecordUnreadable {
        /// Name of the IPAllocation.
        record: String,
    },
    /// It matches, but another one has a higher priority, or the same and a smaller name.
    Outranked {
        /// The pool that was chosen.
        by: PoolName,
        /// Its own priority.
        priority: u32,
        /// The priority of the chosen one.
        than: u32,
    },
    /// A global pool, but another pool matches.
    GlobalUnused {
        /// The pool that matches.
        matched: PoolName,
    },
    /// It matches loosely only, but there is a global pool (SEL-6).
    LooseUnused {
        /// The pool that was chosen.
        chosen: PoolName,
    },
    /// The load balancer names another pool.
    OtherNamed {
        /// The named pool.
        named: PoolName,
    },
    /// The pool is for another network.
    NetworkDiffers {
        /// The network of the pool.
        pool: String,
        /// The network required.
        required: String,
    },
    /// None of its ranges has the requested address (REQ-2).
    AddressElsewhere {
        /// The address.
        addr: IpAddr,
    },
    /// The pool has no scope and so matches nothing.
    NoScope,
    /// No tuple of the scope matches.
    NoTupleMatches {
        /// Number of tuples.
        tuples: usize,
    },
}

impl Verdict {
    /// Why a pool with these ranges allocates an address to nobody, taken or free (REQ-2, REQ-3); none if it does.
    pub fn of_address(ranges: &PoolRanges, addr: IpAddr) -> Option<Self> {
        if !ranges.contains(addr) {
            Some(Self::AddressElsewhere { addr })
        } else if ranges.excludes(addr) {
            Some(Self::AddressExcluded { addr })
        } else if !ranges.usable(addr) {
            Some(Self::AddressIsGateway { addr })
        } else {
            None
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Serves => f.write_str("serves this load balancer"),
            Self::Full => f.write_str("all addresses are taken"),
            Self::OthersFirst => f.write_str("older load balancers wait for its free addresses"),
            Self::RangesInvalid { error } => write!(f, "its ranges are invalid: {error}"),
            Self::Undecodable { error } => write!(f, "cannot be decoded: {error}"),
            Self::InvalidExclude { error } => write!(
                f,
                "its annotation exclude is invalid, so no new address is allocated: {error}"
            ),
            Self::AllExcluded => f.write_str("its annotation exclude leaves no address to allocate"),
            Self::AddressHeld { addr, holder } => {
                write!(f, "{addr} is held by LoadBalancer {holder}")
            }
            Self::AddressAwaited { addr, by } => {
                write!(f, "{addr} is requested by LoadBalancer {by} too, which is older")
            }
            Self::AddressExcluded { addr } => {
                write!(f, "{addr} is excluded by its annotation exclude")
            }
            Self::AddressIsGateway { addr } => write!(f, "{addr} is a gateway of its ranges"),
            Self::AddressOfOtherFamily { addr } => write!(
                f,
                "{addr} is an IPv6 address, which a load balancer of workload type vm cannot use"
            ),
            Self::AddressElsewhere { addr } => write!(f, "{addr} is in none of its ranges"),
            Self::FullOfFamily => f.write_str("all IPv4 addresses are taken, and a load balancer of workload type vm can use no other"),
            Self::OtherFamily => f.write_str("has only IPv6 addresses, which a load balancer of workload type vm cannot use: name a pool with IPv4 addresses"),
            Self::Missing => f.write_str("does not exist"),
            Self::RecordUnreadable { record } => {
                write!(
                    f,
                    "IPAllocation {record} unreadable; its address stays blocked until the object is repaired or deleted"
                )
            }
            Self::Outranked { by, priority, than } if priority < than => {
                write!(f, "priority {priority} is lower than {than} of {by}")
            }
            Self::Outranked { by, priority, .. } => {
                write!(
                    f,
                    "{by} has priority {priority} too and comes first by name"
                )
            }
            Self::GlobalUnused { matched } => write!(f, "is global, but {matched} matches"),
            Self::LooseUnused { chosen } => {
                write!(
                    f,
                    "matches only loosely, and {chosen} takes precedence"
                )
            }
            Self::OtherNamed { named } => write!(f, "spec.ipPool names {named}"),
            Self::NetworkDiffers { pool, required } => {
                write!(f, "network is {pool:?}, required is {required:?}")
            }
            Self::NoScope => f.write_str("has no scope"),
            Self::NoTupleMatches { tuples: 1 } => f.write_str("its scope does not match"),
            Self::NoTupleMatches { .. } => f.write_str("none of its scopes matches"),
        }
    }
}

/// The verdict on one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolVerdict {
    /// The pool.
    pub pool: PoolName,
    /// Why it serves or does not.
    pub verdict: Verdict,
}

/// The verdict on every pool: the chosen one first, then those that nearly matched.
///
/// Whether the chosen pool has a free address is not known here; the ledger adds that.
pub fn explain<'a>(
    pools: impl IntoIterator<Item = (&'a str, &'a Selector)>,
    requirement: &Requirement,
    workload: Workload,
) -> Vec<PoolVerdict> {
    let pools: Vec<_> = pools.into_iter().collect();
    let chosen = select(pools.iter().copied(), requirement, workload);
    let chosen_pool = pools.iter().find(|(name, _)| Some(*name) == chosen);
    let mut verdicts: Vec<_> = pools
        .iter()
        .map(|(name, selector)| PoolVerdict {
            pool: PoolName::from(*name),
            verdict: verdict(name, selector, chosen_pool, requirement, workload),
        })
        .collect();
    verdicts.sort_by(|a, b| (&a.verdict, &a.pool).cmp(&(&b.verdict, &b.pool)));
    verdicts
}

/// The verdict on one pool, given the chosen one.
fn verdict(
    name: &str,
    selector: &Selector,
    chosen: Option<&(&str, &Selector)>,
    requirement: &Requirement,
    workload: Workload,
) -> Verdict {
    let own = fit(selector, requirement, workload);
    if let Some((chosen_name, chosen)) = chosen
        && own != Fit::None
    {
        let by = PoolName::from(*chosen_name);
        return match (own, fit(chosen, requirement, workload)) {
            _ if name == *chosen_name => Verdict::Serves,
            (own, best) if own == best => Verdict::Outranked {
                by,
                priority: selector.priority,
                than: chosen.priority,
            },
            (Fit::Global, _) => Verdict::GlobalUnused { matched: by },
            _ => Verdict::LooseUnused { chosen: by },
        };
    }
    if selector.network != requirement.network {
        return Verdict::NetworkDiffers {
            pool: selector.network.clone(),
            required: requirement.network.clone(),
        };
    }
    match selector.scope.len() {
        0 => Verdict::NoScope,
        tuples => Verdict::NoTupleMatches { tuples },
    }
}

/// The verdicts on all pools. Its text is short and contains no counts, so that it changes only with
/// the verdicts shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// The first verdicts, the closest matches first.
    pub pools: Vec<PoolVerdict>,
    /// Number of verdicts left out.
    pub more: usize,
}

impl Explanation {
    /// Number of pools that a condition message names. People read no more, and each one takes
    /// space in the status of every waiting load balancer.
    pub const SHOWN: usize = 8;

    /// Keeps the first `limit` verdicts.
    pub fn new(mut pools: Vec<PoolVerdict>, limit: usize) -> Self {
        let more = pools.len().saturating_sub(limit);
        pools.truncate(limit);
        Self { pools, more }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pools.is_empty() {
            return f.write_str("there are no pools");
        }
        for (index, PoolVerdict { pool, verdict }) in
            self.pools.iter().take(Self::SHOWN).enumerate()
        {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}pool {pool}: {verdict}")?;
        }
        match self.more + self.pools.len().saturating_sub(Self::SHOWN) {
            0 => Ok(()),
            _ => f.write_str("; and others"),
        }
    }
}
