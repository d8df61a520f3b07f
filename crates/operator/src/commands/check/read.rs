//! Reads everything that is checked: page by page, each request with a timeout. Nothing is written.

use std::collections::BTreeSet;

use futures::future::{join, join3, join4};
use harvester_lb_api::kubevirt::VirtualMachineInstance;
use harvester_lb_api::meta::{self, Undecodable};
use harvester_lb_api::{GROUP, IPAllocation, IPPool, LoadBalancer, keys};
use harvester_lb_audit::{
    Cluster, DEPLOYMENT_NAME, DEPLOYMENT_NAMESPACE, Leader, Snapshot, Surroundings,
    UndecodableObject,
};
use harvester_lb_controller_kit::decode_guard::DecodeGuard;
use harvester_lb_controller_kit::preflight::{self, Missing};
use harvester_lb_controller_kit::writer::{WriteError, bounded};
use harvester_lb_core::backend_addresses::Cidr;
use harvester_lb_core::cached;
use harvester_lb_object::Key;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client, Resource};

use crate::commands::list::list;
use crate::permissions;
use crate::webhook::endpoints::has_ready_endpoint;

/// What was read.
#[derive(Default)]
pub(super) struct Read {
    /// The objects.
    pub(super) snapshot: Snapshot,
    /// LoadBalancers, IPPools and IPAllocations that cannot be decoded.
    pub(super) undecodable: Vec<(&'static str, Undecodable)>,
    /// Webhooks, definitions, Deployment.
    pub(super) around: Surroundings,
    /// The holder of the Lease; `None` if it was not read.
    pub(super) leader: Option<Leader>,
    /// Missing kinds and permissions.
    pub(super) missing: Vec<Missing>,
    /// What was not read, and why.
    pub(super) failed: Vec<String>,
    /// Whether all kinds of the snapshot were read.
    pub(super) is_complete: bool,
}

/// Reads everything. What cannot be read is noted; the rest is read nevertheless.
pub(super) async fn all(client: &Client, denied: &[Cidr]) -> Read {
    let mut read = Read::default();
    Box::pin(read.objects(client, denied)).await;
    read.is_complete = read.failed.is_empty();
    Box::pin(read.surroundings(client)).await;
    read
}

impl Read {
    async fn objects(&mut self, client: &Client, denied: &[Cidr]) {
        let (lbs, pools, records) = join3(
            list::<LoadBalancer>(client, |_| true),
            list::<IPPool>(client, |_| true),
            list::<IPAllocation>(client, |_| true),
        )
        .await;
        self.snapshot.load_balancers = self.take("LoadBalancer", lbs, |_| true);
        self.snapshot.pools = self.take("IPPool", pools, |_| true);
        self.snapshot.records = self.take("IPAllocation", records, |_| true);
        let names: BTreeSet<Key> = self
            .snapshot
            .load_balancers
            .iter()
            .map(|lb| meta::key(&lb.metadata))
            .collect();
        let concerns = |meta: &ObjectMeta| is_ours(meta) || names.contains(&meta::key(meta));
        let mut ready = BTreeSet::new();
        let is_concerned = |slice: &DecodeGuard<EndpointSlice>| {
            if let Ok(slice) = &slice.0 {
                ready.extend(ready_service(slice));
            }
            concerns(slice.meta())
        };
        let (services, slices, machines, nodes) = join4(
            list::<Service>(client, |_| true),
            list::<EndpointSlice>(client, is_concerned),
            list::<VirtualMachineInstance>(client, |_| true),
            list::<Node>(client, |_| true),
        )
        .await;
        self.around.ready_services = ready;
        self.snapshot.services = self.take("Service", services, concerns);
        self.snapshot.slices = self.take("EndpointSlice", slices, concerns);
        let machines = self.take("VirtualMachineInstance", machines, |_| true);
        let nodes = self.take("Node", nodes, |_| true);
        self.snapshot.cluster = Some(Cluster {
            machines,
            nodes,
            denied: denied.iter().filter_map(Cidr::v4).collect(),
        });
    }

