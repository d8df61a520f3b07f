//! The files in docs/examples, applied as a reader would: each works as it says, and the permissions in rbac.yaml are
//! exactly those that the operator needs.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use harvester_lb_api::ipallocation::Phase;
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::read::{allocated, ready};
use harvester_lb_e2e::world::{SOON, repository};
use harvester_lb_e2e::{Test, World, tests};
use harvester_lb_testkit::{Dhcp, Process, VLAN_INTERFACE, Vm, eventually, lan, vlan};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::operator::without;

/// Node of the operator with all permissions of rbac.yaml.
const NODE: &str = "node1";
/// Node of the operator that lacks one.
const OTHER_NODE: &str = "node2";

/// The annotation of a LoadBalancer that shares the address of another one.
const PRIMARY: &str = "loadbalancer.harvesterhci.io/primary-load-balancer";

/// All tests.
pub fn all() -> Vec<Test> {
    let others = tests![
        a_missing_right_is_named_and_waited_for,
        the_account_of_harvesters_release_gains_rights_and_loses_none,
    ];
    [with_traffic(), others].concat()
}

/// Those whose outcome depends on kube-vip and kube-proxy.
pub fn with_traffic() -> Vec<Test> {
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

/// All documents of all examples, files by name.
fn documents() -> anyhow::Result<Vec<(String, Value)>> {
    let folder = repository().join("docs/examples");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<_, _>>()?;
    files.retain(|f| f.extension().is_some_and(|e| e == "yaml"));
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let text = std::fs::read_to_string(&file)?;
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(&text).with_context(|| name.clone().into_owned())?;
        let documents = documents.into_iter().filter(|d| !d.is_null());
        all.extend(documents.map(|d| (name.clone().into_owned(), d)));
    }
    Ok(all)
}

/// The documents of one file.
fn rbac(name: &str) -> anyhow::Result<Vec<Value>> {
    let all = documents()?.into_iter();
    let permissions: Vec<Value> = all
        .filter(|(file, _)| file == name)
        .map(|(_, document)| document)
        .collect();
    ensure!(!permissions.is_empty(), "docs/examples/{name} is not there");
    Ok(permissions)
}

/// Applies a document, and creates its namespace if necessary.
async fn apply(world: &World, object: &Value) -> anyhow::Result<()> {
    if let Some(namespace) = object["metadata"]["namespace"].as_str() {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}
        });
        world.cluster.apply(&namespace).await?;
    }
    world.cluster.apply(object).await?;
    Ok(())
}

