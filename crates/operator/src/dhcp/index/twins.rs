//! Records whose clients have the same hardware address on the same interface, as the annotations of their load balancers say (DHC-1). Owns
//! which of them is about to give its lease back, and who may wait for that.

use harvester_lb_core::dhcp::record::{LeasePhase, LeaseSpec};
use harvester_lb_ipam::{Owner, Uid};

use crate::clock;
use crate::dhcp::index::{Index, RecordView};

impl Index {
    /// A load balancer whose client has the hardware address of this record's, and whose lease is about to end: because it is gone, as
    /// one is that was deleted and made again, or because it asks for another lease or none. A server with a reservation for the
    /// hardware address has nothing for the next client before that lease is given back.
    pub fn ending_twin(&self, spec: &LeaseSpec) -> Option<Owner> {
        let now = clock::now();
        let ends = |owner: &Owner| {
            let record = self.record(&owner.uid);
            let Some(spec) = record.as_deref().and_then(RecordView::lease) else {
                return false;
            };
            let is_over = spec.phase.lease().is_some_and(|it| it.is_expired(now));
            match spec.phase {
                _ if is_over => false,
                LeasePhase::Releasing(_) => !self.stays(owner),
                // The client of a Pending one may be asking for a lease.
                LeasePhase::Bound(_) | LeasePhase::Pending => self.is_gone(owner),
                LeasePhase::Released(_) => false,
            }
        };
        self.twins(spec).into_iter().find(ends)
    }

    /// Whether there is no load balancer of this uid, whatever the record says of its name: one that was edited is left alone.
    fn is_gone(&self, owner: &Owner) -> bool {
        self.lb(owner).is_none() && self.lb_of_uid(&owner.uid).is_none()
    }

    /// Whether what a load balancer has stays as it is (ALC-10): nobody can tell how long.
    fn stays(&self, owner: &Owner) -> bool {
        match self.lb(owner) {
            None => !self.is_gone(owner),
            Some(lb) => lb.claim.stays(),
        }
    }

    /// What this record said is over: those are due that may have waited for that, and have no client yet.
    pub(super) fn queue_twins(&self, spec: &LeaseSpec) {
        for owner in self.twins(spec) {
            let record = self.record(&owner.uid);
            let spec = record.as_deref().and_then(RecordView::lease);
            let is_pending = spec.is_some_and(|spec| spec.phase == LeasePhase::Pending);
            if is_pending && self.views.get(&owner.uid).is_none() {
                self.queue(owner);
            }
        }
    }

    /// As [`Index::queue_twins`], of the record of the load balancer of this uid, which has changed: it may have counted as gone, or stays
    /// as it is from now on.
    pub(super) fn queue_twins_of(&self, uid: &Uid) {
        if let Some(spec) = self.record(uid).as_deref().and_then(RecordView::lease) {
            self.queue_twins(spec);
        }
    }

    fn twins(&self, spec: &LeaseSpec) -> Vec<Owner> {
        let recorded = self.stores.recorded.read();
        let clients = recorded.clients(&spec.interface, spec.hardware);
        clients.filter(|it| it.uid != spec.owner.uid).collect()
    }
}
