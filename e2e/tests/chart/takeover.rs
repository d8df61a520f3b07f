//! The two ways onto a Harvester cluster, over what the Go operator has left, under traffic, and back: a release of its own beside
//! Harvester's, and its image inside Harvester's (docs/harvester.md).

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_e2e::World;
use harvester_lb_e2e::world::repository;
use harvester_lb_testkit::{PodRunner, PodRunnerOptions, Traffic, eventually};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::crds::{LOAD_BALANCERS, OWN, define, definition, owner};
use crate::harvester::{LeftBehind, OPERATOR, leave, release};
use crate::helm::{NAMESPACE, RELEASE, bare, chart, deploys, documents, helm_does, hooks_of};
use crate::release::{
    REPOSITORY, SOON, TAG, WAIT, checked, image, is_left_behind, leader, none_failed, serves,
    values,
};

/// The permissions that Harvester's release lacks.
const ADDITIONS: [&str; 2] = ["rbac-release-account.yaml", "rbac-release-webhook.yaml"];
/// Longest time until the operator leads: it cannot read what is stored as v1alpha1 before the webhook converts it.
const LEADS: Duration = Duration::from_mins(2);
/// Timeout of a command in a Pod.
const LIMIT: Duration = Duration::from_mins(1);
/// A process that cannot prove to be the successor of the leader waits for its Lease, 15 s; less what a test may miss of it.
const LEAST_WAIT: Duration = Duration::from_secs(10);

async fn runner(world: &World) -> anyhow::Result<PodRunner> {
    let runner = PodRunner::start(&world.cluster, PodRunnerOptions::default()).await?;
    runner.add_image(&format!("{REPOSITORY}:{TAG}"), image(world)?);
    Ok(runner)
}

fn requests(world: &World, left: &LeftBehind) -> Traffic {
    Traffic::start(&world.cluster, left.vip, 80, Duration::from_millis(50))
}

pub async fn ops_2_takeover_beside_harvester_s_release(world: Arc<World>) -> anyhow::Result<()> {
    bare(&world).await?;
    let left = leave(&world, "beside", 210).await?;
    let harvester = release("rancher/harvester-load-balancer:v1.7.0", 0);
    for object in &harvester {
        world.cluster.apply(object).await?;
    }
    let runner = runner(&world).await?;
    let done = beside(&world, &left).await;
    runner.stop().await;
    removed(&world, &harvester).await?;
    done
}

async fn beside(world: &World, left: &LeftBehind) -> anyhow::Result<()> {
    let own = values(json!({"crds": {"manage": "own"}}));
    let before = definition(world, LOAD_BALANCERS).await?;
    let traffic = requests(world, left);
    // Ours, back, and ours again.
    for number in 0..2 {
        deploys(world, "install", &chart(), &own, &WAIT).await?;
        serves(world, 2).await?;
        left.is_taken_over(world, number).await?;
        let test = ["test", RELEASE, "--logs", "--timeout=2m"];
        let said = helm_does(world, &test).await?;
        ensure!(said.contains("Succeeded"), "{said}");
        let args = ["uninstall", RELEASE, WAIT[0], WAIT[1]];
        let said = hooks_of(world, &args).await?;
        ensure!(said.contains("maps written"), "{said}");
        is_left_behind(world, (left.ns, &left.web), left.vip).await?;
    }
    let after = definition(world, LOAD_BALANCERS).await?;
    ensure!(owner(&after) == Some("harvester"), "{after:#}");
    ensure!(
        before["spec"]["versions"] == after["spec"]["versions"],
        "Harvester's definition was changed"
    );
    none_failed(traffic).await
}

pub async fn ops_2_takeover_inside_harvester_s_release(world: Arc<World>) -> anyhow::Result<()> {
    bare(&world).await?;
    let left = leave(&world, "inside", 220).await?;
    let of = |replicas| release(&format!("{REPOSITORY}:{TAG}"), replicas);
    let runner = runner(&world).await?;
    let done = inside(&world, &left, &runner, of).await;
    runner.stop().await;
    removed(&world, &of(0)).await?;
    removed(&world, &additions()?).await?;
    done
}

fn additions() -> anyhow::Result<Vec<Value>> {
    let mut all = Vec::new();
    for file in ADDITIONS {
        let path = repository().join("docs/examples").join(file);
        all.extend(documents(&std::fs::read_to_string(path)?)?);
    }
    Ok(all)
}

async fn inside(
    world: &World,
    left: &LeftBehind,
    runner: &PodRunner,
    of: impl Fn(u8) -> Vec<Value>,
) -> anyhow::Result<()> {
    let traffic = requests(world, left);
    for object in &additions()? {
        world.cluster.apply(object).await?;
    }
    let text = std::fs::read_to_string(repository().join("crds/crds.yaml"))?;
    let mut own = documents(&text)?;
    own.retain(|definition| definition["metadata"]["name"] == OWN);
    define(world, &own).await?;
    for object in &of(1) {
        world.cluster.apply(object).await?;
    }
    let identity = leads(world, "").await?;
    checked(world).await?;
    left.is_taken_over(world, 0).await?;

    // Its identity is the host's name and a random number: no successor can prove to be one.
    let (pod, number) = identity.split_once('_').context("no number")?;
    let uid = world
        .cluster
        .kubectl(&[
            "get",
            "pod",
            pod,
            "-n",
            NAMESPACE,
            "-o=jsonpath={.metadata.uid}",
        ])
        .await?;
    ensure!(!number.is_empty() && number != uid, "{identity}");
    let killed = Instant::now();
    runner.kill9(NAMESPACE, pod, OPERATOR)?;
    let next = leads(world, &identity).await?;
    let waited = killed.elapsed();
    ensure!(next.starts_with(pod), "{next} follows {identity}");
    ensure!(waited > LEAST_WAIT, "the Lease was taken after {waited:?}");
    left.is_taken_over(world, 1).await?;

    // No hooks: the maps are completed by hand.
    let export = ["harvester-load-balancer", "export"];
    let (code, said) = runner
        .exec(NAMESPACE, pod, OPERATOR, &export, LIMIT)
        .await?;
    ensure!(code == 0 && said.contains("maps written"), "{code}: {said}");
    for object in &of(0) {
        world.cluster.apply(object).await?;
    }
    eventually("the Lease is free", SOON, || async {
        Ok(leader(world).await?.is_empty().then_some(()))
    })
    .await?;
    let pool = world.pools().get(left.ns).await?;
    let status = serde_json::to_value(pool.status)?;
    let entry = &status["allocated"][left.vip.to_string()];
    ensure!(*entry == format!("{}/{}", left.ns, left.web), "{status:#}");
    none_failed(traffic).await
}

/// Waits until the operator of Harvester's release leads, under another identity than this one.
async fn leads(world: &World, before: &str) -> anyhow::Result<String> {
    eventually("Harvester's Deployment leads", LEADS, || async {
        let holder = leader(world).await?;
        ensure!(
            holder.starts_with("harvester-load-balancer-") && holder != before,
            "leader: {holder:?}"
        );
        Ok(Some(holder))
    })
    .await
}

async fn removed(world: &World, objects: &[Value]) -> anyhow::Result<()> {
    for object in objects {
        let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        let namespace = metadata["namespace"].as_str();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        world
            .cluster
            .delete(&version, &kind, namespace, &text(&metadata["name"]))
            .await?;
    }
    Ok(())
}
