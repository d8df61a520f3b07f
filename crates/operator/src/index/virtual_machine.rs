//! Changes of VirtualMachineInstances and VirtualMachines: they queue the load balancers that select them (BE-3, BE-8), and
//! the guest clusters in removal that they are nodes of (GC-1).

use harvester_lb_api::{LoadBalancer, WorkloadType, keys};
use harvester_lb_controller_kit::store::Change;
use harvester_lb_core::cached::{Lb, Vm, Vmi};
use harvester_lb_core::{backends, desired, guest_cluster, time};
use harvester_lb_ipam::Micros;
use harvester_lb_object::Key;
use tracing::warn;

use super::Index;
use super::queues::{LegacyKind, LegacyObject};
use crate::clock;

impl Index {
    /// Handles a change of a VirtualMachineInstance: queues the load balancers that selected it before or select it now
    /// (BE-3).
    pub fn vmi_changed(&self, key: &Key, change: &Change<Vmi>) {
        let (old, new) = match change {
            Change::Applied { old, new } => (old.as_deref(), Some(&**new)),
            Change::Deleted { old, .. } => (Some(&**old), None),
        };
        let reports = |vmi: &Vmi| vmi.address.filter(|_| !vmi.deleting);
        let others = self.addresses.lock().set_vmi(key, new.and_then(reports));
        if !self.is_leader() {
            return;
        }
        if new.is_some_and(|new| new.finalizers_to_keep.is_some()) {
            self.queues.legacy.add(LegacyObject {
                kind: LegacyKind::Vmi,
                key: key.clone(),
            });
        }
        if old != new {
            self.queue_selecting(key, &[old, new]);
        }
        self.queue_reporters(&others);
    }

    /// Queues the load balancers of VirtualMachineInstances whose address must be checked again (BE-8).
    pub(super) fn queue_reporters(&self, vmis: &[Key]) {
        if vmis.is_empty() || !self.is_leader() {
            return;
        }
        for key in vmis {
            let vmi = self.stores.vmis.get(key);
            self.queue_selecting(key, &[vmi.as_deref()]);
        }
    }

    /// Queues the load balancers that select a VirtualMachineInstance in any of these versions.
    fn queue_selecting(&self, key: &Key, vmis: &[Option<&Vmi>]) {
        let mut selected = Vec::new();
        self.stores
            .lbs
            .visit_namespace(&key.namespace, |lb_key, lb| {
                if let Lb::Valid(lb) = lb
                    && vmis.iter().flatten().any(|vmi| selects(lb, vmi))
                {
                    selected.push(lb_key.clone());
                }
            });
        selected.extend(self.endpoint_only_lbs(key, vmis));
        for lb in selected {
            self.queues.lbs.add(lb);
        }
    }

    /// The load balancers with existing endpoints of a VirtualMachineInstance that their selector may not match (BE-6).
    fn endpoint_only_lbs(&self, key: &Key, vmis: &[Option<&Vmi>]) -> Vec<Key> {
        let first = Key::new(&key.namespace, "");
        let all = self.with_leader(|leader| {
            let endpoint_only_lbs = leader.endpoint_only_lbs.range(first..);
            endpoint_only_lbs
                .take_while(|lb| lb.namespace == key.namespace)
                .cloned()
                .collect::<Vec<_>>()
        });
        let mut all = all.unwrap_or_default();
        all.retain(|lb| {
            self.stores.slices.get(lb).is_some_and(|slice| {
                desired::backends(&slice)
                    .iter()
                    .any(|served| vmis.iter().flatten().any(|vmi| vmi.uid == served.uid))
            })
        });
        all
    }

    /// Handles a change of a VirtualMachine (GC-1, FIN-1).
    pub fn vm_changed(&self, key: &Key, change: &Change<Vm>) {
        if let Change::Applied { new, .. } = change
            && new.finalizers_to_keep.is_some()
            && self.is_leader()
        {
            self.queues.legacy.add(LegacyObject {
                kind: LegacyKind::Vm,
                key: key.clone(),
            });
        }
        self.node_of_guest_cluster_changed(key, change);
    }

    /// Queues the guest cluster of a changed node VM if the cluster is in removal (GC-1, GC-2).
    fn node_of_guest_cluster_changed(&self, key: &Key, change: &Change<Vm>) {
        match change {
            Change::Applied { old, new } => {
                if old.as_ref().is_none_or(|old| old != new) {
                    self.queue_cluster_of_node(key, new);
                }
            }
            Change::Deleted {
                old,
                final_state_unknown,
            } => {
                if let Some(cluster) = guest_cluster::being_removed(key, old) {
                    // Without a deletionTimestamp goes only what has no finalizers, and KubeVirt gives each VM one. Then the clock of this
                    // host is nearest: the last mark would leave those that were created after it (GC-2).
                    let at = old
                        .deleted_at
                        .or_else(|| (!final_state_unknown).then(clock::now));
                    // Its absence was inferred from a list: it was deleted some time after the last mark because of it.
                    let at = at.or_else(|| self.last_marked(&cluster));
                    self.with_leader(|leader| {
                        if let Some(at) = at {
                            leader.guest_cluster_removed(&cluster, at);
                        }
                    });
                    self.queue_guest_cluster(cluster);
                }
            }
        }
    }

    /// Queues the guest cluster of an existing node VM if the cluster is in removal.
    pub fn queue_cluster_of_node(&self, key: &Key, vm: &Vm) {
        if vm.from_node_driver && vm.cluster_removed && vm.guest_cluster.is_none() {
            warn!(vm = %key, label = keys::LABEL_GUEST_CLUSTER, "guest cluster node without its cluster label is being removed; load balancers of that cluster stay");
        }
        if let Some(cluster) = guest_cluster::being_removed(key, vm) {
            self.queue_guest_cluster(cluster);
        }
    }

    /// The creation time of the newest marked load balancer of a guest cluster.
    fn last_marked(&self, cluster: &Key) -> Option<Micros> {
        let mut last = None;
        self.stores
            .lbs
            .visit_namespace(&cluster.namespace, |_, lb| {
                if let Lb::Valid(lb) = lb
                    && lb.guest_cluster.as_deref() == Some(&*cluster.name)
                    && guest_cluster::is_marked(&lb.metadata)
                {
                    last = last.max(Some(time::created(&lb.metadata)));
                }
            });
        last
    }
}

fn selects(lb: &LoadBalancer, vmi: &Vmi) -> bool {
    let selector = lb.spec.backend_server_selector.as_ref();
    lb.spec.workload() == WorkloadType::Vm
        && selector.is_some_and(|selector| backends::matches(selector, &vmi.labels))
}
