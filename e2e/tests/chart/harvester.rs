//! Harvester's own release, as far as it concerns load balancers: the objects of the Go operator's chart, and what the Go
//! operator and its webhook have left in a cluster.

use std::net::Ipv4Addr;

use anyhow::{Context, ensure};
use harvester_lb_api::{Phase, keys};
use harvester_lb_e2e::World;
use harvester_lb_e2e::go::{self, pool_status};
use harvester_lb_e2e::read::allocated;
use harvester_lb_e2e::world::SOON;
use harvester_lb_fixtures::{cluster_spec, listeners};
use harvester_lb_testkit::{Vm, eventually, lan};
use k8s_openapi::ByteString;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::crds::{LOAD_BALANCERS, define, definition, of_harvester};
use crate::helm::{CONFIGURATION, NAMESPACE};
use crate::release::ask;

/// Name of the operator's Deployment, ServiceAccount, ClusterRole and container.
pub const OPERATOR: &str = "harvester-load-balancer";
/// The same of the webhook, and of its Service.
pub const WEBHOOK: &str = "harvester-load-balancer-webhook";
const RBAC: &str = "rbac.authorization.k8s.io";
const CRD: (&str, &str) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");

/// Objects of the release, with this image for both Deployments: one container each, without probes, POD_UID and hooks.
pub fn release(image: &str, replicas: u8) -> Vec<Value> {
    let port = json!([{"name": "https", "containerPort": 8443, "protocol": "TCP"}]);
    let variables = json!([
        {"name": "HARVESTER_WEBHOOK_SERVER_HTTPS_PORT", "value": "8443"},
        {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {
            "name": "HARVESTER_CONTROLLER_USER_NAME",
            "value": format!("system:serviceaccount:{NAMESPACE}:{WEBHOOK}"),
        },
    ]);
    let mut all = vec![json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": WEBHOOK, "namespace": NAMESPACE},
        "spec": {
            "type": "ClusterIP", "selector": labels(WEBHOOK),
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 8443}],
        },
    })];
    for (name, rules) in [(OPERATOR, operator_rules()), (WEBHOOK, webhook_rules())] {
        let mut container = json!({
            "name": name, "image": image, "imagePullPolicy": "IfNotPresent", "command": [name],
            "resources": {
                "limits": {"cpu": "1", "memory": "512Mi"}, "requests": {"cpu": "10m", "memory": "64Mi"},
            },
        });
        if name == WEBHOOK {
            container["env"] = variables.clone();
            container["ports"] = port.clone();
        }
        all.extend([
            json!({
                "apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": name, "namespace": NAMESPACE},
            }),
            json!({
                "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": {"name": name},
                "rules": rules,
            }),
            json!({
                "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
            }),
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels(name)},
                "spec": {
                    "replicas": replicas, "selector": {"matchLabels": labels(name)},
                    "template": {
                        "metadata": {"labels": labels(name)},
                        "spec": {"serviceAccountName": name, "containers": [container]},
                    },
                },
            }),
        ]);
    }
    all
}

