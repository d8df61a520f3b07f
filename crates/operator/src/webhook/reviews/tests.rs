use harvester_lb_api::keys;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

use super::*;
use crate::fake::{self, FakeApiServer};
use crate::webhook::facts::tests::{list_allocations, list_instances, list_pools};

/// An API server without any object.
fn nothing() -> Client {
    Client::new(
        service_fn(|_: http::Request<Body>| async {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
                "message": "not found",
            });
            let answer = http::Response::builder()
                .status(404)
                .body(Body::from(status.to_string().into_bytes()));
            Ok::<_, std::io::Error>(answer.unwrap())
        }),
        "default",
    )
}

fn reviews() -> Reviews {
    reviews_of(nothing())
}

fn reviews_of(client: Client) -> Reviews {
    let metrics = Arc::new(Metrics::new().unwrap());
    Reviews::new(Facts::default(), LiveReads::new(client), metrics)
}

fn review(kind: &str, operation: &str, object: &Value) -> Vec<u8> {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "7", "operation": operation, "name": object["metadata"]["name"],
            "namespace": object["metadata"]["namespace"],
            "kind": {"group": "loadbalancer.harvesterhci.io", "version": "v1beta1", "kind": kind},
            "object": object,
        },
    })
    .to_string()
    .into_bytes()
}

fn pool(subnet: &str) -> Vec<u8> {
    let object = json!({
        "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "IPPool",
        "metadata": {"name": "p"}, "spec": {"ranges": [{"subnet": subnet}]},
    });
    review("IPPool", "CREATE", &object)
}

fn body(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap()
}

#[tokio::test]
async fn cnv_1_rules_without_other_objects_answer_before_the_lists_are_complete() {
    let reviews = reviews();
    let answer = reviews.review(Task::Validation, &pool("10.10.5.0")).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(body(&answer)["response"]["allowed"], false);
    let answer = reviews
        .review(Task::Validation, &pool("10.10.5.0/24"))
        .await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    list_pools(&reviews.facts, &[]);
    list_allocations(&reviews.facts, &[]);
    let answer = reviews
        .review(Task::Validation, &pool("10.10.5.0/24"))
        .await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(body(&answer)["response"]["allowed"], true);
    assert_eq!(body(&answer)["response"]["uid"], "7");
}

#[tokio::test]
async fn wm_2_a_namespace_that_the_store_lacks_is_read_live() {
    let object = json!({
        "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer",
        "metadata": {"name": "a", "namespace": "new"}, "spec": {"workloadType": "cluster"},
    });
    let answer = reviews()
        .review(Task::Mutation, &review("LoadBalancer", "CREATE", &object))
        .await;
    // Neither the store nor the API server has it.
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let response = &body(&answer)["response"];
    assert_eq!(response["allowed"], false);
    let message = response["status"]["message"].as_str().unwrap();
    assert!(message.contains("new"), "{message}");
}

const LBS: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/shop/loadbalancers";

/// A LoadBalancer of the namespace shop, which asks for the address of `primary`.
fn lb(name: &str, primary: Option<&str>) -> Value {
    let annotations = primary.map(|primary| json!({ keys::ANNOTATION_PRIMARY: primary }));
    let shared = json!({"type": "AddressShared", "status": "True", "reason": "Secondary"});
    json!({
        "apiVersion": harvester_lb_api::API_VERSION, "kind": "LoadBalancer",
        "metadata": {"name": name, "namespace": "shop", "annotations": annotations},
        "spec": {"listeners": [{"name": "a", "port": 8080, "protocol": "TCP", "backendPort": 80}]},
        "status": {"conditions": primary.map(|_| [shared])},
    })
}

/// The warnings of a request that is allowed.
async fn allowed(reviews: &Reviews, review: &[u8]) -> Vec<String> {
    let answer = reviews.review(Task::Validation, review).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let response = &body(&answer)["response"];
    assert_eq!(response["allowed"], true, "{response}");
    let warnings = response["warnings"].as_array().cloned().unwrap_or_default();
    warnings
        .iter()
        .map(|w| w.as_str().unwrap().to_owned())
        .collect()
}

fn deletion(name: &str) -> Vec<u8> {
    let review = review("LoadBalancer", "DELETE", &lb(name, None));
    let mut review: Value = serde_json::from_slice(&review).unwrap();
    let object = review["request"]["object"].take();
    review["request"]["oldObject"] = object;
    review.to_string().into_bytes()
}

