//! Two versions during a rollout and a roll-back: processes that lead in turn, beside objects of a later version (IPA-8,
//! IPA-9). What a later version writes is written by the test; both processes are of this version, which must leave it alone
//! and must not undo what the other has done.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_api::{IPAllocation, IPPool, LoadBalancer, Phase};
use harvester_lb_e2e::World;
use harvester_lb_e2e::check::passes;
use harvester_lb_e2e::fake_kube_vip::FakeKubeVip;
use harvester_lb_e2e::history_checker::HistoryChecker;
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::quiet::{audited, quiet};
use harvester_lb_e2e::read::{allocated, ready};
use harvester_lb_e2e::world::{OURS, QUICK_LEASE, SOON, repository};
use harvester_lb_fixtures::{self as fixtures, cluster_spec, subnet, vm_spec, with};
use harvester_lb_testkit::eventually;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::back::exports;
use crate::stage::{becomes_leader, cluster, holds, pool, record_is, set, uid};

const NS: &str = "versions";
const GROUP: &str = "loadbalancer.harvesterhci.io";
const NODES: [&str; 2] = ["node1", "node2"];
/// Changes of the leader: by SIGTERM, as in a rollout, and by SIGKILL.
const TURNS: usize = 4;

/// The definition of IPAllocation of a later version: one more field, one more phase.
async fn later_definition(world: &World) -> anyhow::Result<()> {
    let group = "apiextensions.k8s.io/v1";
    let api = world.cluster.api(group, "CustomResourceDefinition", None);
    let api = api.await?;
    let name = format!("ipallocations.{GROUP}");
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let text = json!({"type": "object", "properties": {"server": {"type": "string"}}});
    let patch = json!([
        {"op": "add", "path": format!("{spec}/later"), "value": text},
        {"op": "add", "path": format!("{spec}/phase/enum/-"), "value": "Leased"},
    ]);
    let patch = Patch::<()>::Json(serde_json::from_value(patch)?);
    api.patch(&name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// This version's definition again.
async fn definition(world: &World) -> anyhow::Result<()> {
    let crds = repository().join("crds/crds.yaml");
    let text = std::fs::read_to_string(crds)?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text)?;
    let name = format!("ipallocations.{GROUP}");
    let mut documents = documents.into_iter();
    let ours = documents.find(|it| it["metadata"]["name"] == *name);
    let versions = ours.context("no definition")?["spec"]["versions"].take();
    let group = "apiextensions.k8s.io/v1";
    let api = world.cluster.api(group, "CustomResourceDefinition", None);
    let patch = Patch::Merge(json!({"spec": {"versions": versions}}));
    let params = PatchParams::default();
    api.await?.patch(&name, &params, &patch).await?;
    Ok(())
}

/// The IPAllocations with the fields that this version does not know.
async fn raw_records(world: &World) -> anyhow::Result<Api<DynamicObject>> {
    let version = format!("{GROUP}/v1beta1");
    world.cluster.api(&version, "IPAllocation", None).await
}

/// Sets a field of a later version, once its definition is in force.
async fn set_later(world: &World, address: &str) -> anyhow::Result<()> {
    let records = raw_records(world).await?;
    eventually("the field is stored", SOON, || async {
        let patch = Patch::Merge(json!({"spec": {"later": {"server": "dhcp1"}}}));
        let params = PatchParams::default();
        let stored = records.patch(address, &params, &patch).await?;
        Ok(stored.data["spec"]["later"].is_object().then_some(()))
    })
    .await
}

async fn has_later(world: &World, address: &str) -> anyhow::Result<bool> {
    let stored = raw_records(world).await?.get(address).await?;
    Ok(stored.data["spec"]["later"]["server"] == "dhcp1")
}

fn annotate(key: &str, value: Option<&str>) -> Value {
    json!({"metadata": {"annotations": { format!("{GROUP}/{key}"): value }}})
}

/// Resource versions of everything that the operator writes.
async fn stored(world: &World) -> anyhow::Result<BTreeMap<String, String>> {
    async fn of<K>(
        api: Api<K>,
        labels: &str,
        all: &mut BTreeMap<String, String>,
    ) -> anyhow::Result<()>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let params = ListParams::default().labels(labels);
        for object in api.list_metadata(&params).await? {
            let name = format!("{} {}", K::kind(&()), object.name_any());
            all.insert(name, object.resource_version().unwrap_or_default());
        }
        Ok(())
    }
    let (client, mut all) = (world.client(), BTreeMap::new());
    of::<LoadBalancer>(Api::all(client.clone()), "", &mut all).await?;
    of::<IPPool>(world.pools(), "", &mut all).await?;
    of::<IPAllocation>(world.records(), "", &mut all).await?;
    of::<Service>(Api::all(client.clone()), OURS, &mut all).await?;
    of::<EndpointSlice>(Api::all(client), OURS, &mut all).await?;
    Ok(all)
}

