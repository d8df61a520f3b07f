use harvester_lb_api::IPAllocation;
use serde_json::{Value, json};

use super::*;

fn meta(uid: &str) -> ObjectMeta {
    ObjectMeta {
        namespace: Some("ns".to_owned()),
        name: Some("web".to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectMeta::default()
    }
}

fn stored(lease: &Value) -> Allocation {
    let object: IPAllocation = serde_json::from_value(json!({
        "metadata": {"name": "dhcp-u1", "uid": "r"},
        "spec": {
            "address": "", "pool": "", "phase": "Pending",
            "owner": {"namespace": "ns", "name": "web", "uid": "u1"}, "lease": lease,
        },
    }))
    .unwrap();
    Allocation::decoded(&object)
}

#[test]
fn ipa_9_a_lease_that_cannot_be_read() {
    let meta = meta("u1");
    assert_eq!(record_of(&meta), "dhcp-u1");
    let good = json!({
        "interface": "eth0", "hardwareAddress": "02:00:00:00:00:01", "clientId": "ff:00",
    });
    assert_eq!(of_lb(&meta, None), None);
    assert_eq!(of_lb(&meta, Some(&stored(&good))), None);
    assert_eq!(of_lb(&meta, Some(&Allocation::Reserved)), None);
    let bad = json!({"interface": "eth0", "hardwareAddress": "x", "clientId": "ff:00"});
    let why = of_lb(&meta, Some(&stored(&bad))).unwrap().to_string();
    assert!(
        why.contains("dhcp-u1") && why.contains("hardwareAddress"),
        "{why}"
    );
    // Edited: the uid is that of this one, the name that of another one.
    let other = ObjectMeta {
        name: Some("api".to_owned()),
        ..meta
    };
    let why = of_lb(&other, Some(&stored(&good))).unwrap().to_string();
    assert!(why.contains("ns/web") && why.contains("ns/api"), "{why}");
}
