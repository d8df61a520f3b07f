//! The load balancers that wait for an address of one pool, oldest first, and which of them can be served.
//!
//! The rule (ALC-5): a load balancer gets a free address only if more addresses are free than older load balancers wait
//! for them. So with n free addresses the first n of a line have *room*. The border behind them is stored: one address
//! or one load balancer more or less moves it by one, without a look at the others.
//!
//! A VM-type load balancer gets IPv4 addresses only (BE-7), so there are two lines: all load balancers for the free
//! IPv4 addresses, and those of cluster type for the free IPv6 addresses. A load balancer does not wait behind an older
//! one that cannot use the address, and none takes an address that an older one waits for while another is free.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::net::IpAddr;
use std::ops::Bound;

use super::decision::Request;
use crate::select::Workload;
use crate::types::{Micros, OwnerId, Uid};

/// The order in which waiting load balancers are served: creation time, then name, then uid.
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

/// A waiting load balancer.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) request: Request,
    /// Digest of its last explanation; none if it was only enlisted.
    pub(crate) explanation_digest: Option<u64>,
    /// Whether its last explanation says that older load balancers wait for the free addresses.
    pub(crate) is_behind: bool,
    /// Whether it was woken and has not been decided about since.
    pub(crate) is_woken: bool,
}

/// The address families of which more addresses are free than older load balancers wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) v4: bool,
    pub(crate) v6: bool,
}

impl Room {
    /// Whether there is room in any family.
    pub(crate) fn is_any(self) -> bool {
        self.v4 || self.v6
    }

    /// Whether there is room in the family of this address.
    pub(crate) fn has(self, addr: IpAddr) -> bool {
        if addr.is_ipv4() { self.v4 } else { self.v6 }
    }
}

/// The load balancers that wait for addresses of one family.
#[derive(Debug, Default)]
struct FamilyQueue {
    ages: BTreeSet<Age>,
    /// Number of free addresses.
    free: u128,
    /// Number of load balancers with room: that of the free addresses, or all.
    with_room: usize,
    /// The youngest one with room.
    border: Option<Age>,
}

impl FamilyQueue {
    /// Whether more addresses are free than older load balancers wait, for one in the line or not.
    fn has_room(&self, age: &Age) -> bool {
        // With an address to spare all have room: fewer load balancers wait than addresses are free.
        (self.with_room as u128) < self.free || self.is_before_border(age)
    }

    fn is_before_border(&self, age: &Age) -> bool {
        self.border.as_ref().is_some_and(|border| age <= border)
    }

    /// Adds a load balancer; adds to `gains` each one that has room now and had none before.
    fn insert(&mut self, age: &Age, gains: &mut BTreeSet<Age>) {
        if self.ages.insert(age.clone()) && self.is_before_border(age) {
            self.with_room += 1;
            gains.insert(age.clone());
        }
        self.move_border(gains);
    }

    /// Removes a load balancer; `gains` as in [`FamilyQueue::insert`].
    fn remove(&mut self, age: &Age, gains: &mut BTreeSet<Age>) {
        if self.ages.remove(age) && self.is_before_border(age) {
            self.with_room -= 1;
            if self.border.as_ref() == Some(age) {
                self.border = self.ages.range(..age).next_back().cloned();
            }
        }
        self.move_border(gains);
    }

    fn set_free(&mut self, free: u128, gains: &mut BTreeSet<Age>) {
        self.free = free;
        self.move_border(gains);
    }

    /// Moves the border after a change.
    fn move_border(&mut self, gains: &mut BTreeSet<Age>) {
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

/// The waiting load balancers of one pool, or those that no pool matches.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiters: BTreeMap<Age, Waiter>,
    /// All, for the free IPv4 addresses.
    v4: FamilyQueue,
    /// Those of cluster type, for the free IPv6 addresses.
    v6: FamilyQueue,
    /// Those that gained room in a line, or were inserted again, since the last [`Queue::take_due`].
    gained: BTreeSet<Age>,
    /// By workload type, those whose last explanation says that older load balancers wait for the free addresses.
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

    /// All waiting load balancers, oldest first.
    pub(crate) fn ages(&self) -> impl Iterator<Item = &Age> {
        self.waiters.keys()
    }

    /// The room for a load balancer of this workload type, whether it waits here or not.
    pub(crate) fn room(&self, age: &Age, workload: Workload) -> Room {
        Room {
            v4: self.v4.has_room(age),
            v6: workload == Workload::Cluster && self.v6.has_room(age),
        }
    }

    /// Adds or replaces a waiting load balancer.
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

    /// Removes a load balancer. A younger one may gain room.
    pub(crate) fn remove(&mut self, age: &Age) -> Option<Waiter> {
        let waiter = self.waiters.remove(age)?;
        for behind in &mut self.behind {
            behind.remove(age);
        }
        for family in [&mut self.v4, &mut self.v6] {
            family.remove(age, &mut self.gained);
        }
        self.gained.remove(age);
        Some(waiter)
    }

    /// Sets the numbers of IPv4 and IPv6 addresses that may be allocated now.
    pub(crate) fn set_free(&mut self, v4: u128, v6: u128) {
        self.v4.set_free(v4, &mut self.gained);
        self.v6.set_free(v6, &mut self.gained);
    }

    /// Marks a load balancer as woken, so that it is not woken again before it is decided about.
    pub(crate) fn mark_woken(&mut self, age: &Age) {
        if let Some(waiter) = self.waiters.get_mut(age) {
            waiter.is_woken = true;
        }
    }

    /// Returns a load balancer to those whose explanation says that older ones wait for the free addresses: it was taken out with
    /// [`take_behind`](Self::take_behind), and an address is free again.
    pub(crate) fn still_behind(&mut self, age: &Age) {
        if let Some(waiter) = self.waiters.get(age) {
            self.behind[waiter.request.workload as usize].insert(age.clone());
        }
    }

    /// The load balancers with room that were not woken since they were last decided about; marks them as woken.
    pub(crate) fn take_due(&mut self) -> Vec<Age> {
        let gained = mem::take(&mut self.gained).into_iter();
        let due: Vec<Age> = gained
            .filter(|age| {
                let waiter = self.waiters.get(age).filter(|it| !it.is_woken);
                waiter.is_some_and(|it| self.room(age, it.request.workload).is_any())
            })
            .collect();
        for age in &due {
            self.mark_woken(age);
        }
        due
    }

    /// Removes and returns those whose explanation says that older load balancers wait for the free addresses, once no
    /// address is free that they could use: that explanation is outdated.
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
