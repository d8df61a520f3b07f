//! What follows from a change of an IPAllocation. Owns which leases are due then.

use std::net::{IpAddr, Ipv4Addr};

use harvester_lb_controller_kit::store::Change;
use harvester_lb_core::dhcp::record;
use harvester_lb_ipam::addr;
use harvester_lb_object::Key;

use crate::dhcp::index::{Index, RecordView};

impl Index {
    /// The watch or a live read has brought a change of an IPAllocation.
    pub fn record_changed(&self, key: &Key, change: &Change<RecordView>) {
        self.record_written(key, change);
        let [old, new] = views(change);
        for owner in [old, new]
            .into_iter()
            .flatten()
            .filter_map(RecordView::owner)
        {
            self.queue(owner.clone());
        }
        // A record that cannot be read names no owner, and one that was edited may name another one; when it is right again, or is
        // gone, its load balancer is due; of one that is gone itself the client may be left.
        let owner = |it: Option<&RecordView>| it.and_then(RecordView::owner).cloned();
        let may_be_wrong = matches!(old, Some(RecordView::UnreadableLease(_)))
            || owner(old).is_some_and(|old| Some(old) != owner(new));
        if may_be_wrong
            && let Some(uid) = record::owner_of(&key.name)
            && let Some(lb) = self.lb_of_uid(&uid).or_else(|| self.views.owner(&uid))
        {
            self.queue(lb);
        }
    }

    /// The same of a write of this process, which the watch does not bring any more: the reconcile that has written goes on, others are
    /// due. These are the load balancers that have an address of the record too, and those that have waited for its client to end.
    pub fn record_written(&self, key: &Key, change: &Change<RecordView>) {
        self.record_updated(key);
        let [old, new] = views(change);
        for view in [old, new].into_iter().flatten() {
            let address = address(key, view);
            for lb in address.into_iter().flat_map(|it| self.all_with(it)) {
                if view.owner() != Some(&lb) {
                    self.queue(lb);
                }
            }
        }
        if let Some(old) = old.and_then(RecordView::lease)
            && old.is_over(new.and_then(RecordView::lease))
        {
            self.queue_twins(old);
        }
    }

    /// Keeps what the records say. It reads the store under its lock, since of two changes the later one may come first.
    pub fn record_updated(&self, key: &Key) {
        let Some(uid) = record::owner_of(&key.name) else {
            return;
        };
        let mut recorded = self.stores.recorded.write();
        let stored = self.stores.records.get(key);
        recorded.set(&uid, stored.as_deref().and_then(RecordView::lease));
    }
}

/// Before and after.
fn views(change: &Change<RecordView>) -> [Option<&RecordView>; 2] {
    match change {
        Change::Applied { old, new } => [old.as_deref(), Some(&**new)],
        Change::Deleted { old, .. } => [Some(&**old), None],
    }
}

/// The address that a record of a lease or of a pool says is in use.
fn address(key: &Key, view: &RecordView) -> Option<Ipv4Addr> {
    match view {
        RecordView::Lease(record) => Some(record.spec.phase.lease()?.address),
        RecordView::UnreadableLease(_) => None,
        RecordView::HeldByPool => match addr::parse_record_name(&key.name) {
            Some(IpAddr::V4(address)) => Some(address),
            Some(IpAddr::V6(_)) | None => None,
        },
    }
}
