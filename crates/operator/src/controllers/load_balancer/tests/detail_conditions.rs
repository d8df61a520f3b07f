//! The writes of the detail conditions, counted: in those that happen anyway, else paced.

use std::time::Duration;

use futures::FutureExt;
use harvester_lb_core::cached::{Vmi, VmiState};
use k8s_openapi::api::core::v1::Service;

use super::*;

/// Virtual machines of the namespace, with the label that the load balancer selects.
const MACHINES: [&str; 3] = ["vm1", "vm2", "vm3"];
/// The interval between a status write and one of detail conditions alone.
const INTERVAL: Duration = Duration::from_secs(10);

/// Sets the state of a virtual machine in the store, as its watch does.
fn machine(ctx: &Context, name: &str, state: VmiState, version: u64) {
    let at = MACHINES.iter().position(|m| *m == name).unwrap();
    let vmi = Vmi {
        uid: format!("u-{name}"),
        labels: [("app".to_owned(), "x".to_owned())].into(),
        deleting: false,
        address: Some([10, 1, 0, u8::try_from(at + 1).unwrap()].into()),
        state,
        finalizers_to_keep: None,
    };
    let key = Key::new("n", name);
    ctx.index.stores.vmis.written(&key, Version(version), vmi);
}

/// A leader with a pool, a new load balancer of VM type and three virtual machines behind it.
fn created(server: &FakeApiServer) -> Context {
    let mut lb = named("vm");
    lb["status"] = json!({});
    server.put(LB, lb.clone());
    let ctx = leader(server, pool(&json!({})), &lb);
    for name in MACHINES {
        machine(&ctx, name, VmiState::Running, 1);
    }
    ctx
}

