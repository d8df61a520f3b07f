//! Changes of pools.

use harvester_lb_controller_kit::store::Change;
use harvester_lb_core::cached::{self, Pool};
use harvester_lb_core::pool_spec;
use harvester_lb_ipam::PoolName;
use harvester_lb_object::Key;

use super::Index;

impl Index {
    /// Handles a change of a pool.
    pub fn pool_changed(&self, key: &Key, change: &Change<Pool>) {
        let same_spec = matches!(
            change,
            Change::Applied { old: Some(old), new } if pool_spec::is_same_spec(old, new)
        );
        if self.upsert_pool(key, !same_spec).is_none() {
            return;
        }
        if let Change::Deleted { .. } = change {
            let name = PoolName::from(&*key.name);
            self.queues.pools.forget(&name);
            self.pool_throttle.forget(&name);
        }
        // The conditions AddressOutOfPool and AddressExcluded of load balancers depend on the pool's spec (IPA-7, EXC-3).
        if same_spec {
            return;
        }
        let concerned = self.with_leader(|leader| {
            let holders = leader.ledger.holders(&key.name);
            let holders = holders.iter().map(cached::key);
            holders
                .flat_map(|holder| {
                    let sharing = leader.sharing.naming(&holder).cloned();
                    sharing.chain([holder.clone()]).collect::<Vec<_>>()
                })
                .collect::<Vec<_>>()
        });
        self.queue_lbs(concerned.into_iter().flatten());
    }

    /// Updates the ledger with a pool. It is read from the store under the lock, so that concurrent updates end with the
    /// newest version. `None` on a standby. A changed spec queues the pool at once, without throttling.
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
