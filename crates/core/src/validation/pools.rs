//! Validation of an IPPool spec. Pure. The ledger handles pools that violate the rules: it refuses PV-1, reports PV-3
//! (IPA-4) and serves the rest.
//!
//! The rules about one pool alone (PV-1, PV-2, PV-6) are here, those about all pools (PV-3, PV-5, PV-7, PV-8) in
//! [`super::pool_index`], those about allocated addresses (PV-4, PV-9) in admission.

use std::net::IpAddr;

use harvester_lb_api::{IPPoolSpec, keys};
use harvester_lb_ipam::select::ANY;
use harvester_lb_ipam::{
    ExcludeError, Exclusions, PoolRanges, Range, RangeError, RangeSpec, Selector, Tuple,
};

use super::tuples;
use super::{Consumer, Severity};
use crate::pool_spec::{ranges_of, selector_of};

/// Most violations of one rule that are listed, and most other pools that they name. Users correct them one by one anyway;
/// the work for a request, and its memory, stay bounded.
pub const LISTED: usize = 64;

/// A violation in an IPPool (VAL-1). The text names field and value and says how to correct it. Indexes count from 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolViolation {
    /// PV-1: no range, or an invalid one.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// EXC-1: the list of excluded addresses is invalid.
    #[error("annotation {key}: {0}", key = keys::ANNOTATION_EXCLUDE)]
    Exclude(#[from] ExcludeError),
    /// PV-2: two ranges of the pool overlap.
    #[error(
        "spec.ranges[{later}] is {later_range}, which shares addresses with spec.ranges[{earlier}], {earlier_range}: make them disjoint"
    )]
    OwnOverlap {
        /// Index of the first range.
        earlier: usize,
        /// The first range.
        earlier_range: String,
        /// Index of the second range.
        later: usize,
        /// The second range.
        later_range: String,
    },
    /// PV-3: a range overlaps with a range of another pool.
    #[error(
        "spec.ranges[{index}] is {range}, which shares addresses with {other} of IPPool {pool}: make them disjoint"
    )]
    Overlap {
        /// Index of the range.
        index: usize,
        /// The range.
        range: String,
        /// Name of the other pool.
        pool: String,
        /// The range of the other pool.
        other: String,
    },
    /// PV-4: allocated addresses are in no range.
    #[error(
        "spec.ranges leaves out {} allocated {}, the first is {address} of {holder}: keep it in a range, or delete its owner first",
        .count, if *.count == 1 { "address" } else { "addresses" }
    )]
    LeftOut {
        /// Number of such addresses.
        count: usize,
        /// The lowest.
        address: IpAddr,
        /// What holds it.
        holder: String,
    },
    /// PV-4: a key of `status.allocated`, which another writer wrote, is no address.
    #[error(
        "status.allocated has the key {0:?}, which is no address: remove it before the pool is changed"
    )]
    UnreadableKey(String),
    /// Section 10.4: a gateway that is new and allocated.
    #[error(
        "spec.ranges[{index}] has the gateway {gateway}, which is allocated to {holder}: choose another gateway, or delete the owner first"
    )]
    AllocatedGateway {
        /// Index of the range.
        index: usize,
        /// The gateway, explicit or by default.
        gateway: IpAddr,
        /// What holds it.
        holder: String,
    },
    /// PV-5: another global pool exists.
    #[error(
        "spec.selector.scope is {{\"*\", \"*\", \"*\"}}, which makes the pool global, as IPPool {pool} is: only one pool can be global"
    )]
    SecondGlobal {
        /// Name of the other pool.
        pool: String,
    },
    /// PV-6: two scope tuples of the pool overlap.
    #[error(
        "spec.selector.scope[{later}] is {later_tuple}, which matches what spec.selector.scope[{earlier}], {earlier_tuple}, matches: make them disjoint"
    )]
    OwnScopes {
        /// Index of the first tuple.
        earlier: usize,
        /// The first tuple.
        earlier_tuple: String,
        /// Index of the second tuple.
        later: usize,
        /// The second tuple.
        later_tuple: String,
    },
    /// PV-7: another pool has the same priority, which is not 0.
    #[error(
        "spec.selector.priority is {priority}, as that of IPPool {pool}: priorities other than 0 must differ"
    )]
    DuplicatePriority {
        /// The priority.
        priority: u32,
        /// Name of the other pool.
        pool: String,
    },
    /// PV-8: a scope tuple overlaps with one of another pool of the same network, and both pools have priority 0.
    #[error(
        "spec.selector.scope[{index}] is {tuple}, which matches what IPPool {pool} matches on the same network, and both have priority 0: give one of them another priority"
    )]
    Scopes {
        /// Index of the tuple.
        index: usize,
        /// The tuple.
        tuple: String,
        /// Name of the other pool.
        pool: String,
    },
    /// PV-9: a pool with allocated addresses cannot be deleted.
    #[error(
        "{count} of its addresses {} allocated, the first is {first}: delete the load balancers first",
        if *.count == 1 { "is" } else { "are" }
    )]
    StillAllocated {
        /// Number of allocated addresses.
        count: usize,
        /// The lowest, with its holder.
        first: String,
    },
}

