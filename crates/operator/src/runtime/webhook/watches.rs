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
use kube::{Api, Client, Resource};
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
        api: impl FnOnce(Client) -> Api<DecodeGuard<K>> + Send + 'static,
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
        let (client, store) = (self.clients.watch.clone(), Arc::clone(store));
        let health = self.metrics.client.watch(&K::kind(&()), name);
        let watching = watch::run_api(client, api, config, store, convert, handler, health);
        self.tasks.spawn(async move { Err(watching.await.into()) });
    }

    /// Watches all objects of a kind that admission or conversion reads.
    fn fact<K, V>(
        &mut self,
        facts: &Facts,
        store: &Arc<Store<V>>,
        convert: impl Fn(Decoded<K>) -> Option<V> + Send + 'static,
        handler: impl Fn(&Facts, &Key, &Change<V>) + Send + 'static,
    ) where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
        K: Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        let facts = facts.clone();
        self.watch(Api::all, None, store, convert, move |key, change| {
            handler(&facts, key, &change);
        });
    }

    /// Watches what admission and conversion read.
    pub(super) fn facts(&mut self, facts: &Facts) {
        let of = facts;
        let instance = |d| Some(Instance::from_watch(d));
        self.fact(of, &of.instances, instance, Facts::instance_changed);
        let pool = |d| Some(Pool::from_watch(d));
        self.fact(of, &of.pools, pool, Facts::pool_changed);
        let allocation = |d| Some(Allocation::from_watch(d));
        self.fact(of, &of.allocations, allocation, Facts::allocation_changed);
        let machine = |d| Some(Vm::from_watch(d));
        self.fact(of, &of.machines, machine, Facts::machine_changed);
        let project = |d| Some(facts::project(d));
        self.fact(of, &of.namespaces, project, |_, _, _| {});
        let vlan_id = |d| Some(facts::vlan_id(d));
        self.fact(of, &of.networks, vlan_id, |_, _, _| {});
        let addresses = facts::node_addresses;
        self.fact(of, &of.nodes, addresses, Facts::node_changed);
        let addresses = facts::service_addresses;
        self.fact(of, &of.services, addresses, Facts::service_changed);
    }

    /// Watches one object that the webhook writes.
    fn written<K, V>(
        &mut self,
        api: impl FnOnce(Client) -> Api<DecodeGuard<K>> + Send + 'static,
        name: &str,
        store: &Arc<Store<V>>,
        convert: impl Fn(Decoded<K>) -> V + Send + 'static,
        changed: &Arc<Notify>,
    ) where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
        K: Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        let (convert, changed) = (move |d| Some(convert(d)), Arc::clone(changed));
        self.watch(api, Some(name), store, convert, move |_, _| {
            changed.notify_one();
        });
    }

    /// Watches the objects that the webhook writes.
    pub(super) fn stored(&mut self, stored: &Stored, changed: &Arc<Notify>) {
        let namespace = stored.names.namespace.clone();
        let secrets = move |client| Api::<DecodeGuard<Secret>>::namespaced(client, &namespace);
        let (key, store) = (stored.leaf_key(), &stored.leaf);
        self.written(secrets.clone(), &key.name, store, StoredSecret::of, changed);
        let (key, store) = (stored.authority_key(), &stored.authority);
        let convert = |d| Some(StoredSecret::of(d));
        let (of, notify) = (stored.clone(), Arc::clone(changed));
        self.watch(
            secrets,
            Some(&*key.name),
            store,
            convert,
            move |_, change| {
                of.authority_changed(&change);
                notify.notify_one();
            },
        );
        let (name, store) = (CONFIGURATION, &stored.validating);
        self.written(Api::all, name, store, validating, changed);
        let store = &stored.mutating;
        self.written(Api::all, name, store, mutating, changed);
        let (name, store) = (DEFINITION, &stored.definition);
        self.written(Api::all, name, store, Definition::of, changed);
    }
}
