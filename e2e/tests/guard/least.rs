//! The operator does all its work with exactly the permissions that it requires, and needs each of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_api::{Phase, keys};
use harvester_lb_e2e::World;
use harvester_lb_e2e::fake_kube_vip::FakeKubeVip;
use harvester_lb_e2e::permissions::{self, User};
use harvester_lb_e2e::requests::{self, Request};
use harvester_lb_e2e::world::SOON;
use harvester_lb_fixtures::{cluster_spec, manual_release, of_guest, removed_node, vm_spec, with};
use harvester_lb_testkit::eventually;
use harvester_lb_testkit::proxy::{Fault, Frequency, Match, Proxy, Refusal, Verb};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use crate::stage::{LOUD, Operator, furnish};

const NS: &str = "least";

pub async fn section_1_the_rights_are_those_that_are_used(world: Arc<World>) -> anyhow::Result<()> {
    let all = permissions::all()?;
    let user = User::create(&world, "least", &all).await?;
    furnish(&world, NS, "10.91.0.0/24").await?;
    left_by_the_go_operator(&world).await?;
    left_by_kube_vip(&world).await?;
    let secret: Secret = serde_json::from_value(
        json!({"metadata": {"name": "a"}, "stringData": {"password": "correct horse"}}),
    )?;
    Api::<Secret>::namespaced(world.client(), NS)
        .create(&PostParams::default(), &secret)
        .await?;
    let fake_kube_vip = FakeKubeVip::start(&world.client());

    let proxy = Proxy::start(&world.cluster).await?;
    let kubeconfig = proxy.kubeconfig_via(user.kubeconfig.as_ref())?;
    let kubeconfig = kubeconfig.to_str().context("the path is no text")?;
    let operator = Operator::spawn(&world, kubeconfig, 9001, &[], LOUD)?;
    operator.becomes_leader().await?;
    whole_life(&world).await.context("a whole life")?;
    guest_removal(&world).await.context("guest removal")?;
    finalizers_are_gone(&world).await?;
    release_by_hand(&world).await.context("release by hand")?;
    history(&world).await.context("history")?;
    world
        .lb(
            NS,
            "lost",
            with(cluster_spec(), json!({"ipPool": "missing"})),
        )
        .await?;
    world.lb_reason(NS, "lost", "PoolNotFound").await?;
    world
        .event(NS, "LoadBalancer", "lost", "PoolNotFound")
        .await?;
    conflicts(&world, &user, &proxy)
        .await
        .context("conflicts")?;
    operator.stop().await?;
    drop(fake_kube_vip);
    export(&world, &user).await.context("export")?;

    let seen = requests::of(&world, &user.name)?;
    let refused: Vec<&Request> = seen
        .iter()
        .filter(|r| r.code == 403 || r.code == 401)
        .collect();
    ensure!(refused.is_empty(), "refused: {refused:#?}");
    let unused: Vec<String> = permissions::unused(&all, &seen)
        .into_iter()
        .map(ToString::to_string)
        .collect();
    ensure!(unused.is_empty(), "rights that nothing needs: {unused:#?}");
    let secrets: Vec<&Request> = seen.iter().filter(|r| r.resource == "secrets").collect();
    ensure!(secrets.is_empty(), "{secrets:#?}");
    let kinds: BTreeSet<&str> = seen.iter().map(|r| &*r.resource).collect();
    eprintln!(
        "{} requests, all allowed, about {kinds:?}; each of {} rights was used",
        seen.len(),
        all.len()
    );
    Ok(())
}

/// Finalizers of the Go operator on all kinds that may have them.
async fn left_by_the_go_operator(world: &World) -> anyhow::Result<()> {
    for (kind, finalizer) in [
        ("VirtualMachineInstance", keys::LEGACY_VM_FINALIZERS[0]),
        ("VirtualMachine", keys::LEGACY_VM_FINALIZERS[1]),
    ] {
        world
            .cluster
            .apply(&json!({
                "apiVersion": "kubevirt.io/v1", "kind": kind,
                "metadata": {"name": "old", "namespace": NS, "finalizers": [finalizer]},
                "spec": {},
            }))
            .await?;
    }
    let metadata = json!({"name": "old", "namespace": NS, "finalizers": keys::LEGACY_FINALIZERS});
    world.lb_with(metadata, cluster_spec()).await?;
    let patch = json!({"metadata": {"finalizers": [keys::LEGACY_FINALIZERS[0]]}});
    world.merge(&world.pools(), NS, patch).await?;
    Ok(())
}

