//! Rollback: the address maps at shutdown, the `export` command, and a swap back and forth (POOL-3, OPS-2).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_api::{LoadBalancer, keys};
use harvester_lb_e2e::World;
use harvester_lb_e2e::audit::audit;
use harvester_lb_e2e::check::passes;
use harvester_lb_e2e::go;
use harvester_lb_e2e::quiet::{audited, lines};
use harvester_lb_e2e::read::{allocated, condition, ready};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::stage::{cluster, forge, holds, set, start};

/// The holder of the Lease.
pub async fn holder(world: &World) -> anyhow::Result<String> {
    let api: Api<Lease> = Api::namespaced(world.client(), keys::LEASE_NAMESPACE);
    let lease = api.get(keys::LEASE_NAME).await?;
    Ok(lease
        .spec
        .and_then(|s| s.holder_identity)
        .unwrap_or_default())
}

pub async fn pool_3_the_maps_are_written_before_the_lease_is_given_up(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let ns = "flush";
    set(&world, ns).await?;
    go::pool(&world, ns, "10.73.0.0/24", json!(null)).await?;
    let operator = start(&world).await?;
    for n in 0..60 {
        cluster(&world, ns, &format!("l{n}")).await?;
    }
    for n in 0..60 {
        world.lb_address(ns, &format!("l{n}")).await?;
    }
    // During releases that the maps do not show yet.
    for n in 0..20 {
        world.delete_lb(ns, &format!("l{n}")).await?;
    }
    operator.end().await?;
    let released = holder(&world).await?;
    ensure!(released.is_empty(), "the Lease is {released}'s");
    // Some of the deleted may still be held, which the maps then show too.
    let mut report = audit(&world).await?;
    report.findings.retain(|finding| finding.rule != "REL-2");
    ensure!(report.findings.is_empty(), "{:#?}", lines(&report));
    let operator = start(&world).await?;
    audited(&world, "node1", &[ns]).await?;
    operator.end().await
}

/// Runs `harvester-load-balancer export`.
async fn export(world: &World) -> anyhow::Result<()> {
    ensure!(exports(world, &[]).await?, "export has failed");
    Ok(())
}

/// Runs `harvester-load-balancer export` with flags. Returns whether it succeeds.
pub async fn exports(world: &World, flags: &[&str]) -> anyhow::Result<bool> {
    let kubeconfig = world.cluster.kubeconfig("admin")?;
    let kubeconfig = kubeconfig.to_str().context("no text")?;
    let env = [("KUBECONFIG", kubeconfig)];
    let args = [&["export"][..], flags].concat();
    let export = world
        .cluster
        .spawn("node1", world.binary(), &args, &env, "export")?;
    Ok(export.wait(Duration::from_secs(30)).await?.success())
}

pub async fn pool_5_export_writes_what_it_can(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "lacking";
    set(&world, ns).await?;
    go::pool(&world, ns, "10.73.0.0/29", json!(null)).await?;
    let operator = start(&world).await?;
    cluster(&world, ns, "lb").await?;
    let ip = world.lb_address(ns, "lb").await?;
    operator.end().await?;
    // It is the record of another address by what it says.
    forge(&world, "10.73.0.6", ns, "Bound", (ns, "x", "x")).await?;
    let other = json!({"spec": {"address": "10.73.0.5"}});
    world.merge(&world.records(), "10.73.0.6", other).await?;
    let behind = json!({"status": {"total": 9, "available": 9, "allocated": null}});
    for flags in [&[][..], &["--allow-incomplete"]] {
        world.merge(&world.pools(), ns, behind.clone()).await?;
        let ends_well = exports(&world, flags).await?;
        ensure!(ends_well != flags.is_empty(), "{flags:?}: {ends_well}");
        let status = world.pools().get(ns).await?.status.context("no status")?;
        // Five addresses, of which one is held and one blocked.
        ensure!((status.total, status.available) == (5, 3), "{status:?}");
        let held = BTreeMap::from([(ip.clone(), format!("{ns}/lb"))]);
        ensure!(status.allocated == Some(held), "{status:?}");
    }
    let records = world.records();
    records
        .delete("10.73.0.6", &DeleteParams::default())
        .await?;
    export(&world).await
}

pub async fn ops_2_conditions_of_ours_are_removed_for_the_go_operator(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let ns = "cleared";
    set(&world, ns).await?;
    go::pool(&world, ns, "10.73.0.0/24", json!(null)).await?;
    let operator = start(&world).await?;
    cluster(&world, ns, "lb").await?;
    world.lb_address(ns, "lb").await?;
    audited(&world, "node1", &[ns]).await?;
    let told = |lb: &LoadBalancer| condition(lb, "AddressAllocated");
    let before = world.lbs(ns).get("lb").await?;
    ensure!(told(&before).is_some(), "{before:?}");
    let flags = ["--clear-conditions"];
    ensure!(!exports(&world, &flags).await?, "the operator runs");
    let now = world.lbs(ns).get("lb").await?;
    ensure!(now == before, "{now:?}");
    operator.end().await?;
    ensure!(exports(&world, &flags).await?, "nobody holds the Lease");
    let now = world.lbs(ns).get("lb").await?;
    ensure!(told(&now).is_none(), "{now:?}");
    ensure!(ready(&now) == ready(&before), "{now:?}");
    ensure!(allocated(&now) == allocated(&before), "{now:?}");
    // Our next leader does not write it for that.
    let operator = start(&world).await?;
    audited(&world, "node1", &[ns]).await?;
    let later = world.lbs(ns).get("lb").await?;
    ensure!(later == now, "{later:?}");
    operator.end().await
}

