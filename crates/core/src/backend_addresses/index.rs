//! Two-way index between holders and addresses, updated incrementally (BE-8). Pure.
//!
//! An update replaces all addresses of one holder, so updates are idempotent and only the last one of a holder counts.
//! Updates and lookups cost O(log n) in the number of entries.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// Holders and their addresses, many to many.
#[derive(Debug)]
pub(super) struct AddressIndex<H> {
    by_holder: BTreeMap<H, Box<[Ipv4Addr]>>,
    /// `None` is never stored. It sorts before every holder and serves as the lower bound of an address's entries.
    by_address: BTreeSet<(Ipv4Addr, Option<H>)>,
}

impl<H> Default for AddressIndex<H> {
    fn default() -> Self {
        Self {
            by_holder: BTreeMap::new(),
            by_address: BTreeSet::new(),
        }
    }
}

impl<H: Clone + Ord> AddressIndex<H> {
    /// Replaces the addresses of a holder. Returns those that it gained or lost.
    pub(super) fn set(&mut self, holder: &H, mut addresses: Vec<Ipv4Addr>) -> Vec<Ipv4Addr> {
        addresses.sort_unstable();
        addresses.dedup();
        let before = self.by_holder.remove(holder).unwrap_or_default();
        let mut changed = Vec::new();
        for address in &before {
            if addresses.binary_search(address).is_err() {
                self.by_address.remove(&(*address, Some(holder.clone())));
                changed.push(*address);
            }
        }
        for address in &addresses {
            if before.binary_search(address).is_err() {
                self.by_address.insert((*address, Some(holder.clone())));
                changed.push(*address);
            }
        }
        if !addresses.is_empty() {
            self.by_holder.insert(holder.clone(), addresses.into());
        }
        changed
    }

    /// Adds addresses to a holder. Returns those that it gained.
    pub(super) fn add(&mut self, holder: &H, addresses: &[Ipv4Addr]) -> Vec<Ipv4Addr> {
        let all = [self.of(holder), addresses].concat();
        self.set(holder, all)
    }

    /// The addresses of a holder, sorted.
    pub(super) fn of(&self, holder: &H) -> &[Ipv4Addr] {
        self.by_holder.get(holder).map_or(&[], |all| &**all)
    }

    /// The holders of an address, sorted.
    pub(super) fn holders(&self, address: Ipv4Addr) -> impl Iterator<Item = &H> {
        self.by_address
            .range((address, None)..)
            .take_while(move |(of, _)| *of == address)
            .filter_map(|(_, holder)| holder.as_ref())
    }

    /// The first and the last of the sorted holders of an address; `None` if it has none.
    pub(super) fn first_and_last(&self, address: Ipv4Addr) -> Option<(&H, &H)> {
        let first = self.holders(address).next()?;
        let last = match address.to_bits().checked_add(1).map(Ipv4Addr::from_bits) {
            Some(next) => self.by_address.range(..(next, None)).next_back(),
            None => self.by_address.last(),
        };
        Some((first, last.and_then(|(_, holder)| holder.as_ref())?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, last)
    }

    fn holders(index: &AddressIndex<&'static str>, of: Ipv4Addr) -> Vec<&'static str> {
        index.holders(of).copied().collect()
    }

    #[test]
    fn a_step_replaces_what_a_holder_has_and_answers_the_difference() {
        let mut index = AddressIndex::default();
        assert_eq!(index.set(&"a", vec![ip(2), ip(1), ip(2)]), [ip(1), ip(2)]);
        assert!(
            index.set(&"a", vec![ip(2), ip(1)]).is_empty(),
            "taken again"
        );
        assert_eq!(index.set(&"b", vec![ip(2)]), [ip(2)]);
        assert_eq!(index.set(&"a", vec![ip(3), ip(2)]), [ip(1), ip(3)]);
        assert_eq!(holders(&index, ip(1)), [""; 0]);
        assert_eq!(holders(&index, ip(2)), ["a", "b"]);
        assert_eq!(holders(&index, ip(3)), ["a"]);
        assert_eq!(index.set(&"a", vec![]), [ip(2), ip(3)]);
        assert_eq!(holders(&index, ip(2)), ["b"]);
        index.set(&"b", vec![]);
        assert!(index.by_holder.is_empty() && index.by_address.is_empty());
    }

    #[test]
    fn first_and_last_are_those_of_the_address() {
        let mut index = AddressIndex::default();
        let last = Ipv4Addr::BROADCAST;
        for (holder, addresses) in [
            ("c", vec![ip(1), ip(3)]),
            ("a", vec![ip(2), last]),
            ("b", vec![ip(2), last]),
        ] {
            index.set(&holder, addresses);
        }
        assert_eq!(index.first_and_last(ip(2)), Some((&"a", &"b")));
        assert_eq!(index.first_and_last(ip(1)), Some((&"c", &"c")));
        assert_eq!(index.first_and_last(last), Some((&"a", &"b")));
        assert_eq!(index.first_and_last(ip(4)), None);
        assert_eq!(index.first_and_last(Ipv4Addr::UNSPECIFIED), None);
    }
}