/// The ConfigMap of kube-vip, with a pool to migrate.
async fn left_by_kube_vip(world: &World) -> anyhow::Result<()> {
    world
        .cluster
        .apply(&json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "kube-system", "name": "kubevip"},
            "data": {"cidr-least-migrated": "10.91.9.0/24"},
        }))
        .await?;
    Ok(())
}

async fn finalizers_are_gone(world: &World) -> anyhow::Result<()> {
    for kind in ["VirtualMachineInstance", "VirtualMachine"] {
        eventually(&format!("{kind} without finalizers"), SOON, || async {
            let object = world
                .cluster
                .get("kubevirt.io/v1", kind, Some(NS), "old")
                .await?;
            let kept = object.context("it is gone")?.metadata.finalizers;
            Ok(kept.unwrap_or_default().is_empty().then_some(()))
        })
        .await?;
    }
    world
        .pool_until(NS, "no finalizers", |p| {
            p.metadata.finalizers.as_ref().is_none_or(Vec::is_empty)
        })
        .await?;
    world.delete_lb(NS, "old").await?;
    world.gone(&world.lbs(NS), "old").await
}

/// Both types from their creation through every change to their deletion.
async fn whole_life(world: &World) -> anyhow::Result<()> {
    world.lb(NS, "guest", cluster_spec()).await?;
    world.lb_reason(NS, "guest", "Ready").await?;
    let mut spec = vm_spec("web");
    spec["healthCheck"] = json!({"port": 8080, "periodSeconds": 1});
    world.lb(NS, "web", spec).await?;
    world.lb_reason(NS, "web", "BackendsUnhealthy").await?;
    let patch = json!({"spec": {"healthCheck": null}});
    world.merge(&world.lbs(NS), "web", patch).await?;
    world.lb_reason(NS, "web", "Ready").await?;
    let listeners = json!([{"name": "http", "port": 81, "protocol": "TCP", "backendPort": 8081}]);
    let patch = json!({"spec": {"listeners": listeners}});
    world.merge(&world.lbs(NS), "web", patch).await?;
    eventually("the new port", SOON, || async {
        let service = world.services(NS).get("web").await?;
        let ports = service.spec.and_then(|s| s.ports).unwrap_or_default();
        let slice = world.slices(NS).get("web").await?.ports.unwrap_or_default();
        let new = ports.iter().any(|p| p.port == 81) && slice.iter().any(|p| p.port == Some(8081));
        Ok(new.then_some(()))
    })
    .await?;
    // A pool that does not serve: the operator itself deletes both owned objects.
    let patch = json!({"spec": {"ipPool": "missing"}});
    world.merge(&world.lbs(NS), "web", patch).await?;
    world.gone(&world.services(NS), "web").await?;
    world.gone(&world.slices(NS), "web").await?;
    let patch = json!({"spec": {"ipPool": NS}});
    world.merge(&world.lbs(NS), "web", patch).await?;
    world.lb_reason(NS, "web", "Ready").await?;
    for name in ["guest", "web"] {
        let ip = world.lb_address(NS, name).await?;
        world.delete_lb(NS, name).await?;
        released(world, &ip).await?;
    }
    Ok(())
}

async fn released(world: &World, ip: &str) -> anyhow::Result<()> {
    eventually(&format!("{ip} is released"), SOON, || async {
        let phase = world.records().get(ip).await?.spec.phase;
        Ok((phase == Phase::Released).then_some(()))
    })
    .await
}

