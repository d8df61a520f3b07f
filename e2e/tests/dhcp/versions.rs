//! The version before section 15 of the rules and this one lead in turn, while the DHCP process of this one holds a
//! lease (IPA-9). `HLB_OPERATOR_BEFORE` names the program of the other version, as `make test-before` sets it; without it both are
//! of this version.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_api::LoadBalancer;
use harvester_lb_e2e::World;
use harvester_lb_e2e::fake_kube_vip::FakeKubeVip;
use harvester_lb_e2e::history_checker::HistoryChecker;
use harvester_lb_e2e::leases::{bound, dnsmasq, given_back, leased, set};
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::quiet::{audited, quiet};
use harvester_lb_e2e::read::allocated;
use harvester_lb_e2e::world::{QUICK_LEASE, SOON, TEST_TIMINGS};
use harvester_lb_fixtures::{cluster_spec, subnet, vm_spec, with};
use harvester_lb_testkit::{Process, eventually};
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

const NS: &str = "before";
/// Within this time the garbage collector has seen new definitions: it looks for them every 30 s.
const RESYNC: Duration = Duration::from_secs(90);
const POOLS: [&str; 2] = [NS, "before-excluding"];
/// Those that ask for something that the version before does not have.
const ASKING: [&str; 6] = ["primary", "second", "third", "asked", "vlan", "leased"];
/// Those that it leaves alone: with an annotation of ours, a Service of several load balancers, or a lease. kube-vip's annotations say
/// nothing to it.
const LEFT_ALONE: [&str; 6] = [
    "primary",
    "second",
    "third",
    "asked",
    "leased",
    "leased-too",
];

/// The program of the version before, and whether it is one.
fn before(world: &World) -> (PathBuf, bool) {
    match std::env::var_os("HLB_OPERATOR_BEFORE") {
        Some(path) => (PathBuf::from(path), true),
        None => (world.binary().to_owned(), false),
    }
}

/// Starts an operator on a node, and waits until it is ready. Each node has one version.
async fn start(world: &World, node: &str) -> anyhow::Result<Arc<Process>> {
    let ours = ["--dhcp-mode=builtin", "--service-interfaces=vlan20"];
    let (program, is_other) = before(world);
    let (program, flags) = match node {
        "node1" => (world.binary().to_owned(), &ours[..]),
        _ if is_other => (program, &[][..]),
        _ => (program, &ours[..]),
    };
    let kubeconfig = world.cluster.kubeconfig("admin")?;
    let env = [
        ("KUBECONFIG", kubeconfig.to_str().context("its path")?),
        ("LOGLEVEL", "info,harvester_load_balancer=debug"),
        ("HLB_TIMINGS", TEST_TIMINGS),
    ];
    let program = program.to_str().context("the operator's path")?;
    let flags = [flags, &QUICK_LEASE].concat();
    let log = format!("before-{node}");
    let process = world.cluster.spawn(node, program, &flags, &env, &log)?;
    process
        .ready(SOON, || async {
            let ready = world.get(node, "/readyz").await;
            Ok(ready.is_ok_and(|(code, _)| code == 200))
        })
        .await?;
    Ok(process)
}

async fn leads(world: &World, node: &str) -> anyhow::Result<()> {
    eventually(&format!("{node} leads"), SOON, || async {
        let metrics = MetricsSnapshot::read(world, node).await?;
        Ok(metrics.is_leader().then_some(()))
    })
    .await
}

/// A load balancer with one of our annotations, or kube-vip's.
async fn ask(
    world: &World,
    name: &str,
    key: &str,
    value: &str,
    spec: Value,
) -> anyhow::Result<LoadBalancer> {
    let metadata = json!({"namespace": NS, "name": name, "annotations": { key: value }});
    world.lb_with(metadata, spec).await
}

/// Of VM type with one listener on a port.
fn on_port(port: u16) -> Value {
    let listeners =
        json!([{"name": format!("p{port}"), "port": port, "protocol": "TCP", "backendPort": 80}]);
    with(vm_spec("web"), json!({"listeners": listeners}))
}

