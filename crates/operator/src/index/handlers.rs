//! From changes of objects to work that is due (rule: no polling). Runs in the watches' tasks, and in a worker that has
//! read an object live; never waits.
//!
//! Only a leader has work: on a standby the handlers find no leader's knowledge and leave the queues alone. What
//! happened before leadership is read from the stores when it begins ([`crate::start`]).

use std::net::IpAddr;

use harvester_lb_api::{LoadBalancer, WorkloadType};
use harvester_lb_controller_kit::store::Change;
use harvester_lb_core::cached::{
    self, Allocation, CachedService, Lb, NodeAddresses, Pool, Vm, Vmi,
};
use harvester_lb_core::{backends, desired};
use harvester_lb_ipam::{PoolName, addr};
use harvester_lb_object::Key;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use tracing::warn;

use crate::context::Hub;
use crate::controllers::guest_cluster;
use crate::index::leader_state::Departed;
use crate::index::queues::{LegacyKind, LegacyObject};

impl Hub {
    /// Whether there is a leader's knowledge, without which nothing is queued.
    pub fn leads(&self) -> bool {
        self.lead(|_| ()).is_some()
    }
}

/// A load balancer was made, altered or deleted.
pub fn lb_changed(hub: &Hub, key: &Key, change: &Change<Lb>) {
    let concerned = hub.lead(|lead| match change {
        // It is there, or there again: what an earlier one of its name left behind is now its own to sort out.
        Change::Applied { new, .. } => {
            lead.is_there(key);
            let news = lead.unsupported.set_lb(key, Some(new));
            lead.concerned(news)
        }
        Change::Deleted { old, certain } => {
            lead.ledger.withdraw(&cached::id(key));
            lead.moving.remove(key);
            lead.followers.remove(key);
            lead.departed.insert(key.clone(), departed(old, *certain));
            let news = lead.unsupported.set_lb(key, None);
            lead.concerned(news)
        }
    });
    if let Change::Deleted { .. } = change {
        // Also while nobody leads: the health checks go on until another does (RUN-5).
        hub.prober.remove_group(&key.to_string());
        hub.queues.lbs.forget(key);
    }
    let Some(concerned) = concerned else {
        return;
    };
    for other in concerned {
        hub.queues.lbs.add(other);
    }
    if let Change::Applied { old: None, new } = change
        && let Lb::Valid(lb) = &**new
    {
        guest_cluster::lb_applied(hub, lb);
    }
    hub.queues.lbs.add(key.clone());
}

fn departed(old: &Lb, certain: bool) -> Departed {
    Departed {
        uid: old.uid().to_owned(),
        had_service: match old {
            Lb::Valid(lb) => lb.spec.workload() == WorkloadType::Vm,
            Lb::Invalid(..) => true,
        },
        certain,
    }
}

/// A pool was made, altered or deleted.
pub fn pool_changed(hub: &Hub, key: &Key, change: &Change<Pool>) {
    let same_spec =
        matches!(change, Change::Applied { old: Some(old), new } if old.spec == new.spec);
    if hub.tell_pool(key, !same_spec).is_none() {
        return;
    }
    if let Change::Deleted { .. } = change {
        let name = PoolName::from(&*key.name);
        hub.queues.pools.forget(&name);
        hub.pacer.forget(&name);
    }
    // A condition AddressOutOfPool of a load balancer comes and goes with the pool's ranges (IPA-7).
    if same_spec {
        return;
    }
    let holders = hub.lead(|lead| lead.ledger.holders(&key.name));
    for holder in holders.into_iter().flatten() {
        hub.queues.lbs.add(cached::key(&holder));
    }
}

/// A record was made, altered or deleted: by an earlier write of ours that came late, by another leader, or by hand.
pub fn allocation_changed(hub: &Hub, key: &Key, change: &Change<Allocation>) {
    let mut owners = Vec::new();
    let present = matches!(change, Change::Applied { .. });
    if let Some(uid) = hub
        .lead(|lead| lead.unsupported.set_record(&key.name, present))
        .flatten()
    {
        lease_changed(hub, uid);
    }
    let is_leader = hub.lead(|lead| match change {
        Change::Applied { old, new } => {
            lead.observe_allocation(&key.name, new);
            for allocation in [Some(new), old.as_ref()].into_iter().flatten() {
                if let Allocation::Valid { record, .. } = &**allocation {
                    owners.push(cached::key(&record.spec.owner.id));
                }
            }
        }
        Change::Deleted { old, .. } => {
            let version = match &**old {
                Allocation::Valid { record, .. } => {
                    owners.push(cached::key(&record.spec.owner.id));
                    record.version
                }
                Allocation::Unreadable { version, .. } => *version,
                Allocation::Reserved => return,
            };
            lead.forget(&key.name, version);
        }
    });
    if is_leader.is_none() {
        return;
    }
    if !matches!(change, Change::Applied { old: Some(_), .. }) {
        record_came_or_went(hub, key);
    }
    if let Change::Applied { new, .. } = change
        && let Allocation::Unreadable { why, .. } = &**new
    {
        warn!(record = %key, why, "a record cannot be read; its address is given to nobody until it is repaired or deleted");
    }
    for owner in owners {
        hub.queues.lbs.add(owner);
    }
}

/// The load balancer of this uid has a lease that a later version has made, or has it no more (IPA-9). That is rare enough
/// to look for it among all.
fn lease_changed(hub: &Hub, uid: &str) {
    let mut of_uid = Vec::new();
    hub.stores.lbs.for_each(|key, lb| {
        if lb.uid() == uid {
            of_uid.push(key.clone());
        }
    });
    for lb in of_uid {
        hub.queues.lbs.add(lb);
    }
}

