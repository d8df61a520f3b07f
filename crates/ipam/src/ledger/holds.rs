//! Holds: why an address is taken without a Bound record: a reservation, a claim, a Service that
//! shows it, an unreadable record.

use std::net::IpAddr;

use harvester_lb_object::Version;
use rustc_hash::{FxHashMap, FxHashSet};

use super::decision::{AllocationReason, Evidence};
use crate::types::{Micros, Owner, OwnerId, PoolName};

/// An address proposed to a load balancer, until its record is observed.
#[derive(Clone, Debug)]
pub(crate) struct Reservation {
    pub(crate) owner: Owner,
    pub(crate) pool: PoolName,
    pub(crate) reason: AllocationReason,
    pub(crate) bound_at: Micros,
}

/// An address that an existing load balancer has without a record.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) owner: Owner,
    pub(crate) evidence: Evidence,
}

/// The holds of one address.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    pub(crate) reservation: Option<Reservation>,
    pub(crate) claim: Option<Claim>,
    /// IPA-1: the version in which the record of this address cannot be read.
    pub(crate) blocked: Option<Version>,
}

impl Hold {
    /// Whether a reservation is the only hold.
    fn is_proposed(&self) -> bool {
        self.reservation.is_some() && self.claim.is_none() && self.blocked.is_none()
    }

    fn is_empty(&self) -> bool {
        self.reservation.is_none() && self.claim.is_none() && self.blocked.is_none()
    }

    /// The holder of the address other than `id`.
    pub(crate) fn rival<'a>(&'a self, id: &OwnerId) -> Option<&'a OwnerId> {
        let reserved = self
            .reservation
            .iter()
            .map(|reservation| &reservation.owner.id);
        reserved
            .chain(self.claim.iter().map(|claim| &claim.owner.id))
            .find(|owner| *owner != id)
    }
}

/// All holds, by address and by owner.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    by_addr: FxHashMap<IpAddr, Hold>,
    /// Addresses reserved for or claimed by an id, without duplicates.
    by_owner: FxHashMap<OwnerId, Vec<IpAddr>>,
    /// Reserved addresses by the pool of the reservation.
    reserved_in: FxHashMap<PoolName, FxHashSet<IpAddr>>,
    shown_at: FxHashMap<IpAddr, Vec<OwnerId>>,
    shown_by: FxHashMap<OwnerId, Vec<IpAddr>>,
}

impl Holds {
    /// Whether the address has any hold.
    pub(crate) fn contains(&self, addr: IpAddr) -> bool {
        self.by_addr.contains_key(&addr) || self.shown_at.contains_key(&addr)
    }

    /// Whether the address is only proposed to a load balancer.
    pub(crate) fn is_proposed(&self, addr: IpAddr) -> bool {
        self.by_addr.get(&addr).is_some_and(Hold::is_proposed) && !self.shown_at.contains_key(&addr)
    }

    /// The holds of the address, without Services.
    pub(crate) fn get(&self, addr: IpAddr) -> Option<&Hold> {
        self.by_addr.get(&addr)
    }

    /// The holder of the address, or the owner of a Service that shows it, other than `id`.
    pub(crate) fn rival(&self, addr: IpAddr, id: &OwnerId) -> Option<&OwnerId> {
        let held = self.by_addr.get(&addr).and_then(|hold| hold.rival(id));
        held.or_else(|| self.shown_by_another(addr, id))
    }

    /// The owner of a Service that shows the address, other than `id`.
    pub(crate) fn shown_by_another(&self, addr: IpAddr, id: &OwnerId) -> Option<&OwnerId> {
        self.shown_at.get(&addr)?.iter().find(|owner| *owner != id)
    }

    /// IPA-1: whether the record of the address cannot be read.
    pub(crate) fn is_blocked(&self, addr: IpAddr) -> bool {
        self.blocked(addr).is_some()
    }

    /// The version in which the record of the address cannot be read.
    pub(crate) fn blocked(&self, addr: IpAddr) -> Option<Version> {
        self.by_addr.get(&addr)?.blocked
    }

    /// The addresses reserved for or claimed by an id, ascending.
    pub(crate) fn of(&self, id: &OwnerId) -> Vec<IpAddr> {
        let mut addrs = self.by_owner.get(id).cloned().unwrap_or_default();
        addrs.sort_unstable();
        addrs
    }

    /// Sets the reservation of an address, in place of an earlier one.
    pub(crate) fn reserve(&mut self, addr: IpAddr, reservation: Reservation) {
        let (owner, pool) = (reservation.owner.id.clone(), reservation.pool.clone());
        let old = self
            .by_addr
            .entry(addr)
            .or_default()
            .reservation
            .replace(reservation);
        if let Some(old) = &old {
            self.not_reserved_in(&old.pool, addr);
        }
        self.reserved_in.entry(pool).or_default().insert(addr);
        self.reindex(addr, old.map(|old| old.owner.id), Some(owner));
    }

