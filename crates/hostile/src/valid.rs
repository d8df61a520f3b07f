//! Objects as users, KubeVirt and the operator write them.

use std::net::IpAddr;

use fastrand::Rng;
use harvester_lb_api::{GROUP, keys};
use harvester_lb_fixtures::{
    endpoint, endpoint_slice, listener, owned_by, part, record, subnet, with,
};
use serde_json::{Value, json};

use crate::kind::{Kind, Targets};
use crate::requests;
use crate::values::pick;

/// A uid as the API server makes them.
pub(crate) fn uid(rng: &mut Rng) -> String {
    let bits = format!("{:032x}", rng.u128(..));
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32];
    parts.map(|part| bits[part].to_owned()).join("-")
}

/// A valid object, without the name that it is valid under. [`requests`] adds annotations to it.
pub(crate) fn object(rng: &mut Rng, kind: Kind, targets: &Targets, name: &str) -> Value {
    match kind {
        Kind::LoadBalancer => load_balancer(rng, targets, name),
        Kind::IpPool => pool(rng, targets),
        Kind::IpAllocation => match name.strip_prefix(keys::LEASE_RECORD_PREFIX) {
            Some(uid) => lease(rng, targets, uid),
            None => allocation(rng, targets, name),
        },
        Kind::Vmi => vmi(rng),
        Kind::Vm => vm(rng),
        Kind::Service => service(rng, targets),
        Kind::EndpointSlice => slice(rng),
    }
}

