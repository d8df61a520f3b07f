//! Objects as the Go operator writes them, with its finalizers and without IPAllocations.

use std::collections::BTreeMap;

use harvester_lb_api::{IPPool, LoadBalancer};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::World;
use crate::fake_kube_vip::announce;

const LB_FINALIZER: &str = "wrangler.cattle.io/harvester-lb-controller";
const POOL_FINALIZER: &str = "wrangler.cattle.io/harvester-ipam-controller";
/// On VirtualMachineInstances (FIN-1).
pub const VMI_FINALIZER: &str = "wrangler.cattle.io/harvester-lb-vmi-controller";
const STAMP: &str = "2025-03-01T08:00:00Z";

/// An address map.
pub fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
    entries.iter().map(owned).collect()
}

/// A pool's status: a /24 without its gateway.
pub fn pool_status(allocated: &[(&str, &str)], history: &[(&str, &str)], last: &str) -> Value {
    json!({
        "total": 253, "available": 253 - allocated.len(), "lastAllocated": last,
        "allocated": map(allocated), "allocatedHistory": map(history),
        "conditions": [{"type": "Ready", "status": "True", "lastUpdateTime": STAMP}],
    })
}

/// A pool with a /24 for all namespaces.
pub async fn pool(
    world: &World,
    name: &str,
    subnet: &str,
    status: Value,
) -> anyhow::Result<IPPool> {
    let pool: IPPool = serde_json::from_value(json!({
        "metadata": {
            "name": name, "finalizers": [POOL_FINALIZER],
            "labels": {"loadbalancer.harvesterhci.io/vid": "0", "loadbalancer.harvesterhci.io/global-ip-pool": "false"},
        },
        "spec": {
            "ranges": [{"subnet": subnet}],
            "selector": {"priority": 0, "scope": [{"project": "", "namespace": name, "guestCluster": ""}]},
        },
        "status": status,
    }))?;
    Ok(world.pools().create(&PostParams::default(), &pool).await?)
}

/// The status of a LoadBalancer with an address of a /24.
pub fn lb_status(pool: &str, ip: &str) -> Value {
    let gateway = ip.rsplit_once('.').map_or("", |(net, _)| net);
    json!({
        "allocatedAddress": {
            "ipPool": pool, "ip": ip, "mask": "255.255.255.0", "gateway": format!("{gateway}.1"),
        },
        "address": ip,
        "conditions": [{"type": "Ready", "status": "True", "lastUpdateTime": STAMP}],
    })
}

async fn create(
    world: &World,
    ns: &str,
    name: &str,
    spec: Value,
    status: Option<Value>,
) -> anyhow::Result<LoadBalancer> {
    let lb: LoadBalancer = serde_json::from_value(json!({
        "metadata": {
            "namespace": ns, "name": name, "finalizers": [LB_FINALIZER],
            "annotations": {"loadbalancer.harvesterhci.io/namespace": ns},
        },
        "spec": spec, "status": status,
    }))?;
    Ok(world.lbs(ns).create(&PostParams::default(), &lb).await?)
}

/// A LoadBalancer of cluster type; without an address if the Go operator has not allocated one yet.
pub async fn cluster(
    world: &World,
    ns: &str,
    name: &str,
    ip: Option<&str>,
) -> anyhow::Result<LoadBalancer> {
    let status = ip.map(|ip| lb_status(ns, ip));
    create(
        world,
        ns,
        name,
        json!({"ipam": "pool", "workloadType": "cluster"}),
        status,
    )
    .await
}

/// A VirtualMachineInstance: its name, its address, whether it is ready.
pub type Backend<'a> = (&'a str, &'a str, bool);

/// A LoadBalancer of VM type with its Service, which shows the address as announced, its EndpointSlice, and the
/// VirtualMachineInstances.
pub async fn vm(
    world: &World,
    ns: &str,
    name: &str,
    ip: &str,
    backends: &[Backend<'_>],
) -> anyhow::Result<LoadBalancer> {
    let lb = vm_to_announce(world, ns, name, ip, backends).await?;
    let service = world.services(ns).get(name).await?;
    announce(&world.client(), &service).await?;
    Ok(lb)
}

/// The same, for a kube-vip that announces the address.
pub async fn vm_to_announce(
    world: &World,
    ns: &str,
    name: &str,
    ip: &str,
    backends: &[Backend<'_>],
) -> anyhow::Result<LoadBalancer> {
    let mut status = lb_status(ns, ip);
    if !backends.is_empty() {
        status["backendServers"] = backends.iter().map(|b| b.1).collect();
    }
    let spec = json!({
        "ipam": "pool", "workloadType": "vm",
        "listeners": [
            {"name": "http", "port": 80, "protocol": "TCP", "backendPort": 8080},
            {"name": "dns", "port": 53, "protocol": "UDP", "backendPort": 5353},
        ],
        "backendServerSelector": {"app": [name]},
        // So slow that no test sees a result.
        "healthCheck": {
            "port": 8080, "successThreshold": 2, "failureThreshold": 2, "periodSeconds": 3600, "timeoutSeconds": 1
        },
    });
    let lb = create(world, ns, name, spec, Some(status)).await?;
    let mut endpoints = Vec::new();
    for (backend, address, ready) in backends {
        let labels = json!({"app": name});
        let vmi = world.fake_vmi(ns, backend, labels, Some(address)).await?;
        endpoints.push(json!({
            "addresses": [address], "conditions": {"ready": ready},
            "targetRef": {"namespace": ns, "name": backend, "uid": vmi.metadata.uid},
        }));
    }
    if !backends.iter().any(|b| b.2) {
        endpoints.push(json!({
            "addresses": ["10.52.0.255"], "conditions": {"ready": true},
            "targetRef": {"namespace": ns, "name": name, "uid": "dummy347-546a-4642-9da6-5608endpoint"},
        }));
    }
    let owner = json!([{
        "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer", "name": name,
        "uid": lb.metadata.uid,
    }]);
    let service: Service = serde_json::from_value(json!({
        "metadata": {
            "namespace": ns, "name": name, "ownerReferences": owner,
            "labels": {"loadbalancer.harvesterhci.io/servicelb": "true"},
            "annotations": {"kube-vip.io/vipHost": "node1"},
        },
        "spec": {
            "type": "LoadBalancer", "loadBalancerIP": ip,
            "ports": [
                {"name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080},
                {"name": "dns", "protocol": "UDP", "port": 53, "targetPort": 5353},
            ],
        },
    }))?;
    world
        .services(ns)
        .create(&PostParams::default(), &service)
        .await?;
    let slice: EndpointSlice = serde_json::from_value(json!({
        "metadata": {
            "namespace": ns, "name": name, "ownerReferences": owner,
            "labels": {"loadbalancer.harvesterhci.io/servicelb": "true", "kubernetes.io/service-name": name},
        },
        "addressType": "IPv4",
        "ports": [
            {"name": "http", "protocol": "TCP", "port": 8080},
            {"name": "dns", "protocol": "UDP", "port": 5353},
        ],
        "endpoints": endpoints,
    }))?;
    world
        .slices(ns)
        .create(&PostParams::default(), &slice)
        .await?;
    Ok(lb)
}
