//! The files in docs/examples, applied as a reader would: each works as it says, and the permissions in rbac.yaml are
//! exactly those that the operator needs.

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_api::ipallocation::Phase;
use harvester_lb_api::keys;
use harvester_lb_e2e::read::{allocated, ready};
use harvester_lb_e2e::world::SOON;
use harvester_lb_e2e::{Test, World, tests};
use harvester_lb_testkit::{DataPath, Dhcp, Process, VLAN_INTERFACE, Vm, eventually, lan, vlan};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::documents::{apply, documents, kubeconfig, rbac};
use crate::harvester::{addresses_on, announcing_node};
use crate::operator::without;

/// Node of the operator with all permissions of rbac.yaml.
const NODE: &str = "node1";

/// The annotation of a LoadBalancer that shares the address of another one.
const PRIMARY: &str = "loadbalancer.harvesterhci.io/primary-load-balancer";

/// All tests.
pub fn all() -> Vec<Test> {
    tests![every_example_becomes_ready_with_the_rights_of_rbac]
}

/// Applies rbac.yaml, and starts the operator with these permissions.
async fn with_rights(world: &World) -> anyhow::Result<Arc<Process>> {
    let permissions = rbac("rbac.yaml")?;
    for object in &permissions {
        apply(world, object).await?;
    }
    let kubeconfig = kubeconfig(world, &permissions).await?;
    world
        .start_operator_with(
            NODE,
            &["--service-interfaces", VLAN_INTERFACE],
            &[("KUBECONFIG", &kubeconfig)],
        )
        .await
}

async fn every_example_becomes_ready_with_the_rights_of_rbac(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let _alone = without().await?;
    let operator = with_rights(&world).await?;
    let all = documents()?;
    let of_kind = |kind: &'static str| all.iter().filter(move |(_, d)| d["kind"] == kind);
    for (file, document) in &all {
        if document["kind"] != "LoadBalancer" {
            apply(&world, document)
                .await
                .with_context(|| file.clone())?;
        }
    }
    for (_, pool) in of_kind("IPPool") {
        let name = pool["metadata"]["name"].as_str().unwrap();
        let wanted = world.pool_until(name, "Ready", |pool| {
            pool.status.as_ref().is_some_and(|s| s.available > 0)
        });
        wanted.await?;
    }
    let _dhcp = Dhcp::dnsmasq(&world.cluster, lan(240), lan(249)).await?;
    let mut seen = 0;
    let shares = |document: &Value| document["metadata"]["annotations"][PRIMARY].is_string();
    for (file, document) in of_kind("LoadBalancer").filter(|(_, document)| !shares(document)) {
        // Those of the same file that ask for its address.
        let others = of_kind("LoadBalancer");
        let others = others.filter(|(of, other)| of == file && shares(other));
        let others: Vec<&Value> = others.map(|(_, other)| other).collect();
        let done = life(&world, document, &others, seen);
        done.await.with_context(|| file.clone())?;
        seen += 1 + others.len();
    }
    ensure!(seen >= 1, "no example has a load balancer");
    let names_one = of_kind("LoadBalancer").any(|(_, it)| interface(it).is_some());
    ensure!(names_one, "no example names an interface");
    legacy_finalizers(&world).await?;

    let (_, metrics) = world.get(NODE, "/metrics").await?;
    let refused: Vec<&str> = metrics
        .lines()
        .filter(|l| l.starts_with("harvester_lb_api_requests_total") && l.contains("code=\"403\""))
        .collect();
    ensure!(refused.is_empty(), "requests were refused: {refused:#?}");
    // Other examples have pools of the same network. A webhook learns by its watch that their addresses are released (PV-9).
    for (_, pool) in of_kind("IPPool") {
        let name = pool["metadata"]["name"].as_str().unwrap();
        eventually(&format!("IPPool {name} is deleted"), SOON, || async {
            world.pools().delete(name, &DeleteParams::default()).await?;
            Ok(Some(()))
        })
        .await?;
    }
    operator.end().await
}

