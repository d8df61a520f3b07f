//! Overlap of scope tuples by hashing, without comparing each pair (PV-6, PV-8). Pure.
//!
//! Two tuples overlap if each of their three components is equal or `*` on either side. So the components that are `*` in
//! neither decide. A tuple is entered under each subset of its components that are not `*`, at most eight; a lookup then
//! needs one key for each set of components that the other tuple may have, eight in all. Keys are hashes: callers verify a
//! hit.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use harvester_lb_ipam::Tuple;
use harvester_lb_ipam::select::ANY;

/// All sets of components; a set is three bits.
const SETS: std::ops::Range<u8> = 0..8;

/// The components with their bits.
fn components(tuple: &Tuple) -> [(u8, &str); 3] {
    [
        (1, &tuple.project),
        (2, &tuple.namespace),
        (4, &tuple.guest_cluster),
    ]
}

/// The set of components that are not `*`.
fn literals(tuple: &Tuple) -> u8 {
    let set = components(tuple)
        .into_iter()
        .filter(|(_, text)| *text != ANY);
    set.map(|(bit, _)| bit).sum()
}

/// The key of tuples whose literals are `literals` and that equal `tuple` in the components of `fixed`.
fn key(network: &str, literals: u8, fixed: u8, tuple: &Tuple) -> u64 {
    let mut hasher = DefaultHasher::new();
    (network, literals, fixed).hash(&mut hasher);
    for (bit, text) in components(tuple) {
        if fixed & bit != 0 {
            text.hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// The keys that a tuple is entered under.
fn entered<'a>(network: &'a str, tuple: &'a Tuple) -> impl Iterator<Item = u64> + 'a {
    let own = literals(tuple);
    SETS.filter(move |fixed| fixed & !own == 0)
        .map(move |fixed| key(network, own, fixed, tuple))
}

/// The keys under which every tuple is entered that overlaps with this one, and under which no other is.
fn overlapping<'a>(network: &'a str, tuple: &'a Tuple) -> impl Iterator<Item = u64> + 'a {
    let own = literals(tuple);
    SETS.map(move |other| key(network, other, other & own, tuple))
}

/// Tuples that overlap with an earlier one, each with the first such: (earlier, later); at most `limit`. Linear in the number
/// of tuples.
pub(super) fn own_overlaps(scope: &[Tuple], limit: usize) -> Vec<(usize, usize)> {
    let mut first: HashMap<u64, usize> = HashMap::new();
    let mut found = Vec::new();
    for (later, tuple) in scope.iter().enumerate() {
        if found.len() == limit {
            break;
        }
        let hits = overlapping("", tuple).filter_map(|key| first.get(&key).copied());
        let hit = hits.min();
        let earlier = match hit {
            // Another tuple of that hash may hide the one that overlaps.
            Some(at) if !scope[at].overlaps(tuple) => {
                scope[..later].iter().position(|t| t.overlaps(tuple))
            }
            _ => hit,
        };
        found.extend(earlier.map(|earlier| (earlier, later)));
        for key in entered("", tuple) {
            first.entry(key).or_insert(later);
        }
    }
    found
}

/// The scopes of pools, by network. Insertion, removal and lookup cost O(log n) per tuple, and O(1) per hit.
#[derive(Debug, Default)]
pub(super) struct TupleIndex {
    /// By key: the pools, with the number of their tuples under it.
    pools: HashMap<u64, BTreeMap<Arc<str>, usize>>,
}

impl TupleIndex {
    /// Adds the scope of a pool.
    pub(super) fn insert(&mut self, pool: &Arc<str>, network: &str, scope: &[Tuple]) {
        for key in scope.iter().flat_map(|tuple| entered(network, tuple)) {
            let pools = self.pools.entry(key).or_default();
            *pools.entry(pool.clone()).or_default() += 1;
        }
    }

    /// Removes the scope of a pool, which was added with these values.
    pub(super) fn remove(&mut self, pool: &Arc<str>, network: &str, scope: &[Tuple]) {
        for key in scope.iter().flat_map(|tuple| entered(network, tuple)) {
            let Some(pools) = self.pools.get_mut(&key) else {
                continue;
            };
            if let Some(tuples) = pools.get_mut(pool) {
                *tuples -= 1;
                if *tuples == 0 {
                    pools.remove(pool);
                }
            }
            if pools.is_empty() {
                self.pools.remove(&key);
            }
        }
    }

    /// The pools that may have a tuple that overlaps with one of the scope, each with the first such of the scope: at most
    /// `limit`, without the pool `own`. If two keys have the same hash a pool may be wrong, but none is missing.
    pub(super) fn candidates(
        &self,
        own: &str,
        network: &str,
        scope: &[Tuple],
        limit: usize,
    ) -> BTreeMap<Arc<str>, usize> {
        let mut found = BTreeMap::new();
        for (at, tuple) in scope.iter().enumerate() {
            for key in overlapping(network, tuple) {
                for pool in self.pools.get(&key).into_iter().flat_map(BTreeMap::keys) {
                    if **pool == *own || found.contains_key(pool) {
                        continue;
                    }
                    if found.len() == limit {
                        return found;
                    }
                    found.insert(pool.clone(), at);
                }
            }
        }
        found
    }
}