/// Objects that this version serves, and those of a later version. The latter are written while this version leads.
async fn objects(world: &World) -> anyhow::Result<()> {
    pool(world, NS, &[subnet("10.76.0.0/24")]).await?;
    let excluding = json!({"ranges": [subnet("10.76.1.0/24")]});
    world.pool("versions-excluding", excluding).await?;
    let labels = json!({"app": "web"});
    world.fake_vmi(NS, "vm", labels, Some("10.81.0.1")).await?;
    world.lb(NS, "web", vm_spec("web")).await?;
    let from = with(cluster_spec(), json!({"ipPool": "versions-excluding"}));
    world.lb(NS, "excluding", from.clone()).await?;
    for name in ["plain", "extended", "shares"] {
        cluster(world, NS, name).await?;
    }
    let dhcp = with(vm_spec("web"), json!({"ipam": "dhcp"}));
    let leased = world.lb(NS, "dhcp", dhcp).await?;
    world.lb_reason(NS, "web", "Ready").await?;
    let mut addresses = BTreeMap::new();
    for name in ["plain", "extended", "shares", "excluding"] {
        addresses.insert(name, world.lb_address(NS, name).await?);
    }
    world.lb_reason(NS, "dhcp", "Ready").await?;

    later_definition(world).await?;
    set_later(world, &addresses["extended"]).await?;
    let name = format!("dhcp-{}", uid(&leased));
    let record = fixtures::record("10.76.0.200", "", "Bound", (NS, "dhcp", &uid(&leased)));
    let record = with(record, json!({"metadata": {"name": name}}));
    let record = serde_json::from_value(record)?;
    world
        .records()
        .create(&PostParams::default(), &record)
        .await?;
    set_later(world, &name).await?;
    let lbs = world.lbs(NS);
    let shares = annotate("primary-load-balancer", Some("plain"));
    world.merge(&lbs, "shares", shares).await?;
    let exclude = annotate("exclude", Some("10.76.1.3-10.76.1.254"));
    world
        .merge(&world.pools(), "versions-excluding", exclude)
        .await?;
    world.lb_reason(NS, "dhcp", "UnsupportedAnnotation").await?;
    let shared = &addresses["plain"];
    world
        .lb_until(NS, "shares", "the address of plain", |lb| {
            allocated(lb).as_ref() == Some(shared)
        })
        .await?;
    world.lb(NS, "waits", from).await?;
    world.lb_reason(NS, "waits", "NoAvailableIP").await?;
    world.delete_lb(NS, "waits").await?;
    Ok(())
}

/// The Released address that the next LoadBalancer gets (ALC-3), and the name of its last owner.
async fn next_free(world: &World) -> anyhow::Result<(String, String)> {
    let status = world.pools().get(NS).await?.status.context("no status")?;
    let last: Ipv4Addr = status.last_allocated.parse()?;
    let records = world.records().list(&ListParams::default()).await?;
    let released = records.into_iter().filter_map(|record| {
        let spec = record.spec;
        let address: Ipv4Addr = spec.address.parse().ok()?;
        let counts = spec.phase == Phase::Released && spec.pool == NS && address > last;
        counts.then_some((address, spec.owner.name))
    });
    let (address, owner) = released.min().context("none is Released")?;
    Ok((address.to_string(), owner))
}

