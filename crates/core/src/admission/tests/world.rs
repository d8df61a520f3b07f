//! The facts of tests, and reviews as the API server sends them.

use std::collections::BTreeMap;

use harvester_lb_api::kubevirt::{NetworkedInstance, VirtualMachine};
use harvester_lb_api::meta::Undecodable;
use harvester_lb_api::{IPAllocation, IPPool, LoadBalancer};
use harvester_lb_object::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::admission::{
    AddressHolders, AllocatedAddresses, Denial, GuestNetworks, Incomplete, Lookup, MutationFacts,
    Neighbours, Refusal, RemovedClusters, Request, ValidationFacts, mutate, validate,
};
use crate::cached::{Allocation, Pool, Vm};
use crate::kube_vip_annotations::Interfaces;
use crate::validation::pool_index::PoolIndex;

/// A cluster, as the webhook knows it.
pub(crate) struct World {
    /// Set if no list is complete.
    unlisted: bool,
    pub(crate) namespaces: BTreeMap<String, Lookup<String>>,
    pub(crate) networks: BTreeMap<String, Lookup<Result<i64, String>>>,
    guests: GuestNetworks,
    removed: RemovedClusters,
    pub(crate) pools: PoolIndex,
    pub(crate) allocated: AllocatedAddresses,
    pub(crate) nodes: AddressHolders,
    pub(crate) services: AddressHolders,
    pub(crate) interfaces: Interfaces,
    pub(crate) neighbours: Lookup<Neighbours>,
}

impl Default for World {
    fn default() -> Self {
        Self {
            unlisted: false,
            namespaces: BTreeMap::new(),
            networks: BTreeMap::new(),
            guests: GuestNetworks::default(),
            removed: RemovedClusters::default(),
            pools: PoolIndex::default(),
            allocated: AllocatedAddresses::default(),
            nodes: AddressHolders::default(),
            services: AddressHolders::default(),
            interfaces: Interfaces::default(),
            neighbours: Lookup::Found(Neighbours::new([], true)),
        }
    }
}

impl World {
    /// A world of which no list is complete.
    pub(crate) fn unlisted() -> Self {
        Self {
            unlisted: true,
            neighbours: Lookup::Unread,
            ..Self::default()
        }
    }

    /// Adds a Namespace with this annotation of Rancher.
    pub(crate) fn project(&mut self, namespace: &str, id: &str) {
        let found = Lookup::Found(id.to_owned());
        self.namespaces.insert(namespace.to_owned(), found);
    }

    /// Adds a NetworkAttachmentDefinition, by `<namespace>/<name>`.
    pub(crate) fn vlan(&mut self, network: &str, vlan: Lookup<Result<i64, String>>) {
        self.networks.insert(network.to_owned(), vlan);
    }

    /// Adds or replaces a VirtualMachineInstance with these labels and multus networks.
    pub(crate) fn instance(
        &mut self,
        namespace: &str,
        name: &str,
        labels: &Value,
        networks: &[&str],
    ) {
        let pod = json!({"name": "default", "pod": {}});
        let multus = networks
            .iter()
            .map(|network| json!({"name": "n", "multus": {"networkName": network}}));
        let networks: Vec<Value> = [pod].into_iter().chain(multus).collect();
        let instance: NetworkedInstance = serde_json::from_value(json!({
            "metadata": {"namespace": namespace, "name": name, "labels": labels},
            "spec": {"networks": networks},
        }))
        .unwrap();
        self.guests.set(&Key::new(namespace, name), &instance);
    }

    /// Adds or replaces a VirtualMachine with these labels and annotations.
    pub(crate) fn machine(
        &mut self,
        namespace: &str,
        name: &str,
        labels: &Value,
        annotations: &Value,
    ) {
        let vm: VirtualMachine = serde_json::from_value(json!({
            "metadata": {
                "namespace": namespace, "name": name, "labels": labels, "annotations": annotations,
            },
            "spec": {},
        }))
        .unwrap();
        self.removed
            .set(&Key::new(namespace, name), &Vm::from_watch(Ok(vm)));
    }

    /// Adds or replaces an IPPool.
    pub(crate) fn pool(&mut self, object: &Value) {
        let pool: IPPool = serde_json::from_value(object.clone()).unwrap();
        let name = pool.metadata.name.clone().unwrap();
        self.pools.set(&name, &pool.metadata, &pool.spec);
        self.allocated.set_pool(&name, &Pool::valid(pool));
    }

    /// Adds or replaces an IPAllocation.
    pub(crate) fn record(&mut self, object: &Value) {
        let record: IPAllocation = serde_json::from_value(object.clone()).unwrap();
        let name = record.metadata.name.clone().unwrap();
        let allocation = Allocation::decoded(&record);
        self.allocated.set_record(&name, &allocation);
    }