/// A kubeconfig of the only ServiceAccount among the documents.
async fn kubeconfig(world: &World, permissions: &[Value]) -> anyhow::Result<String> {
    let account = permissions.iter().find(|o| o["kind"] == "ServiceAccount");
    let metadata = &account.context("no ServiceAccount")?["metadata"];
    let (namespace, name) = (
        metadata["namespace"].as_str().context("no namespace")?,
        metadata["name"].as_str().context("no name")?,
    );
    let path = world.cluster.service_account_kubeconfig(namespace, name);
    Ok(path.await?.to_str().context("the path")?.to_owned())
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

/// The same permissions under other names, for a separate operator.
fn renamed(mut permissions: Vec<Value>) -> Vec<Value> {
    let rename = |name: &mut Value| {
        if let Some(text) = name.as_str() {
            *name = format!("{text}-other").into();
        }
    };
    for object in &mut permissions {
        // The namespace is shared.
        if object["kind"] == "Namespace" {
            continue;
        }
        rename(&mut object["metadata"]["name"]);
        if let Some(role) = object.pointer_mut("/roleRef/name") {
            rename(role);
        }
        if let Some(subjects) = object
            .pointer_mut("/subjects")
            .and_then(Value::as_array_mut)
        {
            for subject in subjects {
                rename(&mut subject["name"]);
            }
        }
    }
    permissions
}

/// Removes a verb on a resource; returns the unchanged document.
fn take_away(permissions: &mut [Value], resource: &str, verb: &str) -> anyhow::Result<Value> {
    for object in permissions {
        let whole = object.clone();
        let mut found = false;
        let rules = object.pointer_mut("/rules").and_then(Value::as_array_mut);
        for rule in rules.into_iter().flatten() {
            let concerned = rule["resources"].as_array().unwrap();
            if !concerned.iter().any(|r| r == resource) {
                continue;
            }
            let verbs = rule["verbs"].as_array_mut().context("no verbs")?;
            let before = verbs.len();
            verbs.retain(|v| v != verb);
            found |= verbs.len() < before;
        }
        if found {
            return Ok(whole);
        }
    }
    bail!("rbac.yaml has no {verb} on {resource}")
}

async fn a_missing_right_is_named_and_waited_for(world: Arc<World>) -> anyhow::Result<()> {
    let _alone = without().await?;
    let mut permissions = renamed(rbac("rbac.yaml")?);
    let whole = take_away(&mut permissions, "endpointslices", "create")?;
    for object in &permissions {
        apply(&world, object).await?;
    }
    let kubeconfig = kubeconfig(&world, &permissions).await?;
    let operator = world.spawn_operator(OTHER_NODE, &[], &[("KUBECONFIG", &kubeconfig)])?;
    let complaint = "no right to create endpointslices.discovery.k8s.io";
    eventually("/readyz names the missing right", SOON, || async {
        let (code, text) = world.get(OTHER_NODE, "/readyz").await?;
        ensure!(
            code == 503 && text.contains(complaint),
            "{code}, it says {text}"
        );
        Ok(Some(()))
    })
    .await?;
    ensure!(
        operator.log().contains(complaint),
        "the log does not name it:\n{}",
        operator.tail()
    );
    // It retries.
    let before = requests(&world).await?;
    eventually("more looks", SOON, || async {
        Ok((requests(&world).await? > 3.0 * before).then_some(()))
    })
    .await?;
    ensure!(operator.is_running(), "it ended:\n{}", operator.tail());
    let said = operator.log().matches(complaint).count();
    ensure!(said == 1, "it says so {said} times");
    let (code, _) = world.get(OTHER_NODE, "/healthz").await?;
    ensure!(code == 200, "/healthz is {code}");

    apply(&world, &whole).await?;
    operator
        .ready(SOON, || async {
            Ok(world
                .get(OTHER_NODE, "/readyz")
                .await
                .is_ok_and(|(code, _)| code == 200))
        })
        .await
        .context("the right was given")?;
    operator.end().await
}

/// Number of requests of the operator that lacks a permission.
async fn requests(world: &World) -> anyhow::Result<f64> {
    let figures = MetricsSnapshot::read(world, OTHER_NODE).await?;
    Ok(figures.sum("harvester_lb_api_requests_total", |_| true))
}

/// The objects of Harvester's release, as its chart creates them: the ServiceAccount of the Go operator with a role of
/// the same name.
fn release() -> [Value; 3] {
    let name = "harvester-load-balancer";
    let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": "harvester-system"});
    let role =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
    let verbs = ["get", "watch", "list", "update", "create"];
    [
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": "harvester-system"},
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": [
                {"apiGroups": ["loadbalancer.harvesterhci.io"], "resources": ["loadbalancers", "ippools"], "verbs": verbs},
                {"apiGroups": [""], "resources": ["services", "configmaps"], "verbs": verbs},
                {"apiGroups": ["kubevirt.io"], "resources": ["virtualmachineinstances"], "verbs": verbs},
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": name}, "roleRef": role, "subjects": [subject],
        }),
    ]
}

async fn the_account_of_harvesters_release_gains_rights_and_loses_none(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let _alone = without().await?;
    let release = release();
    let all = release
        .iter()
        .cloned()
        .chain(rbac("rbac.yaml")?)
        .chain(rbac("rbac-release-account.yaml")?);
    for object in all {
        apply(&world, &object).await?;
    }
    for object in &release {
        let (kind, version) = (text(object, "kind")?, text(object, "apiVersion")?);
        let namespace = object["metadata"]["namespace"].as_str();
        let name = text(&object["metadata"], "name")?;
        let now = world.cluster.get(version, kind, namespace, name).await?;
        let now = serde_json::to_value(now.with_context(|| format!("{kind} is gone"))?)?;
        for field in ["rules", "roleRef", "subjects"] {
            ensure!(
                now[field] == object[field],
                "{kind}: {field} is {} now",
                now[field]
            );
        }
    }

    let kubeconfig = kubeconfig(&world, &release).await?;
    let operator = world.spawn_operator(OTHER_NODE, &[], &[("KUBECONFIG", &kubeconfig)])?;
    operator
        .ready(SOON, || async {
            let (code, text) = world.get(OTHER_NODE, "/readyz").await?;
            ensure!(code == 200, "{text}");
            Ok(true)
        })
        .await?;
    operator.end().await
}

fn text<'a>(object: &'a Value, field: &str) -> anyhow::Result<&'a str> {
    object[field].as_str().with_context(|| field.to_owned())
}
