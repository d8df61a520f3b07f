use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use harvester_lb_core::cached::{Allocation, Pool};
use harvester_lb_fixtures::{record, stored, subnet};
use harvester_lb_object::Version;
use http::Method;
use serde_json::Value;
use tokio::sync::Notify;

use super::*;
use crate::fake::{self, FakeApiServer, failure};
use crate::timings::Timings;

const CONFIG: &str = "/api/v1/namespaces/kube-system/configmaps/kubevip";
const ALL: &str = "/api/v1/configmaps";
const POOLS: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/ippools";
const RECORDS: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/ipallocations";

fn config_map(namespace: &str, data: Value) -> Value {
    let meta = json!({"namespace": namespace, "name": "kubevip"});
    let mut object = stored(json!({"metadata": meta}), "u-config", 5);
    object["data"] = data;
    object
}

fn services(all: &[(&str, &str)]) -> Value {
    let services = all.iter();
    let services: Vec<Value> = services
        .map(|(vip, name)| json!({"vip": vip, "serviceName": name}))
        .collect();
    json!({"kubevip-services": json!({"services": services}).to_string()})
}

/// The worked example of section 7.
fn example() -> FakeApiServer {
    let server = FakeApiServer::default();
    let ranges = json!({"cidr-shop": "10.10.7.0/24", "range-global": "10.10.8.10-10.10.8.30"});
    let config = config_map("kube-system", ranges);
    server.put(CONFIG, config.clone());
    let shop = services(&[("10.10.7.9", "web"), ("0.0.0.0", "dh")]);
    let data = services(&[("10.10.8.12", "db"), ("10.10.9.9", "x")]);
    let items = [config, config_map("shop", shop), config_map("data", data)];
    server.put(
        ALL,
        json!({"metadata": {"resourceVersion": "9"}, "items": items}),
    );
    server
}

/// A process that starts: its stores hold what the API server has.
fn process(server: &FakeApiServer, client: kube::Client) -> Context {
    let ctx = fake::context(client, &Timings::default(), true);
    let stores = &ctx.index.stores;
    for (path, object) in server.objects_below(POOLS) {
        let pool: IPPool = serde_json::from_value(object).unwrap();
        let key = Key::new("", path.rsplit('/').next().unwrap());
        stores.pools.written(&key, Version(100), Pool::valid(pool));
    }
    for (path, object) in server.objects_below(RECORDS) {
        let record = serde_json::from_value(object).unwrap();
        let key = Key::new("", path.rsplit('/').next().unwrap());
        let record = Allocation::decoded(&record);
        stores.allocations.written(&key, Version(100), record);
    }
    ctx
}

/// Everything that the migration writes, without times.
fn written(server: &FakeApiServer) -> Vec<(String, Value)> {
    let all = [POOLS, RECORDS].into_iter();
    let mut all: Vec<_> = all.flat_map(|path| server.objects_below(path)).collect();
    all.push((CONFIG.to_owned(), server.get(CONFIG).unwrap()));
    for (_, object) in &mut all {
        if let Some(spec) = object["spec"].as_object_mut() {
            spec.remove("releasedAt");
        }
    }
    all
}

#[tokio::test]
async fn mig_1_mig_5_the_worked_example() {
    let server = example();
    let ctx = process(&server, server.client());
    run(&ctx).await.unwrap();
    let scope = |namespace: &str| json!({"scope": [{"project": "*", "namespace": namespace, "guestCluster": "*"}]});
    let pool = |name: &str| server.get(&format!("{POOLS}/{name}")).unwrap()["spec"].clone();
    let shop = json!({"ranges": [subnet("10.10.7.0/24")], "selector": scope("shop")});
    assert_eq!(pool("shop"), shop);
    let range = json!({
        "subnet": "10.10.8.0/27", "rangeStart": "10.10.8.10", "rangeEnd": "10.10.8.30",
    });
    let global = json!({"ranges": [range], "selector": scope("*")});
    assert_eq!(pool("global"), global);
    let records: Vec<Value> = server
        .objects_below(RECORDS)
        .into_iter()
        .map(|(_, object)| object["spec"].clone())
        .collect();
    let records: Vec<[&str; 5]> = records
        .iter()
        .map(|spec| {
            let owner = &spec["owner"];
            let uid = owner["uid"].as_str().unwrap();
            assert!(uid.is_empty() && spec["boundAt"].is_null() && spec["releasedAt"].is_string());
            [
                &spec["address"],
                &spec["pool"],
                &spec["phase"],
                &owner["namespace"],
                &owner["name"],
            ]
            .map(|value| value.as_str().unwrap())
        })
        .collect();
    assert_eq!(
        records,
        [
            ["10.10.7.9", "shop", "Released", "shop", "web"],
            ["10.10.8.12", "global", "Released", "data", "db"],
        ]
    );
    let config = server.get(CONFIG).unwrap();
    let marks = &config["metadata"]["annotations"];
    assert_eq!(marks[keys::ANNOTATION_AFTER_CONVERSION], "true");
    // The leader's state is built from stores that have all of it.
    assert_eq!(
        (
            ctx.index.stores.pools.len(),
            ctx.index.stores.allocations.len()
        ),
        (2, 2)
    );
}

