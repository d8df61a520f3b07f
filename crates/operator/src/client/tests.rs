use super::*;

use std::sync::{Arc, OnceLock};

use harvester_lb_api::meta;
use harvester_lb_controller_kit::watch;
use harvester_lb_fixtures::{cluster_spec, load_balancer, record, stored};
use http::Method;
use kube::runtime::watcher::Event;
use serde_json::json;

use crate::context::Context;
use crate::fake::{self, FakeApiServer};
use crate::index::leader_state::LeaderState;
use crate::timings::Timings;

/// The watch of load balancers lists again, and there is none.
fn list_nothing(ctx: &Context) {
    let lbs = &ctx.index.stores.lbs;
    for event in [Event::Init, Event::InitDone] {
        let _ =
            watch::deliver::<LoadBalancer, _>(event, lbs, &|d| Some(Lb::from_watch(d)), &|_, _| {});
    }
}

/// The object is written, then deleted, then a list is made, and only then the answer to the write arrives. No watch tells of the
/// deletion, so the caller has to learn of it.
#[tokio::test]
async fn run_3_a_write_that_is_answered_after_a_list_brings_no_deleted_object_back() {
    let written = write_answered_after_a_list(404, "NotFound").await;
    assert!(
        matches!(written, Err(WriteError::Conflict(_))),
        "{written:?}"
    );
    // What has become of it is not known.
    for (status, reason) in [(500, "InternalError"), (403, "Forbidden")] {
        let written = write_answered_after_a_list(status, reason).await;
        assert!(
            matches!(written, Err(WriteError::Unavailable(_))),
            "{written:?}"
        );
    }
}

/// The answer to the write, after which the live read fails for this reason.
async fn write_answered_after_a_list(
    status: u16,
    reason: &'static str,
) -> Result<LoadBalancer, WriteError> {
    let ctx: Arc<OnceLock<Context>> = Arc::default();
    let listing = Arc::clone(&ctx);
    let object = |version| {
        let lb = load_balancer("n", "a", "u-a", &cluster_spec());
        stored(lb, "u-a", version)
    };
    let client = fake::client(move |request| {
        let answer = if request.method == Method::GET {
            fake::failure(status, reason)
        } else {
            list_nothing(listing.get().unwrap());
            (200, object(7))
        };
        std::future::ready(answer)
    });
    let ctx = ctx.get_or_init(|| fake::context(client, &Timings::default(), true));
    let key = Key::new("n", "a");
    let copy: LoadBalancer = serde_json::from_value(object(5)).unwrap();
    let known = Lb::valid(copy.clone());
    ctx.index.stores.lbs.written(&key, Version(5), known);
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    let written = ctx
        .client
        .patch::<LoadBalancer>(&key, &copy.metadata, patch)
        .await;
    assert!(ctx.index.stores.lbs.get(&key).is_none());
    written
}

/// What a watch that is behind lacks, has in an older version, or has although it is gone; of the others nothing is read.
#[tokio::test]
async fn ipa_3_a_term_begins_with_the_load_balancers_of_now() {
    const PATH: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/n/loadbalancers";
    let server = FakeApiServer::default();
    let ctx = fake::context(server.client(), &Timings::default(), true);
    let lbs = &ctx.index.stores.lbs;
    let object = |name: &str, uid: &str, version: u64| {
        stored(load_balancer("n", name, uid, &cluster_spec()), uid, version)
    };
    let known = |name: &str, version: u64| {
        let lb = serde_json::from_value(object(name, "u-1", version)).unwrap();
        lbs.written(&Key::new("n", name), Version(version), Lb::valid(lb));
    };
    known("changed", 5);
    known("gone", 6);
    known("same", 7);
    for (name, uid, version) in [("changed", "u-2", 9), ("new", "u-1", 8), ("same", "u-1", 7)] {
        server.put(&format!("{PATH}/{name}"), object(name, uid, version));
    }
    // It is left to the watch.
    let mut undecodable = object("undecodable", "u-1", 10);
    undecodable["spec"]["listeners"] = "none".into();
    server.put(&format!("{PATH}/undecodable"), undecodable);
    ctx.client.catch_up::<LoadBalancer>().await.unwrap();
    let mut versions = Vec::new();
    lbs.for_each(|key, lb| versions.push((key.to_string(), meta::version(lb.meta()).0)));
    assert_eq!(
        versions,
        [("n/changed", 9), ("n/new", 8), ("n/same", 7)].map(|(key, it)| (key.to_owned(), it))
    );
    let mut reads = server.reads();
    reads.sort();
    let of = |name: &str| format!("{PATH}/{name}");
    let list = "/apis/loadbalancer.harvesterhci.io/v1beta1/loadbalancers".to_owned();
    assert_eq!(
        reads,
        [
            list,
            of("changed"),
            of("gone"),
            of("new"),
            of("undecodable")
        ]
    );
}

/// A live read has found an IPAllocation gone; the answer to a write before that comes later.
#[tokio::test]
async fn ipa_7_a_record_that_is_gone_is_not_brought_back_by_the_answer_to_an_earlier_write() {
    let ctx = fake::context(FakeApiServer::default().client(), &Timings::default(), true);
    let index: &Index = &ctx.index;
    index.become_leader(|| LeaderState::from_stores(&index.stores));
    let record = |version| -> IPAllocation {
        let record = record("10.0.0.2", "p", "Bound", ("n", "a", "u-a"));
        serde_json::from_value(stored(record, "u", version)).unwrap()
    };
    let key = Key::new("", "10.0.0.2");
    let addr = "10.0.0.2".parse().unwrap();
    IPAllocation::upsert(index, &key, &record(10)).unwrap();
    assert!(index.record(addr).is_some());
    IPAllocation::remove(index, &key, Version(10));
    assert!(IPAllocation::upsert(index, &key, &record(12)).is_none());
    assert!(index.record(addr).is_none());
}
