//! Attacks on the metadata of any kind: labels, annotations, finalizers, references, times, versions.

use fastrand::Rng;
use harvester_lb_api::{GROUP, keys};
use serde_json::{Value, json};

use super::parts::put;
use crate::kind::{Source, Targets};
use crate::text;
use crate::values::{self, pick};

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
        "exclude",
        "requested-address",
        "primary-load-balancer",
        "dhcp-hardware-address",
        "copied-annotations",
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

pub(super) fn metadata(
    rng: &mut Rng,
    source: Source,
    targets: &Targets,
    object: &mut Value,
) -> String {
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