    /// Takes the decoded objects of a list. Those that cannot be decoded are noted if they `matter`. A kind that is not
    /// served has no objects.
    fn take<K>(
        &mut self,
        kind: &'static str,
        list: Result<Vec<DecodeGuard<K>>, WriteError>,
        matters: impl Fn(&ObjectMeta) -> bool,
    ) -> Vec<K> {
        let list = match list {
            Ok(list) => list,
            Err(WriteError::NotFound(_)) => Vec::new(),
            Err(error) => {
                self.failed.push(format!("{kind}: {error}"));
                Vec::new()
            }
        };
        let mut objects = Vec::with_capacity(list.len());
        for decoded in list {
            match decoded.0 {
                Ok(object) => objects.push(object),
                Err(invalid) if matters(&invalid.metadata) => self.note(kind, invalid),
                Err(_) => {}
            }
        }
        objects
    }

    fn note(&mut self, kind: &'static str, mut invalid: Undecodable) {
        let key = meta::key(&invalid.metadata);
        self.snapshot.undecodable.push(UndecodableObject {
            kind,
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            error: invalid.error.clone(),
        });
        // A tenant chooses its size.
        invalid.object.take();
        self.undecodable.push((kind, invalid));
    }

    async fn surroundings(&mut self, client: &Client) {
        let group = format!(".{GROUP}");
        let is_of_group = |crd: &DecodeGuard<CustomResourceDefinition>| {
            let name = crd.meta().name.as_deref();
            name.is_some_and(|name| name.ends_with(&group))
        };
        let leases: Api<Lease> = Api::namespaced(client.clone(), keys::LEASE_NAMESPACE);
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), DEPLOYMENT_NAMESPACE);
        let ((validating, mutating, crds), (lease, deployment)) = join(
            Box::pin(join3(
                list::<ValidatingWebhookConfiguration>(client, |_| true),
                list::<MutatingWebhookConfiguration>(client, |_| true),
                list(client, is_of_group),
            )),
            join(
                bounded(leases.get_opt(keys::LEASE_NAME)),
                bounded(deployments.get_opt(DEPLOYMENT_NAME)),
            ),
        )
        .await;
        let around = &mut self.around;
        let kind = "ValidatingWebhookConfiguration";
        around.validating = decoded(kind, validating, &mut self.failed);
        let kind = "MutatingWebhookConfiguration";
        around.mutating = decoded(kind, mutating, &mut self.failed);
        around.crds = decoded("CustomResourceDefinition", crds, &mut self.failed);
        match lease {
            // A clock that differs by more than the Lease's duration makes a leader look dead, which is a warning.
            Ok(lease) => self.leader = Some(Leader::of(lease.as_ref(), Timestamp::now())),
            Err(error) => self.failed.push(format!("Lease: {error}")),
        }
        match deployment {
            Ok(deployment) => around.deployment = deployment,
            Err(error) => self.failed.push(format!("Deployment: {error}")),
        }
        match missing(client).await {
            Ok(missing) => self.missing = missing,
            Err(error) => self.failed.push(error),
        }
    }
}

/// What the operator lacks, as far as this user can tell.
async fn missing(client: &Client) -> Result<Vec<Missing>, String> {
    let missing = preflight::check(client, permissions::REQUIRED).await;
    missing.map_err(|error| format!("kinds and permissions: {error}"))
}

/// The objects of a list that can be decoded; the rest is noted as not read.
fn decoded<K: Resource<DynamicType = ()>>(
    kind: &str,
    list: Result<Vec<DecodeGuard<K>>, WriteError>,
    failed: &mut Vec<String>,
) -> Vec<K> {
    let list = list.unwrap_or_else(|error| {
        failed.push(format!("{kind}: {error}"));
        Vec::new()
    });
    let mut objects = Vec::with_capacity(list.len());
    for object in list {
        let name = meta::key(object.meta()).name;
        match object.0 {
            Ok(object) => objects.push(object),
            Err(invalid) => failed.push(format!("{kind} {name}: {}", invalid.error)),
        }
    }
    objects
}

/// Whether an object has the label of the operator, or a LoadBalancer as owner.
fn is_ours(meta: &ObjectMeta) -> bool {
    let mut owners = meta.owner_references.iter().flatten();
    cached::is_labelled(meta) || owners.any(|owner| owner.kind == "LoadBalancer")
}

/// The Service of an EndpointSlice with a ready endpoint.
fn ready_service(slice: &EndpointSlice) -> Option<Key> {
    let labels = slice.metadata.labels.as_ref()?;
    let service = labels.get(keys::LABEL_SERVICE_NAME)?;
    let namespace = slice.metadata.namespace.as_deref()?;
    has_ready_endpoint(slice).then(|| Key::new(namespace, service))
}