    /// Sets the load balancers of the namespace. `is_complete`: there are no others.
    #[allow(clippy::result_large_err, reason = "moved as it is into what holds it")]
    pub(crate) fn neighbours(&mut self, objects: &[Value], is_complete: bool) {
        let decoded = objects.iter().map(|object| {
            let decoded: Result<LoadBalancer, _> = serde_json::from_value(object.clone());
            decoded.map_err(|error| Undecodable {
                error: error.to_string(),
                metadata: ObjectMeta {
                    name: object["metadata"]["name"].as_str().map(Into::into),
                    ..ObjectMeta::default()
                },
                object: object.clone(),
            })
        });
        self.neighbours = Lookup::Found(Neighbours::new(decoded, is_complete));
    }

    fn listed<'a, T>(&self, list: &'a T) -> Result<&'a T, Incomplete> {
        if self.unlisted {
            Err(Incomplete)
        } else {
            Ok(list)
        }
    }
}

impl MutationFacts for World {
    fn project_id(&self, namespace: &str) -> Lookup<String> {
        let known = self.namespaces.get(namespace);
        known.cloned().unwrap_or(Lookup::Unread)
    }

    fn vlan_id(&self, namespace: &str, name: &str) -> Lookup<Result<i64, String>> {
        let known = self.networks.get(&format!("{namespace}/{name}"));
        known.cloned().unwrap_or(Lookup::Unread)
    }

    fn guest_networks(&self) -> Result<&GuestNetworks, Incomplete> {
        self.listed(&self.guests)
    }
}

impl ValidationFacts for World {
    fn removed_clusters(&self) -> Result<&RemovedClusters, Incomplete> {
        self.listed(&self.removed)
    }

    fn pools(&self) -> Result<&PoolIndex, Incomplete> {
        self.listed(&self.pools)
    }

    fn allocated(&self) -> Result<&AllocatedAddresses, Incomplete> {
        self.listed(&self.allocated)
    }

    fn nodes(&self) -> Option<&AddressHolders> {
        self.listed(&self.nodes).ok()
    }

    fn services(&self) -> Option<&AddressHolders> {
        self.listed(&self.services).ok()
    }

    fn interfaces(&self) -> &Interfaces {
        &self.interfaces
    }

    fn neighbours(&self, _: &str) -> Lookup<&Neighbours> {
        self.neighbours.as_ref()
    }
}

/// A review as the API server sends it. Null objects are absent.
pub(crate) fn body(operation: &str, kind: &str, name: &str, object: &Value, old: &Value) -> Value {
    let namespace = [object, old]
        .into_iter()
        .find_map(|object| object["metadata"]["namespace"].as_str());
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "r-1", "operation": operation, "name": name, "namespace": namespace,
            "kind": {"group": "loadbalancer.harvesterhci.io", "version": "v1beta1", "kind": kind},
            "userInfo": {"username": "admin", "groups": ["system:masters"]},
            "object": object, "oldObject": old, "dryRun": false,
        },
    })
}

/// The parsed [`body`].
pub(crate) fn review_named(
    operation: &str,
    kind: &str,
    name: &str,
    object: &Value,
    old: &Value,
) -> Request {
    let body = body(operation, kind, name, object, old);
    Request::parse(body.to_string().as_bytes()).unwrap()
}

/// A review of an object and the stored one. One with a namespace is a LoadBalancer, else it is an IPPool.
pub(crate) fn review_of(operation: &str, object: &Value, old: &Value) -> Request {
    let either = if object.is_null() { old } else { object };
    let metadata = &either["metadata"];
    let kind = if metadata["namespace"].is_null() {
        "IPPool"
    } else {
        "LoadBalancer"
    };
    let name = metadata["name"].as_str().unwrap();
    review_named(operation, kind, name, object, old)
}

/// A review of a creation.
pub(crate) fn review(operation: &str, object: &Value) -> Request {
    review_of(operation, object, &Value::Null)
}

/// The refusal of a request that is refused.
pub(crate) fn denied(request: &Request, world: &World) -> Refusal {
    match validate(request, world) {
        Err(Denial::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

/// The rule that refuses a request; `None` if it is admitted.
pub(crate) fn refused_by(request: &Request, world: &World) -> Option<&'static str> {
    match validate(request, world) {
        Ok(_) => None,
        Err(Denial::Refused(refusal)) => Some(refusal.rule()),
        Err(Denial::NotReady(fact)) => panic!("{fact}"),
    }
}

/// The warnings of a request that is admitted.
pub(crate) fn warnings(request: &Request, world: &World) -> Vec<String> {
    let warnings = validate(request, world).unwrap();
    warnings.iter().map(|w| w.as_str().to_owned()).collect()
}

/// The object after the mutation of its creation or update. Mutating it again changes nothing.
pub(crate) fn mutated(operation: &str, object: &Value, old: &Value, world: &World) -> Value {
    let patch = mutate(&review_of(operation, object, old), world).unwrap();
    let operations = serde_json::to_value(&patch).unwrap();
    let operations: json_patch::Patch = serde_json::from_value(operations).unwrap();
    let mut after = object.clone();
    json_patch::patch(&mut after, &operations).unwrap();
    let again = mutate(&review_of(operation, &after, old), world).unwrap();
    assert!(again.is_empty(), "{again:?}");
    after
}