async fn addresses(world: &World, ns: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let all = world.lbs(ns).list(&ListParams::default()).await?;
    let addresses = all.iter().map(|lb| {
        let ip = allocated(lb).with_context(|| format!("{} has no address", lb.name_any()))?;
        Ok((lb.name_any(), ip))
    });
    addresses.collect()
}

/// Acts as the Go operator would, on maps and statuses alone: deletes one LoadBalancer, gives its address and a fresh
/// one to two others, and returns a third one's own address to it from the history.
async fn as_the_go_operator(world: &World, ns: &str, round: usize) -> anyhow::Result<()> {
    let pool = world.pools().get(ns).await?;
    let status = pool.status.context("no status")?;
    let mut allocated = status.allocated.unwrap_or_default();
    let mut history = status.allocated_history.unwrap_or_default();
    let of = |map: &BTreeMap<String, String>, name: &str| {
        let id = format!("{ns}/{name}");
        map.iter().find(|(_, v)| **v == id).map(|(k, _)| k.clone())
    };
    let gone = format!("goes{round}");
    let freed = of(&allocated, &gone).context("not allocated")?;
    world.delete_lb(ns, &gone).await?;
    allocated.remove(&freed);
    let heir = format!("heir{round}");
    allocated.insert(freed.clone(), format!("{ns}/{heir}"));
    go::cluster(world, ns, &heir, Some(&freed)).await?;

    // Deleted, in the history, and recreated with a new uid.
    let back = format!("back{round}");
    let kept = of(&allocated, &back).context("not allocated")?;
    world.delete_lb(ns, &back).await?;
    go::cluster(world, ns, &back, Some(&kept)).await?;

    // Deleted for good.
    let left = format!("left{round}");
    let released = of(&allocated, &left).context("not allocated")?;
    world.delete_lb(ns, &left).await?;
    allocated.remove(&released);
    history.insert(released, format!("{ns}/{left}"));

    let fresh = format!("10.73.0.20{round}");
    allocated.insert(fresh.clone(), format!("{ns}/fresh{round}"));
    history.remove(&fresh);
    go::cluster(world, ns, &format!("fresh{round}"), Some(&fresh)).await?;
    let status = json!({
        "total": 253, "available": 253 - allocated.len(), "lastAllocated": fresh,
        "allocated": allocated, "allocatedHistory": history, "conditions": status.conditions,
    });
    let mut patch = vec![json!({"op": "add", "path": "/status", "value": status})];
    if round > 0 {
        // An update by a client that knows the annotation keeps it, another may not.
        patch.push(json!({"op": "remove", "path": "/metadata/annotations"}));
    }
    let patch = serde_json::from_value(json!(patch))?;
    world
        .pools()
        .patch(ns, &PatchParams::default(), &Patch::<()>::Json(patch))
        .await?;
    Ok(())
}

/// Gives the Lease up as the Go operator does when it ends.
async fn as_the_go_operator_ends(world: &World) -> anyhow::Result<()> {
    let leases: Api<Lease> = Api::namespaced(world.client(), keys::LEASE_NAMESPACE);
    let free = json!({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}});
    world.merge(&leases, keys::LEASE_NAME, free).await?;
    Ok(())
}

pub async fn ops_2_swap_back_and_forth(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "forth";
    set(&world, ns).await?;
    go::pool(&world, ns, "10.73.0.0/24", json!(null)).await?;
    let names =
        |round: usize| ["goes", "back", "left", "stays"].map(|name| format!("{name}{round}"));
    for round in 0..2 {
        let operator = start(&world).await?;
        for name in names(round) {
            cluster(&world, ns, &name).await?;
        }
        for name in names(round) {
            world.lb_address(ns, &name).await?;
        }
        let found = audited(&world, "node1", &[ns]).await?;
        passes(&world).await?;
        // Killed, so that it cannot write the maps by itself: they are stale, and the command writes them.
        operator.kill9()?;
        let behind = json!({"status": {"allocated": null, "allocatedHistory": null}});
        world.merge(&world.pools(), ns, behind).await?;
        export(&world).await?;
        let after = audit(&world).await?;
        ensure!(after.findings.is_empty(), "{:#?}", lines(&after));
        ensure!(after.bound == found.bound, "{found:?} {after:?}");
        passes(&world).await?;

        as_the_go_operator(&world, ns, round).await?;
        as_the_go_operator_ends(&world).await?;
        let checked = passes(&world).await?;
        ensure!(checked.json["imported"] == false, "{:#}", checked.json);
        let given = addresses(&world, ns).await?;
        let operator = start(&world).await?;
        for (name, ip) in &given {
            holds(&world, ns, name, ip).await?;
        }
        audited(&world, "node1", &[ns]).await?;
        let checked = passes(&world).await?;
        ensure!(checked.json["imported"] == true, "{:#}", checked.json);
        operator.end().await?;
    }
    Ok(())
}
