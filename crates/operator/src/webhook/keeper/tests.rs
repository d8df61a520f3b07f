mod uninstallation;

use std::future::ready;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use harvester_lb_controller_kit::Stamp;
use harvester_lb_controller_kit::events::Events;
use harvester_lb_object::Key;
use http::Method;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use serde_json::{Value, json};

use super::*;
use crate::fake::{self, FakeApiServer};
use crate::timings::Timings;
use crate::webhook::facts::tests::list;
use crate::webhook::stored::{Definition, StoredSecret, mutating, validating};
use crate::webhook_names::{CONFIGURATION, Names};

const AUTHORITY: &str = "/api/v1/namespaces/ns/secrets/svc-ca";
const LEAF: &str = "/api/v1/namespaces/ns/secrets/svc-tls";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

/// The lives that are the default.
fn lifetimes() -> Lifetimes {
    let timings = Timings::default();
    Lifetimes {
        authority: timings.webhook_authority_life,
        leaf: timings.webhook_certificate_life,
        settle: timings.webhook_settle,
        retain: timings.webhook_retain,
    }
}

/// The task of a replica that can answer, with lists that are complete and empty.
fn keeper(client: &Client) -> Keeper {
    keeper_that_says(client, Arc::default())
}

/// The same, whose new authority signs as soon as it is in all bundles.
fn keeper_that_settles_at_once(client: &Client) -> Keeper {
    let mut keeper = keeper(client);
    keeper.machine = Machine::new(
        Lifetimes {
            settle: Duration::ZERO,
            ..lifetimes()
        },
        keeper.stored.names.dns_name(),
    );
    keeper
}

/// As [`keeper`], which says whether it waits for an endpoint.
fn keeper_that_says(client: &Client, waits: Arc<AtomicBool>) -> Keeper {
    let (timings, lifetimes) = (Timings::default(), lifetimes());
    let stored = Stored::new(Names {
        namespace: "ns".to_owned(),
        service: "svc".to_owned(),
    });
    let metrics = Arc::new(Metrics::new().unwrap());
    let parts = Parts {
        secrets: Secrets::new(client.clone(), stored.clone(), lifetimes),
        registration: Registration::new(
            client.clone(),
            stored.clone(),
            Arc::clone(&metrics),
            Events::queue().0,
            &timings,
        ),
        endpoints: Endpoints::new(client.clone(), &stored.names, waits),
        stored,
        serving: Arc::default(),
        metrics,
        changed: Arc::default(),
        is_ready: Box::new(|| true),
    };
    Keeper::new(parts, lifetimes)
}

/// Somebody changes a stored object, and the replica sees it.
async fn change(
    server: &FakeApiServer,
    keeper: &Keeper,
    path: &str,
    change: impl FnOnce(&mut Value),
) {
    let mut object = server.get(path).unwrap();
    let version = object["metadata"]["resourceVersion"].as_str().unwrap();
    let version = version.parse::<u64>().unwrap() + 1;
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    change(&mut object);
    server.put(path, object);
    keeper.secrets.refresh().await.unwrap();
}

/// Somebody deletes a Secret; the replica has not seen it yet.
async fn delete(server: &FakeApiServer, secret: &str) {
    let api: kube::Api<Secret> = kube::Api::namespaced(server.client(), "ns");
    let params = kube::api::DeleteParams::default();
    api.delete(secret, &params).await.unwrap();
}

/// The lists of the Secrets are complete.
fn list_secrets(server: &FakeApiServer, stored: &Stored) {
    let secret = |decoded| Some(StoredSecret::of(decoded));
    for (store, path) in [(&stored.authority, AUTHORITY), (&stored.leaf, LEAF)] {
        let objects: Vec<Value> = server.get(path).into_iter().collect();
        list::<Secret, _>(store, &objects, secret, |_, _| {});
    }
}

