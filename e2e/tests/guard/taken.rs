//! Permissions that are revoked while the operator works: it reports the refusal, continues with everything else, and
//! does the pending work once the permission is granted again.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_api::{Phase, keys};
use harvester_lb_e2e::World;
use harvester_lb_e2e::fake_kube_vip::FakeKubeVip;
use harvester_lb_e2e::permissions::{self, Permission, User};
use harvester_lb_e2e::quiet::{audited, reset};
use harvester_lb_e2e::read::ready;
use harvester_lb_e2e::world::{QUICK_LEASE, SOON};
use harvester_lb_fixtures::{cluster_spec, of_guest, removed_node, vm_spec, with};
use harvester_lb_testkit::eventually;
use serde_json::json;
use tokio::time::Instant;

use crate::stage::{Operator, furnish};

const NS: &str = "taken";
/// The port that the metrics helpers expect.
const PORT: u16 = 8081;

/// Where the refusal is reported.
#[derive(Clone, Copy)]
enum ReportedIn {
    /// In the condition of the LoadBalancer `t`.
    Condition,
    /// In the log.
    Log,
    /// Only in the metrics: it is not worth a log line each time.
    MetricsSnapshot,
}

const CASES: &[(&str, &str, ReportedIn)] = &[
    ("create", "ipallocations", ReportedIn::Condition),
    ("create", "services", ReportedIn::Condition),
    ("create", "endpointslices", ReportedIn::Condition),
    ("patch", "services", ReportedIn::Condition),
    ("patch", "endpointslices", ReportedIn::Condition),
    ("patch", "loadbalancers", ReportedIn::Log),
    ("patch", "ipallocations", ReportedIn::Log),
    ("delete", "services", ReportedIn::Log),
    ("delete", "endpointslices", ReportedIn::Log),
    ("delete", "loadbalancers", ReportedIn::Log),
    ("patch", "ippools", ReportedIn::Log),
    ("patch", "virtualmachines", ReportedIn::Log),
    ("patch", "virtualmachineinstances", ReportedIn::Log),
    ("create", "events", ReportedIn::MetricsSnapshot),
];

pub async fn section_1_a_right_that_is_taken_away(world: Arc<World>) -> anyhow::Result<()> {
    reset(&world).await?;
    furnish(&world, NS, "10.93.0.0/24").await?;
    let all = permissions::all()?;
    let user = User::create(&world, "taken", &all).await?;
    let _fake_kube_vip = FakeKubeVip::start(&world.client());
    let operator = Operator::start(&world, &user, PORT, &[], "debug").await?;
    for (verb, resource, reported_in) in CASES {
        let began = Instant::now();
        one(
            &world,
            &operator,
            &user,
            &all,
            (verb, resource, *reported_in),
        )
        .await
        .with_context(|| format!("{verb} {resource}"))?;
        eprintln!(
            "{verb} {resource}: taken away, named, granted, done in {:.1?}",
            began.elapsed()
        );
    }
    audited(&world, "node1", &[NS]).await?;
    operator.stop().await
}

async fn one(
    world: &World,
    operator: &Operator,
    user: &User,
    all: &[Permission],
    (verb, resource, reported_in): (&str, &str, ReportedIn),
) -> anyhow::Result<()> {
    before(world, verb, resource).await.context("before")?;
    let taken = permissions::one(verb, resource)?;
    let rest: Vec<Permission> = all.iter().filter(|r| **r != taken).cloned().collect();
    user.may(world, &rest).await?;
    let said = operator.process.log().len();
    let dropped = dropped(operator).await?;
    owe(world, verb, resource).await.context("owed")?;
    let refused = format!("cannot {verb} resource \"{resource}\"");
    eventually(&format!("{refused} is named"), SOON, || async {
        ensure!(operator.process.is_running(), "it ended");
        match reported_in {
            ReportedIn::Condition => {
                let lb = world.lbs(NS).get("t").await?;
                let (_, reason, message) = ready(&lb).context("no condition")?;
                ensure!(
                    reason == "ApiError" && message.contains(&refused),
                    "{reason}: {message}"
                );
            }
            ReportedIn::Log => {
                let log = operator.process.log();
                let new = log.get(said..).unwrap_or_default().replace("\\\"", "\"");
                ensure!(new.contains(&refused), "{new}");
            }
            ReportedIn::MetricsSnapshot => {
                let now = self::dropped(operator).await?;
                ensure!(now > dropped, "{now} Events were dropped");
            }
        }
        Ok(Some(()))
    })
    .await?;
    let (code, _) = operator.get("/healthz").await?;
    ensure!(code == 200, "/healthz is {code}");
    user.may(world, all).await?;
    done(world, verb, resource).await.context("granted again")?;
    clear(world).await
}

