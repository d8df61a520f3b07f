//! The watches of the webhook: of what its answers depend on, and of the objects that it writes.

use std::sync::Arc;

use harvester_lb_api::meta::Decoded;
use harvester_lb_controller_kit::client::Clients;
use harvester_lb_controller_kit::decode_guard::DecodeGuard;
use harvester_lb_controller_kit::store::{Change, Store};
use harvester_lb_controller_kit::watch;
use harvester_lb_core::cached::{Allocation, Pool, Vm};
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::timings::Timings;
use crate::webhook::facts::{self, Facts, Instance};
use crate::webhook::metrics::Metrics;
use crate::webhook::stored::{Definition, Stored, StoredSecret, mutating, validating};
use crate::webhook_names::{CONFIGURATION, DEFINITION};

/// Starts watches.
pub(super) struct Watches<'a> {
    clients: Clients,
    timings: &'a Timings,
    metrics: Arc<Metrics>,
    number: u32,
    tasks: &'a mut JoinSet<anyhow::Result<()>>,
}

impl<'a> Watches<'a> {
    /// None yet; their tasks are added to these.
    pub(super) const fn new(
        clients: Clients,
        timings: &'a Timings,
        metrics: Arc<Metrics>,
        tasks: &'a mut JoinSet<anyhow::Result<()>>,
    ) -> Self {
        Self {
            clients,
            timings,
            metrics,
            number: 0,
            tasks,
        }
    }

    /// Watches the objects of an API; with a name, that one alone.
    fn watch<K, V>(
        &mut self,
        api: Api<DecodeGuard<K>>,
        name: Option<&str>,
        store: &Arc<Store<V>>,
        convert: impl Fn(Decoded<K>) -> Option<V> + Send + 'static,
        handler: impl Fn(&Key, Change<V>) + Send + 'static,
    ) where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
        K: Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        let mut config = watch::config(self.number, self.timings.watch, None);
        self.number += 1;
        if let Some(name) = name {
            config = config.fields(&format!("metadata.name={name}"));
        }
        let errors = self
            .metrics
            .watch_errors
            .with_label_values(&[&*K::kind(&())]);
        let watching = watch::run_api(
            api,
            config,
            Arc::clone(store),
            convert,
            handler,
            move || {
                errors.inc();
            },
        );
        self.tasks.spawn(async move { Err(watching.await.into()) });
    }

    fn all<K>(&self) -> Api<DecodeGuard<K>>
    where
        K: Resource<DynamicType = ()>,
    {
        Api::all(self.clients.watch.clone())
    }

    /// Watches what admission and conversion read.
    pub(super) fn facts(&mut self, facts: &Facts) {
        let of = || facts.clone();
        let (api, f) = (self.all(), of());
        self.watch(
            api,
            None,
            &facts.instances,
            |d| Some(Instance::from_watch(d)),
            move |key, change| f.instance_changed(key, &change),
        );
        let (api, f) = (self.all(), of());
        self.watch(
            api,
            None,
            &facts.pools,
            |d| Some(Pool::from_watch(d)),
            move |key, change| f.pool_changed(key, &change),
        );
        let (api, f) = (self.all(), of());
        self.watch(
            api,
            None,
            &facts.allocations,
            |d| Some(Allocation::from_watch(d)),
            move |key, change| f.allocation_changed(key, &change),
        );
        let (api, f) = (self.all(), of());
        self.watch(
            api,
            None,
            &facts.machines,
            |d| Some(Vm::from_watch(d)),
            move |key, change| f.machine_changed(key, &change),
        );
        let api = self.all();
        self.watch(
            api,
            None,
            &facts.namespaces,
            |d| Some(facts::project(d)),
            |_, _| {},
        );
        let api = self.all();
        self.watch(
            api,
            None,
            &facts.networks,
            |d| Some(facts::vlan_id(d)),
            |_, _| {},
        );
        let (api, f) = (self.all(), of());
        self.watch(
            api,
            None,
            &facts.nodes,
            facts::node_addresses,
            move |key, change| f.node_changed(key, &change),
        );
        let (api, f) = (self.all(), of());
        self.watch(
            api,
            None,
            &facts.services,
            facts::service_addresses,
            move |key, change| f.service_changed(key, &change),
        );
    }

    /// Watches the objects that the webhook writes.
    pub(super) fn stored(&mut self, stored: &Stored, changed: &Arc<Notify>) {
        for (key, store) in [
            (stored.authority_key(), &stored.authority),
            (stored.leaf_key(), &stored.leaf),
        ] {
            let client = self.clients.watch.clone();
            let api: Api<DecodeGuard<Secret>> = Api::namespaced(client, &key.namespace);
            let changed = Arc::clone(changed);
            self.watch(
                api,
                Some(&key.name),
                store,
                |d| Some(StoredSecret::of(d)),
                move |_, _| changed.notify_one(),
            );
        }
        let (api, notify) = (self.all(), Arc::clone(changed));
        self.watch(
            api,
            Some(CONFIGURATION),
            &stored.validating,
            |d| Some(validating(d)),
            move |_, _| notify.notify_one(),
        );
        let (api, notify) = (self.all(), Arc::clone(changed));
        self.watch(
            api,
            Some(CONFIGURATION),
            &stored.mutating,
            |d| Some(mutating(d)),
            move |_, _| notify.notify_one(),
        );
        let (api, notify) = (self.all(), Arc::clone(changed));
        self.watch(
            api,
            Some(DEFINITION),
            &stored.definition,
            |d| Some(Definition::of(d)),
            move |_, _| notify.notify_one(),
        );
    }
}
