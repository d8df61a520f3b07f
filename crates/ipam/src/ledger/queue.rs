//! Who waits for an address, oldest first, and who of them can be served.
//!
//! The rule (ALC-5): a free address goes to a load balancer only if more addresses are free than older ones wait that could have
//! them. So of a line of those who wait the first so many as addresses are free have *room*. The border behind them is kept:
//! one address more or less, one who comes or goes moves it by one, and nobody else is looked at.
//!
//! One of VM type gets IPv4 addresses alone (BE-7), so there are two lines: that of all for what is free of IPv4, and that of
//! those of cluster type for what is free of IPv6. Who cannot have an address is in nobody's way to it, and nobody takes one
//! that an older one waits for while there is another.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::net::IpAddr;
use std::ops::Bound;

use super::decision::Request;
use crate::select::Workload;
use crate::types::{Micros, OwnerId, Uid};

/// The order in which the waiting are served: creation, then name, then uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Age {
    pub(crate) created: Micros,
    pub(crate) id: OwnerId,
    pub(crate) uid: Uid,
}

impl Age {
    pub(crate) fn of(request: &Request) -> Self {
        let owner = request.owner.clone();
        Self {
            created: request.created,
            id: owner.id,
            uid: owner.uid,
        }
    }
}

/// A load balancer that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) request: Request,
    /// Digest of the explanation that it was last given; none when it was only enlisted.
    pub(crate) told: Option<u64>,
    /// Whether it was told that older ones wait for what is free.
    pub(crate) is_behind: bool,
    /// Whether it was named since and has not asked yet.
    pub(crate) named: bool,
}

/// The families of which more addresses are free than older ones wait that could have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) v4: bool,
    pub(crate) v6: bool,
}

impl Room {
    /// Whether there is any.
    pub(crate) fn is_any(self) -> bool {
        self.v4 || self.v6
    }

    /// Whether this address, if it is free, is one of those that no older one waits for.
    pub(crate) fn has(self, addr: IpAddr) -> bool {
        if addr.is_ipv4() { self.v4 } else { self.v6 }
    }
}

/// Those who wait for the same addresses.
#[derive(Debug, Default)]
struct Line {
    ages: BTreeSet<Age>,
    /// Addresses that are free for these.
    free: u128,
    /// How many have room: as many as addresses are free, or all.
    with_room: usize,
    /// The youngest of those.
    border: Option<Age>,
}

impl Line {
    /// Whether more addresses are free than older ones wait, for one that is in the line or is not.
    fn has_room(&self, age: &Age) -> bool {
        // With an address left over all have room, and there are fewer of them than addresses.
        (self.with_room as u128) < self.free || self.is_before_border(age)
    }

    fn is_before_border(&self, age: &Age) -> bool {
        self.border.as_ref().is_some_and(|border| age <= border)
    }

    /// Takes one in; `gains` learns of each that has room now and had none before.
    fn insert(&mut self, age: &Age, gains: &mut BTreeSet<Age>) {
        if self.ages.insert(age.clone()) && self.is_before_border(age) {
            self.with_room += 1;
            gains.insert(age.clone());
        }
        self.settle(gains);
    }

    /// Takes one out, as [`Line::insert`] takes one in.
    fn remove(&mut self, age: &Age, gains: &mut BTreeSet<Age>) {
        if self.ages.remove(age) && self.is_before_border(age) {
            self.with_room -= 1;
            if self.border.as_ref() == Some(age) {
                self.border = self.ages.range(..age).next_back().cloned();
            }
        }
        self.settle(gains);
    }

    fn set_free(&mut self, free: u128, gains: &mut BTreeSet<Age>) {
        self.free = free;
        self.settle(gains);
    }

