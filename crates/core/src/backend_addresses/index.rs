//! Who has which address, both ways: an index that is kept up to date in steps (BE-8). Pure.
//!
//! Each step replaces all that one holder has, so it may be taken again, and the order in which copies of one holder come
//! does not matter as long as the newest comes last. A step and a look cost the logarithm of the number of entries.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// Who has which address. An address may have several holders, and a holder several addresses.
#[derive(Debug)]
pub(super) struct AddressIndex<H> {
    by_holder: BTreeMap<H, Box<[Ipv4Addr]>>,
    /// `None`, which sorts before every holder, is never stored: it marks where an address begins.
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
    /// A holder has these addresses and no others. Answers those that it has gained or lost by that.
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

    /// A holder has these addresses beside those that it has. Answers those that it has gained by that.
    pub(super) fn add(&mut self, holder: &H, addresses: &[Ipv4Addr]) -> Vec<Ipv4Addr> {
        let all = [self.of(holder), addresses].concat();
        self.set(holder, all)
    }

    /// What a holder has, in order.
    pub(super) fn of(&self, holder: &H) -> &[Ipv4Addr] {
        self.by_holder.get(holder).map_or(&[], |all| &**all)
    }

    /// All that have an address, in their order.
    pub(super) fn holders(&self, address: Ipv4Addr) -> impl Iterator<Item = &H> {
        self.by_address
            .range((address, None)..)
            .take_while(move |(of, _)| *of == address)
            .filter_map(|(_, holder)| holder.as_ref())
    }

    /// The first and the last in order of those that have an address.
    pub(super) fn ends(&self, address: Ipv4Addr) -> Option<(&H, &H)> {
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
    fn the_ends_of_an_address_are_its_own() {
        let mut index = AddressIndex::default();
        let last = Ipv4Addr::BROADCAST;
        for (holder, addresses) in [
            ("c", vec![ip(1), ip(3)]),
            ("a", vec![ip(2), last]),
            ("b", vec![ip(2), last]),
        ] {
            index.set(&holder, addresses);
        }
        assert_eq!(index.ends(ip(2)), Some((&"a", &"b")));
        assert_eq!(index.ends(ip(1)), Some((&"c", &"c")));
        assert_eq!(index.ends(last), Some((&"a", &"b")));
        assert_eq!(index.ends(ip(4)), None);
        assert_eq!(index.ends(Ipv4Addr::UNSPECIFIED), None);
    }
}