fn labels(name: &str) -> Value {
    json!({"app.kubernetes.io/name": name, "app.kubernetes.io/instance": "harvester"})
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// What its chart grants the operator: `update`, and neither `patch` nor Events nor IPAllocations.
fn operator_rules() -> Value {
    let read = ["get", "watch", "list"];
    let write = ["get", "watch", "list", "update", "create"];
    let delete = ["get", "watch", "list", "update", "create", "delete"];
    json!([
        rule(
            "loadbalancer.harvesterhci.io",
            &["loadbalancers", "ippools"],
            &delete
        ),
        rule("", &["services", "configmaps"], &write),
        rule("coordination.k8s.io", &["leases"], &["*"]),
        rule("discovery.k8s.io", &["endpointslices"], &delete),
        rule(
            "k8s.cni.cncf.io",
            &["network-attachment-definitions"],
            &read
        ),
        rule(
            "kubevirt.io",
            &["virtualmachineinstances", "virtualmachines"],
            &["get", "watch", "list", "update"],
        ),
    ])
}

fn webhook_rules() -> Value {
    let read = ["get", "watch", "list"];
    json!([
        rule(
            "",
            &["secrets", "configmaps"],
            &["get", "watch", "list", "update", "create"]
        ),
        rule("", &["namespaces"], &read),
        rule(
            "apiextensions.k8s.io",
            &["customresourcedefinitions"],
            &["get", "watch", "list", "update"],
        ),
        rule(
            "admissionregistration.k8s.io",
            &[
                "validatingwebhookconfigurations",
                "mutatingwebhookconfigurations"
            ],
            &["*"],
        ),
        rule(
            "k8s.cni.cncf.io",
            &["network-attachment-definitions"],
            &read
        ),
        rule("loadbalancer.harvesterhci.io", &["ippools"], &read),
        rule(
            "kubevirt.io",
            &["virtualmachineinstances", "virtualmachines"],
            &read
        ),
    ])
}

/// What the Go operator has left in a namespace, with a pool of the same name: a load balancer of VM type that is announced and
/// serves, one of cluster type, and one of a guest cluster with an old cloud provider, which is stored as v1alpha1.
pub struct LeftBehind {
    /// Namespace and pool.
    pub ns: &'static str,
    /// The load balancer that serves.
    pub web: String,
    /// Its address.
    pub vip: Ipv4Addr,
    /// Its backend; its listeners close when this is dropped.
    pub vm: Vm,
    /// The one of cluster type, the one stored as v1alpha1, and a former owner, each with its address.
    others: [(String, Ipv4Addr); 3],
    /// Uid and spec of the Service.
    service: Value,
    /// Uid of the EndpointSlice.
    slice: Option<String>,
}

/// Leaves all that, under Harvester's definitions, with a webhook that nobody serves: the configurations, whose failurePolicy is
/// Fail, and the conversion of the definition.
pub async fn leave(world: &World, ns: &'static str, first: u8) -> anyhow::Result<LeftBehind> {
    define(world, &of_harvester()?).await?;
    world.namespace(ns).await?;
    let web = format!("{ns}-web");
    let others = [("c1", 1), ("old", 2), ("former", 3)]
        .map(|(name, number)| (format!("{ns}-{name}"), lan(first + number)));
    let [cluster, old, former] = &others;
    let entry = |name: &str, ip: Ipv4Addr| (ip.to_string(), format!("{ns}/{name}"));
    let vip = lan(first);
    let bound = [
        entry(&web, vip),
        entry(&cluster.0, cluster.1),
        entry(&old.0, old.1),
    ];
    let bound: Vec<_> = bound.iter().map(|(ip, id)| (&**ip, &**id)).collect();
    let (ip, id) = entry(&former.0, former.1);
    let status = pool_status(&bound, &[(&*ip, &*id)], &ip);
    eventually("the pool is created", SOON, || async {
        go::pool(world, ns, "192.168.100.0/24", status.clone())
            .await
            .map(Some)
    })
    .await?;
    let vm = world.cluster.add_vm(&format!("{ns}-vm"))?;
    vm.listen(8080)?;
    let address = vm.address().to_string();
    let backends = [(vm.name(), &*address, true)];
    go::vm_to_announce(world, ns, &web, &vip.to_string(), &backends).await?;
    // With Harvester's label for its name, by which a converted object selects it.
    let metadata = json!({
        "finalizers": [go::VMI_FINALIZER], "labels": {keys::LABEL_VM_NAME: vm.name()},
    });
    let patch = json!({ "metadata": metadata });
    world.merge(&world.vmis(ns), vm.name(), patch).await?;
    go::cluster(world, ns, &cluster.0, Some(&cluster.1.to_string())).await?;
    stored_as_v1alpha1(world, ns, old, &address).await?;
    world.answered_by(vip, 80, &[vm.name()]).await?;
    let service = world.services(ns).get(&web).await?;
    let slice = world.slices(ns).get(&web).await?.uid();
    registration(world).await?;
    // Nobody answers for it.
    eventually("writes are refused", SOON, || async {
        Ok(ask(world, &[80]).await.is_err().then_some(()))
    })
    .await?;
    eventually(
        "what is stored as v1alpha1 cannot be read",
        SOON,
        || async {
            world.lbs(ns).get(&cluster.0).await?;
            Ok(world.lbs(ns).get(&old.0).await.is_err().then_some(()))
        },
    )
    .await?;
    Ok(LeftBehind {
        ns,
        web,
        vip,
        vm,
        service: json!([service.uid(), service.spec]),
        slice,
        others,
    })
}

async fn definitions(world: &World) -> anyhow::Result<Api<DynamicObject>> {
    world.cluster.api(CRD.0, CRD.1, None).await
}

/// Makes a version of LoadBalancer the one that is stored.
async fn store(world: &World, version: &str) -> anyhow::Result<()> {
    let api = definitions(world).await?;
    let mut object = api.get(LOAD_BALANCERS).await?;
    let versions = object.data["spec"]["versions"].as_array_mut();
    for of in versions.context("no versions")? {
        of["storage"] = json!(of["name"] == version);
    }
    object.metadata.managed_fields = None;
    api.replace(LOAD_BALANCERS, &PostParams::default(), &object)
        .await?;
    Ok(())
}

/// Load balancers in the version of old guest clusters.
async fn alpha(world: &World, ns: &str) -> anyhow::Result<Api<DynamicObject>> {
    let version = "loadbalancer.harvesterhci.io/v1alpha1";
    world.cluster.api(version, "LoadBalancer", Some(ns)).await
}

async fn stored_as_v1alpha1(
    world: &World,
    ns: &str,
    (name, ip): &(String, Ipv4Addr),
    backend: &str,
) -> anyhow::Result<()> {
    store(world, "v1alpha1").await?;
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "loadbalancer.harvesterhci.io/v1alpha1", "kind": "LoadBalancer",
        "metadata": {"namespace": ns, "name": name},
        "spec": {"ipam": "pool", "listeners": listeners(), "backendServers": [backend]},
        "status": {"address": ip.to_string()},
    }))?;
    let api = alpha(world, ns).await?;
    // The API server needs a moment to change the version; stored in the other one it would have lost its backends.
    eventually("it is stored as v1alpha1", SOON, || async {
        let made = api.create(&PostParams::default(), &object).await?;
        let stored = api.get(name).await?;
        if stored.data["spec"]["backendServers"] == json!([backend]) {
            return Ok(Some(made));
        }
        api.delete(name, &DeleteParams::default()).await?;
        Ok(None)
    })
    .await?;
    store(world, "v1beta1").await?;
    let stored = definition(world, LOAD_BALANCERS).await?["status"]["storedVersions"].clone();
    let versions = stored.as_array().map_or(0, Vec::len);
    ensure!(versions == 2, "{stored}");
    Ok(())
}