    /// Moves the border to where it belongs.
    fn settle(&mut self, gains: &mut BTreeSet<Age>) {
        while (self.with_room as u128) > self.free {
            let Some(border) = self.border.take() else {
                break;
            };
            self.with_room -= 1;
            self.border = self.ages.range(..&border).next_back().cloned();
        }
        while (self.with_room as u128) < self.free && self.with_room < self.ages.len() {
            let behind = self
                .border
                .as_ref()
                .map_or(Bound::Unbounded, Bound::Excluded);
            let Some(age) = self.ages.range((behind, Bound::Unbounded)).next().cloned() else {
                break;
            };
            gains.insert(age.clone());
            self.border = Some(age);
            self.with_room += 1;
        }
    }
}

/// The waiting of one pool, or those that no pool matches.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiters: BTreeMap<Age, Waiter>,
    /// All, for what is free of IPv4.
    v4: Line,
    /// Those of cluster type, for what is free of IPv6.
    v6: Line,
    /// Those that have come to have room in one of the lines, or to ask again, since the last look at who is due.
    gained: BTreeSet<Age>,
    /// Those of each type that were told that older ones wait for what is free.
    behind: [BTreeSet<Age>; 2],
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(crate) fn get(&self, age: &Age) -> Option<&Waiter> {
        self.waiters.get(age)
    }

    /// All that wait, oldest first.
    pub(crate) fn ages(&self) -> impl Iterator<Item = &Age> {
        self.waiters.keys()
    }

    /// What room there is for one of this type that waits here or does not.
    pub(crate) fn room(&self, age: &Age, workload: Workload) -> Room {
        Room {
            v4: self.v4.has_room(age),
            v6: workload == Workload::Cluster && self.v6.has_room(age),
        }
    }

    /// Takes one in, or in the place of what was known of it.
    pub(crate) fn insert(&mut self, age: &Age, waiter: Waiter) {
        let workload = waiter.request.workload;
        for behind in &mut self.behind {
            behind.remove(age);
        }
        if waiter.is_behind {
            self.behind[workload as usize].insert(age.clone());
        }
        self.waiters.insert(age.clone(), waiter);
        self.gained.insert(age.clone());
        self.v4.insert(age, &mut self.gained);
        if workload == Workload::Cluster {
            self.v6.insert(age, &mut self.gained);
        } else {
            self.v6.remove(age, &mut self.gained);
        }
    }

    /// Takes one out. Somebody behind it may have room now.
    pub(crate) fn remove(&mut self, age: &Age) -> Option<Waiter> {
        let waiter = self.waiters.remove(age)?;
        for behind in &mut self.behind {
            behind.remove(age);
        }
        for line in [&mut self.v4, &mut self.v6] {
            line.remove(age, &mut self.gained);
        }
        self.gained.remove(age);
        Some(waiter)
    }

    /// So many addresses may be given out now, of IPv4 and of IPv6.
    pub(crate) fn set_free(&mut self, v4: u128, v6: u128) {
        self.v4.set_free(v4, &mut self.gained);
        self.v6.set_free(v6, &mut self.gained);
    }

    /// One is about to be asked after, so it need not be named again before it has asked.
    pub(crate) fn name(&mut self, age: &Age) {
        if let Some(waiter) = self.waiters.get_mut(age) {
            waiter.named = true;
        }
    }

    /// Names those with room that were not named since they asked last.
    pub(crate) fn take_due(&mut self) -> Vec<Age> {
        let gained = mem::take(&mut self.gained).into_iter();
        let due: Vec<Age> = gained
            .filter(|age| {
                let waiter = self.waiters.get(age).filter(|it| !it.named);
                waiter.is_some_and(|it| self.room(age, it.request.workload).is_any())
            })
            .collect();
        for age in &due {
            self.name(age);
        }
        due
    }

    /// Those that were told that older ones wait for what is free, once nothing is that they could have: they have to be
    /// told that.
    pub(crate) fn take_behind(&mut self) -> BTreeSet<Age> {
        let mut over = BTreeSet::new();
        if self.v4.free == 0 {
            over.append(&mut self.behind[Workload::Vm as usize]);
        }
        if self.v4.free == 0 && self.v6.free == 0 {
            over.append(&mut self.behind[Workload::Cluster as usize]);
        }
        over
    }
}

#[cfg(test)]
mod tests;