impl PoolViolation {
    /// The id of the rule.
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::Range(_) => "PV-1",
            Self::Exclude(_) => "EXC-1",
            Self::OwnOverlap { .. } => "PV-2",
            Self::Overlap { .. } => "PV-3",
            Self::LeftOut { .. } | Self::UnreadableKey(_) => "PV-4",
            Self::AllocatedGateway { .. } => "10.4",
            Self::SecondGlobal { .. } => "PV-5",
            Self::OwnScopes { .. } => "PV-6",
            Self::DuplicatePriority { .. } => "PV-7",
            Self::Scopes { .. } => "PV-8",
            Self::StillAllocated { .. } => "PV-9",
        }
    }

    /// The path of the offending field, as in `spec.ranges[0].subnet`.
    pub fn field(&self) -> String {
        match self {
            Self::Range(RangeError::Empty) | Self::LeftOut { .. } => "spec.ranges".to_owned(),
            Self::Range(RangeError::Invalid { index, field, .. }) => {
                format!("spec.ranges[{index}].{field}")
            }
            Self::OwnOverlap { later: index, .. }
            | Self::Overlap { index, .. }
            | Self::AllocatedGateway { index, .. } => format!("spec.ranges[{index}]"),
            Self::UnreadableKey(_) | Self::StillAllocated { .. } => "status.allocated".to_owned(),
            Self::SecondGlobal { .. } => "spec.selector.scope".to_owned(),
            Self::OwnScopes { later: index, .. } | Self::Scopes { index, .. } => {
                format!("spec.selector.scope[{index}]")
            }
            Self::DuplicatePriority { .. } => "spec.selector.priority".to_owned(),
            Self::Exclude(_) => format!("metadata.annotations[{}]", keys::ANNOTATION_EXCLUDE),
        }
    }

    /// The offending value as text; of a value that depends on other objects, the part that is in conflict.
    pub fn value(&self) -> String {
        match self {
            Self::Range(RangeError::Empty) => "[]".to_owned(),
            Self::Range(RangeError::Invalid { value, .. })
            | Self::OwnOverlap {
                later_range: value, ..
            }
            | Self::Overlap { range: value, .. }
            | Self::UnreadableKey(value)
            | Self::OwnScopes {
                later_tuple: value, ..
            }
            | Self::Scopes { tuple: value, .. }
            | Self::StillAllocated { first: value, .. } => value.clone(),
            Self::LeftOut { address, .. }
            | Self::AllocatedGateway {
                gateway: address, ..
            } => address.to_string(),
            Self::SecondGlobal { .. } => shown_tuple(&Tuple::new(ANY, ANY, ANY)),
            Self::DuplicatePriority { priority, .. } => priority.to_string(),
            Self::Exclude(ExcludeError::Invalid { entry, .. }) => entry.clone(),
            Self::Exclude(ExcludeError::TooMany { count }) => count.to_string(),
        }
    }

    /// The severity for a consumer (VAL-1): admission denies every violation, the operator serves what can be served.
    pub const fn severity(&self, consumer: Consumer) -> Severity {
        match (self, consumer) {
            (_, Consumer::Admission) | (Self::Range(_), Consumer::Operator) => Severity::Refuse,
            (Self::Overlap { .. }, Consumer::Operator) => Severity::Warn,
            (_, Consumer::Operator) => Severity::Accept,
        }
    }
}