/// One of each feature.
async fn objects(world: &World) -> anyhow::Result<()> {
    let of_namespace = json!({"scope": [{"namespace": NS, "project": "*", "guestCluster": "*"}]});
    world.pool_for(NS, NS, &[subnet("10.77.0.0/24")]).await?;
    let ranges = json!({"ranges": [subnet("10.77.1.0/24")]});
    let pool = json!({
        "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "IPPool",
        "metadata": {"name": POOLS[1], "annotations": {
            "loadbalancer.harvesterhci.io/exclude": "10.77.1.3-10.77.1.200",
        }},
        "spec": with(ranges, json!({"selector": of_namespace})),
    });
    world.cluster.apply(&pool).await?;
    let labels = json!({"app": "web"});
    world.fake_vmi(NS, "vm", labels, Some("10.81.0.1")).await?;
    let named = "loadbalancer.harvesterhci.io/primary-load-balancer";
    world.lb(NS, "primary", on_port(80)).await?;
    world.lb_reason(NS, "primary", "Ready").await?;
    ask(world, "second", named, "primary", on_port(81)).await?;
    ask(world, "third", named, "primary", on_port(82)).await?;
    let key = "loadbalancer.harvesterhci.io/requested-address";
    ask(world, "asked", key, "10.77.0.77", on_port(80)).await?;
    let key = "kube-vip.io/serviceInterface";
    ask(world, "vlan", key, "vlan20", on_port(80)).await?;
    world.lb(NS, "web", on_port(80)).await?;
    leased(world, NS, "leased").await?;
    leased(world, NS, "leased-too").await?;
    let excluding = with(cluster_spec(), json!({"ipPool": POOLS[1]}));
    world.lb(NS, "excluding", excluding).await?;
    for name in ASKING.iter().chain(&["web", "leased-too", "excluding"]) {
        world.lb_reason(NS, name, "Ready").await?;
    }
    Ok(())
}

/// What must not change while the version before leads: the addresses, Services whole, and records.
#[derive(Debug, PartialEq)]
struct Kept {
    addresses: BTreeMap<String, Option<String>>,
    services: BTreeMap<String, (ObjectMeta, Option<ServiceSpec>)>,
    records: BTreeMap<String, Value>,
}

impl Kept {
    async fn read(world: &World, without: &[String]) -> anyhow::Result<Self> {
        let all = ListParams::default();
        let stays = |name: &String| !without.contains(name);
        let lbs = world.lbs(NS).list(&all).await?;
        let services = world.services(NS).list(&all).await?;
        let records = world.records().list(&all).await?;
        let addresses = lbs.iter().map(|lb| {
            let status = lb.status.as_ref().and_then(|status| status.address.clone());
            (lb.name_any(), allocated(lb).and(status))
        });
        let services = services.into_iter().map(|it: Service| {
            let meta = ObjectMeta {
                managed_fields: None,
                resource_version: None,
                ..it.meta().clone()
            };
            (it.name_any(), (meta, it.spec))
        });
        let records = records.into_iter().map(|record| {
            let owner = record.spec.owner.name.clone();
            let spec = serde_json::to_value(&record.spec).unwrap_or_default();
            (owner, record.name_any(), spec)
        });
        Ok(Self {
            addresses: addresses.filter(|(name, _)| stays(name)).collect(),
            services: services.filter(|(name, _)| stays(name)).collect(),
            records: records
                .filter(|(owner, ..)| stays(owner))
                .map(|(_, name, spec)| (name, spec))
                .collect(),
        })
    }
}

async fn address(world: &World, name: &str) -> anyhow::Result<String> {
    world.lb_address(NS, name).await
}