pub async fn ipa_9_two_versions_lead_in_turn(world: Arc<World>) -> anyhow::Result<()> {
    set(&world, NS).await?;
    let kube_vip = FakeKubeVip::start(&world.client());
    let history = HistoryChecker::start(&world.client());
    let start = async |node: &str| {
        let operator = world.start_operator_with(node, &QUICK_LEASE, &[]);
        operator.await
    };
    let mut leading = start(NODES[0]).await?;
    becomes_leader(&world, NODES[0]).await?;
    objects(&world).await?;
    let pools = [NS, "versions-excluding"];
    audited(&world, NODES[0], &pools).await?;
    for turn in 0..TURNS {
        let next = NODES[(turn + 1) % 2];
        let before = stored(&world).await?;
        // As in a rollout: the new process is ready before the old one ends.
        let standby = start(next).await?;
        if turn % 2 == 0 {
            leading.end().await?;
        } else {
            leading.kill9()?;
        }
        becomes_leader(&world, next).await?;
        leading = standby;
        audited(&world, next, &pools).await?;
        let after = stored(&world).await?;
        ensure!(
            before == after,
            "turn {turn} has written: {before:#?} {after:#?}"
        );
        let figures = MetricsSnapshot::read(&world, next).await?;
        let written: Vec<String> = figures.writes().into_keys().collect();
        let objects =
            |what: &&String| what.contains("loadbalancers") || what.contains("ipallocations");
        ensure!(!written.iter().any(|what| objects(&what)), "{written:?}");

        for n in 0..5 {
            cluster(&world, NS, &format!("t{turn}-{n}")).await?;
        }
        for n in 0..5 {
            world.lb_address(NS, &format!("t{turn}-{n}")).await?;
        }
        for n in 0..3 {
            world.delete_lb(NS, &format!("t{turn}-{n}")).await?;
        }
        audited(&world, next, &pools).await?;
    }
    let mut findings = history.findings(&world).await?;
    // SHR-7: it gives its own address up for that of another one.
    findings.retain(|finding| !finding.contains(&format!("{NS}/shares")));
    ensure!(findings.is_empty(), "{findings:#?}");
    passes(&world).await?;
    let node = NODES[TURNS % 2];
    // SHR-9: the Go operator could not serve them.
    ensure!(!exports(&world, &[]).await?, "ready for the Go operator");
    let allowed = exports(&world, &["--allow-incomplete"]).await?;
    ensure!(allowed, "--allow-incomplete");

    // A field of the later version survives what this version writes to the object.
    let address = world.lb_address(NS, "extended").await?;
    ensure!(has_later(&world, &address).await?, "the field was dropped");
    world.delete_lb(NS, "extended").await?;
    let owner = format!("{NS}/extended");
    record_is(&world, &address, Phase::Released, &owner).await?;
    ensure!(has_later(&world, &address).await?, "dropped at the release");
    cluster(&world, NS, "extended").await?;
    holds(&world, NS, "extended", &address).await?;
    ensure!(has_later(&world, &address).await?, "dropped when bound");

    // A phase of the later version blocks the next address, and the IPAllocation stays as it is.
    quiet(&world, node).await?;
    let (next, owner) = next_free(&world).await?;
    let raw = raw_records(&world).await?;
    let phase = Patch::Merge(json!({"spec": {"phase": "Leased"}}));
    let made = raw.patch(&next, &PatchParams::default(), &phase).await?;
    // The one that shares an address exists, and has released its own.
    let names = ["beside", &*owner].into_iter();
    for name in names.filter(|name| *name != "shares") {
        cluster(&world, NS, name).await?;
        let given = world.lb_address(NS, name).await?;
        ensure!(given != next, "{name} got {given}");
    }
    let other = start(NODES[(TURNS + 1) % 2]).await?;
    leading.end().await?;
    becomes_leader(&world, NODES[(TURNS + 1) % 2]).await?;
    cluster(&world, NS, "later").await?;
    let given = world.lb_address(NS, "later").await?;
    ensure!(given != next, "it was given away by the next leader");
    let now = raw.get(&next).await?;
    ensure!(
        made.resource_version() == now.resource_version(),
        "{made:?} {now:?}"
    );
    raw.delete(&next, &DeleteParams::default()).await?;

    // Rolled back for good: without the annotations and that record everything is served by this version.
    let lbs = world.lbs(NS);
    world
        .merge(&lbs, "shares", annotate("primary-load-balancer", None))
        .await?;
    world
        .merge(
            &world.pools(),
            "versions-excluding",
            annotate("exclude", None),
        )
        .await?;
    let dhcp = format!("dhcp-{}", uid(&lbs.get("dhcp").await?));
    raw.delete(&dhcp, &DeleteParams::default()).await?;
    for name in ["shares", "dhcp"] {
        let lb = world.lb_reason(NS, name, "Ready").await?;
        let status = ready(&lb).context("no condition Ready")?.0;
        ensure!(status == "True", "{name}: {status}");
    }
    audited(&world, NODES[(TURNS + 1) % 2], &pools).await?;
    ensure!(exports(&world, &[]).await?, "not ready for the Go operator");
    other.end().await?;
    drop(kube_vip);
    definition(&world).await
}
