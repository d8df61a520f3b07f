use std::future::ready;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Method;
use serde_json::Value;
use tokio::time::sleep;

use super::*;
use crate::fake::{self, FakeApiServer};
use crate::webhook::desired::Desired;
use crate::webhook_names::CONFIGURATION;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const ALL: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/loadbalancers";
const ONE: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/n/loadbalancers/a";
const AUTHORITY: &str = "/api/v1/namespaces/ns/secrets/svc-ca";
const LEAF: &str = "/api/v1/namespaces/ns/secrets/svc-tls";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/ns/deployments/hook";
const SCALE: &str = "/apis/apps/v1/namespaces/ns/deployments/hook/scale";

fn names() -> Names {
    Names {
        namespace: "ns".to_owned(),
        service: "svc".to_owned(),
    }
}

/// A registered conversion of objects that are stored in these versions, and the Secrets.
fn server(stored: &[&str]) -> FakeApiServer {
    let server = FakeApiServer::default();
    server.put(
        &format!("{DEFINITIONS}/{DEFINITION}"),
        json!({
            "metadata": {"name": DEFINITION, "resourceVersion": "5"},
            "spec": {
                "group": harvester_lb_api::GROUP, "scope": "Namespaced", "versions": [],
                "names": {"kind": "LoadBalancer", "plural": "loadbalancers"},
                "conversion": Desired::new(names(), "PEM").conversion(),
            },
            "status": {"storedVersions": stored},
        }),
    );
    for (path, name) in [(AUTHORITY, "svc-ca"), (LEAF, "svc-tls")] {
        let metadata = json!({"namespace": "ns", "name": name, "resourceVersion": "3"});
        server.put(path, json!({ "metadata": metadata }));
    }
    server
}

fn uninstall(server: &FakeApiServer, deployment: Option<&str>) -> Uninstall {
    Uninstall {
        client: server.client(),
        names: names(),
        deployment: deployment.map(ToOwned::to_owned),
    }
}

/// A Deployment that was scaled, as its controller last saw it.
fn deployment(observed: i64, replicas: Option<i32>) -> Value {
    json!({
        "metadata": {"namespace": "ns", "name": "hook", "generation": 2},
        "status": {"observedGeneration": observed, "replicas": replicas},
    })
}

/// [`server`] with a Deployment that has two replicas, and whose controller has not seen yet that it is scaled.
fn server_with_deployment() -> FakeApiServer {
    let server = server(&[STORED]);
    server.put(DEPLOYMENT, deployment(1, Some(2)));
    let metadata = json!({"namespace": "ns", "name": "hook", "resourceVersion": "7"});
    server.put(
        SCALE,
        json!({"metadata": metadata, "spec": {"replicas": 2}}),
    );
    server
}

/// Place of the only write of this kind.
fn place(writes: &[(Method, String, Value)], method: &Method, path: &str) -> usize {
    let is_it = |(m, p, _): &(Method, String, Value)| m == method && p == path;
    assert_eq!(
        writes.iter().filter(|write| is_it(write)).count(),
        1,
        "{method} {path}: {writes:?}"
    );
    writes.iter().position(is_it).unwrap()
}

fn has_secrets(server: &FakeApiServer) -> bool {
    let found = [AUTHORITY, LEAF].map(|path| server.get(path).is_some());
    assert_eq!(found[0], found[1]);
    found[0]
}

#[tokio::test(start_paused = true)]
async fn cnv_1_conversion_stays_while_an_object_cannot_be_stored_again() {
    let server = server(&["v1alpha1", "v1beta1"]);
    let object = json!({
        "apiVersion": harvester_lb_api::API_VERSION, "kind": "LoadBalancer",
        "metadata": {"namespace": "n", "name": "a", "resourceVersion": "7"},
    });
    server.put(ALL, json!({"metadata": {}, "items": [object]}));
    server.put(ONE, object);
    server.refuse(Method::PATCH, "/loadbalancers/a");
    let error = uninstall(&server, None).all().await.unwrap_err();
    let error = format!("{error:#}");
    assert!(error.contains("LoadBalancer n/a"), "{error}");
    let now = server.get(&format!("{DEFINITIONS}/{DEFINITION}")).unwrap();
    assert_eq!(now["spec"]["conversion"]["strategy"], "Webhook");
    assert_eq!(
        now["status"]["storedVersions"],
        json!(["v1alpha1", "v1beta1"])
    );
    // The replicas were told when, and at the end that they may go on.
    let marks = marks(&server.writes());
    let (last, before) = marks.split_last().unwrap();
    assert!(last.is_null() && !before.is_empty(), "{marks:?}");
    for at in before {
        let at: Timestamp = at.as_str().unwrap().parse().unwrap();
        assert!(Timestamp::now().as_second() - at.as_second() < 60);
    }
    assert_eq!(mark(&server), Value::Null);
}

/// What the replicas were told, in order.
fn marks(writes: &[(Method, String, Value)]) -> Vec<Value> {
    let to_secret = writes
        .iter()
        .filter(|(method, path, _)| method == Method::PATCH && path == AUTHORITY);
    to_secret
        .map(|(_, _, patch)| patch["metadata"]["annotations"][ANNOTATION_UNINSTALLED].clone())
        .collect()
}

