//! Attacks on the kinds of KubeVirt and Kubernetes: VirtualMachineInstance, VirtualMachine, Service, EndpointSlice.

use fastrand::Rng;
use harvester_lb_api::{GROUP, keys};
use serde_json::{Value, json};

use super::parts::{address, put};
use crate::kind::Targets;
use crate::mutate::set;
use crate::text;
use crate::values::{self, pick};

pub(super) fn vmi(rng: &mut Rng, object: &mut Value) -> String {
    match rng.u8(..4) {
        0 => {
            let odd = [
                "127.0.0.1",
                "0.0.0.0",
                "169.254.0.1",
                "224.0.0.1",
                "255.255.255.255",
                "::1",
                "10.244.0.9",
            ];
            let interfaces: Vec<Value> = (0..rng.usize(..5))
                .map(|_| {
                    let text = if rng.bool() { values::text(rng) } else { odd[rng.usize(..7)].to_owned() };
                    json!({"name": values::text(rng), "ipAddress": text, "ipAddresses": [values::text(rng), values::address(rng)]})
                })
                .collect();
            put(object, "/status/interfaces", json!(interfaces))
        }
        1 => put(
            object,
            "/status/interfaces/0/ipAddress",
            json!(values::text(rng)),
        ),
        2 => put(object, "/metadata/labels/app", json!("web")),
        _ => {
            set(object, "/spec", text::lists(values::levels(rng)));
            "/spec is nested".to_owned()
        }
    }
}

pub(super) fn vm(rng: &mut Rng, object: &mut Value) -> String {
    match rng.u8(..3) {
        0 => put(
            object,
            "/metadata/annotations/harvesterhci.io~1removeAllPersistentVolumeClaims",
            json!("true"),
        ),
        1 => put(
            object,
            "/metadata/labels/guestcluster.harvesterhci.io~1name",
            json!(values::text(rng)),
        ),
        _ => put(
            object,
            "/spec/template/metadata/annotations",
            text::objects(values::levels(rng)),
        ),
    }
}

pub(super) fn service(rng: &mut Rng, targets: &Targets, object: &mut Value) -> String {
    match rng.u8(..6) {
        0 | 1 => put(object, "/spec/loadBalancerIP", json!(address(rng, targets))),
        2 => {
            let ingress: Vec<Value> = (0..rng.usize(..20))
                .map(|_| json!({"ip": address(rng, targets), "hostname": values::text(rng)}))
                .collect();
            put(object, "/status/loadBalancer/ingress", json!(ingress))
        }
        3 => put(
            object,
            &format!("/metadata/labels/{GROUP}~1servicelb"),
            json!("true"),
        ),
        4 => put(object, "/spec/ports", json!([])),
        _ => put(
            object,
            "/spec/type",
            json!(["ExternalName", "NodePort", "", "ClusterIP"][rng.usize(..4)]),
        ),
    }
}

pub(super) fn slice(rng: &mut Rng, targets: &Targets, object: &mut Value) -> String {
    match rng.u8(..5) {
        0 => put(
            object,
            "/addressType",
            json!(["IPv6", "FQDN", ""][rng.usize(..3)]),
        ),
        1 => {
            let uid = if rng.bool() {
                keys::DUMMY_ENDPOINT_UID.to_owned()
            } else {
                pick(rng, &targets.uids)
            };
            let most = if rng.u8(..8) == 0 { 1_100 } else { 12 };
            let endpoints: Vec<Value> = (0..rng.usize(..most))
                .map(|_| json!({"addresses": [address(rng, targets)], "conditions": {"ready": rng.bool()}, "targetRef": {"uid": uid}}))
                .collect();
            put(object, "/endpoints", json!(endpoints))
        }
        2 => put(
            object,
            "/endpoints",
            json!([{"addresses": []}, {"addresses": ["10.244.0.7", "10.244.0.8"]}]),
        ),
        3 => put(
            object,
            "/endpoints",
            json!([{"addresses": [values::text(rng)], "conditions": {}}]),
        ),
        _ => put(
            object,
            "/ports",
            json!([{"port": values::number(rng), "name": values::text(rng)}]),
        ),
    }
}
