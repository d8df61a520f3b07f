//! Conditions and Events (section 9).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_e2e::read::ready;
use harvester_lb_e2e::waits::next_second;
use harvester_lb_e2e::world::SOON;
use harvester_lb_e2e::{Test, World};
use harvester_lb_fixtures::subnet;
use harvester_lb_testkit::{consistently, eventually};
use k8s_openapi::api::events::v1::Event;
use serde_json::{Value, json};

use super::support::{RuleHelpers, vm};

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![
        section_9_api_errors,
        section_9_events_once_for_each_change,
        section_9_times_change_with_the_condition,
        ops_5_columns_show_what_is_stored,
    ]
}

pub(crate) async fn section_9_the_reasons_in_their_order(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("reasons", "reasons");
    world.namespace(ns).await?;
    let says = async |reason: &str, texts: &[&str]| {
        let lb = world.lb_reason(ns, "web", reason).await?;
        let (status, _, message) = ready(&lb).unwrap();
        assert_eq!(status, if reason == "Ready" { "True" } else { "False" });
        for text in texts {
            assert!(message.contains(text), "{reason}: {message}");
        }
        if reason == "Ready" {
            assert_eq!(message, "");
        }
        anyhow::Ok(())
    };
    let mut spec = vm(pool, "web");
    spec["healthCheck"] = json!({"port": 8080, "periodSeconds": 600});
    world.lb(ns, "web", spec).await?;
    says("PoolNotFound", &["pool reasons", "does not exist"]).await?;
    world.ranges(pool, &[subnet("10.61.0.2/32")]).await?;
    // NoBackend has priority over a missing external address.
    says(
        "WaitingForExternalIP",
        &["waiting for kube-vip to announce 10.61.0.2"],
    )
    .await?;
    world
        .ingress(ns, "web", json!([{"ip": "10.61.0.2"}]))
        .await?;
    says(
        "NoBackend",
        &["namespace reasons", "spec.backendServerSelector"],
    )
    .await?;
    world.fake_vmi(ns, "v", json!({"app": "web"}), None).await?;
    says("BackendsWithoutIP", &["none of the 1 ", "guest agent"]).await?;
    let address = json!({"status": {"interfaces": [{"name": "n", "ipAddress": "10.161.0.1"}]}});
    world.merge(&world.vmis(ns), "v", address).await?;
    says("BackendsUnhealthy", &[" 1 backends", "port 8080"]).await?;
    world
        .merge(
            &world.lbs(ns),
            "web",
            json!({"spec": {"healthCheck": null}}),
        )
        .await?;
    says("Ready", &[]).await?;
    world
        .merge(&world.lbs(ns), "web", json!({"spec": {"listeners": []}}))
        .await?;
    says(
        "InvalidListener",
        &["reasons/web", "spec.listeners is empty"],
    )
    .await?;
    Ok(())
}

async fn section_9_api_errors(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("api-errors", "api-errors");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.62.0.0/24")]).await?;
    // Names that are valid for a LoadBalancer and not for a Service.
    let long = "l".repeat(253);
    let upper = json!([{"name": "HTTP_1", "port": 80, "protocol": "TCP", "backendPort": 8080}]);
    let endless =
        json!([{"name": "x".repeat(300), "port": 80, "protocol": "TCP", "backendPort": 8080}]);
    let nameless = json!([
        {"port": 80, "protocol": "TCP", "backendPort": 8080},
        {"name": "two", "port": 81, "protocol": "TCP", "backendPort": 8081},
    ]);
    let cases = [
        (&*long, None, "llll"),
        ("with.dots", None, "with.dots"),
        ("listener-name", Some(upper), "HTTP_1"),
        ("listener-long", Some(endless), "xxxx"),
        ("listener-none", Some(nameless), "name"),
    ];
    for (name, listeners, text) in cases {
        let mut spec = vm(pool, "web");
        if let Some(listeners) = listeners {
            spec["listeners"] = listeners;
        }
        world.lb(ns, name, spec).await?;
        let lb = world.lb_reason(ns, name, "ApiError").await?;
        let (_, _, message) = ready(&lb).unwrap();
        assert!(
            message.contains(&format!("api-errors/{name}")) && message.contains(text),
            "{name}: {message}"
        );
        assert!(message.len() <= 1024, "{}", message.len());
        world.event(ns, "LoadBalancer", name, "ApiError").await?;
    }
    // Corrected.
    let good = json!({"spec": {"listeners": [{"name": "http", "port": 80, "protocol": "TCP", "backendPort": 80}]}});
    world.merge(&world.lbs(ns), "listener-name", good).await?;
    world
        .lb_reason(ns, "listener-name", "WaitingForExternalIP")
        .await?;
    // Deleted: no objects are left.
    for name in [&*long, "with.dots", "listener-long", "listener-none"] {
        world.delete_lb(ns, name).await?;
    }
    world
        .pool_until(pool, "one address is held", |p| {
            p.status.as_ref().is_some_and(|s| s.available == 252)
        })
        .await?;
    // No other object is affected, and a name of 253 characters is valid where no Service is needed.
    let mut spec = vm(pool, "web");
    spec["workloadType"] = json!("cluster");
    world.lb(ns, &"c".repeat(253), spec).await?;
    world.lb_reason(ns, &"c".repeat(253), "Ready").await?;
    Ok(())
}

