//! Addresses that the status of a load balancer names and another load balancer has. The status is
//! only a copy, and any tenant can write it.

use std::net::IpAddr;

use super::Ledger;
use super::decision::{AddressConflict, AllocationReason, Request, StatusAddress};
use super::records::RecordEntry;
use crate::types::OwnerId;

impl Ledger {
    /// ALC-7: the address in the status, unless this load balancer has a Bound record of it: then
    /// it is the one that it moves away from (REL-4).
    pub(super) fn status_to_consider(&self, request: &Request) -> Option<IpAddr> {
        let StatusAddress { addr, .. } = request.status.as_ref()?;
        let own = |entry: &RecordEntry| entry.is_bound() && entry.owner.id == request.owner.id;
        (!self.records.get(*addr).is_some_and(own)).then_some(*addr)
    }

    /// ALC-7, IPA-2: the conflict about the address in the status, if a load balancer that gets
    /// `addr`, or some address, of `pool` loses it.
    pub(super) fn address_conflict(
        &self,
        request: &Request,
        addr: IpAddr,
        pool: &str,
    ) -> Option<AddressConflict> {
        let named = self.status_to_consider(request)?;
        let id = &request.owner.id;
        if let Some(holder) = self
            .rival(named, id)
            .filter(|_| !self.claims(request, named))
        {
            return Some(AddressConflict {
                addr: named,
                holder: Some(holder.clone()),
            });
        }
        let elsewhere = || {
            !self
                .pools
                .by_name(pool)
                .is_some_and(|pool| pool.usable(named))
        };
        // A load balancer whose spec moves it to another pool loses nothing.
        let moves = request.pool.is_some()
            && request
                .status
                .as_ref()
                .is_some_and(|status| status.pool != request.pool);
        let kept = named == addr && self.claims(request, named);
        (!kept && !moves && elsewhere()).then_some(AddressConflict {
            addr: named,
            holder: None,
        })
    }

    /// Whether this load balancer has a claim on the address.
    pub(super) fn claims(&self, request: &Request, addr: IpAddr) -> bool {
        let hold = self.holds.get(addr);
        let claimed = hold.and_then(|hold| hold.claim.as_ref());
        let reserved = hold.and_then(|hold| hold.reservation.as_ref());
        claimed.is_some_and(|claim| claim.owner == request.owner)
            || reserved.is_some_and(|it| {
                it.owner == request.owner && it.reason == AllocationReason::Recorded
            })
    }

    /// Whether another load balancer has the address, for one that may have it and whose pool cannot tell. A Service that shows it says
    /// nothing if its own one shows it too: it may be what a deleted load balancer has left.
    pub(super) fn is_of_another(&self, addr: IpAddr, id: &OwnerId) -> bool {
        let another = if self.holds.shows(id, addr) {
            self.holder(addr, id)
        } else {
            self.rival(addr, id)
        };
        another.is_some()
    }

    /// The holder of the address other than `id`, or else the owner of a Service that shows it. `id` has it if the Bound record is its
    /// own one, whatever Services show.
    pub(super) fn rival(&self, addr: IpAddr, id: &OwnerId) -> Option<&OwnerId> {
        self.holder(addr, id).or_else(|| {
            let shown = self.holds.shown_by_another(addr, id);
            shown.filter(|_| !self.records.is_bound(addr))
        })
    }

    /// The holder of the address other than `id`, by a Bound record, a reservation or a claim. Of one that is shared it is the owner of
    /// its record, as the primary may be gone; `id` has it if it is the primary.
    fn holder(&self, addr: IpAddr, id: &OwnerId) -> Option<&OwnerId> {
        match self.records.get(addr).filter(|entry| entry.is_bound()) {
            Some(entry) => (entry.owner.id != *id).then(|| self.owner_id(entry)),
            None => self.holds.get(addr)?.rival(id),
        }
    }
}
