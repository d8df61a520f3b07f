//! The writes of Service and EndpointSlice, and the live reads before them.

use harvester_lb_api::LoadBalancer;
use harvester_lb_core::plan::Address;
use harvester_lb_fixtures::{load_balancer, vm_spec, with};
use harvester_lb_ipam::{Ledger, Settings, Standing};

use super::*;

const SERVICES: &str = "/api/v1/namespaces/n/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/n/endpointslices";

/// The load balancer in this version, whose status names the address.
fn lb_at(version: &str, address: &str) -> Value {
    let mut lb = load_balancer("n", "a", "u-a", &vm_spec("x"));
    lb["metadata"]["resourceVersion"] = version.into();
    let status = json!({"allocatedAddress": {"ip": address, "ipPool": "p"}});
    with(lb, json!({"status": status}))
}

/// Its Service, which asks for the address.
fn service(address: &str) -> Value {
    json!({
        "metadata": {
            "namespace": "n", "name": "a", "uid": "u-s", "resourceVersion": "7",
            "labels": { keys::LABEL_SERVICELB: "true" },
        },
        "spec": {"type": "LoadBalancer", "loadBalancerIP": address},
    })
}

/// What the Service asks for once it was brought to what the copy of the load balancer names, and what came of that.
async fn brought(
    server: &FakeApiServer,
    present: Option<Value>,
    named: &str,
    is_verified: bool,
) -> (Result<(), WriteError>, Option<String>) {
    let path = format!("{SERVICES}/a");
    let key = Key::new("n", "a");
    let ctx = fake::context(server.client(), &Timings::default(), true);
    ctx.index
        .become_leader(|| LeaderState::new(Ledger::new(Settings::default())));
    if is_verified {
        ctx.index.set_verified(&key);
    }
    if let Some(present) = present {
        server.put(&path, present.clone());
        let known = cached::service(Ok(object(present))).unwrap();
        ctx.index.stores.services.written(&key, Version(7), known);
    }
    let copy: LoadBalancer = object(lb_at("5", named));
    let stored = Lb::valid(copy.clone());
    ctx.index.stores.lbs.written(&key, Version(5), stored);
    let vm = spec::check(&copy).unwrap().vm.unwrap();
    let address = Address {
        allocated: copy.status.clone().unwrap().allocated_address.unwrap(),
        load_balancer_ip: named.to_owned(),
        extra_records: Vec::new(),
        address_conflict: None,
        standing: Standing::InPool,
        unserved: None,
        shared: None,
        origin: harvester_lb_core::plan::Origin::Pool,
    };
    let goal = Goal::Serve(Box::new(vm), address);
    let outcome = walk::walk(&ctx, &key, &copy, &goal, &key).await;
    let service = server.get(&path);
    let asked = service.and_then(|s| Some(s["spec"]["loadBalancerIP"].as_str()?.to_owned()));
    (outcome.map(drop), asked)
}

#[tokio::test]
async fn rec_3_the_slice_is_created_first_and_the_service_with_its_address() {
    let server = FakeApiServer::default();
    server.put(LB, lb_at("5", "10.0.0.2"));
    let (outcome, _) = brought(&server, None, "10.0.0.2", true).await;
    outcome.unwrap();
    let writes = server.writes();
    let paths: Vec<&str> = writes.iter().map(|(_, path, _)| &**path).collect();
    assert_eq!(paths, [SLICES, SERVICES, LB]);
    assert_eq!(writes[1].2["spec"]["loadBalancerIP"], "10.0.0.2");
}

/// As of a process that stood by and leads now: its watch of Services is ahead of that of load balancers.
#[tokio::test]
async fn ipa_6_an_old_copy_of_the_status_brings_no_service_back_to_an_address_that_was_left() {
    for present in [Some(service("10.0.0.3")), None] {
        let server = FakeApiServer::default();
        let before = present.as_ref().map(|_| "10.0.0.3".to_owned());
        server.put(LB, lb_at("6", "10.0.0.3"));
        let (outcome, asked) = brought(&server, present, "10.0.0.2", false).await;
        assert!(
            matches!(outcome, Err(WriteError::Conflict(_))),
            "{outcome:?}"
        );
        assert_eq!(asked, before);
        // No EndpointSlice either.
        assert_eq!(server.writes(), []);
    }
}

#[tokio::test]
async fn ipa_6_a_service_follows_a_status_that_is_confirmed() {
    for present in [Some(service("10.0.0.3")), None] {
        let server = FakeApiServer::default();
        server.put(LB, lb_at("5", "10.0.0.2"));
        let (outcome, asked) = brought(&server, present, "10.0.0.2", false).await;
        outcome.unwrap();
        assert_eq!(asked.as_deref(), Some("10.0.0.2"));
    }
}

/// The API server has no load balancer, so a read would fail before the Service is written; the status fails after it.
#[tokio::test]
async fn ipa_6_nothing_is_read_of_one_that_was_verified_in_this_term() {
    for present in [Some(service("10.0.0.3")), None] {
        let server = FakeApiServer::default();
        let (outcome, asked) = brought(&server, present, "10.0.0.2", true).await;
        assert!(
            matches!(outcome, Err(WriteError::NotFound(_))),
            "{outcome:?}"
        );
        assert_eq!(asked.as_deref(), Some("10.0.0.2"));
    }
}