async fn section_9_events_once_for_each_change(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("events", "events");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.63.0.0/24")]).await?;
    world
        .fake_vmi(ns, "v", json!({"app": "web"}), Some("10.163.0.1"))
        .await?;
    // The first Ready causes no Event, the address does.
    world.announced(ns, "web", vm(pool, "web")).await?;
    world.lb_reason(ns, "web", "Ready").await?;
    let allocated = "AddressAllocated: 10.63.0.2 of pool events";
    world.event(ns, "LoadBalancer", "web", allocated).await?;
    let events = world.events(ns, "LoadBalancer", "web").await?;
    assert_eq!(events, [allocated]);
    let vmis = world.vmis(ns);
    let counted = async |wanted: [usize; 2]| {
        let all = world.events(ns, "LoadBalancer", "web").await?;
        let of = |reason: &str| all.iter().filter(|e| e.starts_with(reason)).count();
        let now = [of("NoBackend: "), of("Ready: ")];
        ensure!(
            now == wanted && of(allocated) == 1 && all.len() == wanted[0] + wanted[1] + 1,
            "{all:?}"
        );
        Ok(())
    };
    let count = async |wanted: [usize; 2]| {
        let what = format!("{wanted:?} Events");
        eventually(&what, SOON, || async { counted(wanted).await.map(Some) }).await
    };
    for round in 1..=2 {
        let gone = json!({"metadata": {"labels": {"app": "other"}}});
        world.merge(&vmis, "v", gone).await?;
        world.lb_reason(ns, "web", "NoBackend").await?;
        count([round, round - 1]).await?;
        // Further changes within the same state cause none.
        for n in 0..3 {
            let listeners =
                json!([{"name": "http", "port": 80 + n, "protocol": "TCP", "backendPort": 8080}]);
            world
                .merge(
                    &world.lbs(ns),
                    "web",
                    json!({"spec": {"listeners": listeners}}),
                )
                .await?;
        }
        consistently("no further Event", Duration::from_secs(1), || {
            counted([round, round - 1])
        })
        .await?;
        world
            .merge(&vmis, "v", json!({"metadata": {"labels": {"app": "web"}}}))
            .await?;
        world.lb_reason(ns, "web", "Ready").await?;
        count([round, round]).await?;
    }
    // The fields of the Events.
    let api: kube::Api<Event> = kube::Api::namespaced(world.client(), ns);
    let all = api.list(&kube::api::ListParams::default()).await?;
    let uid = world.read(ns, "web").await?.metadata.uid;
    // Kubernetes' own controllers write about the Service.
    let is_about_lb = |event: &&Event| {
        let regarding = event.regarding.as_ref();
        regarding.is_some_and(|it| it.kind.as_deref() == Some("LoadBalancer"))
    };
    let ours: Vec<_> = all.iter().filter(is_about_lb).collect();
    assert_eq!(ours.len(), 5);
    for event in ours {
        let regarding = event.regarding.as_ref().unwrap();
        assert_eq!(regarding.uid, uid);
        assert_eq!(
            regarding.api_version.as_deref(),
            Some("loadbalancer.harvesterhci.io/v1beta1")
        );
        let reason = event.reason.as_deref();
        let trouble = !matches!(reason, Some("Ready" | "AddressAllocated"));
        let type_ = if trouble { "Warning" } else { "Normal" };
        assert_eq!(event.type_.as_deref(), Some(type_));
        assert_eq!(
            event.reporting_controller.as_deref(),
            Some("harvester-load-balancer")
        );
    }
    Ok(())
}

