//! What the parts of the operator share: the stores, the ledger of the leader, the queues and the hands that write.
//!
//! A [`Hub`] is of one term (RUN-5): its stores and what follows them, its health checks and its figures are those of the
//! process, all else is the leader's and goes with it.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use harvester_lb_api::kubevirt::{VirtualMachine, VirtualMachineInstance};
use harvester_lb_controller_kit::events::{Events, Severity};
use harvester_lb_controller_kit::lease::Leadership;
use harvester_lb_controller_kit::refused_writes::RefusedWrites;
use harvester_lb_controller_kit::store::Store;
use harvester_lb_controller_kit::writer::{Fence, Writer};
use harvester_lb_core::backend_addresses::{Addresses, Cidr, ServiceAddresses, Standing};
use harvester_lb_core::cached::{
    self, Allocation, CachedService, Lb, NodeAddresses, Pool, Vm, Vmi,
};
use harvester_lb_core::status::Notice;
use harvester_lb_ipam::{PoolName, addr};
use harvester_lb_object::Key;
use harvester_lb_prober::Prober;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use parking_lot::Mutex;

use crate::controllers::load_balancer::spacing::Spacing;
use crate::controllers::released_records::Forgetting;
use crate::controllers::waiting_messages::Telling;
use crate::index::leader_state::Lead;
use crate::index::pace::Pacer;
use crate::index::queues::{Queues, Singleton};
use crate::metrics::Metrics;
use crate::timings::Timings;

/// The stores, one for each kind that is watched. Clones share them.
#[derive(Clone, Default)]
pub struct Stores {
    /// Load balancers.
    pub lbs: Arc<Store<Lb>>,
    /// Pools.
    pub pools: Arc<Store<Pool>>,
    /// Records.
    pub allocations: Arc<Store<Allocation>>,
    /// Services, everybody's: a name conflict has to be seen, and its end too.
    pub services: Arc<Store<CachedService>>,
    /// EndpointSlices with our label.
    pub slices: Arc<Store<EndpointSlice>>,
    /// Running virtual machines.
    pub vmis: Arc<Store<Vmi>>,
    /// Virtual machines.
    pub vms: Arc<Store<Vm>>,
    /// Nodes; their addresses are all that is kept of them (BE-8).
    pub nodes: Arc<Store<NodeAddresses>>,
}

impl Stores {
    /// The kinds that have not been listed yet.
    pub fn unsynced(&self) -> Vec<&'static str> {
        [
            ("loadbalancers", self.lbs.is_synced()),
            ("ippools", self.pools.is_synced()),
            ("ipallocations", self.allocations.is_synced()),
            ("services", self.services.is_synced()),
            ("endpointslices", self.slices.is_synced()),
            ("virtualmachineinstances", self.vmis.is_synced()),
            ("virtualmachines", self.vms.is_synced()),
            ("nodes", self.nodes.is_synced()),
        ]
        .into_iter()
        .filter_map(|(kind, synced)| (!synced).then_some(kind))
        .collect()
    }
}

/// What the parts of the operator share in one term.
pub struct Hub {
    /// What is known.
    pub stores: Stores,
    /// What is due.
    pub queues: Queues,
    /// When a pool's status may be written again (POOL-3).
    pub pacer: Pacer,
    /// How fast records of the past are deleted (POOL-5).
    pub forgetting: Forgetting,
    /// How fast those who wait are told something else.
    pub telling: Telling,
    /// When an EndpointSlice may be written again for changed verdicts.
    pub spacing: Spacing,
    /// Writes, and reads that must be live.
    pub writer: Writer,
    /// What the API server refuses to write (RUN-1).
    pub refused_writes: RefusedWrites,
    /// Events.
    pub events: Events,
    /// Health checks.
    pub prober: Prober,
    /// Figures.
    pub metrics: Arc<Metrics>,
    /// How long to wait where no event can wake.
    pub timings: Timings,
    /// Whether this process leads in this term.
    pub leadership: Arc<Leadership>,
    /// Which addresses no backend may have, and who reports which (BE-8). Kept on a standby too: it follows the stores step
    /// by step, and is complete when they are.
    pub addresses: Arc<Mutex<Addresses>>,
    lead: Mutex<Option<Lead>>,
}

impl Hub {
    /// A hub without a leader's knowledge.
    pub fn new(
        stores: Stores,
        writer: Writer,
        events: Events,
        prober: Prober,
        metrics: Arc<Metrics>,
        leadership: Arc<Leadership>,
        timings: Timings,
    ) -> Self {
        Self {
            stores,
            queues: Queues::new(&timings),
            pacer: Pacer::new(timings.pool_pace, timings.pool_pace_limit),
            forgetting: Forgetting::default(),
            telling: Telling::default(),
            spacing: Spacing::default(),
            writer,
            refused_writes: RefusedWrites::default(),
            events,
            prober,
            metrics,
            timings,
            leadership,
            addresses: Arc::default(),
            lead: Mutex::new(None),
        }
    }

    /// A hub for the next term: it knows nothing of this one, and may write only in its own.
    #[must_use]
    pub fn next_term(&self) -> Self {
        let leadership = Arc::new(Leadership::default());
        self.successor(Arc::clone(&leadership) as _, leadership)
    }

    /// As [`Hub::next_term`], with the right to write given. What follows the stores step by step, and is complete only if it
    /// has seen every change, is handed over as they are.
    #[must_use]
    pub fn successor(&self, fence: Arc<dyn Fence>, leadership: Arc<Leadership>) -> Self {
        Self {
            addresses: Arc::clone(&self.addresses),
            ..Self::new(
                self.stores.clone(),
                self.writer.under(Arc::clone(&fence)),
                self.events.under(fence),
                self.prober.clone(),
                Arc::clone(&self.metrics),
                leadership,
                self.timings,
            )
        }
    }

