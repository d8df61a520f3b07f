//! The two ways onto a Harvester cluster, over what the Go operator has left, under traffic, and back: a release of its own beside
//! Harvester's, with Prometheus, and its image inside Harvester's (docs/harvester.md).

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_e2e::world::repository;
use harvester_lb_e2e::{World, permissions, requests};
use harvester_lb_testkit::{PodRunner, PodRunnerOptions, Traffic, consistently, eventually};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::bare::bare;
use crate::crds::{LOAD_BALANCERS, OWN, define, definition, owner};
use crate::harvester::{LeftBehind, OPERATOR, leave, release};
use crate::helm::{NAMESPACE, RELEASE, chart, deploys, documents, helm_does, hooks_of, rendered};
use crate::monitored::prometheus;
use crate::release::{
    REPOSITORY, SOON, TAG, WAIT, checked, image, is_left_behind, leader, none_failed, serves,
    values,
};
use crate::render::monitored;

/// The permissions that Harvester's release lacks.
const ADDITIONS: [&str; 2] = ["rbac-release-account.yaml", "rbac-release-webhook.yaml"];
/// Longest time until the operator leads: it cannot read what is stored as v1alpha1 before the webhook converts it.
const LEADS: Duration = Duration::from_mins(2);
/// Timeout of a command in a Pod.
const LIMIT: Duration = Duration::from_mins(1);
/// A process that cannot prove to be the successor of the leader waits for its Lease, 15 s; less what a test may miss of it.
const LEAST_WAIT: Duration = Duration::from_secs(10);
/// For how long no alert may fire: several scrapes and evaluations.
const QUIET: Duration = Duration::from_secs(4);

async fn runner(world: &World) -> anyhow::Result<PodRunner> {
    let runner = PodRunner::start(&world.cluster, PodRunnerOptions::default()).await?;
    runner.add_image(&format!("{REPOSITORY}:{TAG}"), image(world)?);
    Ok(runner)
}

fn traffic(world: &World, left: &LeftBehind) -> Traffic {
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
    let own = values(json!({"crds": {"manage": "own"}, "monitoring": monitored()}));
    let before = definition(world, LOAD_BALANCERS).await?;
    let traffic = traffic(world, left);
    // Ours, back, and ours again.
    for number in 0..2 {
        deploys(world, "install", &chart(), &own, &WAIT).await?;
        serves(world, 2).await?;
        left.is_taken_over(world, number).await?;
        let test = ["test", RELEASE, "--logs", "--timeout=2m"];
        let said = helm_does(world, &test).await?;
        ensure!(said.contains("Succeeded"), "{said}");
        if number == 0 {
            is_monitored(world).await?;
            // Nobody but the hooks completes the map again.
            let lost = json!({"status": {"allocated": {left.vip.to_string(): null}}});
            world.merge(&world.pools(), left.ns, lost).await?;
        }
        let args = ["uninstall", RELEASE, WAIT[0], WAIT[1]];
        let said = hooks_of(world, &args).await?;
        ensure!(said.contains("maps written"), "{said}");
        is_left_behind(world, (left.ns, &left.web), left.vip).await?;
    }
    for name in ["harvester-lb-hooks", "harvester-lb-webhook-hooks"] {
        each_right_is_used(world, &own, name).await?;
    }
    let after = definition(world, LOAD_BALANCERS).await?;
    ensure!(owner(&after) == Some("harvester"), "{after:#}");
    ensure!(
        before["spec"]["versions"] == after["spec"]["versions"],
        "Harvester's definition was changed"
    );
    none_failed(traffic).await
}

/// Prometheus scrapes the release. No alert fires, and the one on a missing leader does once the operator is gone.
async fn is_monitored(world: &World) -> anyhow::Result<()> {
    let prometheus = prometheus(world, 2).await?;
    // Some of what it sees first may be from the time before everything was taken over.
    eventually("no alert fires", SOON, || async {
        let firing = prometheus.firing().await?;
        ensure!(firing.is_empty(), "{firing:?} fire");
        Ok(Some(()))
    })
    .await?;
    consistently("no alert fires", QUIET, || async {
        let firing = prometheus.firing().await?;
        ensure!(firing.is_empty(), "{firing:?} fire");
        Ok(())
    })
    .await?;
    let deployment = "deployment/harvester-lb-operator";
    let scale = ["scale", deployment, "--replicas=0", "-n", NAMESPACE];
    world.cluster.kubectl(&scale).await?;
    let none = "HarvesterLoadBalancerNoLeader";
    prometheus.fires(&[none]).await?;
    prometheus.end().await?;
    nobody_leads(world).await
}

/// Fails if the hooks of an account have a permission that no request has needed, except to read what they could not write,
/// because somebody else had: that is seldom so.
async fn each_right_is_used(world: &World, values: &Value, name: &str) -> anyhow::Result<()> {
    let objects = rendered(world, values).await?;
    let names = [name.to_owned(), format!("{name}-lease")];
    let is_theirs = |it: &&Value| names.iter().any(|name| it["metadata"]["name"] == **name);
    let granted = objects.iter().filter(is_theirs);
    let granted = permissions::of(granted);
    ensure!(granted.len() > 8, "{granted:?}");
    let user = format!("system:serviceaccount:{NAMESPACE}:{name}");
    let seen = requests::of(world, &user)?;
    let unused = permissions::unused(&granted, &seen).into_iter();
    let unused: Vec<String> = unused.map(ToString::to_string).collect();
    let after_a_conflict = "get loadbalancers.loadbalancer.harvesterhci.io";
    ensure!(
        unused.iter().all(|it| it == after_a_conflict),
        "rights of {name} that nothing needs: {unused:#?}"
    );
    Ok(())
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
    let traffic = traffic(world, left);
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
    nobody_leads(world).await?;
    let pool = world.pools().get(left.ns).await?;
    let status = serde_json::to_value(pool.status)?;
    let entry = &status["allocated"][left.vip.to_string()];
    ensure!(*entry == format!("{}/{}", left.ns, left.web), "{status:#}");
    none_failed(traffic).await
}

async fn nobody_leads(world: &World) -> anyhow::Result<()> {
    eventually("the Lease is free", SOON, || async {
        Ok(leader(world).await?.is_empty().then_some(()))
    })
    .await
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