#[tokio::test]
async fn shr_1_shr_9_the_load_balancers_of_the_namespace_are_read_for_a_warning() {
    let server = FakeApiServer::default();
    let items = [lb("web", None), lb("api", Some("web"))];
    server.put(LBS, json!({"metadata": {}, "items": items}));
    let reviews = reviews_of(server.client());
    let creation = |primary| review("LoadBalancer", "CREATE", &lb("db", primary));
    let warnings = allowed(&reviews, &creation(Some("web"))).await;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("TCP 8080, which load balancer web has"),
        "{warnings:?}"
    );
    let wanted = ["LoadBalancer shop/web: those that share its address keep it: api"];
    assert_eq!(allowed(&reviews, &deletion("web")).await, wanted);
    assert_eq!(server.reads(), [LBS, LBS]);
    assert!(allowed(&reviews, &deletion("api")).await.is_empty());
    server.reads();
    // One that shares no address reads nothing.
    assert!(allowed(&reviews, &creation(None)).await.is_empty());
    assert!(server.reads().is_empty());
}

#[tokio::test(start_paused = true)]
async fn shr_1_shr_9_without_the_list_everything_is_allowed_and_nothing_is_warned_about() {
    let silent = fake::client(|_| std::future::pending());
    let refusing =
        |code, reason| fake::client(move |_| std::future::ready(fake::failure(code, reason)));
    for client in [
        refusing(403, "Forbidden"),
        refusing(404, "NotFound"),
        refusing(500, "InternalError"),
        silent,
    ] {
        let reviews = reviews_of(client);
        let creation = review("LoadBalancer", "CREATE", &lb("db", Some("web")));
        for request in [creation, deletion("web")] {
            assert!(allowed(&reviews, &request).await.is_empty());
        }
    }
}

#[tokio::test]
async fn what_is_no_review_is_answered_with_400() {
    let reviews = reviews();
    for task in [Task::Validation, Task::Mutation, Task::Conversion] {
        for text in [
            "",
            "{}",
            "[]",
            "null",
            "{\"kind\":\"AdmissionReview\"}",
            "\u{0}",
        ] {
            let answer = reviews.review(task, text.as_bytes()).await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{task:?} {text:?}");
        }
    }
    let count = |kind| {
        let result = Outcome::Invalid.as_label();
        let families = reviews.metrics.registry().gather();
        let family = families
            .iter()
            .find(|f| f.name() == "harvester_lb_admission_requests_total")
            .unwrap();
        family
            .get_metric()
            .iter()
            .filter(|m| {
                let has = |value: &str| m.get_label().iter().any(|l| l.value() == value);
                has(kind) && has(result)
            })
            .map(|m| m.get_counter().get_value())
            .sum::<f64>()
    };
    assert!((count("other") - 12.0).abs() < f64::EPSILON);
    assert!(count("IPPool").abs() < f64::EPSILON);
}

#[tokio::test]
async fn cnv_1_a_conversion_waits_for_its_lists() {
    let reviews = reviews();
    let review = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {
            "uid": "9", "desiredAPIVersion": "loadbalancer.harvesterhci.io/v1beta1",
            "objects": [{
                "apiVersion": "loadbalancer.harvesterhci.io/v1alpha1", "kind": "LoadBalancer",
                "metadata": {"name": "a", "namespace": "web"},
                "spec": {"ipam": "pool", "backendServers": ["10.10.1.7"]},
            }],
        },
    });
    let review = review.to_string().into_bytes();
    let answer = reviews.review(Task::Conversion, &review).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    list_pools(&reviews.facts, &[]);
    list_allocations(&reviews.facts, &[]);
    list_instances(&reviews.facts, &[]);
    let answer = reviews.review(Task::Conversion, &review).await;
    assert_eq!(answer.status, StatusCode::OK);
    let object = &body(&answer)["response"]["convertedObjects"][0];
    assert_eq!(object["apiVersion"], "loadbalancer.harvesterhci.io/v1beta1");
}

#[test]
fn section_1_the_paths() {
    assert_eq!(Task::of("/v1/webhook/validation"), Some(Task::Validation));
    assert_eq!(Task::of("/v1/webhook/mutation"), Some(Task::Mutation));
    assert_eq!(Task::of("/v1/webhook/conversion"), Some(Task::Conversion));
    for path in [
        "/",
        "/v1/webhook",
        "/v1/webhook/validation/",
        "/metrics",
        "",
    ] {
        assert_eq!(Task::of(path), None, "{path}");
    }
}
