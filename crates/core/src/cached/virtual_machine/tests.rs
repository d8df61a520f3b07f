use serde_json::{Value, json};

use super::*;
use crate::cached::tests::{object, undecodable};

#[test]
fn fin_1_finalizers_that_must_remain() {
    let [vmi_controller, vm_controller] = keys::LEGACY_VM_FINALIZERS;
    let cases: [(Value, Option<&[&str]>); 6] = [
        (json!(null), None),
        (json!([]), None),
        (json!(["x/y"]), None),
        (json!([vmi_controller]), Some(&[])),
        (
            json!(["x/y", vm_controller, "a/b", vmi_controller]),
            Some(&["x/y", "a/b"]),
        ),
        // Load balancers and pools have other legacy finalizers.
        (json!([keys::LEGACY_FINALIZERS[0]]), None),
    ];
    for (finalizers, expected) in cases {
        let expected = expected.map(|f| f.iter().map(|f| (*f).to_owned()).collect::<Vec<_>>());
        let metadata = json!({"name": "a", "uid": "u", "finalizers": finalizers});
        let whole = json!({"metadata": metadata, "spec": {}});
        let kept = [
            Vmi::from_watch(Ok(object(whole.clone()))).finalizers_to_keep,
            Vmi::from_watch(undecodable(metadata.clone())).finalizers_to_keep,
            Vm::from_watch(Ok(object(whole))).finalizers_to_keep,
            Vm::from_watch(undecodable(metadata)).finalizers_to_keep,
        ];
        for kept in kept {
            assert_eq!(kept, expected, "{finalizers}");
        }
    }
}

#[test]
fn be_1_be_2_a_running_machine() {
    let vmi = Vmi::from_watch(Ok(object(json!({
        "metadata": {"name": "vm7", "uid": "u-7", "labels": {"app": "web"}, "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {},
        "status": {"phase": "Failed", "interfaces": [{"name": "default", "ipAddress": "10.10.1.7"}]},
    }))));
    assert_eq!(
        vmi,
        Vmi {
            uid: "u-7".into(),
            labels: BTreeMap::from([("app".into(), "web".into())]),
            deleting: true,
            address: Some(Ipv4Addr::new(10, 10, 1, 7)),
            state: VmiState::Failed,
            finalizers_to_keep: None,
        }
    );
    let vmi = Vmi::from_watch(undecodable(json!({"uid": "u-7", "labels": {"app": "web"}})));
    assert_eq!(
        (vmi.uid.as_str(), vmi.deleting, vmi.address),
        ("u-7", false, None)
    );
    assert_eq!(vmi.labels["app"], "web", "it matches and has no address");
}

#[test]
fn gc_1_a_machine_of_a_guest_cluster() {
    let vm = |creator: &str, cluster: &str, removed: &str| {
        Vm::from_watch(Ok(object(json!({
            "metadata": {
                "name": "a",
                "labels": {keys::LABEL_CREATOR: creator, keys::LABEL_GUEST_CLUSTER: cluster},
                "annotations": {keys::ANNOTATION_REMOVE_ALL_PVCS: removed},
            },
            "spec": {},
        }))))
    };
    let driver = keys::CREATOR_NODE_DRIVER;
    let cases = [
        (vm(driver, "gc1", "true"), Some("gc1"), true, true),
        (vm("somebody", "gc1", "true"), Some("gc1"), false, true),
        (vm(driver, "", "true"), None, true, true),
        (vm(driver, "gc1", "false"), Some("gc1"), true, false),
        (
            Vm::from_watch(Ok(object(json!({"metadata": {"name": "a"}, "spec": {}})))),
            None,
            false,
            false,
        ),
    ];
    for (vm, cluster, from_driver, removed) in cases {
        assert_eq!(
            (
                vm.guest_cluster.as_deref(),
                vm.from_node_driver,
                vm.cluster_removed,
                vm.deleted_at.is_some()
            ),
            (cluster, from_driver, removed, false)
        );
    }
}
