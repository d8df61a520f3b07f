use harvester_lb_api::LoadBalancer;
use serde_json::{Value, json};

use crate::cached::{Allocation, Lb, service, slice};

/// Sixty thousand copies must take little memory.
#[test]
fn copies_have_no_spare_capacity() {
    /// As the watch decodes it: from text, without knowing how long a list is.
    fn from_text<T: serde::de::DeserializeOwned>(value: &Value) -> T {
        serde_json::from_str(&value.to_string()).unwrap()
    }
    fn spare<T>(list: &[Vec<T>]) -> usize {
        list.iter().map(|it| it.capacity() - it.len()).sum()
    }
    let meta = json!({
        "finalizers": ["a"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"}],
    });
    let condition = json!({"type": "Ready", "status": "True"});
    let decoded: LoadBalancer = from_text(&json!({
        "metadata": meta,
        "spec": {"listeners": [{"port": 80, "backendPort": 80}]},
        "status": {"conditions": [condition], "backendServers": ["10.0.0.1"]},
    }));
    assert!(
        spare(decoded.spec.listeners.as_slice()) > 0,
        "nothing to drop"
    );
    let lb = Lb::valid(decoded);
    let lb = lb.as_valid().unwrap();
    let status = lb.status.as_ref().unwrap();
    assert_eq!(spare(lb.spec.listeners.as_slice()), 0);
    assert_eq!(spare(status.conditions.as_slice()), 0);
    assert_eq!(spare(status.backend_servers.as_slice()), 0);
    assert_eq!(spare(lb.metadata.finalizers.as_slice()), 0);
    assert_eq!(spare(lb.metadata.owner_references.as_slice()), 0);

    let ports = json!([{"port": 80}]);
    let of_service = json!({"spec": {"ports": ports}});
    let of_service = service(Ok(from_text(&of_service))).unwrap();
    let spec = of_service.spec.as_ref().unwrap();
    assert_eq!(spare(spec.ports.as_slice()), 0);

    let endpoints = json!([{"addresses": ["10.0.0.1"]}]);
    let of_slice = json!({"addressType": "IPv4", "endpoints": endpoints, "ports": ports});
    let of_slice = slice(Ok(from_text(&of_slice))).unwrap();
    assert_eq!(spare(of_slice.ports.as_slice()), 0);
    assert_eq!(spare(std::slice::from_ref(&of_slice.endpoints)), 0);
    let addresses = &of_slice.endpoints[0].addresses;
    assert_eq!(spare(std::slice::from_ref(addresses)), 0);

    // A record of another kind does not make that of a pool's address larger.
    assert!(size_of::<Allocation>() <= size_of::<harvester_lb_ipam::Record>() + 32);
}