    /// Sets the claim on an address, in place of an earlier one.
    pub(crate) fn claim(&mut self, addr: IpAddr, claim: Claim) {
        let owner = claim.owner.id.clone();
        let old = self.by_addr.entry(addr).or_default().claim.replace(claim);
        self.reindex(addr, old.map(|old| old.owner.id), Some(owner));
    }

    /// Removes the reservation of an address.
    pub(crate) fn drop_reservation(&mut self, addr: IpAddr) -> Option<Reservation> {
        let old = self.by_addr.get_mut(&addr)?.reservation.take();
        if let Some(old) = &old {
            self.not_reserved_in(&old.pool, addr);
        }
        self.reindex(addr, old.as_ref().map(|old| old.owner.id.clone()), None);
        old
    }

    fn not_reserved_in(&mut self, pool: &PoolName, addr: IpAddr) {
        if let Some(addrs) = self.reserved_in.get_mut(pool) {
            addrs.remove(&addr);
            if addrs.is_empty() {
                self.reserved_in.remove(pool);
            }
        }
    }

    /// The reservations in a pool.
    pub(crate) fn reserved_in(&self, pool: &str) -> impl Iterator<Item = &Reservation> {
        let addrs = self.reserved_in.get(pool).into_iter().flatten();
        addrs.filter_map(|addr| self.by_addr.get(addr)?.reservation.as_ref())
    }

    /// Removes the claim on an address.
    pub(crate) fn drop_claim(&mut self, addr: IpAddr) -> Option<Claim> {
        let old = self.by_addr.get_mut(&addr)?.claim.take();
        self.reindex(addr, old.as_ref().map(|old| old.owner.id.clone()), None);
        old
    }

    /// Sets the version in which the record of the address cannot be read; none: it can.
    pub(crate) fn set_blocked(&mut self, addr: IpAddr, blocked: Option<Version>) {
        self.by_addr.entry(addr).or_default().blocked = blocked;
        self.reindex(addr, None, None);
    }

    /// Updates the index by owner after a change at an address.
    fn reindex(&mut self, addr: IpAddr, before: Option<OwnerId>, after: Option<OwnerId>) {
        let hold = self.by_addr.get(&addr);
        let has = |id: &OwnerId| {
            hold.is_some_and(|hold| {
                hold.reservation
                    .as_ref()
                    .is_some_and(|it| it.owner.id == *id)
                    || hold.claim.as_ref().is_some_and(|it| it.owner.id == *id)
            })
        };
        if let Some(id) = before.filter(|id| !has(id))
            && let Some(addrs) = self.by_owner.get_mut(&id)
        {
            addrs.retain(|other| *other != addr);
            if addrs.is_empty() {
                self.by_owner.remove(&id);
            }
        }
        if let Some(id) = after {
            let addrs = self.by_owner.entry(id).or_default();
            if !addrs.contains(&addr) {
                addrs.push(addr);
            }
        }
        if self.by_addr.get(&addr).is_some_and(Hold::is_empty) {
            self.by_addr.remove(&addr);
        }
    }

    /// Sets the addresses that Services of an id show; returns the added and removed ones.
    pub(crate) fn set_shown(&mut self, id: &OwnerId, addrs: &[IpAddr]) -> Vec<IpAddr> {
        let mut now = addrs.to_vec();
        now.sort_unstable();
        now.dedup();
        let before = self.shown_by.remove(id).unwrap_or_default();
        let mut changed = Vec::new();
        for addr in before
            .iter()
            .filter(|addr| now.binary_search(addr).is_err())
        {
            if let Some(owners) = self.shown_at.get_mut(addr) {
                owners.retain(|owner| owner != id);
                if owners.is_empty() {
                    self.shown_at.remove(addr);
                }
            }
            changed.push(*addr);
        }
        for addr in now
            .iter()
            .filter(|addr| before.binary_search(addr).is_err())
        {
            self.shown_at.entry(*addr).or_default().push(id.clone());
            changed.push(*addr);
        }
        if !now.is_empty() {
            self.shown_by.insert(id.clone(), now);
        }
        changed
    }

    /// The addresses that Services of this id show, ascending.
    pub(crate) fn shown_by(&self, id: &OwnerId) -> &[IpAddr] {
        self.shown_by.get(id).map_or(&[], Vec::as_slice)
    }

    /// IPA-3 b: whether a Service of this id shows the address.
    pub(crate) fn shows(&self, id: &OwnerId, addr: IpAddr) -> bool {
        self.shown_by
            .get(id)
            .is_some_and(|addrs| addrs.binary_search(&addr).is_ok())
    }

    /// All holds, for the counts.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Hold> {
        self.by_addr.values()
    }
}