/// kube-vip announces the address from a node.
fn announces(ctx: &Context, server: &FakeApiServer, node: &str) {
    let mut service = server.get(SERVICE).unwrap();
    let version: u64 = service["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    service["metadata"]["resourceVersion"] = (version + 1).to_string().into();
    service["metadata"]["annotations"]["kube-vip.io/vipHost"] = node.into();
    let address = service["spec"]["loadBalancerIP"].clone();
    service["status"] = json!({"loadBalancer": {"ingress": [{"ip": address}]}});
    server.put(SERVICE, service.clone());
    let service = cached::service(Ok(object::<Service>(service))).unwrap();
    let services = &ctx.index.stores.services;
    services.written(&key(), Version(version + 1), service);
}

/// Methods and paths of the writes since the last call.
fn writes(server: &FakeApiServer) -> Vec<(Method, String)> {
    let writes = server.writes().into_iter();
    writes.map(|(method, path, _)| (method, path)).collect()
}

/// Status, reason and message of a condition.
type Told = (String, String, String);

/// What the stored condition of this type says; empty if there is none.
fn told(server: &FakeApiServer, type_: &str) -> Told {
    let lb = server.get(LB).unwrap();
    let conditions = lb["status"]["conditions"].as_array().unwrap().clone();
    let found = conditions.iter().find(|c| c["type"] == type_);
    let text = |field: &str| {
        let text = found.and_then(|found| found[field].as_str());
        text.unwrap_or_default().to_owned()
    };
    (text("status"), text("reason"), text("message"))
}

/// Whether the load balancer is queued.
fn is_due(ctx: &Context) -> bool {
    let queue = &ctx.index.queues.lbs;
    let Some(key) = queue.next().now_or_never().flatten() else {
        return false;
    };
    queue.done(&key, &Ok(Requeue::AwaitChange));
    true
}

/// Takes the Events so far.
async fn events(ctx: &Context, server: &FakeApiServer) -> Vec<(String, String)> {
    ctx.events.written().await;
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    let sent = server.events().into_iter();
    sent.map(|event| (text(&event, "reason"), text(&event, "note")))
        .collect()
}

fn event(reason: &str, note: &str) -> (String, String) {
    (reason.to_owned(), note.to_owned())
}

fn value(status: &str, reason: &str, message: &str) -> Told {
    (status.into(), reason.into(), message.into())
}

/// A served load balancer whose address is announced; all writes and Events so far are taken.
async fn served(server: &FakeApiServer) -> Context {
    let ctx = created(server);
    reconcile(&ctx, &key()).await.unwrap();
    announces(&ctx, server, "node1");
    reconcile(&ctx, &key()).await.unwrap();
    server.writes();
    events(&ctx, server).await;
    ctx
}

#[tokio::test(start_paused = true)]
async fn rec_5_creation_takes_five_writes_with_the_details() {
    let server = FakeApiServer::default();
    let ctx = created(&server);
    reconcile(&ctx, &key()).await.unwrap();
    let expected = [
        (
            Method::POST,
            "/apis/loadbalancer.harvesterhci.io/v1beta1/ipallocations",
        ),
        (Method::PATCH, LB),
        (
            Method::POST,
            "/apis/discovery.k8s.io/v1/namespaces/n/endpointslices",
        ),
        (Method::POST, "/api/v1/namespaces/n/services"),
    ];
    let expected = expected.map(|(method, path)| (method, path.to_owned()));
    assert_eq!(writes(&server), expected);
    let allocated = value("True", "AddressAllocated", "10.0.0.2 of pool p");
    assert_eq!(told(&server, "AddressAllocated"), allocated);
    let waits = "waiting for kube-vip to announce 10.0.0.2";
    let waits = value("False", "WaitingForExternalIP", waits);
    assert_eq!(told(&server, "Announced"), waits);
    let healthy = value(
        "True",
        "BackendsHealthy",
        "3 of 3; there is no health check",
    );
    assert_eq!(told(&server, "BackendsHealthy"), healthy);
    // Another look, much later too.
    for _ in 0..2 {
        reconcile(&ctx, &key()).await.unwrap();
        tokio::time::advance(2 * INTERVAL).await;
        assert_eq!(writes(&server), []);
    }
    announces(&ctx, &server, "node1");
    reconcile(&ctx, &key()).await.unwrap();
    assert_eq!(writes(&server), [(Method::PATCH, LB.to_owned())]);
    assert_eq!(
        told(&server, "Announced"),
        value("True", "Announced", "10.0.0.2")
    );
    assert_eq!(told(&server, "Ready").0, "True");
    reconcile(&ctx, &key()).await.unwrap();
    assert_eq!(writes(&server), []);
    assert!(!is_due(&ctx));
    let told = [event("AddressAllocated", "10.0.0.2 of pool p")];
    assert_eq!(events(&ctx, &server).await, told);
}

#[tokio::test(start_paused = true)]
async fn rec_5_a_partial_failure_costs_one_more_write_each_ten_seconds() {
    let server = FakeApiServer::default();
    let ctx = served(&server).await;
    tokio::time::advance(INTERVAL).await;
    machine(&ctx, "vm2", VmiState::Succeeded, 2);
    reconcile(&ctx, &key()).await.unwrap();
    let both = [
        (Method::PATCH, SLICE.to_owned()),
        (Method::PATCH, LB.to_owned()),
    ];
    assert_eq!(writes(&server), both);
    let text = "2 of 3; there is no health check; vm2: Succeeded";
    assert_eq!(
        told(&server, "BackendsHealthy"),
        value("False", "SomeBackendsUnhealthy", text)
    );
    assert_eq!(
        events(&ctx, &server).await,
        [event("BackendUnhealthy", text)]
    );
    // It comes and goes: only the endpoints follow, until the time is over.
    for (version, state) in [
        (3, VmiState::Running),
        (4, VmiState::Failed),
        (5, VmiState::Running),
    ] {
        tokio::time::advance(Duration::from_secs(3)).await;
        machine(&ctx, "vm2", state, version);
        reconcile(&ctx, &key()).await.unwrap();
        assert_eq!(writes(&server), [(Method::PATCH, SLICE.to_owned())]);
        assert!(!is_due(&ctx));
    }
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(
        is_due(&ctx),
        "it is queued for the time when it may be written"
    );
    reconcile(&ctx, &key()).await.unwrap();
    assert_eq!(writes(&server), [(Method::PATCH, LB.to_owned())]);
    let text = "3 of 3; there is no health check";
    assert_eq!(
        told(&server, "BackendsHealthy"),
        value("True", "BackendsHealthy", text)
    );
    assert_eq!(events(&ctx, &server).await, [event("BackendHealthy", text)]);
    reconcile(&ctx, &key()).await.unwrap();
    assert_eq!(writes(&server), []);
}

#[tokio::test(start_paused = true)]
async fn rec_5_a_change_of_readiness_is_not_paced() {
    let server = FakeApiServer::default();
    let ctx = served(&server).await;
    for (version, state, status) in [
        (2, VmiState::Failed, "False"),
        (3, VmiState::Running, "True"),
        (4, VmiState::Failed, "False"),
    ] {
        for name in MACHINES {
            machine(&ctx, name, state, version);
        }
        reconcile(&ctx, &key()).await.unwrap();
        let both = [
            (Method::PATCH, SLICE.to_owned()),
            (Method::PATCH, LB.to_owned()),
        ];
        assert_eq!(writes(&server), both);
        for type_ in ["Ready", "BackendsHealthy"] {
            assert_eq!(told(&server, type_).0, status, "{type_}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn ops_2_a_status_of_an_earlier_version_is_not_written_for_the_details() {
    let server = FakeApiServer::default();
    let ctx = served(&server).await;
    let mut old = server.get(LB).unwrap();
    let conditions = old["status"]["conditions"].as_array_mut().unwrap();
    conditions.retain(|c| c["type"] == "Ready");
    old["metadata"]["resourceVersion"] = "5000".into();
    server.put(LB, old.clone());
    let stored = Lb::valid(object(old));
    ctx.index.stores.lbs.written(&key(), Version(5000), stored);
    tokio::time::advance(2 * INTERVAL).await;
    for _ in 0..2 {
        reconcile(&ctx, &key()).await.unwrap();
        assert_eq!(writes(&server), []);
        assert!(!is_due(&ctx));
        tokio::time::advance(2 * INTERVAL).await;
    }
    // A failed backend is said.
    machine(&ctx, "vm2", VmiState::Failed, 2);
    reconcile(&ctx, &key()).await.unwrap();
    let both = [
        (Method::PATCH, SLICE.to_owned()),
        (Method::PATCH, LB.to_owned()),
    ];
    assert_eq!(writes(&server), both);
    for type_ in ["AddressAllocated", "Announced", "BackendsHealthy"] {
        assert!(!told(&server, type_).0.is_empty(), "{type_}");
    }
    // Neither the address nor the announcement is news.
    assert_eq!(events(&ctx, &server).await, []);
}

#[tokio::test(start_paused = true)]
async fn ops_1_a_failover_writes_nothing_and_ten_events_a_second_at_most() {
    let server = FakeApiServer::default();
    let ctx = served(&server).await;
    let changes = |event: &str| {
        let changes = &ctx.metrics.announcing_node_changes;
        changes.with_label_values(&[event]).get()
    };
    announces(&ctx, &server, "node2");
    reconcile(&ctx, &key()).await.unwrap();
    reconcile(&ctx, &key()).await.unwrap();
    let moved = "kube-vip announces the address from node node2, before from node1";
    assert_eq!(
        events(&ctx, &server).await,
        [event("AnnouncingNodeChanged", moved)]
    );
    for round in 0..40 {
        announces(&ctx, &server, &format!("node{round}"));
        reconcile(&ctx, &key()).await.unwrap();
    }
    assert_eq!(writes(&server), [], "no condition names a node");
    let sent = events(&ctx, &server).await.len();
    assert!(sent < 10, "{sent}");
    assert_eq!(changes("sent"), u64::try_from(sent).unwrap() + 1);
    assert_eq!(changes("sent") + changes("suppressed"), 41);
}

#[tokio::test]
async fn rec_1_cluster_type_has_an_address_and_nothing_else() {
    let (server, mut lb) = (FakeApiServer::default(), named("cluster"));
    lb["status"] = json!({});
    server.put(LB, lb.clone());
    let ctx = leader(&server, pool(&json!({})), &lb);
    reconcile(&ctx, &key()).await.unwrap();
    assert_eq!(server.writes().len(), 2);
    let allocated = value("True", "AddressAllocated", "10.0.0.2 of pool p");
    assert_eq!(told(&server, "AddressAllocated"), allocated);
    for type_ in ["Announced", "BackendsHealthy"] {
        assert_eq!(told(&server, type_), Told::default());
    }
    reconcile(&ctx, &key()).await.unwrap();
    assert_eq!(server.writes(), []);
}