pub async fn ipa_9_the_version_before_leads_in_turn(world: Arc<World>) -> anyhow::Result<()> {
    set(&world, NS).await?;
    let server = dnsmasq(&world, &(245..=249)).await?;
    let kube_vip = FakeKubeVip::start(&world.client());
    let is_other = before(&world).1;
    let mut leading = start(&world, "node1").await?;
    leads(&world, "node1").await?;
    // The host may have lost its default route with its interface, in a test before.
    let flags = ["--dhcp-mode=builtin", "--dhcp-interface=eth0"];
    let dhcp = world.spawn_dhcp("node1", &flags, &[])?;
    objects(&world).await?;
    audited(&world, "node1", &POOLS).await?;
    let history = HistoryChecker::start(&world.client());

    // Those that are created or deleted meanwhile.
    let mut others: Vec<String> = Vec::new();
    for turn in 0..2 {
        // The version before.
        let kept = Kept::read(&world, &others).await?;
        let next = start(&world, "node2").await?;
        if turn == 0 {
            leading.end().await?;
        } else {
            leading.kill9()?;
        }
        leads(&world, "node2").await?;
        leading = next;
        quiet(&world, "node2").await?;
        if is_other {
            for name in LEFT_ALONE {
                if world.lbs(NS).get_opt(name).await?.is_some() {
                    world.lb_reason(NS, name, "UnsupportedAnnotation").await?;
                }
            }
        }
        let now = Kept::read(&world, &others).await?;
        ensure!(kept == now, "turn {turn}: {kept:#?} became {now:#?}");
        let made: Vec<String> = (0..4).map(|n| format!("t{turn}-{n}")).collect();
        for name in &made {
            world.lb(NS, name, cluster_spec()).await?;
        }
        for name in &made {
            let given = address(&world, name).await?;
            let held = kept.addresses.values().flatten();
            ensure!(held.clone().all(|it| *it != given), "{given} is held");
        }
        others.extend(made);
        let full = format!("x{turn}");
        let excluding = with(cluster_spec(), json!({"ipPool": POOLS[1]}));
        world.lb(NS, &full, excluding).await?;
        if is_other {
            // It cannot apply the exclusions, so it allocates nothing there.
            world.lb_reason(NS, &full, "UnsupportedAnnotation").await?;
        }
        others.push(full.clone());
        // The first one to have the address and its second, and one with a lease.
        let (gone, with_lease) = [("second", "leased"), ("primary", "leased-too")][turn];
        let lease = bound(&world, &world.lbs(NS).get(with_lease).await?).await?;
        for name in [gone, with_lease] {
            world.delete_lb(NS, name).await?;
            others.push(name.to_owned());
        }
        given_back(&server, lease).await?;
        quiet(&world, "node2").await?;
        let mut kept = kept;
        let mut now = Kept::read(&world, &others).await?;
        for name in &others {
            kept.addresses.remove(name);
            kept.services.remove(name);
        }
        if is_other {
            // Its garbage collector takes an owner off, and nobody else writes.
            kept.services.clear();
            now.services.clear();
        }
        let shared = address(&world, "third").await?;
        let holds = world.records().get(&shared).await?;
        ensure!(holds.spec.released_at.is_none(), "{holds:?}");
        ensure!(kept.addresses == now.addresses, "{kept:#?} became {now:#?}");

        // This version again.
        let next = start(&world, "node1").await?;
        leading.end().await?;
        leads(&world, "node1").await?;
        leading = next;
        // If the version before led, nobody but the garbage collector knows of it.
        eventually(&format!("no EndpointSlice {gone}"), RESYNC, || async {
            let slice = world.slices(NS).get_opt(gone).await?;
            Ok(slice.is_none().then_some(()))
        })
        .await?;
        let given = address(&world, &full).await?;
        let last = given.rsplit('.').next().context("an address")?;
        ensure!(last.parse::<u8>()? > 200, "{given} is excluded");
        ensure!(address(&world, "third").await? == shared, "it has moved");
        for name in ASKING {
            if world.lbs(NS).get_opt(name).await?.is_some() {
                world.lb_reason(NS, name, "Ready").await?;
            }
        }
        audited(&world, "node1", &POOLS).await?;
    }
    // SHR-5: the address was handed over among those that share it. Nothing else went from one to another.
    let findings = history.findings(&world).await?;
    ensure!(findings.is_empty(), "{findings:#?}");
    let shared = address(&world, "third").await?;
    let holds = world.records().get(&shared).await?;
    ensure!(holds.spec.owner.name == "third", "{holds:?}");
    // The last of them is alone with it, and gives it back.
    world.delete_lb(NS, "third").await?;
    eventually("the shared address is free", SOON, || async {
        let record = world.records().get(&shared).await?;
        Ok(record.spec.released_at.is_some().then_some(()))
    })
    .await?;
    audited(&world, "node1", &POOLS).await?;
    world
        .lbs(NS)
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    dhcp.end().await?;
    leading.end().await?;
    drop(kube_vip);
    Ok(())
}
