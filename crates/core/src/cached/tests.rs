use harvester_lb_api::meta::{Decoded, Undecodable};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::*;

pub(super) fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

#[allow(clippy::result_large_err, reason = "what the watch hands over")]
pub(super) fn undecodable<K>(metadata: Value) -> Decoded<K> {
    Err(Undecodable {
        error: "invalid type".into(),
        metadata: object(metadata),
        ..Undecodable::default()
    })
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Metadata with fields that the stores drop.
fn verbose() -> Value {
    json!({
        "namespace": "shop", "name": "web", "uid": "u-1", "resourceVersion": "9",
        "annotations": {LAST_APPLIED: "{}", "a": "b"},
        "managedFields": [{"manager": "kubectl", "operation": "Update"}],
    })
}

fn lean() -> ObjectMeta {
    object(json!({
        "namespace": "shop", "name": "web", "uid": "u-1", "resourceVersion": "9", "annotations": {"a": "b"},
    }))
}

#[test]
fn copies_are_lean() {
    let valid = Lb::from_watch(Ok(object(json!({"metadata": verbose(), "spec": {}}))));
    assert!(matches!(valid, Lb::Valid(_)));
    assert_eq!(valid.meta(), &lean());
    assert_eq!(valid.uid(), "u-1");

    let invalid = Lb::from_watch(undecodable(verbose()));
    assert!(matches!(&invalid, Lb::Invalid(_, error) if error == "invalid type"));
    assert_eq!(invalid.meta(), &lean());
    assert_eq!(invalid.uid(), "u-1");

    let pool = Pool::from_watch(Ok(object(
        json!({"metadata": verbose(), "spec": {"ranges": []}}),
    )));
    assert_eq!(pool.meta, lean());
    let pool = Pool::from_watch(undecodable(verbose()));
    assert_eq!(pool.meta, lean());
    assert_eq!(pool.spec, Err("invalid type".into()));

    let of_service = service(Ok(object(json!({"metadata": verbose()})))).unwrap();
    assert_eq!(of_service.metadata, lean());
    let of_slice = slice(Ok(object(
        json!({"metadata": verbose(), "addressType": "IPv4", "endpoints": []}),
    )))
    .unwrap();
    assert_eq!(of_slice.metadata, lean());
    let of_service = service(undecodable(verbose())).unwrap();
    assert_eq!(of_service.metadata, lean());
    assert_eq!(of_service.undecodable.as_deref(), Some("invalid type"));
    assert_eq!(slice(undecodable(verbose())), None);
}