/// Events that could not be written.
async fn dropped(operator: &Operator) -> anyhow::Result<u64> {
    let (_, figures) = operator.get("/metrics").await?;
    let line = figures
        .lines()
        .find_map(|l| l.strip_prefix("harvester_lb_events_dropped_total "));
    Ok(line.context("no such figure")?.trim().parse()?)
}

/// The objects that must exist before the permission is revoked.
async fn before(world: &World, verb: &str, resource: &str) -> anyhow::Result<()> {
    match (verb, resource) {
        ("patch" | "delete", "services" | "endpointslices") => {
            world.lb(NS, "t", vm_spec("web")).await?;
            world.lb_reason(NS, "t", "Ready").await?;
        }
        ("patch", "ipallocations") => {
            world.lb(NS, "t", cluster_spec()).await?;
            world.lb_reason(NS, "t", "Ready").await?;
        }
        ("patch", "ippools") => {
            // The previous one has released its address, and the next one gets the same: the status must show that
            // first.
            world
                .pool_until(NS, "nothing in its map", |pool| {
                    let status = pool.status.as_ref();
                    status.is_some_and(|s| s.allocated.as_ref().is_none_or(BTreeMap::is_empty))
                })
                .await?;
        }
        ("delete", "loadbalancers") => {
            world.cluster.apply(&removed_node(NS, "n1")).await?;
            world.lb_with(of_guest(NS, "t"), cluster_spec()).await?;
            world
                .lb_until(NS, "t", "marked", |lb| {
                    let all = lb.metadata.annotations.as_ref();
                    all.is_some_and(|a| a.contains_key(keys::ANNOTATION_GUEST_REMOVED))
                })
                .await?;
        }
        _ => {}
    }
    Ok(())
}

/// Creates the work that the operator then may not do.
async fn owe(world: &World, verb: &str, resource: &str) -> anyhow::Result<()> {
    match (verb, resource) {
        ("create", "ipallocations") | ("patch", "loadbalancers" | "ippools") => {
            world.lb(NS, "t", cluster_spec()).await?;
        }
        ("create", "services" | "endpointslices") => {
            world.lb(NS, "t", vm_spec("web")).await?;
        }
        ("patch", "services" | "endpointslices") => {
            let listeners =
                json!([{"name": "http", "port": 81, "protocol": "TCP", "backendPort": 8081}]);
            let patch = json!({"spec": {"listeners": listeners}});
            world.merge(&world.lbs(NS), "t", patch).await?;
        }
        ("patch", "ipallocations") => world.delete_lb(NS, "t").await?,
        ("delete", "services" | "endpointslices") => {
            // Not by its deletion: the garbage collector would do the work.
            let patch = json!({"spec": {"ipPool": "missing"}});
            world.merge(&world.lbs(NS), "t", patch).await?;
        }
        ("delete", "loadbalancers") => {
            let machine = ("kubevirt.io/v1", "VirtualMachine");
            world
                .cluster
                .delete(machine.0, machine.1, Some(NS), "n1")
                .await?;
        }
        ("patch", "virtualmachines") => old(world, "VirtualMachine", 1).await?,
        ("patch", "virtualmachineinstances") => old(world, "VirtualMachineInstance", 0).await?,
        _ => {
            let spec = with(cluster_spec(), json!({"ipPool": "missing"}));
            world.lb(NS, "t", spec).await?;
        }
    }
    Ok(())
}

/// A VirtualMachine or VirtualMachineInstance with a finalizer of the Go operator.
async fn old(world: &World, kind: &str, which: usize) -> anyhow::Result<()> {
    world
        .cluster
        .apply(&json!({
            "apiVersion": "kubevirt.io/v1", "kind": kind,
            "metadata": {
                "name": "t", "namespace": NS, "finalizers": [keys::LEGACY_VM_FINALIZERS[which]],
            },
            "spec": {},
        }))
        .await?;
    Ok(())
}