    /// Ends the term: the leader's knowledge is dropped, and nothing is due any more. What is under way finds neither.
    pub fn end_term(&self) {
        self.queues.close();
        *self.lead.lock() = None;
    }

    /// No backend may have an address of these ranges (BE-8). Before the first event.
    #[must_use]
    pub fn denying(self, denied: Vec<Cidr>) -> Self {
        *self.addresses.lock() = Addresses::new(denied);
        self
    }

    /// Leadership begins: `begin` makes the leader's knowledge from the stores, under the lock, so that no change of
    /// a store falls between. Not in a term that is over, or about to be, while it has still begun.
    pub fn begin_lead(&self, begin: impl FnOnce() -> Lead) {
        let mut lead = self.lead.lock();
        // The queues are closed before the knowledge is dropped, so one of the two sees the other.
        if !self.queues.lbs.is_closed() {
            *lead = Some(begin());
        }
    }

    /// Works on the leader's knowledge, then queues what that has made due. `None` if this process does not lead.
    pub fn lead<T>(&self, work: impl FnOnce(&mut Lead) -> T) -> Option<T> {
        let mut guard = self.lead.lock();
        let lead = guard.as_mut()?;
        let answer = work(lead);
        let wakes = lead.ledger.take_wakes();
        let has_suspects = lead.ledger.has_suspects();
        // Before the lock is given up: what is told of a pool last must be what it has come to.
        let pools: Vec<(PoolName, Duration)> = lead
            .take_dirty()
            .into_iter()
            .map(|(pool, settled)| {
                let delay = self.pacer.changed(&pool, settled);
                (pool, delay)
            })
            .collect();
        drop(guard);
        for id in wakes {
            self.queues.lbs.add(cached::key(&id));
        }
        if has_suspects {
            self.queues.tell.add(Singleton);
        }
        for (pool, delay) in pools {
            self.queues.pools.add_after(pool, delay);
        }
        Some(answer)
    }

    /// The API of running virtual machines in a namespace.
    pub fn vmi_api(&self, namespace: &str) -> Api<VirtualMachineInstance> {
        Api::namespaced(self.writer.client(), namespace)
    }

    /// The API of virtual machines in a namespace.
    pub fn vm_api(&self, namespace: &str) -> Api<VirtualMachine> {
        Api::namespaced(self.writer.client(), namespace)
    }

    /// What is known of an address that a virtual machine reports (BE-8).
    pub fn standing(&self, address: Ipv4Addr) -> Standing {
        let record = Key::new("", addr::record_name(address.into()));
        let allocated = self.stores.allocations.get(&record).is_some();
        self.addresses.lock().standing(address, allocated)
    }

    /// Tells which addresses a Service has: the ledger, and who judges those of backends. Read from the store under the lock
    /// of each: whoever comes last has the newest copy, in whatever order the copies came. Answers the virtual machines
    /// that report any of what has changed (BE-8).
    #[must_use]
    pub fn tell_service(&self, key: &Key) -> Vec<Key> {
        let mut addresses = self.addresses.lock();
        let service = self.stores.services.get(key);
        let now = service.as_ref().map(|s| ServiceAddresses::of(s));
        let now = now.unwrap_or_default();
        let reporters = match &service {
            Some(service) if service.undecodable.is_some() => addresses.add_service(key, &now),
            _ => addresses.set_service(key, now),
        };
        drop(addresses);
        let concerned = self.lead(|lead| {
            let service = self.stores.services.get(key);
            let service = service.as_deref();
            let shown = service.map(|s| cached::shown_addresses(s));
            let (id, shown) = (cached::id(key), shown.unwrap_or_default());
            if service.is_some_and(|s| s.undecodable.is_some()) {
                lead.ledger.add_shown(&id, &shown);
            } else {
                lead.ledger.set_shown(&id, &shown);
            }
            let news = lead.unsupported.set_service(key, service.map(|s| &**s));
            lead.concerned(news)
        });
        for lb in concerned.into_iter().flatten() {
            self.queues.lbs.add(lb);
        }
        reporters
    }

    /// Tells the ledger of a pool, as [`Hub::tell_service`] does. `None` if this process does not lead. Whoever has edited
    /// a pool is answered at once, whatever the pace of its status.
    pub fn tell_pool(&self, key: &Key, spec_changed: bool) -> Option<()> {
        self.lead(|lead| match self.stores.pools.get(key) {
            Some(pool) => lead.set_pool(key, &pool),
            None => lead.remove_pool(&key.name),
        })?;
        if spec_changed {
            let name = PoolName::from(&*key.name);
            self.pacer.asked(&name);
            self.queues.pools.add(name);
        }
        Some(())
    }

    /// Leaves an Event about a load balancer.
    pub fn notify_lb(&self, meta: &ObjectMeta, notice: &Notice) {
        self.notify("LoadBalancer", meta, notice);
    }

    /// Leaves an Event about a pool.
    pub fn notify_pool(&self, meta: &ObjectMeta, notice: &Notice) {
        self.notify("IPPool", meta, notice);
    }

    /// Leaves an Event about an object of a kind of ours.
    pub fn notify(&self, kind: &str, meta: &ObjectMeta, notice: &Notice) {
        let severity = if notice.warning {
            Severity::Warning
        } else {
            Severity::Normal
        };
        let regarding = ObjectReference {
            api_version: Some(harvester_lb_api::API_VERSION.to_owned()),
            kind: Some(kind.to_owned()),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            ..ObjectReference::default()
        };
        self.events.publish(
            regarding,
            severity,
            &notice.reason,
            "Reconcile",
            &notice.text,
        );
    }
}
