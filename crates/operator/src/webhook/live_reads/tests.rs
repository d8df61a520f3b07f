use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::fake::{self, Answer};

#[tokio::test]
async fn wm_5_only_names_of_objects_become_part_of_a_path() {
    let long = "a".repeat(64);
    let objects = [("shop", "v20"), ("shop", "a.b-c.d9"), ("shop", &*long)];
    let none = [
        ("../x", "v20"),
        (&*long, "v20"),
        ("shop", "../x"),
        ("shop", "a?x=y"),
        ("shop", ""),
    ];
    for (is_read, names) in [(true, &objects[..]), (false, &none[..])] {
        for (namespace, name) in names {
            let sent = Arc::new(AtomicUsize::new(0));
            let requests = Arc::clone(&sent);
            let client = fake::client(move |_| {
                requests.fetch_add(1, Ordering::Relaxed);
                std::future::ready((
                    404,
                    json!({"kind": "Status", "code": 404, "reason": "NotFound"}),
                ))
            });
            let (reads, mut live) = (LiveReads::new(client), Live::default());
            let id = ((*namespace).to_owned(), (*name).to_owned());
            let fact = Fact::NetworkAttachmentDefinition(id.0.clone(), id.1.clone());
            assert!(reads.read(&fact, &mut live).await);
            assert!(matches!(live.networks[&id], Lookup::NotFound), "{id:?}");
            assert_eq!(sent.load(Ordering::Relaxed), usize::from(is_read), "{id:?}");
        }
    }
}

/// A list of load balancers.
fn list_of(items: &[Value], further: &str) -> Answer {
    let list = json!({
        "apiVersion": harvester_lb_api::API_VERSION, "kind": "LoadBalancerList",
        "metadata": {"resourceVersion": "7", "continue": further}, "items": items,
    });
    (200, list)
}

/// What is known after a live read of the load balancers of the namespace shop, and its requests.
async fn read(answer: Answer) -> (Lookup<Neighbours>, Vec<String>) {
    let (sent, answer) = (
        Arc::new(parking_lot::Mutex::new(Vec::new())),
        Arc::new(answer),
    );
    let requests = Arc::clone(&sent);
    let client = fake::client(move |request| {
        let text = format!("{} {}?{}", request.method, request.path, request.query);
        requests.lock().push(text);
        std::future::ready((answer.0, answer.1.clone()))
    });
    let (reads, mut live) = (LiveReads::new(client), Live::default());
    let fact = Fact::LoadBalancers("shop".to_owned());
    assert!(reads.read(&fact, &mut live).await);
    // Once for a decision.
    assert!(!reads.read(&fact, &mut live).await);
    let found = live.neighbours.remove("shop").unwrap();
    let sent = std::mem::take(&mut *sent.lock());
    (found, sent)
}

/// What is known: each load balancer, and whether the list is complete. Of one that cannot be decoded the name is known.
fn told(found: &Lookup<Neighbours>) -> String {
    format!("{found:?}")
}

#[tokio::test]
async fn shr_1_the_load_balancers_of_a_namespace_are_read_by_one_request() {
    let named = |name: &str, spec: Value| json!({"metadata": {"name": name, "namespace": "shop"}, "spec": spec});
    let items = [
        named("web", json!({"workloadType": "cluster"})),
        named("odd", json!({"workloadType": 7})),
    ];
    let path =
        "GET /apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/shop/loadbalancers?limit=500";
    for (further, is_complete) in [("", true), ("token", false)] {
        let (found, sent) = read(list_of(&items, further)).await;
        assert_eq!(sent, [path]);
        let told = told(&found);
        for part in [
            "Invalid(ObjectMeta",
            "\"odd\"",
            "Valid(",
            "\"web\"",
            &format!("is_complete: {is_complete}"),
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
}

#[tokio::test]
async fn shr_1_a_list_that_fails_is_not_known() {
    let large = json!({"metadata": {"name": "x".repeat(LIST_BYTES)}});
    for (answer, why) in [
        (fake::failure(403, "Forbidden"), "403 Forbidden"),
        (fake::failure(500, "InternalError"), "500 Internal"),
        ((200, json!("no list")), "API server unavailable: "),
        ((200, json!({"metadata": {}})), "missing field `items`"),
        (list_of(&[large], ""), "length limit exceeded"),
    ] {
        let (found, _) = read(answer).await;
        let Lookup::Failed(error) = found else {
            panic!("{}", told(&found))
        };
        assert!(error.contains(why), "{why}: {error}");
    }
    // No path is made of what is no name.
    let reads = LiveReads::new(fake::client(|request| async move { panic!("{request:?}") }));
    let mut live = Live::default();
    let odd = Fact::LoadBalancers("../x".to_owned());
    assert!(reads.read(&odd, &mut live).await);
    assert!(matches!(live.neighbours["../x"], Lookup::NotFound));
}

#[tokio::test(start_paused = true)]
async fn shr_9_a_list_is_read_for_less_time_than_the_api_server_waits() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let reads = Arc::new(LiveReads::new(fake::client(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        std::future::pending()
    })));
    let start = Instant::now();
    let all = (0..10).map(|_| {
        let reads = Arc::clone(&reads);
        tokio::spawn(async move {
            let mut live = Live::default();
            let fact = Fact::LoadBalancers("shop".to_owned());
            reads.read(&fact, &mut live).await;
            matches!(live.neighbours["shop"], Lookup::Failed(_))
        })
    });
    for read in all.collect::<Vec<_>>() {
        assert!(read.await.unwrap());
    }
    assert_eq!(start.elapsed(), LIMIT);
    assert_eq!(asked.load(Ordering::Relaxed), LISTS_AT_A_TIME);
}
