//! CRDs that are missing, or so lax that undecodable objects are stored.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_api::Phase;
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::quiet::reset;
use harvester_lb_e2e::read::ready;
use harvester_lb_e2e::world::{SOON, repository};
use harvester_lb_e2e::{Test, World, tests};
use harvester_lb_fixtures::{manual_release, subnet};
use harvester_lb_testkit::{consistently, eventually};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::support::{RuleHelpers, cluster, vm};

/// Both tests.
pub fn all() -> Vec<Test> {
    tests![start_without_definitions, invalid_object_others_are_served]
}

/// Number of requests of the operator.
async fn reconciles(world: &World) -> anyhow::Result<f64> {
    let figures = MetricsSnapshot::read(world, "node1").await?;
    Ok(figures.sum("harvester_lb_api_requests_total", |_| true))
}

const KINDS: [&str; 3] = ["loadbalancers", "ippools", "ipallocations"];

async fn remove_definitions(world: &World) -> anyhow::Result<()> {
    let api = world
        .cluster
        .api("apiextensions.k8s.io/v1", "CustomResourceDefinition", None)
        .await?;
    for kind in KINDS {
        let name = format!("{kind}.loadbalancer.harvesterhci.io");
        if api.get_opt(&name).await?.is_some() {
            api.delete(&name, &DeleteParams::default()).await?;
            world.gone(&api, &name).await?;
        }
    }
    Ok(())
}

async fn start_without_definitions(world: Arc<World>) -> anyhow::Result<()> {
    reset(&world).await?;
    remove_definitions(&world).await?;
    let operator = world.spawn_operator("node1", &[], &[])?;
    let readyz = eventually("not ready, and it says why", SOON, || async {
        let (code, body) = world.get("node1", "/readyz").await?;
        ensure!(code != 200, "ready without definitions");
        let all = KINDS
            .iter()
            .all(|k| body.contains(&format!("{k}.loadbalancer.harvesterhci.io")));
        ensure!(all, "{body}");
        Ok(Some(body))
    })
    .await?;
    ensure!(readyz.contains("CustomResourceDefinition"), "{readyz}");
    ensure!(world.get("node1", "/healthz").await?.0 == 200);
    let log = operator.log();
    for kind in KINDS {
        ensure!(
            log.contains(&format!("{kind}.loadbalancer.harvesterhci.io")),
            "{kind}: {log}"
        );
    }
    // It waits, retries, and continues when they are created.
    let before = reconciles(&world).await?;
    eventually("more looks", SOON, || async {
        Ok((reconciles(&world).await? > 3.0 * before).then_some(()))
    })
    .await?;
    ensure!(operator.is_running());
    world
        .cluster
        .apply_crds(repository().join("crds/crds.yaml"))
        .await?;
    eventually("ready", SOON, || async {
        let (code, body) = world.get("node1", "/readyz").await?;
        ensure!(code == 200, "{body}");
        Ok(Some(()))
    })
    .await?;
    let ns = "started";
    world.namespace(ns).await?;
    world.ranges("started", &[subnet("10.1.0.0/24")]).await?;
    world.served(ns, "lb", "started").await?;
    // Reported once for each kind, not at each attempt.
    let log = operator.log();
    let told = log.matches("required kind or permission missing").count();
    ensure!(told == KINDS.len(), "told {told} times");
    operator.end().await
}

fn object(kind: &str, namespace: Option<&str>, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": kind,
        "metadata": {"namespace": namespace, "name": name}, "spec": spec,
    })
}

