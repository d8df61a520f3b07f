use super::*;

use harvester_lb_api::{IPAllocation, keys};
use harvester_lb_controller_kit::cached_client::CachedResource;
use harvester_lb_core::cached::{Allocation, Lb};
use harvester_lb_fixtures::{allocated_address, cluster_spec, load_balancer, record, stored, with};
use harvester_lb_ipam::{Ledger, Settings};
use harvester_lb_object::Version;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::controllers::load_balancer::reconcile;
use crate::controllers::takeover::{self, CatchUp};
use crate::fake::{self, FakeApiServer};
use crate::index::Index;
use crate::index::leader_state::LeaderState;
use crate::timings::Timings;

const RECORD: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/ipallocations/10.0.0.2";

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn key(name: &str) -> Key {
    Key::new("n", name)
}

/// A context with the record of 10.0.0.2, Bound to the load balancer `held`, and the API server that stores it.
fn with_record() -> (Context, FakeApiServer) {
    let server = FakeApiServer::default();
    let record = record("10.0.0.2", "p", "Bound", ("n", "held", "u-held"));
    let record = stored(record, "u-record", 3);
    server.put(RECORD, record.clone());
    let ctx = fake::context(server.client(), &Timings::default(), true);
    let record = Allocation::decoded(&object::<IPAllocation>(record));
    let name = Key::new("", "10.0.0.2");
    ctx.index
        .stores
        .allocations
        .written(&name, Version(3), record);
    (ctx, server)
}

/// Makes it the leader, with that record.
fn lead(ctx: &Context) {
    ctx.index
        .become_leader(|| LeaderState::new(Ledger::new(Settings::default())));
    let record = ctx.index.stores.allocations.get(&Key::new("", "10.0.0.2"));
    ctx.index.observe_record("10.0.0.2", &record.unwrap());
}

/// A load balancer with an annotation, and an address in its status.
fn appears(ctx: &Context, name: &str, annotation: &str, value: &str) {
    let uid = format!("u-{name}");
    let lb = with(
        load_balancer("n", name, &uid, &cluster_spec()),
        allocated_address("10.0.0.2", "p"),
    );
    let mut lb = stored(lb, &uid, 5);
    lb["metadata"]["annotations"] = json!({ annotation: value });
    let lb: LoadBalancer = object(lb);
    let lbs = &ctx.index.stores.lbs;
    let change = lbs.written(&key(name), Version(5), Lb::valid(lb));
    ctx.index.lb_changed(&key(name), &change.unwrap());
}

/// Delivers its deletion.
fn goes(ctx: &Context, name: &str) {
    let change = ctx.index.stores.lbs.forget(&key(name), Version(9));
    ctx.index.lb_changed(&key(name), &change.unwrap());
}

fn phase(server: &FakeApiServer) -> Value {
    server.get(RECORD).unwrap()["spec"]["phase"].clone()
}

#[tokio::test]
async fn ipa_9_what_one_with_an_annotation_leaves_is_released_by_who_saw_it_go_and_by_who_comes_later()
 {
    let annotations = [
        keys::ANNOTATION_PRIMARY,
        keys::ANNOTATION_DHCP_HARDWARE_ADDRESS,
    ];
    for annotation in annotations {
        let (ctx, server) = with_record();
        lead(&ctx);
        appears(&ctx, "held", annotation, "x");
        goes(&ctx, "held");
        let next = reconcile(&ctx, &key("held")).await.unwrap();
        assert_eq!(
            (phase(&server), next),
            (json!("Released"), Requeue::AwaitChange),
            "{annotation}"
        );
        assert_eq!(server.writes().len(), 1, "{annotation}");
        assert_eq!(ctx.index.deleted_lbs(), [], "{annotation}");
    }
    let (ctx, server) = with_record();
    takeover::run(&ctx, &CatchUp::default()).await.unwrap();
    let next = reconcile(&ctx, &key("held")).await.unwrap();
    assert_eq!(
        (phase(&server), next),
        (json!("Released"), Requeue::AwaitChange)
    );
}

#[tokio::test]
async fn ipa_9_what_others_share_is_released_when_the_last_of_them_goes() {
    let (ctx, server) = with_record();
    lead(&ctx);
    // Members of the group of a deleted load balancer: one owns the record, one shares its address.
    appears(&ctx, "held", keys::ANNOTATION_PRIMARY, "first");
    appears(&ctx, "member", keys::ANNOTATION_PRIMARY, "first");
    goes(&ctx, "held");
    let next = reconcile(&ctx, &key("held")).await.unwrap();
    assert_eq!((phase(&server), next), (json!("Bound"), Requeue::Resync));
    fake::due(&ctx.index);
    goes(&ctx, "member");
    let woken = fake::due(&ctx.index);
    assert!(
        woken.contains(&key("held")),
        "nobody looks again: {woken:?}"
    );
    reconcile(&ctx, &key("held")).await.unwrap();
    assert_eq!(phase(&server), "Released");
}

/// The record of the group `first` belongs to `held`, which was restored from a backup, and so has another uid; its copy is yet to come.
#[tokio::test]
async fn ipa_3_the_address_of_one_that_was_restored_is_neither_released_nor_given_to_another() {
    for has_other in [false, true] {
        let (ctx, server) = with_record();
        let mut record = server.get(RECORD).unwrap();
        record["metadata"]["annotations"] = json!({ keys::ANNOTATION_PRIMARY: "first" });
        record["metadata"]["resourceVersion"] = "4".into();
        server.put(RECORD, record.clone());
        let record = object::<IPAllocation>(record);
        let index: &Index = &ctx.index;
        IPAllocation::upsert(index, &Key::new("", "10.0.0.2"), &record);
        takeover::run(&ctx, &CatchUp::default()).await.unwrap();
        if has_other {
            appears(&ctx, "member", keys::ANNOTATION_PRIMARY, "first");
        }
        let restored = with(
            load_balancer("n", "held", "u-restored", &cluster_spec()),
            allocated_address("10.0.0.2", "p"),
        );
        let mut restored = stored(restored, "u-restored", 7);
        restored["metadata"]["annotations"] = json!({ keys::ANNOTATION_PRIMARY: "first" });
        let path = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/n/loadbalancers/held";
        server.put(path, restored);
        let next = reconcile(&ctx, &key("first")).await;
        assert!(
            matches!(next, Err(WriteError::Conflict(_))),
            "{has_other}: {next:?}"
        );
        let record = server.get(RECORD).unwrap();
        assert_eq!(
            (&record["spec"]["phase"], &record["spec"]["owner"]["name"]),
            (&json!("Bound"), &json!("held")),
            "{has_other}"
        );
    }
}