async fn guest_removal(world: &World) -> anyhow::Result<()> {
    world.cluster.apply(&removed_node(NS, "n1")).await?;
    world.lb_with(of_guest(NS, "gone"), cluster_spec()).await?;
    world
        .lb_until(NS, "gone", "marked", |lb| {
            let all = lb.metadata.annotations.as_ref();
            all.is_some_and(|a| a.contains_key(keys::ANNOTATION_GUEST_REMOVED))
        })
        .await?;
    world
        .cluster
        .delete("kubevirt.io/v1", "VirtualMachine", Some(NS), "n1")
        .await?;
    world.gone(&world.lbs(NS), "gone").await
}

async fn release_by_hand(world: &World) -> anyhow::Result<()> {
    let asked = manual_release("10.91.0.200", &format!("{NS}/nobody"));
    world.merge(&world.pools(), NS, asked).await?;
    world.manual_release_done(NS).await
}

/// Released IPAllocations outside of a pool's ranges are deleted (POOL-1).
async fn history(world: &World) -> anyhow::Result<()> {
    world.lb(NS, "brief", cluster_spec()).await?;
    let ip = world.lb_address(NS, "brief").await?;
    world.delete_lb(NS, "brief").await?;
    released(world, &ip).await?;
    let ranges = |subnet: &str| json!({"spec": {"ranges": [{"subnet": subnet}]}});
    world
        .merge(&world.pools(), NS, ranges("10.91.1.0/24"))
        .await?;
    world.gone(&world.records(), &ip).await?;
    world
        .merge(&world.pools(), NS, ranges("10.91.0.0/24"))
        .await?;
    Ok(())
}

/// A conflict is followed by a live read.
async fn conflicts(world: &World, user: &User, proxy: &Proxy) -> anyhow::Result<()> {
    world.lb(NS, "busy", vm_spec("web")).await?;
    let ip = world.lb_address(NS, "busy").await?;
    world.lb_reason(NS, "busy", "Ready").await?;
    let meets = |resource: &'static str| {
        proxy.rule(
            Match::of(Verb::Patch, resource),
            Frequency::times(1),
            Fault::Refuse(Refusal::conflict()),
        )
    };
    let resources = [
        "services",
        "endpointslices",
        "loadbalancers",
        "ippools",
        "ipallocations",
    ];
    // Reads before this do not count.
    let mut before = Vec::new();
    for resource in resources {
        before.push(reads(world, user, resource)?);
    }
    let rules = resources.map(meets);
    let listeners = json!([{"name": "http", "port": 82, "protocol": "TCP", "backendPort": 8082}]);
    let patch = json!({"spec": {"listeners": listeners}});
    world.merge(&world.lbs(NS), "busy", patch).await?;
    // No VirtualMachineInstance is selected any more, which the status shows.
    let patch = json!({"spec": {"backendServerSelector": {"app": ["nobody"]}}});
    world.merge(&world.lbs(NS), "busy", patch).await?;
    world.lb_reason(NS, "busy", "NoBackend").await?;
    world
        .lbs(NS)
        .delete("busy", &DeleteParams::default())
        .await?;
    released(world, &ip).await?;
    for ((resource, rule), before) in resources.iter().zip(&rules).zip(before) {
        eventually(&format!("a read of {resource}"), SOON, || async {
            ensure!(rule.hits() == 1, "no write of {resource}");
            Ok((reads(world, user, resource)? > before).then_some(()))
        })
        .await?;
    }
    Ok(())
}

/// Number of GETs of a resource by the user.
fn reads(world: &World, user: &User, resource: &str) -> anyhow::Result<usize> {
    let permission = permissions::one("get", resource)?;
    let seen = requests::of(world, &user.name)?;
    Ok(seen.iter().filter(|r| permission.allowed(r)).count())
}

/// The `export` subcommand, with the same permissions.
async fn export(world: &World, user: &User) -> anyhow::Result<()> {
    let env = [("KUBECONFIG", &*user.kubeconfig), ("LOGLEVEL", LOUD)];
    let process = world.cluster.spawn(
        "node1",
        world.binary(),
        &["export"],
        &env,
        "operator-export",
    )?;
    let status = process.wait(SOON).await?;
    ensure!(status.success(), "{status}: {}", process.tail());
    Ok(())
}