/// What the Secret says.
fn mark(server: &FakeApiServer) -> Value {
    let secret = server.get(AUTHORITY).unwrap();
    secret["metadata"]["annotations"][ANNOTATION_UNINSTALLED].clone()
}

/// Somebody replaces the definition: nothing is converted any more.
fn switch_conversion_off(server: &FakeApiServer) {
    let path = format!("{DEFINITIONS}/{DEFINITION}");
    let mut object = server.get(&path).unwrap();
    object["spec"]["conversion"] = json!({"strategy": "None"});
    server.put(&path, object);
}

/// [`server`] with LoadBalancers that are stored in both versions.
fn server_with_objects(count: usize) -> FakeApiServer {
    let server = server(&["v1alpha1", STORED]);
    let object = |n: usize| {
        json!({
            "apiVersion": harvester_lb_api::API_VERSION, "kind": "LoadBalancer",
            "metadata": {"namespace": "n", "name": format!("a{n}"), "resourceVersion": "7"},
        })
    };
    let objects: Vec<Value> = (0..count).map(object).collect();
    for (n, object) in objects.iter().enumerate() {
        server.put(&format!("{ONE}{n}"), object.clone());
    }
    server.put(ALL, json!({"metadata": {}, "items": objects}));
    server
}

/// Runs the command; before a request to a path with this part the conversion is switched off.
async fn uninstall_without_conversion_from(server: &FakeApiServer, part: &'static str) -> String {
    let answers = server.clone();
    let client = fake::client(move |request| {
        let is_it = request.method == Method::PATCH && request.path.contains(part);
        if is_it {
            switch_conversion_off(&answers);
        }
        ready(if is_it && part == "/status" {
            fake::failure(409, "Conflict")
        } else {
            answers.answer(request)
        })
    });
    let uninstall = Uninstall {
        client,
        ..uninstall(server, None)
    };
    format!("{:#}", uninstall.all().await.unwrap_err())
}

