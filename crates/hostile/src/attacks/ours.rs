//! Attacks on the kinds of our API group: LoadBalancer, IPPool, IPAllocation.

use fastrand::Rng;
use harvester_lb_api::GROUP;
use serde_json::{Value, json};

use super::parts::{address, id, put, time};
use crate::kind::Targets;
use crate::values::{self, pick};

pub(super) fn load_balancer(rng: &mut Rng, targets: &Targets, object: &mut Value) -> String {
    match rng.u8(..10) {
        0..=2 => {
            let allocated = json!({
                "ip": address(rng, targets), "ipPool": pick(rng, &targets.pools), "mask": values::text(rng),
                "gateway": address(rng, targets),
            });
            put(object, "/status/allocatedAddress", allocated)
        }
        3 => put(object, "/status/address", json!(address(rng, targets))),
        4 => {
            let of = ["Ready", "Ready", "AddressLost", ""][rng.usize(..4)];
            let condition = json!({
                "type": of, "status": values::text(rng),
                "reason": values::text(rng), "message": values::text(rng), "lastUpdateTime": time(rng),
                "lastTransitionTime": time(rng),
            });
            let all: Vec<Value> = vec![condition; rng.usize(1..4)];
            put(object, "/status/conditions", json!(all))
        }
        5 => {
            let pool = if rng.bool() {
                pick(rng, &targets.pools)
            } else {
                values::text(rng)
            };
            put(object, "/spec/ipPool", json!(pool))
        }
        6 => {
            let values: Vec<String> = (0..rng.usize(..4)).map(|_| values::text(rng)).collect();
            put(
                object,
                "/spec/backendServerSelector",
                json!({values::text(rng): values, "app": ["web"]}),
            )
        }
        7 => {
            let mut check = json!({});
            for field in [
                "port",
                "successThreshold",
                "failureThreshold",
                "periodSeconds",
                "timeoutSeconds",
            ] {
                if rng.bool() {
                    check[field] = values::number(rng);
                }
            }
            put(object, "/spec/healthCheck", check)
        }
        8 => {
            let listener = json!({
                "name": values::text(rng), "port": values::number(rng), "protocol": values::text(rng),
                "backendPort": values::number(rng),
            });
            put(object, "/spec/listeners", json!([listener]))
        }
        _ => {
            let kind = if rng.bool() { "vm" } else { "cluster" };
            put(object, "/spec/workloadType", json!(kind))
        }
    }
}

/// Ranges that are large, overlap, end before they begin, or are empty.
fn range(rng: &mut Rng, targets: &Targets) -> Value {
    let whole = [
        "::/0",
        "::/1",
        "8000::/1",
        "0.0.0.0/0",
        "128.0.0.0/1",
        "2000::/3",
        "fd66::/64",
        "255.255.255.254/31",
        "0.0.0.0/31",
        "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127",
        "10.66.0.0/30",
        "10.66.0.4/32",
        "::/127",
        "::1/128",
    ];
    let subnet = match rng.u8(..4) {
        0 => whole[rng.usize(..whole.len())].to_owned(),
        1 => values::text(rng),
        2 => pick(rng, &targets.subnets),
        _ => format!("10.66.{}.0/{}", rng.u8(..4), rng.u8(16..33)),
    };
    let mut range = json!({"subnet": subnet});
    for field in ["rangeStart", "rangeEnd", "gateway"] {
        if rng.u8(..3) == 0 {
            range[field] = json!(address(rng, targets));
        }
    }
    range
}

pub(super) fn pool(rng: &mut Rng, targets: &Targets, object: &mut Value) -> String {
    match rng.u8(..8) {
        0..=2 => {
            let count = if rng.u8(..20) == 0 {
                1_000
            } else {
                rng.usize(..5)
            };
            let ranges: Vec<Value> = (0..count).map(|_| range(rng, targets)).collect();
            put(object, "/spec/ranges", json!(ranges))
        }
        3 => {
            let scope: Vec<Value> = (0..rng.usize(..4))
                .map(|_| json!({"project": values::text(rng), "namespace": pick(rng, &targets.namespaces), "guestCluster": "*"}))
                .collect();
            put(
                object,
                "/spec/selector",
                json!({"priority": values::number(rng), "scope": scope}),
            )
        }
        4 => {
            let field = if rng.bool() {
                "allocated"
            } else {
                "allocatedHistory"
            };
            let map: serde_json::Map<String, Value> = (0..rng.usize(..50))
                .map(|_| (address(rng, targets), json!(id(rng, targets))))
                .collect();
            put(object, &format!("/status/{field}"), json!(map))
        }
        5 => put(
            object,
            "/status/lastAllocated",
            json!(address(rng, targets)),
        ),
        6 => {
            let attack = format!("{}: {}", address(rng, targets), id(rng, targets));
            put(
                object,
                &format!("/metadata/annotations/{GROUP}~1manuallyReleaseIP"),
                json!(attack),
            )
        }
        _ => {
            put(object, "/status/total", values::number(rng));
            put(object, "/status/available", values::number(rng))
        }
    }
}

pub(super) fn allocation(rng: &mut Rng, targets: &Targets, object: &mut Value) -> String {
    if object["spec"]["lease"].is_object() && rng.bool() {
        return lease(rng, targets, object);
    }
    match rng.u8(..8) {
        0 | 1 => put(object, "/spec/address", json!(address(rng, targets))),
        2 | 3 => {
            let owner = json!({
                "namespace": pick(rng, &targets.namespaces), "name": pick(rng, &targets.names),
                "uid": if rng.bool() { pick(rng, &targets.uids) } else { values::text(rng) },
            });
            put(object, "/spec/owner", owner)
        }
        4 => put(
            object,
            "/spec/owner",
            json!({"namespace": "", "name": "", "uid": ""}),
        ),
        5 => put(object, "/spec/phase", json!(values::text(rng))),
        6 => {
            put(object, "/spec/boundAt", json!(time(rng)));
            put(object, "/spec/releasedAt", json!(time(rng)))
        }
        _ => {
            let pool = if rng.bool() {
                pick(rng, &targets.pools)
            } else {
                values::text(rng)
            };
            put(object, "/spec/pool", json!(pool))
        }
    }
}

/// What only the record of a DHCP lease has.
fn lease(rng: &mut Rng, targets: &Targets, object: &mut Value) -> String {
    match rng.u8(..5) {
        0 => {
            let phase = ["Pending", "Bound", "Releasing", "Released"][rng.usize(..4)];
            put(object, "/spec/phase", json!(phase))
        }
        1 | 2 => {
            let fields = ["server", "subnetMask", "router", "requestedAddress"];
            let place = format!("/spec/lease/{}", fields[rng.usize(..4)]);
            put(object, &place, json!(address(rng, targets)))
        }
        3 => {
            let fields = ["renewAt", "rebindAt", "expiresAt"];
            let place = format!("/spec/lease/{}", fields[rng.usize(..3)]);
            put(object, &place, json!(time(rng)))
        }
        _ => {
            let odd = [
                "00:00:00:00:00:00",
                "ff:ff:ff:ff:ff:ff",
                "01:00:5e:00:00:01",
                " 02-00-5E-10-00-01 ",
                "02:00:5e:10:00",
            ];
            put(
                object,
                "/spec/lease/hardwareAddress",
                json!(odd[rng.usize(..5)]),
            )
        }
    }
}