/// A pool spec with everything parsed that the rules compare.
#[derive(Clone, Debug)]
pub struct ParsedPool {
    /// Its ranges, or the violations of PV-1.
    ranges: Result<PoolRanges, Vec<PoolViolation>>,
    selector: Selector,
}

impl ParsedPool {
    /// Parses a spec.
    pub fn of(spec: &IPPoolSpec) -> Self {
        let raw = ranges_of(spec);
        Self {
            ranges: PoolRanges::parse(&raw).map_err(|error| invalid_ranges(error, &raw)),
            selector: spec.selector.as_ref().map(selector_of).unwrap_or_default(),
        }
    }

    /// The same pool, with the addresses that it excludes (EXC-1).
    #[must_use]
    pub fn without(self, excluded: &Exclusions) -> Self {
        Self {
            ranges: self.ranges.map(|ranges| ranges.without(excluded)),
            ..self
        }
    }

    /// Its ranges; `None` if one is invalid, or if there is none (PV-1).
    pub fn ranges(&self) -> Option<&PoolRanges> {
        self.ranges.as_ref().ok()
    }

    /// Its selector.
    pub const fn selector(&self) -> &Selector {
        &self.selector
    }

    /// Violations of PV-1 and PV-2: the invalid ranges, or the overlaps of two ranges; at most [`LISTED`].
    pub fn range_violations(&self) -> Vec<PoolViolation> {
        match &self.ranges {
            Err(invalid) => invalid.clone(),
            Ok(ranges) => {
                let overlaps = ranges.own_overlaps().iter().copied();
                let text =
                    |index: usize| ranges.ranges().get(index).map_or_else(String::new, shown);
                overlaps
                    .take(LISTED)
                    .map(|(earlier, later)| PoolViolation::OwnOverlap {
                        earlier,
                        earlier_range: text(earlier),
                        later,
                        later_range: text(later),
                    })
                    .collect()
            }
        }
    }

    /// Violations of PV-6: tuples of the scope that overlap with an earlier one; at most [`LISTED`]. Linear in the number of
    /// tuples. A global pool has only one tuple.
    pub fn scope_violations(&self) -> Vec<PoolViolation> {
        let overlaps = tuples::own_overlaps(&self.selector.scope, LISTED).into_iter();
        overlaps
            .map(|(earlier, later)| PoolViolation::OwnScopes {
                earlier,
                earlier_tuple: shown_tuple(&self.selector.scope[earlier]),
                later,
                later_tuple: shown_tuple(&self.selector.scope[later]),
            })
            .collect()
    }
}

/// First and last address of a range.
pub(super) fn shown(range: &Range) -> String {
    format!("{}-{}", range.start(), range.end())
}

/// Project, namespace and guest cluster of a tuple.
pub(super) fn shown_tuple(tuple: &Tuple) -> String {
    let Tuple {
        project,
        namespace,
        guest_cluster,
    } = tuple;
    format!("{{{project:?}, {namespace:?}, {guest_cluster:?}}}")
}

/// PV-1: the violations of invalid ranges.
fn invalid_ranges(error: RangeError, raw: &[RangeSpec]) -> Vec<PoolViolation> {
    if error == RangeError::Empty {
        return vec![error.into()];
    }
    raw.iter()
        .enumerate()
        .filter_map(|(at, range)| Some(Range::parse(range).err()?.at(at).into()))
        .take(LISTED)
        .collect()
}

#[cfg(test)]
mod tests;