/// A virtual machine that a LoadBalancer selects, listening on the ports of the health check and of the requests.
async fn machine(world: &World, lb: &Value, name: &str) -> anyhow::Result<Vm> {
    let spec = &lb["spec"];
    let vm = world.cluster.add_vm(name)?;
    let mut labels = Vec::new();
    for (key, values) in spec["backendServerSelector"].as_object().unwrap() {
        labels.push((&**key, values[0].as_str().context("no value")?));
    }
    for port in ports(spec) {
        vm.listen(port)?;
    }
    let namespace = lb["metadata"]["namespace"].as_str().unwrap_or("default");
    world
        .cluster
        .apply(&vm.vmi_manifest(namespace, &labels))
        .await?;
    Ok(vm)
}

fn ports(spec: &Value) -> Vec<u16> {
    let listeners = spec["listeners"].as_array().into_iter().flatten();
    let mut ports: Vec<u16> = listeners
        .map(|l| &l["backendPort"])
        .chain([&spec["healthCheck"]["port"]])
        .filter_map(|p| p.as_u64().and_then(|p| u16::try_from(p).ok()))
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// A LoadBalancer from its creation through Ready, a failing machine and its recovery, to its deletion.
async fn life(
    world: &World,
    document: &Value,
    others: &[&Value],
    number: usize,
) -> anyhow::Result<()> {
    let namespace = document["metadata"]["namespace"]
        .as_str()
        .unwrap_or("default");
    let name = document["metadata"]["name"].as_str().context("no name")?;
    let guest = document["spec"]["workloadType"] == "cluster";
    let leased = document["spec"]["ipam"] == "dhcp";
    let checked = document["spec"]["healthCheck"]["port"].is_u64();
    let mut vms = Vec::new();
    if !guest {
        for letter in ["a", "b"] {
            vms.push(machine(world, document, &format!("m{number}{letter}")).await?);
        }
    }
    apply(world, document).await?;
    let lb = world.lb_reason(namespace, name, "Ready").await?;
    ensure!(ready(&lb).is_some_and(|(status, ..)| status == "True"));
    let status = lb.status.clone().unwrap_or_default();
    let vip = if leased {
        ensure!(allocated(&lb).as_deref() == Some("0.0.0.0"), "{status:?}");
        status.address.clone()
    } else {
        allocated(&lb)
    };
    let vip = vip.filter(|a| !a.is_empty()).context("no address")?;
    if !guest {
        let servers = status.backend_servers.unwrap_or_default();
        let wanted: Vec<String> = vms.iter().map(|vm| vm.address().to_string()).collect();
        ensure!(
            servers == wanted,
            "backends are {servers:?}, not {wanted:?}"
        );
        answers(world, document, &vip, &vms).await?;
        is_on_its_interface(world, document, &vip).await?;
        for (n, other) in others.iter().enumerate() {
            joins(world, other, name, &vip, number + 1 + n).await?;
            let served = answers(world, document, &vip, &vms);
            served.await.context("of the primary")?;
        }
        // Once is enough: with the default thresholds it takes a while.
        if checked && !leased {
            let addresses: Vec<&str> = wanted.iter().map(String::as_str).collect();
            world
                .ready_endpoints(namespace, name, &addresses)
                .await
                .context("all of them")?;
            for port in ports(&document["spec"]) {
                vms[0].close(port).await;
            }
            world
                .ready_endpoints(namespace, name, &addresses[1..])
                .await
                .context("one of them fails")?;
        }
    }
    world.delete_lb(namespace, name).await?;
    world.gone(&world.lbs(namespace), name).await?;
    world.gone(&world.services(namespace), name).await?;
    world.gone(&world.slices(namespace), name).await?;
    if !leased {
        eventually(&format!("record {vip}: Released"), SOON, || async {
            let record = world.records().get(&vip).await?.spec;
            Ok((record.phase == Phase::Released).then_some(()))
        })
        .await?;
    }
    for vm in &vms {
        world
            .cluster
            .delete(
                "kubevirt.io/v1",
                "VirtualMachineInstance",
                Some(namespace),
                vm.name(),
            )
            .await?;
    }
    Ok(())
}

/// A LoadBalancer that shares the address of another one, until it is deleted.
async fn joins(
    world: &World,
    document: &Value,
    primary: &str,
    vip: &str,
    number: usize,
) -> anyhow::Result<()> {
    let metadata = &document["metadata"];
    ensure!(
        metadata["annotations"][PRIMARY] == *primary,
        "it names another one"
    );
    let namespace = metadata["namespace"].as_str().unwrap_or("default");
    let name = metadata["name"].as_str().context("no name")?;
    let vm = machine(world, document, &format!("m{number}a")).await?;
    apply(world, document).await?;
    let lb = world.lb_reason(namespace, name, "Ready").await?;
    ensure!(allocated(&lb).as_deref() == Some(vip), "another address");
    answers(world, document, vip, std::slice::from_ref(&vm)).await?;
    world.delete_lb(namespace, name).await?;
    world.gone(&world.lbs(namespace), name).await?;
    world.gone(&world.slices(namespace), name).await?;
    let machine = (Some(namespace), vm.name());
    let (version, kind) = ("kubevirt.io/v1", "VirtualMachineInstance");
    world
        .cluster
        .delete(version, kind, machine.0, machine.1)
        .await
}

/// Requests to the address, if it is in the network of the test cluster.
async fn answers(world: &World, lb: &Value, vip: &str, vms: &[Vm]) -> anyhow::Result<()> {
    let vip: Ipv4Addr = vip.parse()?;
    let listener = &lb["spec"]["listeners"][0];
    let [network @ .., _] = vip.octets();
    let networks = [lan(0), vlan(0)].map(|it| it.octets());
    let is_near = networks.iter().any(|it| it[..3] == network);
    if !is_near || listener["protocol"] == "UDP" {
        return Ok(());
    }
    let port = u16::try_from(listener["port"].as_u64().context("no port")?)?;
    eventually(&format!("answers from {vip}:{port}"), SOON, || async {
        let tally = world.cluster.client_burst(vip, port, 30, 4).await;
        ensure!(tally.failures.is_empty(), "{:?}", tally.failures[0]);
        let all = vms.iter().all(|vm| tally.by_body.contains_key(vm.name()));
        Ok(all.then_some(()))
    })
    .await
}

/// The interface of the hosts that a LoadBalancer names.
fn interface(lb: &Value) -> Option<&str> {
    lb["metadata"]["annotations"][keys::ANNOTATION_KUBE_VIP_INTERFACE].as_str()
}

/// KVA-1: the node that announces the address has it on the interface that the load balancer names, if it names one, and not on its
/// bridge. Answers say nothing of that: Linux answers ARP on each interface for all of its addresses.
async fn is_on_its_interface(world: &World, lb: &Value, vip: &str) -> anyhow::Result<()> {
    let Some(interface) = interface(lb) else {
        return Ok(());
    };
    let namespace = lb["metadata"]["namespace"].as_str().unwrap_or("default");
    let name = lb["metadata"]["name"].as_str().context("no name")?;
    let bridge = DataPath::HARVESTER.bridge.context("no bridge")?;
    let address = format!(" {vip}/");
    eventually(&format!("{vip} on {interface} alone"), SOON, || async {
        let node = announcing_node(world, namespace, name).await?;
        let wanted = addresses_on(world, &node, interface)?;
        let other = addresses_on(world, &node, bridge)?;
        let is_right = wanted.contains(&address) && !other.contains(&address);
        ensure!(is_right, "{node}: {wanted:?}, {other:?}");
        Ok(Some(()))
    })
    .await
}

/// Legacy finalizers on VirtualMachines are removed, which needs permissions on KubeVirt's kinds.
async fn legacy_finalizers(world: &World) -> anyhow::Result<()> {
    for (kind, finalizer) in [
        (
            "VirtualMachineInstance",
            "wrangler.cattle.io/harvester-lb-vmi-controller",
        ),
        (
            "VirtualMachine",
            "wrangler.cattle.io/harvester-lb-vm-controller",
        ),
    ] {
        let object = json!({
            "apiVersion": "kubevirt.io/v1", "kind": kind,
            "metadata": {"name": "old", "namespace": "default", "finalizers": [finalizer]},
            "spec": {},
        });
        world.cluster.apply(&object).await?;
        eventually(&format!("{kind} without {finalizer}"), SOON, || async {
            let now = world
                .cluster
                .get("kubevirt.io/v1", kind, Some("default"), "old")
                .await?
                .context("it is gone")?;
            Ok(now
                .metadata
                .finalizers
                .unwrap_or_default()
                .is_empty()
                .then_some(()))
        })
        .await?;
    }
    Ok(())
}
