//! Changes of pools.

use harvester_lb_controller_kit::store::Change;
use harvester_lb_core::cached::{self, Pool};
use harvester_lb_ipam::PoolName;
use harvester_lb_object::Key;

use super::Index;

impl Index {
    /// A pool was made, altered or deleted.
    pub fn pool_changed(&self, key: &Key, change: &Change<Pool>) {
        let same_spec =
            matches!(change, Change::Applied { old: Some(old), new } if old.spec == new.spec);
        if self.upsert_pool(key, !same_spec).is_none() {
            return;
        }
        if let Change::Deleted { .. } = change {
            let name = PoolName::from(&*key.name);
            self.queues.pools.forget(&name);
            self.pool_throttle.forget(&name);
        }
        // A condition AddressOutOfPool of a load balancer comes and goes with the pool's ranges (IPA-7).
        if same_spec {
            return;
        }
        let holders = self.with_leader(|leader| leader.ledger.holders(&key.name));
        for holder in holders.into_iter().flatten() {
            self.queues.lbs.add(cached::key(&holder));
        }
    }

    /// Tells the ledger of a pool, read from the store under its lock: the last one to come has the newest copy, in whatever
    /// order the copies came. `None` if this process does not lead. An edit of a
    /// pool is answered at once, whatever the pace of its status.
    fn upsert_pool(&self, key: &Key, spec_changed: bool) -> Option<()> {
        self.with_leader(|leader| match self.stores.pools.get(key) {
            Some(pool) => leader.set_pool(key, &pool),
            None => leader.remove_pool(&key.name),
        })?;
        if spec_changed {
            let name = PoolName::from(&*key.name);
            self.pool_throttle.urgent(&name);
            self.queues.pools.add(name);
        }
        Some(())
    }
}