/// The lists of the registration are complete and empty.
fn list_registration(stored: &Stored) {
    let decoded = |d| Some(validating(d));
    list::<ValidatingWebhookConfiguration, _>(&stored.validating, &[], decoded, |_, _| {});
    let decoded = |d| Some(mutating(d));
    list::<MutatingWebhookConfiguration, _>(&stored.mutating, &[], decoded, |_, _| {});
    let decoded = |d| Some(Definition::of(d));
    list::<CustomResourceDefinition, _>(&stored.definition, &[], decoded, |_, _| {});
}

#[tokio::test(start_paused = true)]
async fn section_1_a_stored_certificate_serves_before_all_is_listed_and_nothing_is_written() {
    let server = FakeApiServer::default();
    registers(&server, &mut keeper(&server.client())).await;
    let replica = keeper(&server.client());
    let (stored, serving) = (replica.stored.clone(), Arc::clone(&replica.serving));
    let changed = Arc::clone(&replica.changed);
    let stop = CancellationToken::new();
    let running = tokio::spawn(replica.run(stop.clone()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!serving.is_set());
    list_secrets(&server, &stored);
    changed.notify_one();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(serving.is_set());
    assert!(server.writes().is_empty());
    list_registration(&stored);
    tokio::time::sleep(2 * LAST_PAUSE).await;
    assert!(!server.writes().is_empty());
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn section_1_a_replica_that_cannot_answer_yet_only_looks_whether_it_can() {
    let server = FakeApiServer::default();
    let mut keeper = keeper(&server.client());
    let (is_ready, looks) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let (ready, looked) = (Arc::clone(&is_ready), Arc::clone(&looks));
    keeper.is_ready = Box::new(move || {
        looked.fetch_add(1, Ordering::Relaxed);
        ready.load(Ordering::Relaxed)
    });
    list_secrets(&server, &keeper.stored);
    list_registration(&keeper.stored);
    let stop = CancellationToken::new();
    let running = tokio::spawn(keeper.run(stop.clone()));
    tokio::time::sleep(Duration::from_mins(1)).await;
    let paths = |server: &FakeApiServer| -> Vec<String> {
        server
            .writes()
            .into_iter()
            .map(|(_, path, _)| path)
            .collect()
    };
    let made = paths(&server);
    assert_eq!(made.len(), 2, "{made:?}");
    assert!(
        made.iter().all(|path| path.contains("/secrets")),
        "{made:?}"
    );
    let looks = looks.load(Ordering::Relaxed);
    assert!((50..100).contains(&looks), "{looks}");
    is_ready.store(true, Ordering::Relaxed);
    tokio::time::sleep(2 * LAST_PAUSE).await;
    assert_eq!(paths(&server), [VALIDATING, MUTATING]);
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn section_1_a_secret_that_somebody_else_writes_each_time_is_written_with_a_back_off() {
    let server = FakeApiServer::default();
    let mut keeper = keeper(&server.client());
    for _ in 0..3 {
        keeper.round().await;
    }
    let made: Vec<String> = server
        .writes()
        .into_iter()
        .map(|(_, path, _)| path)
        .collect();
    assert_eq!(made.len(), 4, "two Secrets, two configurations: {made:?}");
    let (start, mut writes) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_mins(10) {
        // The other one undoes each write at once.
        change(&server, &keeper, LEAF, |secret| {
            secret["data"]["tls.key"] = json!("");
        })
        .await;
        let next = keeper.round().await;
        let sent = server.writes();
        assert!(sent.iter().all(|(_, path, _)| path == LEAF), "{sent:?}");
        writes += sent.len();
        assert!(writes < 200, "after {:?}", start.elapsed());
        tokio::time::sleep_until(next).await;
    }
    assert!(writes >= 50, "{writes}");
    // Once that is over the next loss is mended at once.
    tokio::time::sleep(2 * FORGET).await;
    keeper.round().await;
    server.writes();
    tokio::time::sleep(2 * FORGET).await;
    change(&server, &keeper, LEAF, |secret| secret["data"] = json!({})).await;
    keeper.round().await;
    assert_eq!(server.writes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn section_1_a_namespace_that_does_not_exist_is_waited_for_with_a_back_off() {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let client = fake::client(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        ready(fake::failure(404, "NotFound"))
    });
    let mut keeper = keeper(&client);
    let start = Instant::now();
    while start.elapsed() < Duration::from_mins(1) {
        let next = keeper.round().await;
        let sent = sent.load(Ordering::Relaxed);
        assert!(sent < 100, "{sent} requests after {:?}", start.elapsed());
        tokio::time::sleep_until(next).await;
    }
    assert!(sent.load(Ordering::Relaxed) >= 15);
}

#[tokio::test(start_paused = true)]
async fn section_1_the_registration_is_kept_up_while_a_secret_cannot_be_written() {
    let server = FakeApiServer::default();
    let mut keeper = keeper(&server.client());
    for _ in 0..3 {
        keeper.round().await;
    }
    tokio::time::sleep(2 * FORGET).await;
    server.refuse(Method::PATCH, "/secrets/");
    change(&server, &keeper, AUTHORITY, |secret| {
        secret["data"]["tls.key"] = json!("");
    })
    .await;
    registered_by_another(&server, &keeper, "svc");
    server.writes();
    let patched = [format!("PATCH {VALIDATING}/{CONFIGURATION}")];
    assert_eq!(registers(&server, &mut keeper).await, patched);
    // The refused write is tried again with a back-off, also while this replica cannot answer.
    keeper.is_ready = Box::new(|| false);
    let (start, mut tries) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(20) {
        let next = keeper.round().await;
        tries += server.writes().len();
        tokio::time::sleep_until(next).await;
    }
    assert!((2..20).contains(&tries), "{tries}");
}

#[tokio::test(start_paused = true)]
async fn section_1_a_bundle_that_refuses_what_serves_is_not_registered() {
    let server = FakeApiServer::default();
    let mut keeper = keeper(&server.client());
    for _ in 0..3 {
        keeper.round().await;
    }
    tokio::time::sleep(2 * FORGET).await;
    // Without its authority's Secret, which cannot be made again.
    server.refuse(Method::POST, "/secrets");
    delete(&server, "svc-ca").await;
    server.writes();
    assert!(registers(&server, &mut keeper).await.is_empty());
    keeper.secrets.refresh().await.unwrap();
    assert!(registers(&server, &mut keeper).await.is_empty());
    server.admit();
    tokio::time::sleep(2 * FORGET).await;
    // Both authorities, once there is one.
    let patched = [VALIDATING, MUTATING].map(|path| format!("PATCH {path}/{CONFIGURATION}"));
    assert_eq!(registers(&server, &mut keeper).await, patched);
}

#[tokio::test(start_paused = true)]
async fn section_1_a_new_authority_signs_without_a_watch_that_says_what_was_written() {
    let server = FakeApiServer::default();
    let mut keeper = keeper_that_settles_at_once(&server.client());
    registers(&server, &mut keeper).await;
    // The objects just written wait for a back-off, each for its own time.
    tokio::time::sleep(2 * FORGET).await;
    change(&server, &keeper, AUTHORITY, |secret| {
        secret["data"]["tls.key"] = json!("");
    })
    .await;
    let before = server.get(LEAF).unwrap()["data"].clone();
    let patched = [VALIDATING, MUTATING].map(|path| format!("PATCH {path}/{CONFIGURATION}"));
    assert_eq!(registers(&server, &mut keeper).await, patched);
    assert_ne!(server.get(LEAF).unwrap()["data"], before);
}

/// The Service has endpoints, each ready or not.
fn endpoints(server: &FakeApiServer, are_ready: &[bool]) {
    let endpoints: Vec<Value> = are_ready
        .iter()
        .map(|ready| json!({"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}))
        .collect();
    let slice = json!({
        "metadata": {"namespace": "ns", "name": "svc-a"}, "addressType": "IPv4", "endpoints": endpoints,
    });
    let list = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSliceList",
        "metadata": {}, "items": [slice],
    });
    server.put(SLICES, list);
}

/// The ValidatingWebhookConfiguration, as another program has left it: it calls this Service.
fn registered_by_another(server: &FakeApiServer, keeper: &Keeper, service: &str) {
    let names = Names {
        namespace: "ns".to_owned(),
        service: service.to_owned(),
    };
    let mut object = Desired::new(names, "old").validating();
    object.metadata.resource_version = Some("500".to_owned());
    let path = format!("{VALIDATING}/{CONFIGURATION}");
    server.put(&path, serde_json::to_value(&object).unwrap());
    let stamp = Stamp::of(&object.metadata);
    let store = &keeper.stored.validating;
    let key = Key::new("", CONFIGURATION);
    assert!(store.written(&key, stamp, validating(Ok(object))).is_some());
}

/// The requests that write the registration, after rounds of a second.
async fn registers(server: &FakeApiServer, keeper: &mut Keeper) -> Vec<String> {
    let end = Instant::now() + Duration::from_secs(1);
    loop {
        let next = keeper.round().await;
        if next > end {
            break;
        }
        tokio::time::sleep_until(next).await;
    }
    let writes = server.writes().into_iter();
    let writes = writes.filter(|(_, path, _)| path.contains("admissionregistration"));
    writes
        .map(|(method, path, _)| format!("{method} {path}"))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn section_1_nothing_is_registered_before_the_service_has_a_ready_endpoint() {
    let server = FakeApiServer::default();
    let waits = Arc::new(AtomicBool::default());
    let mut keeper = keeper_that_says(&server.client(), Arc::clone(&waits));
    for are_ready in [&[] as &[bool], &[false]] {
        endpoints(&server, are_ready);
        assert!(registers(&server, &mut keeper).await.is_empty());
        assert!(waits.load(Ordering::Relaxed));
        assert!(keeper.serving.is_set(), "it serves meanwhile");
    }
    // Twice a second, however often something changes meanwhile.
    server.reads();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(10) {
        let next = keeper.round().await;
        assert!(next <= Instant::now() + Duration::from_millis(500));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let reads = server.reads();
    assert!((15..=21).contains(&reads.len()), "{}", reads.len());
    assert!(reads.iter().all(|path| path == SLICES), "{reads:?}");
    endpoints(&server, &[false, true]);
    let created = [format!("POST {VALIDATING}"), format!("POST {MUTATING}")];
    assert_eq!(registers(&server, &mut keeper).await, created);
    assert!(!waits.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn section_1_a_registration_that_calls_another_service_stays_until_an_endpoint_is_ready() {
    let server = FakeApiServer::default();
    let mut keeper = keeper(&server.client());
    endpoints(&server, &[false]);
    registered_by_another(&server, &keeper, "another");
    assert!(registers(&server, &mut keeper).await.is_empty());
    endpoints(&server, &[true]);
    let written = [
        format!("PATCH {VALIDATING}/{CONFIGURATION}"),
        format!("POST {MUTATING}"),
    ];
    assert_eq!(registers(&server, &mut keeper).await, written);
}

#[tokio::test(start_paused = true)]
async fn section_1_a_registration_that_calls_the_service_already_waits_for_no_endpoint() {
    let server = FakeApiServer::default();
    let mut keeper = keeper(&server.client());
    endpoints(&server, &[]);
    registered_by_another(&server, &keeper, "svc");
    let patched = [format!("PATCH {VALIDATING}/{CONFIGURATION}")];
    assert_eq!(registers(&server, &mut keeper).await, patched);
}

#[tokio::test(start_paused = true)]
async fn section_1_a_missing_permission_for_endpoints_keeps_nothing_from_being_registered() {
    for (code, reason, wanted) in [
        (403, "Forbidden", 2),
        (404, "NotFound", 2),
        (503, "ServiceUnavailable", 0),
    ] {
        let server = FakeApiServer::default();
        let answers = server.clone();
        let client = fake::client(move |request| {
            ready(if request.path == SLICES {
                let of_service = "labelSelector=kubernetes.io%2Fservice-name%3Dsvc";
                assert!(request.query.contains(of_service), "{}", request.query);
                fake::failure(code, reason)
            } else {
                answers.answer(request)
            })
        });
        let mut keeper = keeper(&client);
        let sent = registers(&server, &mut keeper).await;
        assert_eq!(sent.len(), wanted, "{code}: {sent:?}");
    }
}