async fn invalid_object_others_are_served(world: Arc<World>) -> anyhow::Result<()> {
    reset(&world).await?;
    world.remove_crd_validation().await?;
    let ns = "lax";
    world.namespace(ns).await?;
    let lb = |name: &str, spec: &Value| object("LoadBalancer", Some(ns), name, spec);
    eventually("anything can be stored", SOON, || async {
        world
            .cluster
            .apply(&lb("early", &json!({"listeners": 7})))
            .await?;
        Ok(Some(()))
    })
    .await?;
    // Some exist before the operator starts, some are created later.
    world
        .cluster
        .apply(&object(
            "IPPool",
            None,
            "lax-bad",
            &json!({"ranges": "10.2.0.0/24"}),
        ))
        .await?;
    world
        .cluster
        .apply(&object(
            "IPPool",
            None,
            "lax",
            &json!({"ranges": [{"subnet": "10.3.0.0/24"}]}),
        ))
        .await?;
    world
        .cluster
        .apply(&object(
            "IPAllocation",
            None,
            "10.3.0.2",
            &json!({"address": 7}),
        ))
        .await?;
    world
        .cluster
        .apply(&object(
            "IPAllocation",
            None,
            "no-address-at-all",
            &json!("nothing"),
        ))
        .await?;
    let operator = world.start_operator("node1").await?;
    let api = world
        .cluster
        .api(
            "loadbalancer.harvesterhci.io/v1beta1",
            "LoadBalancer",
            Some(ns),
        )
        .await?;
    let refused = async |name: &str, field: &str| {
        eventually(&format!("{name} is refused"), SOON, || async {
            let lb = api.get(name).await?;
            let condition = lb.data["status"]["conditions"][0].clone();
            ensure!(condition["reason"] == "InvalidObject", "{}", lb.data);
            ensure!(condition["status"] == "False" && condition["type"] == "Ready");
            let message = condition["message"].as_str().context("no message")?;
            ensure!(
                message.contains(&format!("lax/{name}")) && message.contains(field),
                "{message}"
            );
            Ok(Some(()))
        })
        .await?;
        world.event(ns, "LoadBalancer", name, "InvalidObject").await
    };
    refused("early", "`7`").await?;
    for (name, spec, text) in [
        ("kind", json!({"workloadType": "pod"}), "pod"),
        (
            "port",
            json!({"listeners": [{"port": "http", "backendPort": 1}]}),
            "http",
        ),
        ("number", json!({"ipPool": 5}), "5"),
        (
            "selector",
            json!({"backendServerSelector": ["app"]}),
            "lax/selector",
        ),
        ("no-spec", json!(null), "lax/no-spec"),
    ] {
        world.cluster.apply(&lb(name, &spec)).await?;
        refused(name, text).await?;
    }
    // Others are served, without the unreadable IPAllocation's address.
    assert_eq!(world.served(ns, "good", "lax").await?, "10.3.0.3");
    world.lb(ns, "of-bad", cluster("lax-bad")).await?;
    let waits = world.lb_reason(ns, "of-bad", "PoolInvalid").await?;
    let (_, _, message) = ready(&waits).unwrap();
    ensure!(
        message.contains("pool lax-bad: cannot be decoded"),
        "{message}"
    );
    // Its selector is unknown: LoadBalancers that find no pool are told its name.
    world
        .lb(ns, "of-any", json!({"workloadType": "cluster"}))
        .await?;
    let waits = world.lb_reason(ns, "of-any", "NoMatchedPool").await?;
    let (_, _, message) = ready(&waits).unwrap();
    ensure!(
        message.contains("pool lax-bad: cannot be decoded"),
        "{message}"
    );
    world.delete_lb(ns, "of-any").await?;
    let pools = world
        .cluster
        .api("loadbalancer.harvesterhci.io/v1beta1", "IPPool", None)
        .await?;
    eventually("the pool says that it cannot be read", SOON, || async {
        let pool = pools.get("lax-bad").await?;
        let condition = &pool.data["status"]["conditions"][0];
        ensure!(condition["reason"] == "InvalidObject", "{}", pool.data);
        Ok(Some(()))
    })
    .await?;
    world
        .event("default", "IPPool", "lax-bad", "InvalidObject")
        .await?;

    // A LoadBalancer that works and then becomes undecodable keeps everything.
    let address = world.announced(ns, "web", vm("lax", "app")).await?;
    world.lb_reason(ns, "web", "NoBackend").await?;
    let broken = json!({"spec": {"listeners": "none"}});
    world.merge(&api, "web", broken).await?;
    refused("web", "none").await?;
    consistently(
        "nothing is taken from it",
        Duration::from_secs(1),
        || async {
            world.services(ns).get("web").await?;
            let held = world.records().get(&address).await?;
            ensure!(held.spec.phase == Phase::Bound, "{:?}", held.spec.phase);
            Ok(())
        },
    )
    .await?;
    // It exists, so its address is not released by hand (6.4).
    let asked = manual_release(&address, &format!("{ns}/web"));
    world.merge(&world.pools(), "lax", asked).await?;
    world.manual_release_done("lax").await?;
    let held = world.records().get(&address).await?;
    assert_eq!(held.spec.phase, Phase::Bound);

    // Corrected, it is like any other.
    world
        .merge(&api, "web", json!({"spec": vm("lax", "app")}))
        .await?;
    world.lb_reason(ns, "web", "NoBackend").await?;
    world
        .merge(
            &api,
            "early",
            json!({"spec": {"listeners": null, "workloadType": "cluster", "ipPool": "lax"}}),
        )
        .await?;
    world.lb_address(ns, "early").await?;
    let ranges = json!({"spec": {"ranges": [{"subnet": "10.2.0.0/24"}]}});
    world.merge(&pools, "lax-bad", ranges).await?;
    assert_eq!(world.lb_address(ns, "of-bad").await?, "10.2.0.2");
    // Deleted while it is undecodable: no objects are left.
    let broken = json!({"spec": {"listeners": "none"}});
    world.merge(&api, "web", broken).await?;
    refused("web", "none").await?;
    api.delete("web", &DeleteParams::default()).await?;
    eventually("its address is free", SOON, || async {
        let record = world.records().get(&address).await?;
        Ok((record.spec.phase == Phase::Released).then_some(()))
    })
    .await?;
    world.gone(&world.services(ns), "web").await?;
    // An unreadable IPAllocation is deleted: the address is allocated again.
    let records = world
        .cluster
        .api("loadbalancer.harvesterhci.io/v1beta1", "IPAllocation", None)
        .await?;
    records.delete("10.3.0.2", &DeleteParams::default()).await?;
    let full = json!({"spec": {"ranges": [{"subnet": "10.3.0.0/24", "rangeStart": "10.3.0.2", "rangeEnd": "10.3.0.2"}]}});
    world.merge(&pools, "lax", full).await?;
    // The operator hears of a pool and of a LoadBalancer by watches of their own.
    world
        .pool_until("lax", "one address", |pool| {
            pool.status.as_ref().is_some_and(|it| it.total == 1)
        })
        .await?;
    assert_eq!(world.served(ns, "last", "lax").await?, "10.3.0.2");
    // After a restart all of it is as before.
    operator.end().await?;
    let operator = world.start_operator("node1").await?;
    refused("port", "http").await?;
    assert_eq!(world.lb_address(ns, "good").await?, "10.3.0.3");
    operator.end().await?;
    reset(&world).await
}
