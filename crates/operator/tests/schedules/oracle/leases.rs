//! Leases of DHCP: who has which address by one, and the Service that announces it (REL-4).

use harvester_lb_object::Key;

use super::Oracle;
use super::objects::{Lb, Shown, text};
use crate::api::Event;
use crate::failure::{Failure, must};
use crate::leases;

impl Oracle {
    /// The record of a lease: which addresses a load balancer has had by one, and which it has.
    pub(super) fn lease(&mut self, event: &Event) {
        let Some(record) = &event.after else {
            self.leases.remove(&event.key);
            return;
        };
        let text = |pointer| text(record, pointer).unwrap_or_default();
        let (uid, address) = (text("/spec/owner/uid"), text("/spec/address"));
        let is_bound = record["spec"]["phase"] == "Bound";
        let bound = Some(address.clone()).filter(|_| is_bound && !address.is_empty());
        self.leased.insert((uid.clone(), bound));
        let is_lease = is_bound || record["spec"]["phase"] == "Releasing";
        if is_lease && text("/spec/lease/expiresAt") != leases::OVER {
            let owner = leases::owner_of(record);
            self.leases.insert(event.key.clone(), (owner, uid, address));
        } else {
            self.leases.remove(&event.key);
        }
    }

    /// REL-4: a Service is not deleted while it announces a lease.
    pub(super) fn lease_taken_down(
        &self,
        key: &Key,
        service: &Shown,
        lb: &Lb,
    ) -> Result<(), Failure> {
        // One with a record of this name is no lease, but the address that it had before, maybe as an earlier load balancer.
        let is_recorded = |address: &&String| {
            let record = self.records.get(*address);
            record.is_some_and(|r| r.bound && r.owner == *key)
        };
        // With a record of a lease it is that which decides (DHC-6).
        let has_lease = self.leased.iter().any(|(uid, _)| *uid == lb.uid);
        let leased = service.announced.as_ref().filter(|a| !is_recorded(a));
        let leased = leased.filter(|_| !has_lease);
        // kube-vip may go on announcing that of an earlier one, which is given back once nothing shows it.
        let is_left = |address: &&String| {
            let mut leases = self.leases.values();
            leases.any(|(of, uid, at)| of == key && *uid != lb.uid && at == *address)
        };
        // The operator has not seen yet that somebody has edited the record of an address of a pool.
        let leased = leased.filter(|address| !is_left(address) && !self.by_hand.contains(*address));
        must!(
            "REL-4",
            leased.is_none() || service.asked.as_deref() != Some("0.0.0.0"),
            "the Service of {key} is deleted although it announces a lease: {service:?}"
        );
        Ok(())
    }
}