#[tokio::test]
async fn mig_1_once_and_one_read_where_there_is_nothing() {
    let server = FakeApiServer::default();
    run(&process(&server, server.client())).await.unwrap();
    assert_eq!(server.reads(), [CONFIG]);

    let server = example();
    run(&process(&server, server.client())).await.unwrap();
    server.reads();
    server.writes();
    run(&process(&server, server.client())).await.unwrap();
    assert_eq!(
        (server.reads(), server.writes().len()),
        (vec![CONFIG.to_owned()], 0)
    );
}

/// Killed after any of its writes, the next process ends with the same objects.
#[tokio::test]
async fn mig_4_killed_between_any_two_writes() {
    let whole = example();
    run(&process(&whole, whole.client())).await.unwrap();
    let writes = whole.writes().len();
    assert_eq!(writes, 5, "two pools, two records, the annotation");
    for lives in 0..writes {
        let server = example();
        let (dying, left) = (server.clone(), Arc::new(AtomicUsize::new(lives)));
        let death = Arc::new(Notify::new());
        let dies = Arc::clone(&death);
        let client = fake::client(move |request| {
            let is_write = request.method != Method::GET && !request.path.contains("/events");
            let is_dead = left.load(Relaxed) == 0 && is_write;
            if is_write && !is_dead {
                left.fetch_sub(1, Relaxed);
            }
            if is_dead {
                dies.notify_one();
            }
            // The process is killed: it sees no answer.
            let answer = (!is_dead).then(|| dying.answer(request));
            async move {
                match answer {
                    Some(answer) => answer,
                    None => std::future::pending().await,
                }
            }
        });
        let killed = process(&server, client);
        tokio::select! {
            biased;
            outcome = run(&killed) => panic!("not killed after {lives}: {outcome:?}"),
            () = death.notified() => {}
        }
        drop(killed);
        let before = server.writes().len();
        assert_eq!(before, lives);
        run(&process(&server, server.client())).await.unwrap();
        assert_eq!(
            written(&server),
            written(&whole),
            "killed after {lives} writes"
        );
        // What exists is not written again.
        assert_eq!(server.writes().len(), writes - lives);
    }
}

#[tokio::test]
async fn mig_1_existing_pools_and_records_are_left_alone() {
    let server = example();
    let pool = json!({"metadata": {"name": "shop"}, "spec": {"ranges": [subnet("10.10.0.0/16")]}});
    let pool = stored(pool, "u-pool", 7);
    server.put(&format!("{POOLS}/shop"), pool.clone());
    let bound = record("10.10.8.12", "other", "Bound", ("n", "a", "u"));
    let bound = stored(bound, "u-record", 8);
    server.put(&format!("{RECORDS}/10.10.8.12"), bound.clone());
    run(&process(&server, server.client())).await.unwrap();
    assert_eq!(server.get(&format!("{POOLS}/shop")), Some(pool));
    assert_eq!(server.get(&format!("{RECORDS}/10.10.8.12")), Some(bound));
    // Inside the pool as it is.
    let web = server.get(&format!("{RECORDS}/10.10.7.9")).unwrap();
    assert_eq!(web["spec"]["pool"], "shop");
}

/// The texts of the Events on the ConfigMap.
fn told(server: &FakeApiServer) -> Vec<(String, String)> {
    let events = server.events().into_iter();
    let events = events.map(|event| {
        assert_eq!(event["regarding"]["kind"], "ConfigMap");
        let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
        (text("reason"), text("note"))
    });
    events.collect()
}

#[tokio::test]
async fn mig_4_what_is_wrong_is_told_and_stops_nothing() {
    let server = example();
    let ranges = json!({"cidr-shop": "10.10.7.0/24,bogus", "cidr-": "10.0.0.0/8", "other": "x"});
    server.put(CONFIG, config_map("kube-system", ranges));
    let broken = json!({"kubevip-services": "{"});
    let items = [
        config_map("broken", broken),
        config_map("shop", services(&[("10.10.7.9", "web")])),
        json!({"metadata": {"name": "kubevip", "namespace": "odd"}, "data": 7}),
    ];
    server.put(ALL, json!({"metadata": {}, "items": items}));
    let ctx = process(&server, server.client());
    run(&ctx).await.unwrap();
    ctx.events.written().await;
    let told = told(&server);
    let reasons: Vec<&str> = told.iter().map(|(reason, _)| &**reason).collect();
    assert_eq!(
        reasons,
        [["NotMigrated"; 4].as_slice(), &["Migrated"]].concat()
    );
    for (at, said) in [
        (0, "key \"cidr-\" does not end"),
        (1, "key \"cidr-shop\": \"bogus\" is not a subnet"),
        (2, "key \"other\" begins neither"),
        (
            3,
            "ConfigMap broken/kubevip: key \"kubevip-services\" cannot be decoded",
        ),
        (4, "1 IPPools created, 1 addresses"),
    ] {
        assert!(told[at].1.contains(said), "{said}: {told:?}");
    }
    let config = server.get(CONFIG).unwrap();
    let marks = &config["metadata"]["annotations"];
    assert_eq!(marks[keys::ANNOTATION_AFTER_CONVERSION], "true");
}

