//! Validation of an IPPool spec: PV-1 to PV-3 and PV-5 to PV-8. Pure. The ledger handles pools that violate the rules: it
//! refuses PV-1, reports PV-3 (IPA-4) and serves the rest.

use harvester_lb_api::IPPoolSpec;
use harvester_lb_ipam::{PoolRanges, Range, RangeError, Selector, Tuple};

use super::{Consumer, Severity};
use crate::pool_spec::{ranges_of, selector_of};

/// A violation in an IPPool (VAL-1). The text names field and value and says how to correct it. Indexes count from 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolViolation {
    /// PV-1: no range, or an invalid one.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// PV-2: two ranges of the pool overlap.
    #[error(
        "spec.ranges[{later}] shares addresses with spec.ranges[{earlier}]: make them disjoint"
    )]
    OwnOverlap {
        /// Index of the first range.
        earlier: usize,
        /// Index of the second range.
        later: usize,
    },
    /// PV-3: a range overlaps with a range of another pool.
    #[error(
        "spec.ranges[{index}] shares addresses with a range of IPPool {pool}: make them disjoint"
    )]
    Overlap {
        /// Index of the range.
        index: usize,
        /// Name of the other pool.
        pool: String,
    },
    /// PV-5: another global pool exists.
    #[error(
        "spec.selector.scope makes the pool global, as IPPool {pool} is: only one pool can be global"
    )]
    SecondGlobal {
        /// Name of the other pool.
        pool: String,
    },
    /// PV-6: two scope tuples of the pool overlap.
    #[error(
        "spec.selector.scope[{later}] matches what spec.selector.scope[{earlier}] matches: make them disjoint"
    )]
    OwnScopes {
        /// Index of the first tuple.
        earlier: usize,
        /// Index of the second tuple.
        later: usize,
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
        "spec.selector.scope[{index}] matches what IPPool {pool} matches on the same network, and both have priority 0: give one of them another priority"
    )]
    Scopes {
        /// Index of the tuple.
        index: usize,
        /// Name of the other pool.
        pool: String,
    },
}

impl PoolViolation {
    /// The id of the rule.
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::Range(_) => "PV-1",
            Self::OwnOverlap { .. } => "PV-2",
            Self::Overlap { .. } => "PV-3",
            Self::SecondGlobal { .. } => "PV-5",
            Self::OwnScopes { .. } => "PV-6",
            Self::DuplicatePriority { .. } => "PV-7",
            Self::Scopes { .. } => "PV-8",
        }
    }

    /// The path of the offending field, as in `spec.ranges[0].subnet`.
    pub fn field(&self) -> String {
        match self {
            Self::Range(RangeError::Empty) => "spec.ranges".to_owned(),
            Self::Range(RangeError::Invalid { index, field, .. }) => {
                format!("spec.ranges[{index}].{field}")
            }
            Self::OwnOverlap { later: index, .. } | Self::Overlap { index, .. } => {
                format!("spec.ranges[{index}]")
            }
            Self::SecondGlobal { .. } => "spec.selector.scope".to_owned(),
            Self::OwnScopes { later: index, .. } | Self::Scopes { index, .. } => {
                format!("spec.selector.scope[{index}]")
            }
            Self::DuplicatePriority { .. } => "spec.selector.priority".to_owned(),
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

/// Every violation of a pool, in the order of the rules (VAL-1). `others`: name and spec of all other pools; ranges of
/// another pool are ignored if they are invalid.
pub fn validate<'a>(
    spec: &IPPoolSpec,
    others: impl Iterator<Item = (&'a str, &'a IPPoolSpec)> + Clone,
) -> Vec<PoolViolation> {
    let mut found = ranges(spec, others.clone());
    let selector = spec.selector.as_ref().map(selector_of).unwrap_or_default();
    let others = others.map(|(name, other)| {
        let selector = other.selector.as_ref().map(selector_of).unwrap_or_default();
        (name.to_owned(), selector)
    });
    found.extend(scopes(&selector, &others.collect::<Vec<_>>()));
    found
}

/// PV-1 to PV-3.
fn ranges<'a>(
    spec: &IPPoolSpec,
    others: impl Iterator<Item = (&'a str, &'a IPPoolSpec)>,
) -> Vec<PoolViolation> {
    let raw = ranges_of(spec);
    let own = match PoolRanges::parse(&raw) {
        Ok(own) => own,
        Err(RangeError::Empty) => return vec![RangeError::Empty.into()],
        Err(_) => {
            let errors = raw
                .iter()
                .enumerate()
                .filter_map(|(at, range)| Some(Range::parse(range).err()?.at(at).into()));
            return errors.collect();
        }
    };
    let own_overlaps = own.own_overlaps().iter();
    let mut found: Vec<PoolViolation> = own_overlaps
        .map(|(earlier, later)| PoolViolation::OwnOverlap {
            earlier: *earlier,
            later: *later,
        })
        .collect();
    for (pool, other) in others {
        let Ok(theirs) = PoolRanges::parse(&ranges_of(other)) else {
            continue;
        };
        let first = own.overlaps(&theirs).into_iter().next();
        found.extend(first.map(|(index, _)| PoolViolation::Overlap {
            index,
            pool: pool.to_owned(),
        }));
    }
    found
}

/// PV-5 to PV-8.
fn scopes(own: &Selector, others: &[(String, Selector)]) -> Vec<PoolViolation> {
    if own.is_global() {
        let other = others.iter().find(|(_, other)| other.is_global());
        let second = other.map(|(pool, _)| PoolViolation::SecondGlobal { pool: pool.clone() });
        return second.into_iter().collect();
    }
    let mut found = Vec::new();
    for (later, tuple) in own.scope.iter().enumerate() {
        let earlier = own.scope[..later].iter().position(|t| t.overlaps(tuple));
        found.extend(earlier.map(|earlier| PoolViolation::OwnScopes { earlier, later }));
    }
    let others = || others.iter().filter(|(_, other)| !other.is_global());
    if own.priority != 0 {
        let same = others().find(|(_, other)| other.priority == own.priority);
        found.extend(same.map(|(pool, _)| PoolViolation::DuplicatePriority {
            priority: own.priority,
            pool: pool.clone(),
        }));
        return found;
    }
    for (pool, other) in others() {
        if other.priority != 0 || other.network != own.network {
            continue;
        }
        let meets = |tuple: &Tuple| other.scope.iter().any(|theirs| theirs.overlaps(tuple));
        let at = own.scope.iter().position(meets);
        found.extend(at.map(|index| PoolViolation::Scopes {
            index,
            pool: pool.clone(),
        }));
    }
    found
}

#[cfg(test)]
mod tests;