fn condition(rng: &mut Rng) -> Value {
    let reason = [
        "Ready",
        "NoBackend",
        "NoAvailableIP",
        "InvalidObject",
        "WaitingForExternalIP",
    ][rng.usize(..5)];
    json!({
        "type": "Ready", "status": if reason == "Ready" { "True" } else { "False" }, "reason": reason,
        "message": "as it was", "lastUpdateTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

fn load_balancer(rng: &mut Rng, targets: &Targets, name: &str) -> Value {
    let pool = pick(rng, &targets.pools);
    let mut spec = json!({
        "description": "for a test", "ipam": "pool", "ipPool": pool,
        "workloadType": if rng.bool() { "vm" } else { "cluster" },
    });
    if rng.u8(..4) == 0 {
        spec["ipam"] = json!("dhcp");
    }
    if spec["workloadType"] == "vm" || rng.u8(..4) == 0 {
        spec["listeners"] = json!([
            listener("http", "TCP", 80, 8080),
            listener("dns", "UDP", 53, 5353),
        ]);
        spec["backendServerSelector"] = json!({"app": ["web", "api"]});
        spec["healthCheck"] = json!({"port": 8080, "successThreshold": 1, "failureThreshold": 3, "periodSeconds": 5, "timeoutSeconds": 3});
    }
    let mut object = json!({
        "metadata": {
            "labels": {keys::LABEL_CLOUDPROVIDER_CLUSTER: "gc"},
            "annotations": {
                keys::ANNOTATION_NETWORK: "", keys::ANNOTATION_PROJECT: "c-1/p-1",
                keys::ANNOTATION_NAMESPACE: "", keys::ANNOTATION_CLUSTER: "gc",
            },
        },
        "spec": spec,
    });
    if rng.bool() {
        object["status"] = json!({
            "address": "10.66.0.9",
            "allocatedAddress": {"ipPool": pool, "ip": "10.66.0.9", "mask": "255.255.255.0", "gateway": "10.66.0.1"},
            "backendServers": ["10.244.0.7"],
            "conditions": [condition(rng)],
        });
    }
    requests::load_balancer(rng, targets, name, &mut object);
    object
}

fn pool(rng: &mut Rng, targets: &Targets) -> Value {
    let whole = subnet(&pick(rng, &targets.subnets));
    let ipv6 = part("fd66::/64", "fd66::100", "fd66::1ff");
    let ranges = [whole, with(ipv6, json!({"gateway": "fd66::1"}))];
    let mut object = json!({
        "metadata": {"labels": {format!("{GROUP}/vid"): "20"}},
        "spec": {
            "description": "for a test",
            "ranges": ranges,
            "selector": {
                "priority": 3, "network": "default/vlan20",
                "scope": [{"project": "c-1/p-1", "namespace": "*", "guestCluster": "*"}],
            },
        },
    });
    if rng.bool() {
        let range = part("10.66.0.0/24", "10.66.0.8", "10.66.0.99");
        object["spec"]["ranges"] = json!([with(range, json!({"gateway": "10.66.0.1"}))]);
    }
    if rng.bool() {
        object["metadata"]["annotations"] =
            json!({keys::ANNOTATION_PROJECTION: "0011223344556677"});
        object["status"] = json!({
            "total": 253, "available": 251, "lastAllocated": "10.66.0.9",
            "allocated": {"10.66.0.9": "loud/web", "10.66.0.10": "loud/gone"},
            "allocatedHistory": {"10.66.0.11": "loud/old"},
            "conditions": [condition(rng)],
        });
    }
    requests::pool(rng, targets, &mut object);
    object
}

/// The record of the address in this name, or of another one if it has none.
fn allocation(rng: &mut Rng, targets: &Targets, name: &str) -> Value {
    // Of an IPv6 address the name has dashes.
    let address = name.replace('-', ":").parse::<IpAddr>();
    let address = address.map_or_else(|_| "10.66.0.9".to_owned(), |address| address.to_string());
    let released = rng.bool();
    let (pool, uid) = (pick(rng, &targets.pools), uid(rng));
    let phase = if released { "Released" } else { "Bound" };
    let mut object = record(&address, &pool, phase, ("loud", "web", &uid));
    object["spec"]["boundAt"] = json!("2026-01-01T00:00:00.000001Z");
    if released {
        object["spec"]["releasedAt"] = json!("2026-01-02T00:00:00.000001Z");
    }
    requests::allocation(rng, targets, &mut object);
    object
}

/// The record of the DHCP lease of the load balancer with this uid, in any phase.
fn lease(rng: &mut Rng, targets: &Targets, uid: &str) -> Value {
    let phase = ["Pending", "Bound", "Releasing", "Released"][rng.usize(..4)];
    let mut object = record(
        "10.66.0.9",
        "",
        phase,
        (&pick(rng, &targets.namespaces), "web", uid),
    );
    object["spec"]["lease"] = json!({
        "interface": "mgmt-br", "hardwareAddress": "02:00:00:00:00:01", "clientId": "ff:00:00:00:01:00:04",
    });
    match phase {
        "Pending" => {
            object["spec"]["address"] = json!("");
            object["spec"]["lease"]["requestedAddress"] = json!("10.66.0.9");
        }
        "Released" => {}
        _ => {
            object["spec"]["boundAt"] = json!("2026-01-01T00:00:00.000001Z");
            let of_server = json!({
                "server": "10.66.0.1", "serverHardwareAddress": "02:00:00:00:00:09", "subnetMask": "255.255.255.0", "router": "10.66.0.1",
                "renewAt": "2026-01-01T00:01:00.000001Z", "rebindAt": "2026-01-01T00:01:45.000001Z",
                "expiresAt": "2026-01-01T00:02:00.000001Z",
            });
            object["spec"]["lease"] = with(object["spec"]["lease"].take(), of_server);
        }
    }
    object
}

fn vmi(rng: &mut Rng) -> Value {
    let address = format!("10.244.0.{}", rng.u8(2..250));
    json!({
        "metadata": {"labels": {"app": "web", "harvesterhci.io/vmName": "vm"}, "finalizers": []},
        "spec": {
            "domain": {"devices": {"interfaces": [{"name": "nic-1", "bridge": {}}]}},
            "networks": [{"name": "nic-1", "multus": {"networkName": "default/lan"}}],
        },
        "status": {
            "phase": "Running", "nodeName": "node1",
            "interfaces": [
                {"name": "nic-1", "ipAddress": address, "ipAddresses": [address, "fd00::7"], "mac": "52:54:00:00:00:01"},
                {"interfaceName": "cni0", "ipAddress": "10.42.0.1", "ipAddresses": ["10.42.0.1"]},
            ],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

fn vm(rng: &mut Rng) -> Value {
    let mut object = json!({
        "metadata": {
            "labels": {
                keys::LABEL_CREATOR: keys::CREATOR_NODE_DRIVER, keys::LABEL_GUEST_CLUSTER: "gc",
            },
            "annotations": {"harvesterhci.io/vmId": "7"},
            "finalizers": [],
        },
        "spec": {"running": true, "template": {"metadata": {"labels": {"app": "web"}}, "spec": {}}},
        "status": {"printableStatus": "Running"},
    });
    if rng.u8(..4) == 0 {
        object["metadata"]["annotations"][keys::ANNOTATION_REMOVE_ALL_PVCS] = json!("true");
    }
    object
}

fn service(rng: &mut Rng, targets: &Targets) -> Value {
    let (address, uid) = (pick(rng, &targets.addresses), uid(rng));
    let mut object = json!({
        "metadata": owned_by("loud", "web", &uid),
        "spec": {
            "type": "LoadBalancer", "loadBalancerIP": address, "clusterIP": "10.52.7.7", "clusterIPs": ["10.52.7.7"],
            "ports": [
                {"name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080, "nodePort": 30080},
                {"name": "dns", "protocol": "UDP", "port": 53, "targetPort": "dns"},
            ],
            "allocateLoadBalancerNodePorts": false, "sessionAffinity": "None",
        },
        "status": {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "VIP"}]}},
    });
    if rng.u8(..3) == 0 {
        object["spec"]["selector"] = json!({"app": "theirs"});
        object["spec"]["type"] = json!("ClusterIP");
    }
    requests::service(rng, targets, &uid, &mut object);
    object
}

fn slice(rng: &mut Rng) -> Value {
    let metadata = owned_by("loud", "web", &uid(rng));
    let ready = rng.bool();
    let backend = endpoint("10.244.0.7", "loud", "vm7", &uid(rng));
    let backend = with(backend, json!({"conditions": {"ready": ready}}));
    let stand_in = json!({
        "addresses": [keys::DUMMY_ENDPOINT_ADDRESS], "conditions": {"ready": true},
        "targetRef": {"namespace": "loud", "name": "web", "uid": keys::DUMMY_ENDPOINT_UID},
    });
    endpoint_slice(&metadata, &[backend, stand_in])
}
