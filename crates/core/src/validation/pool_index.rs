//! All pools, indexed for the rules that compare one with the others: PV-3, PV-5, PV-7, PV-8; and who has an address (REQ-3). Pure.
//!
//! Updated per change of a pool, so that a request does not parse all pools. A request and an update cost O(log n) for each
//! range and O(1) for each scope tuple of the pool in question, and as much for each pool that it conflicts with; n is the
//! number of ranges of all pools.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use harvester_lb_api::meta::annotation;
use harvester_lb_api::{IPPoolSpec, keys};
use harvester_lb_ipam::{PoolVerdict, Tuple, Verdict};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::intervals::Intervals;
use super::pools::{LISTED, ParsedPool, PoolViolation, shown, shown_tuple};
use super::tuples::TupleIndex;
use crate::pool_spec::exclusions_of;

/// A pool of the index.
#[derive(Debug)]
struct Entry {
    /// What the values were parsed from; equal again after most changes, those of the status.
    ranges: Vec<harvester_lb_api::Range>,
    selector: Option<harvester_lb_api::Selector>,
    exclude: Option<String>,
    parsed: ParsedPool,
}

/// All pools by name.
#[derive(Debug, Default)]
pub struct PoolIndex {
    entries: HashMap<Arc<str>, Entry>,
    intervals: Intervals,
    /// Global pools (PV-5).
    globals: BTreeSet<Arc<str>>,
    /// Other pools by priority, if that is not 0 (PV-7).
    priorities: BTreeMap<u32, BTreeSet<Arc<str>>>,
    /// Other pools of priority 0 (PV-8).
    tuples: TupleIndex,
}

impl PoolIndex {
    /// Adds or replaces a pool. A spec and a list of exclusions that equal the previous ones, apart from the description, cost a
    /// comparison only. Ranges of a pool of which one is invalid are ignored, and so is an invalid list.
    pub fn set(&mut self, name: &str, meta: &ObjectMeta, spec: &IPPoolSpec) {
        let exclude = annotation(meta, keys::ANNOTATION_EXCLUDE);
        let is_same = |entry: &Entry| {
            entry.ranges == spec.ranges
                && entry.selector == spec.selector
                && entry.exclude.as_deref() == exclude
        };
        if self.entries.get(name).is_some_and(is_same) {
            return;
        }
        self.remove(name);
        let name: Arc<str> = name.into();
        let parsed = ParsedPool::of(spec).without(&exclusions_of(meta).unwrap_or_default());
        if let Some(ranges) = parsed.ranges() {
            self.intervals.insert(&name, ranges);
        }
        let selector = parsed.selector();
        if selector.is_global() {
            self.globals.insert(name.clone());
        } else if selector.priority == 0 {
            self.tuples
                .insert(&name, &selector.network, &selector.scope);
        } else {
            let pools = self.priorities.entry(selector.priority).or_default();
            pools.insert(name.clone());
        }
        let entry = Entry {
            ranges: spec.ranges.clone(),
            selector: spec.selector.clone(),
            exclude: exclude.map(str::to_owned),
            parsed,
        };
        self.entries.insert(name, entry);
    }

    /// Removes a pool, or one whose spec cannot be decoded any more.
    pub fn remove(&mut self, name: &str) {
        let Some((name, entry)) = self.entries.remove_entry(name) else {
            return;
        };
        if let Some(ranges) = entry.parsed.ranges() {
            self.intervals.remove(&name, ranges);
        }
        let selector = entry.parsed.selector();
        if selector.is_global() {
            self.globals.remove(&name);
        } else if selector.priority == 0 {
            self.tuples
                .remove(&name, &selector.network, &selector.scope);
        } else if let Some(pools) = self.priorities.get_mut(&selector.priority) {
            pools.remove(&name);
            if pools.is_empty() {
                self.priorities.remove(&selector.priority);
            }
        }
    }