async fn section_9_times_change_with_the_condition(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("times", "times");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.64.0.0/24")]).await?;
    world.announced(ns, "web", vm(pool, "web")).await?;
    let times = async |reason: &str| {
        let lb = world.lb_reason(ns, "web", reason).await?;
        let condition = lb.status.unwrap().conditions.unwrap().remove(0);
        let parse = |t: Option<String>| -> jiff::Timestamp { t.unwrap().parse().unwrap() };
        let updated = condition.last_update_time.clone().unwrap();
        assert!(updated.ends_with('Z'), "{updated}");
        anyhow::Ok((
            parse(condition.last_update_time),
            parse(condition.last_transition_time),
        ))
    };
    let first = times("NoBackend").await?;
    next_second().await;
    // Another message with the same status: updated, no transition.
    world.fake_vmi(ns, "v", json!({"app": "web"}), None).await?;
    let second = times("BackendsWithoutIP").await?;
    assert!(second.0 > first.0, "{second:?} after {first:?}");
    assert_eq!(second.1, first.1);
    next_second().await;
    let address = json!({"status": {"interfaces": [{"name": "n", "ipAddress": "10.164.0.1"}]}});
    world.merge(&world.vmis(ns), "v", address).await?;
    let third = times("Ready").await?;
    assert!(
        third.0 > second.0 && third.1 > second.1,
        "{third:?} after {second:?}"
    );
    Ok(())
}

/// The table of `kubectl get` for one object, by column; with `wide`, all columns.
async fn row(world: &World, path: &str, wide: bool) -> anyhow::Result<BTreeMap<String, Value>> {
    let request = http::Request::get(path)
        .header(
            "Accept",
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        )
        .body(Vec::new())?;
    let table: Value = world.client().request(request).await?;
    let columns = table["columnDefinitions"]
        .as_array()
        .context("no columns")?;
    let cells = table["rows"][0]["cells"].as_array().context("no cells")?;
    ensure!(
        columns.last().is_some_and(|c| c["name"] == "AGE"),
        "{columns:?}"
    );
    let shown = columns
        .iter()
        .zip(cells)
        .filter(|(column, _)| wide || column["priority"] == 0);
    Ok(shown
        .map(|(column, cell)| (column["name"].as_str().unwrap().to_owned(), cell.clone()))
        .collect())
}

async fn ops_5_columns_show_what_is_stored(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("columns", "columns");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.69.0.0/29")]).await?;
    let address = world.served(ns, "guest", pool).await?;
    world.lb_reason(ns, "guest", "Ready").await?;
    world
        .pool_until(pool, "4 of 5 available", |p| {
            p.status.as_ref().is_some_and(|s| s.available == 4)
        })
        .await?;
    let group = "/apis/loadbalancer.harvesterhci.io/v1beta1";
    let lb = format!("{group}/namespaces/{ns}/loadbalancers/guest");
    let lb_row = row(&world, &lb, false).await?;
    ensure!(lb_row["ADDRESS"] == *address && lb_row["READY"] == "True");
    ensure!(
        !lb_row.contains_key("POOL") && !lb_row.contains_key("REASON"),
        "only wide output shows them: {lb_row:?}"
    );
    let lb_row = row(&world, &lb, true).await?;
    ensure!(lb_row["POOL"] == pool && lb_row["REASON"] == "Ready");
    let pool_row = row(&world, &format!("{group}/ippools/{pool}"), false).await?;
    ensure!(
        pool_row["TOTAL"] == 5 && pool_row["AVAILABLE"] == 4 && pool_row["READY"] == "True",
        "{pool_row:?}"
    );
    let record = row(&world, &format!("{group}/ipallocations/{address}"), false).await?;
    ensure!(
        record["NAMESPACE"] == ns && record["OWNER"] == "guest" && record["PHASE"] == "Bound",
        "{record:?}"
    );
    Ok(())
}
