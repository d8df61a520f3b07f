//! The patch of a pool: what is written, and when nothing is.

use super::*;

/// The projection of the pool of [`written`].
fn projection() -> Projection {
    Projection {
        total: 5,
        available: 4,
        last_allocated: "172.20.1.2".into(),
        allocated: map(&[("172.20.1.2", "shop/a")]),
        history: map(&[("172.20.1.3", "shop/b")]),
        truncated: 0,
    }
}

fn digest_of(projection: &Projection) -> String {
    projection::digest(Some(&projection.allocated), Some(&projection.history))
}

/// A pool after the write of [`projection`].
fn written() -> Value {
    json!({
        "metadata": {
            "name": "p", "resourceVersion": "7",
            "annotations": {"a": "b", keys::ANNOTATION_PROJECTION: digest_of(&projection())},
        },
        "spec": {"ranges": [{"subnet": "172.20.1.0/29"}]},
        "status": status(),
    })
}

fn status() -> Value {
    json!({
        "total": 5, "available": 4, "lastAllocated": "172.20.1.2",
        "allocated": {"172.20.1.2": "shop/a"},
        "allocatedHistory": {"172.20.1.3": "shop/b"},
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "Ready", "lastUpdateTime": T1, "lastTransitionTime": T1,
        }],
    })
}

fn patch_of(pool: &Value, release_processed: bool) -> Vec<Value> {
    let projection = projection();
    let pool = stored(pool.clone());
    patch(&pool, &projection, &[ready()], release_processed).unwrap_or_default()
}

const NOTHING: [Value; 0] = [];

fn version_only() -> Value {
    json!({"op": "replace", "path": "/metadata/resourceVersion", "value": "7"})
}

const PROJECTION_PATH: &str = "/metadata/annotations/loadbalancer.harvesterhci.io~1projection";

fn annotate() -> Value {
    json!({"op": "add", "path": PROJECTION_PATH, "value": digest_of(&projection())})
}

fn set_status() -> Value {
    json!({"op": "add", "path": "/status", "value": status()})
}

#[test]
fn rec_5_nothing_differs_nothing_is_written() {
    assert_eq!(patch_of(&written(), false), NOTHING);
}

#[test]
fn pool_3_any_difference_of_the_status_writes_all_of_it() {
    let cases = [
        ("total", json!(6)),
        ("available", json!(3)),
        ("lastAllocated", json!("")),
        ("conditions", json!([])),
    ];
    for (field, value) in cases {
        let mut pool = written();
        pool["status"][field] = value;
        assert_eq!(
            patch_of(&pool, false),
            [version_only(), set_status()],
            "{field}"
        );
    }
    // Maps of another writer no longer match the annotation, which stays as it is.
    for (map, value) in [
        ("allocated", json!({})),
        ("allocatedHistory", json!({"172.20.1.3": "shop/c"})),
    ] {
        let mut pool = written();
        pool["status"][map] = value;
        assert_eq!(
            patch_of(&pool, false),
            [version_only(), set_status()],
            "{map}"
        );
    }
}

#[test]
fn ipa_1_the_digest_is_written_with_the_maps() {
    let mut foreign = written();
    foreign["metadata"]["annotations"] = json!({"a": "b"});
    assert_eq!(
        patch_of(&foreign, false),
        [version_only(), set_status(), annotate()],
        "beside other annotations"
    );

    foreign["metadata"]["annotations"] = json!({keys::ANNOTATION_PROJECTION: "0000000000000000"});
    assert_eq!(
        patch_of(&foreign, false),
        [version_only(), set_status(), annotate()],
        "over one of an earlier state"
    );

    let whole = json!({"op": "add", "path": "/metadata/annotations", "value": {
        keys::ANNOTATION_PROJECTION: digest_of(&projection()),
    }});
    for annotations in [json!(null), json!({})] {
        foreign["metadata"]["annotations"] = annotations.clone();
        let patch = patch_of(&foreign, false);
        let expected = if annotations.is_null() {
            [version_only(), set_status(), whole.clone()]
        } else {
            [version_only(), set_status(), annotate()]
        };
        assert_eq!(patch, expected, "{annotations}");
    }

    // The cached pool lacks kubectl's annotation; the stored object has it and must keep it.
    foreign["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": "{}"});
    assert_eq!(
        patch_of(&foreign, false),
        [version_only(), set_status(), annotate()]
    );
}

#[test]
fn section_6_4_the_wish_is_taken_off() {
    let mut pool = written();
    pool["metadata"]["annotations"][keys::ANNOTATION_MANUALLY_RELEASE_IP] =
        json!("172.20.1.5: default/x");
    let remove = json!({
        "op": "remove",
        "path": "/metadata/annotations/loadbalancer.harvesterhci.io~1manuallyReleaseIP",
    });
    assert_eq!(patch_of(&pool, true), [version_only(), remove]);
    assert_eq!(patch_of(&pool, false), NOTHING, "an empty one stays");
}

#[test]
fn fin_2_finalizers_of_old_are_taken_off_pools() {
    let [lb_controller, ipam_controller] = keys::LEGACY_FINALIZERS;
    for (before, after) in [
        (json!([ipam_controller]), json!([])),
        (
            json!(["x/y", ipam_controller, lb_controller]),
            json!(["x/y"]),
        ),
    ] {
        let mut pool = written();
        pool["metadata"]["finalizers"] = before;
        let keep = json!({"op": "add", "path": "/metadata/finalizers", "value": after});
        assert_eq!(patch_of(&pool, false), [version_only(), keep]);
    }
    let mut pool = written();
    pool["metadata"]["finalizers"] = json!(["x/y"]);
    assert_eq!(patch_of(&pool, false), NOTHING);
}

#[test]
fn rec_5_the_patch_leads_to_a_pool_with_nothing_to_write() {
    let [lb_controller, _] = keys::LEGACY_FINALIZERS;
    let wish = keys::ANNOTATION_MANUALLY_RELEASE_IP;
    let cases = [
        ("fresh", json!({"name": "p", "resourceVersion": "7"}), false),
        (
            "everything at once",
            json!({
                "name": "p", "resourceVersion": "7", "finalizers": [lb_controller, "x/y"],
                "annotations": {wish: "172.20.1.5: default/x", "a": "b"},
            }),
            true,
        ),
    ];
    for (what, metadata, release_processed) in cases {
        let mut object =
            json!({"metadata": metadata, "spec": {"ranges": [{"subnet": "172.20.1.0/29"}]}});
        let operations: json_patch::Patch =
            serde_json::from_value(Value::Array(patch_of(&object, release_processed))).unwrap();
        json_patch::patch(&mut object, &operations).unwrap();
        assert_eq!(patch_of(&object, false), NOTHING, "{what}");
        assert_eq!(object["status"], status(), "{what}");
        assert_eq!(object["metadata"]["annotations"].get(wish), None, "{what}");
        let pool = stored(object);
        assert!(pool.is_our_projection(), "{what}");
        assert!(pool.foreign_maps.is_none(), "{what}");
    }
}

#[test]
fn rfc_6901_slashes_and_tildes_are_escaped() {
    for (key, path) in [
        ("plain", "/metadata/annotations/plain"),
        ("a.b/c", "/metadata/annotations/a.b~1c"),
        ("a~b/c", "/metadata/annotations/a~0b~1c"),
        ("~1", "/metadata/annotations/~01"),
    ] {
        assert_eq!(annotation_path(key), path);
    }
}
