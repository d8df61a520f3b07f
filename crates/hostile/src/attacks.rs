//! Changes with an attacker's intent.

use fastrand::Rng;
use harvester_lb_api::{GROUP, keys};
use serde_json::{Value, json};

use crate::kind::{Kind, Source, Targets};
use crate::mutate::set;
use crate::valid::pick;
use crate::{text, values};

/// Makes one change, and says which.
pub(crate) fn one(
    rng: &mut Rng,
    kind: Kind,
    source: Source,
    targets: &Targets,
    object: &mut Value,
) -> String {
    if rng.u8(..4) == 0 {
        return metadata(rng, source, targets, object);
    }
    match kind {
        Kind::LoadBalancer => load_balancer(rng, targets, object),
        Kind::IpPool => pool(rng, targets, object),
        Kind::IpAllocation => allocation(rng, targets, object),
        Kind::Vmi => vmi(rng, object),
        Kind::Vm => vm(rng, object),
        Kind::Service => service(rng, targets, object),
        Kind::EndpointSlice => slice(rng, targets, object),
    }
}

/// Sets a value at a place, and creates the objects on the path.
fn put(object: &mut Value, place: &str, value: Value) -> String {
    let mut at = object;
    for key in place.split('/').skip(1) {
        let key = key.replace("~1", "/");
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[key];
    }
    *at = value;
    place.to_owned()
}

/// An address that another object has, or that no object can have.
fn address(rng: &mut Rng, targets: &Targets) -> String {
    match rng.u8(..4) {
        0 => values::text(rng),
        1 => values::address(rng),
        _ => pick(rng, &targets.addresses),
    }
}

fn id(rng: &mut Rng, targets: &Targets) -> String {
    match rng.u8(..4) {
        0 => values::text(rng),
        _ => format!(
            "{}/{}",
            pick(rng, &targets.namespaces),
            pick(rng, &targets.names)
        ),
    }
}

fn time(rng: &mut Rng) -> String {
    let times = [
        "9999-12-31T23:59:59.999999Z",
        "1969-12-31T23:59:59Z",
        "-9999-01-02T01:59:59Z",
        "0001-01-01T00:00:00Z",
    ];
    if rng.bool() {
        values::text(rng)
    } else {
        times[rng.usize(..4)].to_owned()
    }
}

/// A key that is valid for labels and annotations.
fn label_key(rng: &mut Rng) -> String {
    let ours = [
        "servicelb",
        "network",
        "project",
        "namespace",
        "cluster",
        "projection",
        "manuallyReleaseIP",
        "guest-removed",
    ];
    let others = [
        keys::LABEL_SERVICE_NAME,
        keys::LABEL_MANAGED_BY,
        keys::LABEL_CLOUDPROVIDER_CLUSTER,
        keys::LABEL_CREATOR,
        keys::LABEL_GUEST_CLUSTER,
        "app",
        keys::ANNOTATION_REMOVE_ALL_PVCS,
        "kubectl.kubernetes.io/last-applied-configuration",
    ];
    match rng.u8(..3) {
        0 => format!("{GROUP}/{}", ours[rng.usize(..ours.len())]),
        1 => others[rng.usize(..others.len())].to_owned(),
        _ => values::text(rng),
    }
}

fn metadata(rng: &mut Rng, source: Source, targets: &Targets, object: &mut Value) -> String {
    let escaped = |key: &str| key.replace('/', "~1");
    match rng.u8(..10) {
        0 | 1 => {
            let key = escaped(&label_key(rng));
            let value = values::text(rng);
            put(
                object,
                &format!("/metadata/annotations/{key}"),
                json!(value),
            )
        }
        2 => {
            let key = escaped(&label_key(rng));
            let value = if rng.bool() {
                "true".to_owned()
            } else {
                values::text(rng)
            };
            put(object, &format!("/metadata/labels/{key}"), json!(value))
        }
        3 => {
            let words = ["project", "namespace", "cluster", "network"];
            let key = escaped(&format!("{GROUP}/{}", words[rng.usize(..4)]));
            let value = match rng.u8(..3) {
                0 => "*".to_owned(),
                1 => pick(rng, &targets.namespaces),
                _ => values::text(rng),
            };
            put(
                object,
                &format!("/metadata/annotations/{key}"),
                json!(value),
            )
        }
        4 => {
            let legacy = [keys::LEGACY_FINALIZERS, keys::LEGACY_VM_FINALIZERS].concat();
            let mut all = vec![legacy[rng.usize(..4)].to_owned()];
            if rng.bool() {
                all.push("example.org/never".to_owned());
            }
            if rng.u8(..4) == 0 {
                all.push(values::text(rng));
            }
            put(object, "/metadata/finalizers", json!(all))
        }
        5 => {
            let reference = json!({
                "apiVersion": format!("{GROUP}/v1"), "kind": "LoadBalancer", "name": pick(rng, &targets.names),
                "uid": pick(rng, &targets.uids), "controller": rng.bool(), "blockOwnerDeletion": rng.bool(),
            });
            put(object, "/metadata/ownerReferences", json!([reference]))
        }
        6 => {
            let fields = text::objects(values::levels(rng));
            let entry = json!({
                "manager": "m", "operation": "Update", "apiVersion": object["apiVersion"],
                "time": "9999-12-31T23:59:59Z", "fieldsType": "FieldsV1", "fieldsV1": fields,
            });
            put(object, "/metadata/managedFields", json!([entry]))
        }
        7 if source == Source::FromWatch => {
            let times = [
                "2026-01-01T00:00:00Z",
                "1970-01-01T00:00:00Z",
                "9999-12-30T00:00:00Z",
                "0001-01-01T00:00:00Z",
            ];
            put(
                object,
                "/metadata/deletionTimestamp",
                json!(times[rng.usize(..4)]),
            )
        }
        8 if source == Source::FromWatch => {
            let times = [
                "0001-01-01T00:00:00Z",
                "1969-12-31T23:59:59Z",
                "9999-12-30T00:00:00Z",
                "2026-01-01T00:00:00Z",
            ];
            put(
                object,
                "/metadata/creationTimestamp",
                json!(times[rng.usize(..4)]),
            )
        }
        9 if source == Source::FromWatch => {
            let versions = [
                "",
                "0",
                "1",
                "18446744073709551615",
                "18446744073709551616",
                "abc",
                "-1",
            ];
            put(
                object,
                "/metadata/resourceVersion",
                json!(versions[rng.usize(..7)]),
            )
        }
        _ => {
            let long = "l".repeat([63, 64, 253, 254, 2_000][rng.usize(..5)]);
            put(object, "/metadata/labels/app", json!(long))
        }
    }
}

fn load_balancer(rng: &mut Rng, targets: &Targets, object: &mut Value) -> String {
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

fn pool(rng: &mut Rng, targets: &Targets, object: &mut Value) -> String {
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

fn allocation(rng: &mut Rng, targets: &Targets, object: &mut Value) -> String {
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

fn vmi(rng: &mut Rng, object: &mut Value) -> String {
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

fn vm(rng: &mut Rng, object: &mut Value) -> String {
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

fn service(rng: &mut Rng, targets: &Targets, object: &mut Value) -> String {
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

fn slice(rng: &mut Rng, targets: &Targets, object: &mut Value) -> String {
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