    /// Violations of PV-1 to PV-3 of a pool of this name, which may be in the index or not.
    pub fn range_violations(&self, name: &str, pool: &ParsedPool) -> Vec<PoolViolation> {
        let mut found = pool.range_violations();
        let Some(ranges) = pool.ranges() else {
            return found;
        };
        for other in self.intervals.pools_in(name, ranges, LISTED) {
            let theirs = self.entries.get(&other).and_then(|e| e.parsed.ranges());
            let pair = theirs.and_then(|theirs| ranges.overlaps(theirs).into_iter().next());
            let Some((theirs, (index, at))) = theirs.zip(pair) else {
                continue;
            };
            found.push(PoolViolation::Overlap {
                index,
                range: shown(&ranges.ranges()[index]),
                pool: other.to_string(),
                other: shown(&theirs.ranges()[at]),
            });
        }
        found
    }

    /// Violations of PV-5 to PV-8 of a pool of this name, which may be in the index or not. A global pool skips PV-6 to
    /// PV-8.
    pub fn scope_violations(&self, name: &str, pool: &ParsedPool) -> Vec<PoolViolation> {
        let selector = pool.selector();
        let first_other = |pools: &BTreeSet<Arc<str>>| {
            let mut others = pools.iter().filter(|other| ***other != *name);
            others.next().map(ToString::to_string)
        };
        if selector.is_global() {
            let second = first_other(&self.globals);
            let second = second.map(|pool| PoolViolation::SecondGlobal { pool });
            return second.into_iter().collect();
        }
        let mut found = pool.scope_violations();
        if selector.priority != 0 {
            let same = self.priorities.get(&selector.priority);
            let same = same.and_then(first_other);
            found.extend(same.map(|pool| PoolViolation::DuplicatePriority {
                priority: selector.priority,
                pool,
            }));
            return found;
        }
        let (network, scope) = (&selector.network, &selector.scope);
        for (other, index) in self.tuples.candidates(name, network, scope, LISTED) {
            let Some(entry) = self.entries.get(&other) else {
                continue;
            };
            let theirs = entry.parsed.selector();
            let meets = |tuple: &Tuple| theirs.scope.iter().any(|other| other.overlaps(tuple));
            let index = match scope.get(index) {
                Some(tuple) if meets(tuple) && theirs.network == *network => Some(index),
                // Another key has the same hash.
                _ if theirs.network == *network => scope.iter().position(meets),
                _ => None,
            };
            found.extend(index.map(|index| PoolViolation::Scopes {
                index,
                tuple: shown_tuple(&scope[index]),
                pool: other.to_string(),
            }));
        }
        found
    }

    /// Every violation of PV-1 to PV-3 and PV-5 to PV-8, in the order of the rules (VAL-1). At most [`LISTED`] of
    /// each rule.
    pub fn validate(&self, name: &str, pool: &ParsedPool) -> Vec<PoolViolation> {
        let mut found = self.range_violations(name, pool);
        found.extend(self.scope_violations(name, pool));
        found
    }

    /// Why no pool allocates an address, taken or free: the verdict on each pool that has it in a valid range (REQ-3), none if
    /// no pool has it. `None`: one may allocate it. `named`: that pool alone counts; else it looks through all pools.
    pub fn refusals(&self, named: Option<&str>, addr: IpAddr) -> Option<Vec<PoolVerdict>> {
        let one = named.and_then(|name| self.entries.get_key_value(name));
        let all = named.is_none().then_some(&self.entries);
        let mut refusals = Vec::new();
        for (name, entry) in one.into_iter().chain(all.into_iter().flatten()) {
            let ranges = entry.parsed.ranges();
            let Some(ranges) = ranges.filter(|ranges| ranges.contains(addr)) else {
                continue;
            };
            refusals.push(PoolVerdict {
                pool: name.clone(),
                verdict: Verdict::of_address(ranges, addr)?,
            });
        }
        refusals.sort_unstable_by(|one, other| one.pool.cmp(&other.pool));
        Some(refusals)
    }

    /// Number of pools.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no pool.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests;
