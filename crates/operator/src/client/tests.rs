use super::*;

use std::sync::{Arc, OnceLock};

use harvester_lb_controller_kit::watch;
use harvester_lb_fixtures::{cluster_spec, load_balancer, stored};
use http::Method;
use kube::runtime::watcher::Event;
use serde_json::json;

use crate::context::Context;
use crate::fake;
use crate::timings::Timings;

/// The watch of load balancers lists again, and there is none.
fn list_nothing(ctx: &Context) {
    let lbs = &ctx.index.stores.lbs;
    for event in [Event::Init, Event::InitDone] {
        let _ =
            watch::deliver::<LoadBalancer, _>(event, lbs, &|d| Some(Lb::from_watch(d)), &|_, _| {});
    }
}

/// The object is written, then deleted, then a list is made, and only then the answer to the write arrives.
#[tokio::test]
async fn run_3_a_write_that_is_answered_after_a_list_brings_no_deleted_object_back() {
    let ctx: Arc<OnceLock<Context>> = Arc::default();
    let listing = Arc::clone(&ctx);
    let object = |version| {
        let lb = load_balancer("n", "a", "u-a", &cluster_spec());
        stored(lb, "u-a", version)
    };
    let client = fake::client(move |request| {
        let answer = if request.method == Method::GET {
            fake::failure(404, "NotFound")
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
    let version = written.unwrap().metadata.resource_version;
    assert_eq!(version.as_deref(), Some("7"));
    assert!(ctx.index.stores.lbs.get(&key).is_none());
}