/// Waits until the pending work is done.
async fn done(world: &World, verb: &str, resource: &str) -> anyhow::Result<()> {
    match (verb, resource) {
        ("patch", "ipallocations") => {
            eventually("all are released", SOON, || async {
                let all = world
                    .records()
                    .list(&kube::api::ListParams::default())
                    .await?;
                let held = all.iter().filter(|r| r.spec.phase == Phase::Bound).count();
                ensure!(held == 0, "{held} are held");
                Ok(Some(()))
            })
            .await
        }
        ("delete", "services" | "endpointslices") => {
            world.gone(&world.services(NS), "t").await?;
            world.gone(&world.slices(NS), "t").await
        }
        ("delete", "loadbalancers") => world.gone(&world.lbs(NS), "t").await,
        ("patch", "virtualmachines" | "virtualmachineinstances") => {
            let kind = if resource == "virtualmachines" {
                "VirtualMachine"
            } else {
                "VirtualMachineInstance"
            };
            eventually(&format!("{kind} without finalizers"), SOON, || async {
                let object = world
                    .cluster
                    .get("kubevirt.io/v1", kind, Some(NS), "t")
                    .await?;
                let kept = object.context("it is gone")?.metadata.finalizers;
                Ok(kept.unwrap_or_default().is_empty().then_some(()))
            })
            .await
        }
        ("patch", "ippools") => {
            let ip = world.lb_address(NS, "t").await?;
            world
                .pool_until(NS, "the address in its map", |pool| {
                    let status = pool.status.as_ref();
                    status
                        .and_then(|s| s.allocated.as_ref())
                        .is_some_and(|a| a.contains_key(&ip))
                })
                .await
                .map(|_| ())
        }
        ("patch", "services" | "endpointslices") => {
            eventually("the new port", SOON, || async {
                let service = world.services(NS).get("t").await?;
                let ports = service.spec.and_then(|s| s.ports).unwrap_or_default();
                let slice = world.slices(NS).get("t").await?.ports.unwrap_or_default();
                let new = ports.iter().any(|p| p.port == 81)
                    && slice.iter().any(|p| p.port == Some(8081));
                Ok(new.then_some(()))
            })
            .await
        }
        ("create", "events") => world.lb_reason(NS, "t", "PoolNotFound").await.map(|_| ()),
        _ => world.lb_reason(NS, "t", "Ready").await.map(|_| ()),
    }
}

/// Deletes all objects, for the next permission.
async fn clear(world: &World) -> anyhow::Result<()> {
    if world.lbs(NS).get_opt("t").await?.is_some() {
        world.delete_lb(NS, "t").await?;
        world.gone(&world.lbs(NS), "t").await?;
    }
    world.gone(&world.services(NS), "t").await?;
    world.gone(&world.slices(NS), "t").await?;
    for kind in ["VirtualMachine", "VirtualMachineInstance"] {
        world
            .cluster
            .delete("kubevirt.io/v1", kind, Some(NS), "t")
            .await?;
    }
    Ok(())
}

pub async fn section_1_the_right_to_the_lease_is_taken_away(
    world: Arc<World>,
) -> anyhow::Result<()> {
    reset(&world).await?;
    let ns = "taken-lease";
    furnish(&world, ns, "10.94.0.0/24").await?;
    let all = permissions::all()?;
    let user = User::create(&world, "taken-lease", &all).await?;
    let operator = Operator::start(&world, &user, PORT, &QUICK_LEASE, "debug").await?;
    let taken = permissions::one("update", "leases")?;
    let rest: Vec<Permission> = all.iter().filter(|r| **r != taken).cloned().collect();
    user.may(&world, &rest).await?;
    // It must not work without its Lease.
    operator.says("leadership lost").await?;
    operator.says("cannot update resource").await?;
    let (code, _) = operator.get("/readyz").await?;
    ensure!(code == 200, "/readyz of one that stands by: {code}");
    world.lb(ns, "t", cluster_spec()).await?;
    user.may(&world, &all).await?;
    operator.becomes_leader().await?;
    world.lb_reason(ns, "t", "Ready").await?;
    operator.stop().await
}
