//! Changes of the holds that make an address taken without a record, and the set of taken addresses. Each change of an
//! address reaches the counts of the pools that have it, and the load balancers that it wakes.

use std::net::IpAddr;

use harvester_lb_object::Version;

use super::Ledger;
use super::decision::{AllocationReason, Evidence};
use super::holds::Claim;
use crate::addr;
use crate::types::{Owner, OwnerId};

impl Ledger {
    /// IPA-1: a record that cannot be read blocks the address it is named after, until a newer
    /// version can be read or it is deleted. Its last readable content stays. False, and nothing
    /// blocked, if the name is no address or a newer version is known. A version that cannot be
    /// read either (0) cannot be compared, so it blocks.
    pub fn block_name(&mut self, name: &str, version: Version) -> bool {
        let Some(addr) = addr::parse_record_name(name) else {
            return false;
        };
        if version != Version(0) && !self.is_news(addr, version) {
            return false;
        }
        self.holds.set_blocked(addr, Some(version));
        if let Some(reservation) = self.holds.drop_reservation(addr) {
            self.wake_requested.insert(reservation.owner.id);
        }
        self.sync_taken(addr);
        true
    }

    /// IPA-1: whether the record of an address cannot be read.
    pub(crate) fn is_unreadable(&self, addr: IpAddr) -> bool {
        self.holds.is_blocked(addr)
    }

    /// Ends the block of an address whose record can be read again or is deleted, and wakes those that wait for that.
    pub(super) fn unblock(&mut self, addr: IpAddr) {
        if self.holds.is_blocked(addr) {
            self.holds.set_blocked(addr, None);
            self.sync_taken(addr);
            let blocked = self.blocked_by_record.iter().filter(|(_, at)| **at == addr);
            self.wake_requested
                .extend(blocked.map(|(id, _)| id.clone()));
        }
    }

    /// Sets the addresses that Services of this id show in loadBalancerIP or ingress. They are taken
    /// for every other id, and block the release of this id's records (IPA-1, IPA-3 b).
    pub fn set_shown(&mut self, id: &OwnerId, addrs: &[IpAddr]) {
        for addr in self.holds.set_shown(id, addrs) {
            self.sync_taken(addr);
        }
    }

    /// As [`set_shown`](Self::set_shown), for Services that can be read only in part: earlier addresses stay.
    pub fn add_shown(&mut self, id: &OwnerId, addrs: &[IpAddr]) {
        let mut all = self.holds.shown_by(id).to_vec();
        all.extend_from_slice(addrs);
        self.set_shown(id, &all);
    }

    /// IPA-1: an existing load balancer has this address, but there is no record of it yet. Ignored
    /// if a Bound record exists.
    pub fn claim(&mut self, addr: IpAddr, owner: Owner, evidence: Evidence) {
        if !self.records.is_bound(addr) {
            self.holds.claim(addr, Claim { owner, evidence });
            self.sync_taken(addr);
        }
    }

    /// Drops the reservation of an address whose record could not be written and will not be tried
    /// again. (Not needed after a conflict or an unknown outcome: observe the stored record, and
    /// decide again.)
    pub fn abandon(&mut self, id: &OwnerId, addr: IpAddr) {
        let reserved = self
            .holds
            .get(addr)
            .and_then(|hold| hold.reservation.as_ref());
        if reserved.is_some_and(|reservation| reservation.owner.id == *id) {
            self.holds.drop_reservation(addr);
            self.sync_taken(addr);
        }
    }

    /// Drops those reservations and claims of an id that are `unwanted`.
    pub(super) fn drop_holds(&mut self, id: &OwnerId, unwanted: impl Fn(IpAddr, &Owner) -> bool) {
        for addr in self.holds.of(id) {
            let Some(hold) = self.holds.get(addr) else {
                continue;
            };
            let own = |owner: &Owner| owner.id == *id && unwanted(addr, owner);
            let reserved = hold.reservation.as_ref().is_some_and(|it| own(&it.owner));
            let claimed = hold.claim.as_ref().is_some_and(|it| own(&it.owner));
            if reserved {
                self.holds.drop_reservation(addr);
            }
            if claimed {
                self.holds.drop_claim(addr);
            }
            if reserved || claimed {
                self.sync_taken(addr);
            }
        }
    }

    /// Drops the holds of an address that became Bound to `owner`, and wakes their other owners, and the others that wait for
    /// it to be confirmed. Returns the reason of the reservation if it was this owner's.
    pub(super) fn drop_holds_at(
        &mut self,
        addr: IpAddr,
        owner: &Owner,
    ) -> Option<AllocationReason> {
        let mut ours = None;
        if let Some(reservation) = self.holds.drop_reservation(addr) {
            if reservation.owner == *owner {
                ours = Some(reservation.reason);
            } else if reservation.owner.id != owner.id {
                self.wake_requested.insert(reservation.owner.id);
            }
        }
        if let Some(claim) = self.holds.drop_claim(addr)
            && claim.owner.id != owner.id
        {
            self.wake_requested.insert(claim.owner.id);
        }
        let held_back = self.held_back.at(addr).filter(|id| **id != owner.id);
        self.wake_requested.extend(held_back.cloned());
        ours
    }

    /// Updates the set of taken addresses and the counts of all pools for one address, and wakes the load balancers that ask for it:
    /// one of them may get it, and their explanations name the holder. Also those with an invalid spec whose status names it (ALC-10).
    pub(super) fn sync_taken(&mut self, addr: IpAddr) {
        self.set_taken(addr, self.records.is_bound(addr));
        self.wake_requested.extend(self.askers.at(addr).cloned());
        self.wake_requested.extend(self.unkept.at(addr).cloned());
    }

    /// As [`sync_taken`](Self::sync_taken), and wakes none of those; `bound`: whether the address has a Bound record.
    pub(super) fn set_taken(&mut self, addr: IpAddr, bound: bool) {
        let (held, awaited) = (self.holds.contains(addr), self.askers.await_it(addr));
        let taken = bound || held || awaited;
        let proposed = !bound && (self.holds.is_proposed(addr) || (awaited && !held));
        let (was_taken, was_proposed);
        if taken {
            was_taken = !self.taken.insert(addr);
        } else {
            was_taken = self.taken.remove(addr);
        }
        if proposed {
            was_proposed = !self.proposed.insert(addr);
        } else {
            was_proposed = self.proposed.remove(&addr);
        }
        if (was_taken, was_proposed) == (taken, proposed) {
            return;
        }
        let is_recounted = (was_taken && !was_proposed) != (taken && !proposed);
        let (freed, maybe_outdated, recounted) = (
            &mut self.freed,
            &mut self.maybe_outdated,
            &mut self.recounted,
        );
        self.pools.for_each_near(addr, |at, pool| {
            let Some(segment) = pool.segment_of(addr) else {
                return;
            };
            if was_proposed != proposed {
                pool.mark_proposed(proposed);
            }
            if was_taken != taken {
                pool.mark_taken(segment, taken);
            }
            if !taken {
                freed.insert(at);
            } else if !was_taken {
                maybe_outdated.extend(pool.queue.take_behind());
            }
            if is_recounted {
                recounted.insert(at);
            }
        });
    }
}