/// The registration of the Go operator's webhook.
async fn registration(world: &World) -> anyhow::Result<()> {
    let call = |path: &str| {
        json!({
            "service": {
                "namespace": NAMESPACE, "name": WEBHOOK, "port": 443,
                "path": format!("/v1/webhook/{path}"),
            },
            "caBundle": ByteString(world.cluster.ca_pem().into_bytes()),
        })
    };
    for (kind, name, policy, path) in [
        (
            "ValidatingWebhookConfiguration",
            "validator",
            "Fail",
            "validation",
        ),
        (
            "MutatingWebhookConfiguration",
            "mutator",
            "Ignore",
            "mutation",
        ),
    ] {
        let object = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": CONFIGURATION},
            "webhooks": [{
                "name": format!("{name}.{NAMESPACE}.{CONFIGURATION}"), "sideEffects": "None",
                "admissionReviewVersions": ["v1", "v1beta1"], "failurePolicy": policy,
                "clientConfig": call(path),
                "rules": [{
                    "apiGroups": ["loadbalancer.harvesterhci.io"], "apiVersions": ["v1beta1"],
                    "operations": ["CREATE", "UPDATE", "DELETE"], "scope": "*",
                    "resources": ["loadbalancers", "ippools"],
                }],
            }],
        });
        world.cluster.apply(&object).await?;
    }
    let webhook = json!({"conversionReviewVersions": ["v1"], "clientConfig": call("conversion")});
    let patch = json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}}});
    definitions(world)
        .await?
        .patch(
            LOAD_BALANCERS,
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await?;
    Ok(())
}

impl LeftBehind {
    /// Fails unless everything has been taken over as it was: addresses, Service, EndpointSlice; and new load balancers are
    /// served. `number`: how often that was asked before.
    pub async fn is_taken_over(&self, world: &World, number: usize) -> anyhow::Result<()> {
        let Self { ns, web, vip, .. } = self;
        let [cluster, old, former] = &self.others;
        for (name, ip) in [(web, *vip), (&cluster.0, cluster.1), (&old.0, old.1)] {
            eventually(&format!("{name} holds {ip}"), SOON, || async {
                let lb = world.lbs(ns).get(name).await?;
                let given = allocated(&lb);
                ensure!(given == Some(ip.to_string()), "{given:?}");
                ensure!(lb.finalizers().is_empty(), "{:?}", lb.finalizers());
                let record = world.records().get(&ip.to_string()).await?;
                let owner = &record.spec.owner;
                let is_bound =
                    record.spec.phase == Phase::Bound && Some(&owner.uid) == lb.uid().as_ref();
                ensure!(is_bound, "{:?}", record.spec);
                Ok(Some(()))
            })
            .await?;
        }
        let record = world.records().get(&former.1.to_string()).await?;
        ensure!(record.spec.phase == Phase::Released, "{:?}", record.spec);
        eventually("the Go operator's finalizers are gone", SOON, || async {
            let pool = world.pools().get(ns).await?;
            let machine = world.vmis(ns).get(self.vm.name()).await?;
            for finalizers in [pool.finalizers(), machine.finalizers()] {
                let all = [keys::LEGACY_FINALIZERS, keys::LEGACY_VM_FINALIZERS].concat();
                let is_theirs = |name: &String| all.contains(&&**name);
                ensure!(!finalizers.iter().any(is_theirs), "{finalizers:?}");
            }
            Ok(Some(()))
        })
        .await?;
        let service = world.services(ns).get(web).await?;
        let now = json!([service.uid(), service.spec]);
        ensure!(now == self.service, "{now:#} was {:#}", self.service);
        let slice = world.slices(ns).get(web).await?;
        ensure!(slice.uid() == self.slice, "another EndpointSlice");
        // A guest cluster with an old cloud provider. The address is in the status once kube-vip announces the Service.
        eventually("the guest cluster sees the address", SOON, || async {
            let seen = alpha(world, ns).await?.get(&old.0).await?;
            let address = &seen.data["status"]["address"];
            ensure!(*address == old.1.to_string(), "{seen:?}");
            Ok(Some(()))
        })
        .await?;
        let new = format!("{ns}-new{number}");
        world.lb(ns, &new, cluster_spec()).await?;
        world.lb_address(ns, &new).await?;
        Ok(())
    }
}