#[tokio::test(start_paused = true)]
async fn cnv_1_nothing_is_removed_if_conversion_is_off_while_objects_may_need_it() {
    let server = server(&["v1alpha1", STORED]);
    switch_conversion_off(&server);
    let error = uninstall(&server, None).all().await.unwrap_err();
    assert!(error.to_string().contains("start the webhook"), "{error}");
    assert!(has_secrets(&server));
    // The replicas may restore it, whatever an earlier attempt has told them.
    let writes = server.writes();
    assert_eq!(marks(&writes), [Value::Null]);
    assert_eq!(writes.len(), 1, "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn cnv_1_without_anything_of_this_webhook_there_is_nothing_to_uninstall() {
    let server = server(&["v1alpha1", STORED]);
    switch_conversion_off(&server);
    let validating = Desired::new(names(), "PEM").validating();
    let validating = serde_json::to_value(validating).unwrap();
    let (authority, leaf) = (server.get(AUTHORITY).unwrap(), server.get(LEAF).unwrap());
    let uninstall = uninstall(&server, None);
    uninstall.remove_secrets().await.unwrap();
    server.writes();
    uninstall.all().await.unwrap();
    // It only asks whether there is an authority.
    assert_eq!(marks(&server.writes()), [Value::Null]);
    // Another webhook's configuration is no reason either.
    let path = format!("{VALIDATING}/{CONFIGURATION}");
    let other = Names {
        service: "another".to_owned(),
        ..names()
    };
    let others = Desired::new(other, "PEM").validating();
    server.put(&path, serde_json::to_value(others).unwrap());
    uninstall.all().await.unwrap();
    // Something of it is.
    server.put(&path, validating);
    let error = uninstall.all().await.unwrap_err();
    assert!(error.to_string().contains("start the webhook"), "{error}");
    assert!(server.get(&path).is_some());
    let deleted = json!({"metadata": {"name": CONFIGURATION}, "webhooks": []});
    server.put(&path, deleted);
    uninstall.all().await.unwrap();
    for (path, secret) in [(AUTHORITY, authority), (LEAF, leaf)] {
        server.put(path, secret);
    }
    assert!(uninstall.all().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn section_1_what_a_container_makes_that_restarts_between_the_steps_is_removed_too() {
    let server = server(&[STORED]);
    let path = format!("{VALIDATING}/{CONFIGURATION}");
    let desired = Desired::new(names(), "PEM").validating();
    let mut configuration = serde_json::to_value(desired).unwrap();
    configuration["metadata"]["resourceVersion"] = json!("8");
    let secrets = [AUTHORITY, LEAF].map(|path| (path, server.get(path).unwrap()));
    let (answers, left) = (server.clone(), AtomicUsize::new(1));
    let client = fake::client(move |request| {
        let is_last = request.method == Method::DELETE && request.path == AUTHORITY;
        let answer = answers.answer(request);
        let is_one_left = left.load(Ordering::Relaxed) > 0;
        if is_last && is_one_left {
            left.store(0, Ordering::Relaxed);
            for (path, secret) in &secrets {
                answers.put(path, secret.clone());
            }
            answers.put(&path, configuration.clone());
        }
        ready(answer)
    });
    let uninstall = Uninstall {
        client,
        ..uninstall(&server, None)
    };
    uninstall.all().await.unwrap();
    assert!(!has_secrets(&server));
    assert!(
        server
            .get(&format!("{VALIDATING}/{CONFIGURATION}"))
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn cnv_1_no_object_is_stored_again_once_conversion_is_lost() {
    let server = server_with_objects(3 * CHUNK);
    let error = uninstall_without_conversion_from(&server, "/loadbalancers/a").await;
    assert!(error.contains("start the webhook"), "{error}");
    let writes = server.writes();
    let stored = writes.iter().filter(|(_, path, _)| path.starts_with(ONE));
    assert_eq!(stored.count(), CHUNK, "those that were under way");
    assert!(has_secrets(&server));
    assert_eq!(mark(&server), Value::Null);
}

#[tokio::test(start_paused = true)]
async fn cnv_1_conversion_that_is_lost_before_the_versions_are_trimmed_is_an_error() {
    let server = server_with_objects(1);
    let error = uninstall_without_conversion_from(&server, "/status").await;
    assert!(error.contains("start the webhook"), "{error}");
    assert!(has_secrets(&server));
}

#[tokio::test(start_paused = true)]
async fn section_1_without_a_deployment_nothing_is_scaled() {
    let server = server_with_deployment();
    uninstall(&server, None).all().await.unwrap();
    assert!(!has_secrets(&server));
    let writes = server.writes().into_iter().map(|(_, path, _)| path);
    for path in writes.chain(server.reads()) {
        assert!(!path.starts_with("/apis/apps/"), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn section_1_the_replicas_end_before_the_secrets_go() {
    let server = server_with_deployment();
    let uninstall = uninstall(&server, Some("hook"));
    let began = Instant::now();
    let (done, ()) = tokio::join!(uninstall.all(), async {
        // Conversion is off after `SETTLED`. Neither state says that nothing runs any more.
        for state in [deployment(1, None), deployment(2, Some(1))] {
            sleep(Duration::from_millis(2600)).await;
            assert_eq!(server.get(SCALE).unwrap()["spec"]["replicas"], 0);
            assert!(has_secrets(&server), "{state}");
            server.put(DEPLOYMENT, state);
        }
        sleep(Duration::from_millis(2600)).await;
        assert!(has_secrets(&server));
        server.put(DEPLOYMENT, deployment(2, None));
    });
    done.unwrap();
    assert!(!has_secrets(&server));
    let took = began.elapsed();
    assert!(
        took > Duration::from_millis(7800) && took < Duration::from_secs(11),
        "{took:?}"
    );
    let writes = server.writes();
    let definition = format!("{DEFINITIONS}/{DEFINITION}");
    let off = place(&writes, &Method::PATCH, &definition);
    let scaled = place(&writes, &Method::PATCH, SCALE);
    let removed = place(&writes, &Method::DELETE, AUTHORITY);
    assert!(off < scaled && scaled < removed, "{writes:?}");
    let told = &writes[scaled - 1];
    assert_eq!((&told.0, &*told.1), (&Method::PATCH, AUTHORITY));
    // At the end it is looked once more for what a container that restarted may have registered.
    let reads = server.reads();
    let ended = reads.iter().rposition(|path| path == DEPLOYMENT).unwrap();
    for kind in [
        "validatingwebhookconfigurations",
        "mutatingwebhookconfigurations",
    ] {
        assert!(
            reads[ended..].iter().any(|path| path.contains(kind)),
            "{kind}: {reads:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn section_1_a_deployment_that_does_not_exist_has_no_replicas() {
    let server = server(&[STORED]);
    let uninstall = uninstall(&server, Some("hook"));
    uninstall.all().await.unwrap();
    assert!(!has_secrets(&server));
    place(&server.writes(), &Method::PATCH, SCALE);
    assert_eq!(uninstall.end_replicas("hook").await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn section_1_replicas_that_do_not_end_are_named_and_not_waited_for() {
    let server = server_with_deployment();
    let uninstall = uninstall(&server, Some("hook"));
    let began = Instant::now();
    let remains = uninstall.end_replicas("hook").await.unwrap().unwrap();
    assert_eq!(began.elapsed(), END);
    assert!(remains.contains("Deployment ns/hook"), "{remains}");
    uninstall.all().await.unwrap();
    assert!(!has_secrets(&server));
}

#[tokio::test(start_paused = true)]
async fn section_1_the_secrets_stay_if_the_replicas_cannot_be_ended() {
    let server = server_with_deployment();
    server.refuse(Method::PATCH, "/scale");
    let error = uninstall(&server, Some("hook")).all().await.unwrap_err();
    let error = format!("{error:#}");
    assert!(error.contains("Deployment ns/hook"), "{error}");
    assert!(has_secrets(&server));
}