/// There is an IPAllocation, or there is none any more: whoever reports its address is judged anew (BE-8).
pub fn record_came_or_went(hub: &Hub, key: &Key) {
    if let Some(IpAddr::V4(address)) = addr::parse_record_name(&key.name) {
        let reporters = hub.addresses.lock().reporters_of(&[address]);
        queue_reporters(hub, &reporters);
    }
}

/// A Service was made, altered or deleted, by whomever.
pub fn service_changed(hub: &Hub, key: &Key, _: &Change<CachedService>) {
    service_is_known(hub, key);
    queue_if_known(hub, key);
}

/// Another copy of a Service is known, or that it is gone: what its addresses mean to others (BE-8, IPA-3).
pub fn service_is_known(hub: &Hub, key: &Key) {
    let reporters = hub.tell_service(key);
    queue_reporters(hub, &reporters);
}

/// A Node was made, altered or deleted (BE-8).
pub fn node_changed(hub: &Hub, key: &Key, change: &Change<NodeAddresses>) {
    let mut addresses = hub.addresses.lock();
    let reporters = match change {
        Change::Applied { new, .. } if new.undecodable => addresses.add_node(key, &new.addresses),
        Change::Applied { new, .. } => addresses.set_node(key, new.addresses.clone()),
        Change::Deleted { .. } => addresses.set_node(key, Vec::new()),
    };
    drop(addresses);
    queue_reporters(hub, &reporters);
}

/// An EndpointSlice of ours was made, altered or deleted.
pub fn slice_changed(hub: &Hub, key: &Key, _: &Change<EndpointSlice>) {
    queue_if_known(hub, key);
}

/// Queues a load balancer that exists, or that has left something behind.
fn queue_if_known(hub: &Hub, key: &Key) {
    let known = hub.lead(|lead| {
        lead.departed.contains_key(key) || !lead.ledger.records_of(&cached::id(key)).is_empty()
    });
    if let Some(left_behind) = known
        && (left_behind || hub.stores.lbs.get(key).is_some())
    {
        hub.queues.lbs.add(key.clone());
    }
}

/// A running virtual machine was started, altered or stopped (BE-3): whoever selected it before or selects it now.
pub fn vmi_changed(hub: &Hub, key: &Key, change: &Change<Vmi>) {
    let (old, new) = match change {
        Change::Applied { old, new } => (old.as_deref(), Some(&**new)),
        Change::Deleted { old, .. } => (Some(&**old), None),
    };
    let reports = |vmi: &Vmi| vmi.address.filter(|_| !vmi.deleting);
    let others = hub.addresses.lock().set_machine(key, new.and_then(reports));
    if !hub.leads() {
        return;
    }
    if new.is_some_and(|new| new.finalizers_to_keep.is_some()) {
        hub.queues.legacy.add(LegacyObject {
            kind: LegacyKind::Vmi,
            key: key.clone(),
        });
    }
    if old != new {
        queue_selecting(hub, key, &[old, new]);
    }
    queue_reporters(hub, &others);
}

/// Queues the load balancers in front of virtual machines whose address is judged anew (BE-8).
fn queue_reporters(hub: &Hub, vmis: &[Key]) {
    if vmis.is_empty() || !hub.leads() {
        return;
    }
    for key in vmis {
        let vmi = hub.stores.vmis.get(key);
        queue_selecting(hub, key, &[vmi.as_deref()]);
    }
}

/// Queues the load balancers that select a virtual machine as it was or is.
fn queue_selecting(hub: &Hub, key: &Key, vmis: &[Option<&Vmi>]) {
    let mut selected = Vec::new();
    hub.stores
        .lbs
        .visit_namespace(&key.namespace, |lb_key, lb| {
            if let Lb::Valid(lb) = lb
                && vmis.iter().flatten().any(|vmi| selects(lb, vmi))
            {
                selected.push(lb_key.clone());
            }
        });
    selected.extend(followers(hub, key, vmis));
    for lb in selected {
        hub.queues.lbs.add(lb);
    }
}

/// The load balancers that serve a virtual machine and whose selector does not tell so any more, or need not (BE-6).
fn followers(hub: &Hub, key: &Key, vmis: &[Option<&Vmi>]) -> Vec<Key> {
    let first = Key::new(&key.namespace, "");
    let all = hub.lead(|lead| {
        let followers = lead.followers.range(first..);
        followers
            .take_while(|lb| lb.namespace == key.namespace)
            .cloned()
            .collect::<Vec<_>>()
    });
    let mut all = all.unwrap_or_default();
    all.retain(|lb| {
        hub.stores.slices.get(lb).is_some_and(|slice| {
            desired::backends(&slice)
                .iter()
                .any(|served| vmis.iter().flatten().any(|vmi| vmi.uid == served.uid))
        })
    });
    all
}

fn selects(lb: &LoadBalancer, vmi: &Vmi) -> bool {
    let selector = lb.spec.backend_server_selector.as_ref();
    lb.spec.workload() == WorkloadType::Vm
        && selector.is_some_and(|selector| backends::matches(selector, &vmi.labels))
}

/// A virtual machine was made, altered or deleted (GC-1, FIN-1).
pub fn vm_changed(hub: &Hub, key: &Key, change: &Change<Vm>) {
    if let Change::Applied { new, .. } = change
        && new.finalizers_to_keep.is_some()
        && hub.leads()
    {
        hub.queues.legacy.add(LegacyObject {
            kind: LegacyKind::Vm,
            key: key.clone(),
        });
    }
    guest_cluster::vm_changed(hub, key, change);
}

#[cfg(test)]
mod tests;