#[tokio::test]
async fn mig_4_a_refused_pool_is_tried_again_by_the_next_leader() {
    let server = example();
    server.refuse(Method::POST, "/ippools");
    let ctx = process(&server, server.client());
    run(&ctx).await.unwrap();
    ctx.events.written().await;
    let told = told(&server);
    assert!(
        told[0].1.starts_with("IPPool global cannot be written: "),
        "{told:?}"
    );
    let last = &told.last().unwrap().1;
    assert!(
        last.starts_with("2 requests refused; the next leader tries again"),
        "{told:?}"
    );
    let config = server.get(CONFIG).unwrap();
    assert!(config["metadata"]["annotations"].is_null());
    server.admit();
    run(&process(&server, server.client())).await.unwrap();
    let whole = example();
    run(&process(&whole, whole.client())).await.unwrap();
    assert_eq!(written(&server), written(&whole));
}

/// A permission was revoked: the start goes on, and the next leader migrates.
#[tokio::test]
async fn run_1_config_maps_that_may_not_be_read_do_not_stop_the_start() {
    for (path, pools) in [(CONFIG, 0), (ALL, 2)] {
        let server = example();
        let behind = server.clone();
        let client = fake::client(move |request| {
            let is_it = request.method == Method::GET && request.path == path;
            std::future::ready(if is_it {
                failure(403, "Forbidden")
            } else {
                behind.answer(request)
            })
        });
        run(&process(&server, client)).await.unwrap();
        assert_eq!(server.objects_below(POOLS).len(), pools, "{path}");
        let config = server.get(CONFIG).unwrap();
        assert!(config["metadata"]["annotations"].is_null(), "{path}");
        run(&process(&server, server.client())).await.unwrap();
        let whole = example();
        run(&process(&whole, whole.client())).await.unwrap();
        assert_eq!(written(&server), written(&whole), "{path}");
    }
}

/// A webhook that nobody serves looks like an API server that is unavailable; reads show that it is not.
#[tokio::test]
async fn mig_4_a_dead_webhook_does_not_stop_the_start() {
    for api_server_answers in [true, false] {
        let server = example();
        let many: serde_json::Map<String, Value> = (0..9)
            .map(|n| (format!("cidr-n{n}"), format!("10.{n}.0.0/24").into()))
            .collect();
        server.put(CONFIG, config_map("kube-system", Value::Object(many)));
        let (behind, creations) = (server.clone(), Arc::new(AtomicUsize::default()));
        let counted = Arc::clone(&creations);
        let client = fake::client(move |request| {
            let answer = if request.method == Method::POST && request.path == POOLS {
                counted.fetch_add(1, Relaxed);
                failure(500, "failed calling webhook")
            } else if counted.load(Relaxed) > 0 && !api_server_answers {
                failure(503, "ServiceUnavailable")
            } else {
                behind.answer(request)
            };
            std::future::ready(answer)
        });
        let outcome = run(&process(&server, client)).await;
        assert_eq!(outcome.is_ok(), api_server_answers, "{outcome:?}");
        let expected = if api_server_answers { FAILURES } else { 1 };
        assert_eq!(creations.load(Relaxed), expected);
    }
}

#[tokio::test]
async fn ipa_5_an_edit_meanwhile_is_migrated_too() {
    let server = example();
    let (edited, once) = (server.clone(), AtomicUsize::default());
    let client = fake::client(move |request| {
        // A person adds a pool before the annotation is written.
        if request.method == Method::PATCH && once.fetch_add(1, Relaxed) == 0 {
            let mut config = edited.get(CONFIG).unwrap();
            config["data"]["cidr-late"] = "10.10.9.0/24".into();
            config["metadata"]["resourceVersion"] = "6".into();
            edited.put(CONFIG, config);
            return std::future::ready(failure(409, "Conflict"));
        }
        std::future::ready(edited.answer(request))
    });
    run(&process(&server, client)).await.unwrap();
    assert!(server.get(&format!("{POOLS}/late")).is_some());
    let config = server.get(CONFIG).unwrap();
    let marks = &config["metadata"]["annotations"];
    assert_eq!(marks[keys::ANNOTATION_AFTER_CONVERSION], "true");
}

#[tokio::test]
async fn mig_1_a_process_that_is_not_leader_writes_nothing() {
    let server = example();
    let ctx = fake::context(server.client(), &Timings::default(), false);
    let outcome = run(&ctx).await;
    assert!(matches!(outcome, Err(WriteError::Fenced)), "{outcome:?}");
    assert_eq!(server.writes().len(), 0);
}
