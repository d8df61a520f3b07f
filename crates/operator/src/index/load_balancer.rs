//! Changes of load balancers.

use std::collections::BTreeSet;

use harvester_lb_api::WorkloadType;
use harvester_lb_controller_kit::store::Change;
use harvester_lb_core::cached::{self, Lb, ValidLb};
use harvester_lb_core::plan::DeletedLb;
use harvester_lb_core::{guest_cluster, time};
use harvester_lb_object::Key;

use super::Index;

impl Index {
    /// Handles a change of a load balancer. What counts is what the store has by now: changes that a live read, the answer to a write
    /// and the watch report may be handled in another order.
    pub fn lb_changed(&self, key: &Key, change: &Change<Lb>) {
        let affected = self.with_leader(|leader| match (change, self.stores.lbs.get(key)) {
            // It exists, perhaps again: its own reconcile handles the remains of an earlier one of its name.
            (Change::Applied { old, new }, Some(stored)) => {
                leader.remove_deleted_lb(key);
                let news = leader.sharing.set_lb(key, Some(&stored));
                let mut affected = leader.affected(news);
                affected.extend(leader.parties_of(key, old.as_deref(), new));
                affected
            }
            (Change::Applied { .. }, None) | (Change::Deleted { .. }, Some(_)) => BTreeSet::new(),
            (
                Change::Deleted {
                    old,
                    final_state_unknown,
                },
                None,
            ) => {
                leader.ledger.withdraw(&cached::id(key));
                leader.moves.remove(key);
                leader.announcing.remove(key);
                leader.endpoint_only_lbs.remove(key);
                leader.verified_lbs.remove(key);
                leader.verified_slices.remove(key);
                leader
                    .deleted_lbs
                    .insert(key.clone(), deleted_lb(old, *final_state_unknown));
                leader.port_names.remove(key);
                let news = leader.sharing.set_lb(key, None);
                leader.affected(news)
            }
        });
        if matches!(change, Change::Deleted { .. }) && self.stores.lbs.get(key).is_none() {
            // On a standby too: health checks continue until another process is leader (RUN-5).
            self.prober.remove_group(&key.to_string());
            self.queues.lbs.forget(key);
        }
        let Some(affected) = affected else {
            return;
        };
        self.queue_lbs(affected);
        if let Change::Applied { old: None, new } = change
            && let Lb::Valid(lb) = &**new
        {
            self.queue_cluster_of(lb);
        }
        self.queues.lbs.add(key.clone());
    }

    /// Handles the new version of a load balancer that was written: those that share its address, or whose address it shares, are
    /// queued. It is queued itself only by changes that others make.
    pub fn lb_updated(&self, key: &Key, change: &Change<Lb>) {
        let Change::Applied { old, new } = change else {
            return;
        };
        let affected = self.with_leader(|leader| {
            // What is stored by now, as for a change of the watch.
            let news = leader
                .sharing
                .set_lb(key, self.stores.lbs.get(key).as_deref());
            let mut affected = leader.affected(news);
            affected.extend(leader.parties_of(key, old.as_deref(), new));
            affected
        });
        self.queue_lbs(affected.into_iter().flatten());
    }

    /// Queues the guest cluster of a load balancer if that cluster may be in removal.
    pub fn queue_cluster_of(&self, lb: &ValidLb) {
        if lb.spec.workload() == WorkloadType::Cluster
            && let Some(cluster) = lb.guest_cluster.as_deref()
        {
            let namespace = lb.metadata.namespace.as_deref().unwrap_or_default();
            let cluster = Key::new(namespace, cluster);
            let removed_at = self.guest_cluster_removed_at(&cluster).ok().flatten();
            let affected = removed_at.is_some_and(|at| time::created(&lb.metadata) <= at);
            // The reconcile of a guest cluster reads all VMs of the namespace, so it is queued only with a reason.
            if affected
                || guest_cluster::is_marked(&lb.metadata)
                || self
                    .stores
                    .vms
                    .any_in_namespace(namespace, |vm| vm.cluster_removed)
            {
                self.queue_guest_cluster(cluster);
            }
        }
    }
}

fn deleted_lb(old: &Lb, final_state_unknown: bool) -> DeletedLb {
    DeletedLb {
        uid: old.uid().to_owned(),
        had_service: match old {
            Lb::Valid(lb) => lb.spec.workload() == WorkloadType::Vm,
            Lb::Invalid(..) => true,
        },
        final_state_unknown,
    }
}
