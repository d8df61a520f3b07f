//! A hook that fails stops an uninstall, and a rollback: the release and all its objects stay. Both ways on, as docs/install.md
//! says: back, and again once the cause is removed.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_e2e::World;
use harvester_lb_e2e::read::allocated;
use harvester_lb_fixtures::{vm_spec, with};
use harvester_lb_testkit::{PodRunner, PodRunnerOptions};
use serde_json::json;

use crate::bare::bare;
use crate::helm::{
    NAMESPACE, RELEASE, copy_of_chart, deploy, deploys, documents, helm, helm_does, hooks_of, id,
};
use crate::pods::documented_selector;
use crate::release::{
    REPOSITORY, TAG, WAIT, checked, deployments, image, is_left_behind, serves, values,
};

/// Namespace, pool and load balancer.
const SERVED: &str = "chart-hooks";
/// Name of the role that the hooks lack, and of its binding.
const MISSING: &str = "list-pools";

pub async fn chart_stops_at_a_hook_that_fails(world: Arc<World>) -> anyhow::Result<()> {
    bare(&world).await?;
    let runner = PodRunner::start(&world.cluster, PodRunnerOptions::default()).await?;
    runner.add_image(&format!("{REPOSITORY}:{TAG}"), image(&world)?);
    let done = stops(&world).await;
    runner.stop().await;
    for kind in ["clusterrolebinding", "clusterrole"] {
        let args = ["delete", kind, MISSING, "--ignore-not-found"];
        world.cluster.kubectl(&args).await?;
    }
    done
}

/// A copy of the chart whose `export` may not list pools, and is not tried again.
fn export_fails(world: &World) -> anyhow::Result<PathBuf> {
    let folder = copy_of_chart(world, "export-fails")?;
    let path = folder.join("templates/hooks.yaml");
    let mut text = std::fs::read_to_string(&path)?;
    for (from, to) in [
        (
            "resources: [ippools]\n  verbs: [list, patch]",
            "resources: [ippools]\n  verbs: [patch]",
        ),
        ("\"retries\" 2", "\"retries\" 0"),
    ] {
        ensure!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    std::fs::write(&path, text)?;
    Ok(folder)
}

/// What `export_fails` took away.
async fn grant(world: &World) -> anyhow::Result<()> {
    let pools = "--resource=ippools.loadbalancer.harvesterhci.io";
    let role = ["create", "clusterrole", MISSING, "--verb=list", pools];
    world.cluster.kubectl(&role).await?;
    let role = format!("--clusterrole={MISSING}");
    let account = format!("--serviceaccount={NAMESPACE}:harvester-lb-hooks");
    let binding = ["create", "clusterrolebinding", MISSING, &role, &account];
    world.cluster.kubectl(&binding).await.map(drop)
}

/// Runs a command that a Job stops. It names the Job and the cause, and nothing is gone: not an object of the release, nor the
/// webhook's registration, nor what is served. The operator alone is stopped.
async fn is_stopped(
    world: &World,
    args: &[&str],
    job: &str,
    address: Ipv4Addr,
) -> anyhow::Result<()> {
    let said = helm(world, args).await?;
    ensure!(!said.success, "helm {} went on: {said:?}", args.join(" "));
    for part in [&*format!("job {job} failed"), "IPPool cannot be listed"] {
        ensure!(said.error.contains(part), "{part}: {said:?}");
    }
    let manifest = helm_does(world, &["get", "manifest", RELEASE]).await?;
    let all = documents(&manifest)?;
    ensure!(all.len() > 20, "{} objects", all.len());
    for object in &all {
        let text = |field: &'static str| object[field].as_str().context(field);
        let metadata = &object["metadata"];
        let name = metadata["name"].as_str().context("no name")?;
        let namespace = metadata["namespace"].as_str();
        let found = world
            .cluster
            .get(text("apiVersion")?, text("kind")?, namespace, name)
            .await?;
        ensure!(found.is_some(), "{} is gone", id(object));
    }
    let operator = deployments(world).get("harvester-lb-operator").await?;
    let replicas = operator.spec.and_then(|spec| spec.replicas);
    ensure!(replicas == Some(0), "{replicas:?} operators");
    checked(world).await?;
    let lb = world.lbs(SERVED).get(SERVED).await?;
    ensure!(allocated(&lb) == Some(address.to_string()), "{lb:?}");
    world.services(SERVED).get(SERVED).await?;
    // The permissions of the hooks are gone with them.
    let roles = ["get", "clusterroles", "-o=name"];
    let roles = world.cluster.kubectl(&roles).await?;
    ensure!(!roles.contains("-hooks"), "{roles}");
    Ok(())
}

async fn stops(world: &World) -> anyhow::Result<()> {
    let ns = SERVED;
    let chart = export_fails(world)?;
    let one = values(json!({"replicaCount": 1, "webhook": {"replicasCount": 1}}));
    deploys(world, "install", &chart, &one, &WAIT).await?;
    serves(world, 1).await?;
    world.namespace(ns).await?;
    let lan = json!({
        "subnet": "192.168.100.0/24", "gateway": "192.168.100.1",
        "rangeStart": "192.168.100.204", "rangeEnd": "192.168.100.205",
    });
    world.pool_for(ns, ns, &[lan]).await?;
    let spec = with(vm_spec(ns), json!({ "ipPool": ns }));
    world.lb(ns, ns, spec).await?;
    let lb = world.lb_reason(ns, ns, "NoBackend").await?;
    let address: Ipv4Addr = allocated(&lb).context("no address")?.parse()?;

    let uninstall = ["uninstall", RELEASE, WAIT[0], WAIT[1]];
    let job = "harvester-lb-pre-delete-export";
    is_stopped(world, &uninstall, job, address).await?;
    // Back. For Helm the release is being uninstalled, so it does not upgrade it.
    let said = deploy(world, "upgrade", &chart, &one, &[]).await?;
    let is_refused = !said.success && said.error.contains("no deployed releases");
    ensure!(is_refused, "{said:?}");
    let back = ["rollback", RELEASE, "1", WAIT[0], WAIT[1]];
    let job_of_rollback = "harvester-lb-pre-rollback-export";
    is_stopped(world, &back, job_of_rollback, address).await?;
    helm_does(world, &[&back[..], &["--no-hooks"]].concat()).await?;
    serves(world, 1).await?;
    // Again.
    is_stopped(world, &uninstall, job, address).await?;
    grant(world).await?;
    let said = hooks_of(world, &uninstall).await?;
    ensure!(said.contains("maps written"), "{said}");
    // The Job that failed last stays, for whoever looks for the cause. As docs/install.md deletes it.
    let all = ["get", "jobs", "-o=name", "-n", NAMESPACE];
    let left = world.cluster.kubectl(&all).await?;
    ensure!(left.contains(job_of_rollback), "{left}");
    let selector = format!("--selector={}", documented_selector()?);
    let args = ["delete", "jobs", &selector, "-n", NAMESPACE];
    world.cluster.kubectl(&args).await?;
    is_left_behind(world, (ns, ns), address).await
}
