//! A guest cluster with a cloud provider v0.1.x: its reads and writes are in v1alpha1, and what is stored is their conversion.

use harvester_lb_core::cached::{Vmi, VmiState};
use harvester_lb_core::conversion::{self, Index, Outcome, Version as ApiVersion};
use harvester_lb_fixtures::{for_everybody, subnet};
use harvester_lb_ipam::addr;
use k8s_openapi::api::core::v1::Service;

use super::*;

/// The nodes of the guest cluster: virtual machine and address.
const NODES: [(&str, [u8; 4]); 2] = [("vm7", [10, 10, 1, 7]), ("vm8", [10, 10, 1, 8])];

fn node((name, address): (&str, [u8; 4])) -> Vmi {
    Vmi {
        uid: format!("u-{name}"),
        labels: [(keys::LABEL_VM_NAME.to_owned(), name.to_owned())].into(),
        deleting: false,
        address: Some(address.into()),
        state: VmiState::Running,
        finalizers_to_keep: None,
    }
}

/// Converts an object as the webhook does, which knows the nodes and the IPAllocation.
fn convert(server: &FakeApiServer, desired: ApiVersion, lb: &Value) -> Value {
    let mut facts = Index::default();
    for at in NODES {
        facts.set_virtual_machine(&Key::new("n", at.0), Some(&node(at)));
    }
    if let Some(record) = server.get(RECORD) {
        let record = Allocation::decoded(&object::<IPAllocation>(record));
        facts.set_allocation(addr::parse("10.0.0.2").unwrap(), Some(&record));
    }
    let review = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {"uid": "r", "desiredAPIVersion": desired.api_version(), "objects": [lb]},
    });
    let response = conversion::review(review.to_string().as_bytes(), Some(&facts)).unwrap();
    assert_eq!(
        response.outcome,
        Outcome::Converted {
            desired,
            objects: 1
        }
    );
    let mut response: Value = serde_json::from_slice(&response.body).unwrap();
    response["response"]["convertedObjects"][0].take()
}

fn stored_version(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str().unwrap();
    version.parse().unwrap()
}

/// The guest writes the object, and the watch delivers what is stored.
fn writes(ctx: &Context, server: &FakeApiServer, lb: &Value) {
    let mut stored = convert(server, ApiVersion::V1Beta1, lb);
    let version = stored_version(&server.get(LB).unwrap()) + 1;
    stored["metadata"]["resourceVersion"] = version.to_string().into();
    server.put(LB, stored.clone());
    let lbs = &ctx.index.stores.lbs;
    let change = lbs.written(&key(), Version(version), Lb::valid(object(stored)));
    ctx.index.lb_changed(&key(), &change.unwrap());
}

/// kube-vip announces the address.
fn announces(ctx: &Context, server: &FakeApiServer) {
    let mut service = server.get(SERVICE).unwrap();
    let version = stored_version(&service) + 1;
    service["metadata"]["resourceVersion"] = version.to_string().into();
    let address = service["spec"]["loadBalancerIP"].clone();
    service["status"] = json!({"loadBalancer": {"ingress": [{"ip": address}]}});
    server.put(SERVICE, service.clone());
    let service = cached::service(Ok(object::<Service>(service))).unwrap();
    let services = &ctx.index.stores.services;
    services.written(&key(), Version(version), service);
}

/// The addresses in the EndpointSlice.
fn endpoints(server: &FakeApiServer) -> Vec<Value> {
    let slice = server.get(SLICE).unwrap();
    let endpoints = slice["endpoints"].as_array().unwrap().iter();
    endpoints.map(|e| e["addresses"][0].clone()).collect()
}

fn without(mut object: Value, field: &str) -> Value {
    object.as_object_mut().unwrap().remove(field);
    object
}

#[tokio::test]
async fn gen_1_the_address_stays_when_a_guest_rewrites_its_spec() {
    let server = FakeApiServer::default();
    // The port of the node is the backend port; the address of the node is the backend.
    let created = json!({
        "apiVersion": ApiVersion::V1Alpha1.api_version(), "kind": "LoadBalancer",
        "metadata": {"namespace": "n", "name": "a", "uid": "u-a", "resourceVersion": "5"},
        "spec": {
            "ipam": "pool", "backendServers": ["10.10.1.7"],
            "listeners": [{"name": "http", "port": 80, "protocol": "TCP", "backendPort": 30080}],
        },
    });
    let stored = convert(&server, ApiVersion::V1Beta1, &created);
    server.put(LB, stored.clone());
    let everybody = Pool::valid(object::<IPPool>(json!({
        "metadata": {"name": "p", "resourceVersion": "4"},
        "spec": {"ranges": [subnet("10.0.0.0/24")], "selector": for_everybody()},
    })));
    let ctx = leader(&server, everybody, &stored);
    for at in NODES {
        let vmis = &ctx.index.stores.vmis;
        vmis.written(&Key::new("n", at.0), Version(3), node(at));
    }
    reconcile(&ctx, &key()).await.unwrap();
    announces(&ctx, &server);
    reconcile(&ctx, &key()).await.unwrap();

    let served = server.get(LB).unwrap();
    let allocated = json!({
        "ip": "10.0.0.2", "ipPool": "p", "mask": "255.255.255.0", "gateway": "10.0.0.1",
    });
    assert_eq!(served["status"]["allocatedAddress"], allocated);
    assert_eq!(endpoints(&server), ["10.10.1.7"]);
    let record = server.get(RECORD).unwrap();
    let read = convert(&server, ApiVersion::V1Alpha1, &served);
    assert_eq!(read["spec"], created["spec"]);
    assert_eq!(read["status"]["address"], "10.0.0.2");

    // With the status that it has read, without one, and with an address that it made up.
    let statuses = [
        (Some("10.0.0.2"), json!("p")),
        (None, Value::Null),
        (Some("10.0.0.9"), Value::Null),
    ];
    for (node, (address, pool)) in [8, 7, 8].into_iter().zip(statuses) {
        let mut rewritten = read.clone();
        let server_address = format!("10.10.1.{node}");
        rewritten["spec"]["backendServers"] = json!([server_address]);
        match address {
            Some(address) => rewritten["status"]["address"] = address.into(),
            None => rewritten["status"] = Value::Null,
        }
        writes(&ctx, &server, &rewritten);
        let stored = server.get(LB).unwrap();
        assert_eq!(stored["spec"]["ipPool"], pool, "{address:?}");
        let names = &stored["spec"]["backendServerSelector"][keys::LABEL_VM_NAME];
        assert_eq!(*names, json!([format!("vm{node}")]), "{address:?}");
        server.writes();
        reconcile(&ctx, &key()).await.unwrap();

        let after = server.get(LB).unwrap();
        assert_eq!(after["status"]["allocatedAddress"], allocated);
        assert_eq!(after["status"]["address"], "10.0.0.2", "{address:?}");
        assert_eq!(after["status"]["backendServers"], json!([server_address]));
        assert_eq!(endpoints(&server), [server_address]);
        let spec = |record: Value| without(record["spec"].clone(), "boundAt");
        let held = server.get(RECORD).unwrap();
        assert_eq!(spec(held), spec(record.clone()), "{address:?}");
        // Only status and endpoints are written, and the record is touched before a status names its address again (IPA-5).
        let own = |(method, path, _): &(Method, String, Value)| {
            *method != Method::DELETE && [LB, SLICE, RECORD].contains(&path.as_str())
        };
        let sent = server.writes();
        assert!(sent.iter().all(own), "{address:?}: {sent:?}");
    }
}
