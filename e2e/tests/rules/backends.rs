//! The backends of a LoadBalancer (section 8.4).

use std::sync::Arc;

use harvester_lb_e2e::read::{condition, endpoints, ready};
use harvester_lb_e2e::{Test, World};
use harvester_lb_fixtures::subnet;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::support::{DENIED, RuleHelpers, vm};

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![
        be_1_and_be_3_backends_come_and_go,
        be_2_which_address,
        be_1_an_invalid_selector_harms_nobody_else,
        be_many_more_than_one_slice_takes,
        be_8_no_traffic_where_a_guest_agent_says,
        be_8_endpoints_follow_what_comes_later,
        be_8_one_address_in_two_namespaces,
    ]
}

const DUMMY: &str = "10.52.0.255";

async fn be_1_and_be_3_backends_come_and_go(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("be3", "be3");
    world.namespace(ns).await?;
    world.namespace("be3-other").await?;
    world.ranges(pool, &[subnet("10.30.0.0/24")]).await?;
    let mut spec = vm(pool, "web");
    spec["backendServerSelector"] = json!({"app": ["web", "web2"], "tier": ["front"]});
    world.announced(ns, "web", spec).await?;
    world.lb_reason(ns, "web", "NoBackend").await?;
    world.ready_endpoints(ns, "web", &[DUMMY]).await?;

    let front = |app: &str| json!({"app": app, "tier": "front"});
    world
        .fake_vmi(ns, "a", front("web"), Some("10.130.0.1"))
        .await?;
    world
        .fake_vmi(ns, "c", front("web2"), Some("10.130.0.3"))
        .await?;
    world
        .fake_vmi(ns, "b", json!({"app": "web"}), Some("10.130.0.2"))
        .await?;
    world
        .fake_vmi(ns, "d", front("web3"), Some("10.130.0.4"))
        .await?;
    world
        .fake_vmi("be3-other", "e", front("web"), Some("10.130.0.5"))
        .await?;
    let is = async |addresses: &[&str], reason: &str| {
        let shown: &[&str] = if addresses.is_empty() {
            &[DUMMY]
        } else {
            addresses
        };
        world.ready_endpoints(ns, "web", shown).await?;
        let what = format!("{reason} with {addresses:?}");
        world
            .lb_until(ns, "web", &what, |lb| {
                let servers = lb.status.as_ref().and_then(|s| s.backend_servers.clone());
                servers.unwrap_or_default() == addresses
                    && ready(lb).is_some_and(|(_, r, _)| r == reason)
            })
            .await
    };
    is(&["10.130.0.1", "10.130.0.3"], "Ready").await?;
    let vmis = world.vmis(ns);
    let labels = |patch: Value| json!({"metadata": {"labels": patch}});
    world
        .merge(&vmis, "b", labels(json!({"tier": "front"})))
        .await?;
    is(&["10.130.0.1", "10.130.0.2", "10.130.0.3"], "Ready").await?;
    world
        .merge(&vmis, "a", labels(json!({"app": null})))
        .await?;
    is(&["10.130.0.2", "10.130.0.3"], "Ready").await?;
    vmis.delete("b", &DeleteParams::default()).await?;
    is(&["10.130.0.3"], "Ready").await?;
    let moved =
        json!({"status": {"interfaces": [{"name": "default", "ipAddress": "10.130.0.33"}]}});
    world.merge(&vmis, "c", moved).await?;
    is(&["10.130.0.33"], "Ready").await?;
    // Restarted: the same name and address, another uid.
    vmis.delete("c", &DeleteParams::default()).await?;
    is(&[], "NoBackend").await?;
    let again = world
        .fake_vmi(ns, "c", front("web"), Some("10.130.0.33"))
        .await?;
    is(&["10.130.0.33"], "Ready").await?;
    let slice = world.slices(ns).get("web").await?;
    assert_eq!(
        slice.endpoints[0].target_ref.as_ref().unwrap().uid,
        again.metadata.uid
    );
    // Terminating, held by a foreign finalizer.
    let held = json!({"metadata": {"finalizers": ["example.org/held"]}});
    world.merge(&vmis, "c", held).await?;
    vmis.delete("c", &DeleteParams::default()).await?;
    is(&[], "NoBackend").await?;
    world
        .merge(&vmis, "c", json!({"metadata": {"finalizers": null}}))
        .await?;
    // Edits of the LoadBalancer itself.
    let selector = json!({"spec": {"backendServerSelector": {"app": ["web3"], "tier": ["front"]}}});
    let selector =
        json!({"spec": {"backendServerSelector": selector["spec"]["backendServerSelector"]}});
    world.merge(&world.lbs(ns), "web", selector).await?;
    is(&["10.130.0.4"], "Ready").await?;
    let empty = json!({"spec": {"backendServerSelector": null}});
    world.merge(&world.lbs(ns), "web", empty).await?;
    is(&[], "NoBackend").await?;
    Ok(())
}

async fn be_2_which_address(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("be2", "be2");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.31.0.0/24")]).await?;
    let vmi = |name: &str, interfaces: Value| {
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"namespace": ns, "name": name, "labels": {"app": "web"}},
            "spec": {}, "status": {"interfaces": interfaces},
        })
    };
    for (name, interfaces) in [
        (
            "a-v6-first",
            json!([{"name": "n", "ipAddress": "fd00::1", "ipAddresses": ["fd00::1", "10.131.0.1"]}]),
        ),
        (
            "b-bridge-first",
            json!([{"ipAddress": "172.17.0.1"}, {"name": "n", "ipAddress": "10.131.0.2"}]),
        ),
        (
            "c-unusable",
            json!([
                {"name": "n", "ipAddress": "169.254.1.1"}, {"name": "l", "ipAddress": "127.0.0.1"},
                {"ipAddress": "10.131.0.3"},
            ]),
        ),
        ("d-none", json!([{"name": "n", "ipAddress": "0.0.0.0"}])),
        (
            "e-nonsense",
            json!([{"name": "n", "ipAddress": "nonsense"}]),
        ),
        ("f-wrong-type", json!("none at all")),
    ] {
        world.cluster.apply(&vmi(name, interfaces)).await?;
    }
    world.announced(ns, "web", vm(pool, "web")).await?;
    let served = ["10.131.0.1", "10.131.0.2", "10.131.0.3"];
    world.ready_endpoints(ns, "web", &served).await?;
    let lb = world.lb_reason(ns, "web", "Ready").await?;
    assert_eq!(lb.status.unwrap().backend_servers.unwrap(), served);
    Ok(())
}

async fn be_1_an_invalid_selector_harms_nobody_else(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("be1-bad", "be1-bad");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.32.0.0/24")]).await?;
    let mut bad = vm(pool, "web");
    bad["backendServerSelector"] = json!({"app": []});
    world.lb(ns, "bad", bad).await?;
    let lb = world.lb_reason(ns, "bad", "InvalidSelector").await?;
    let (_, _, message) = ready(&lb).unwrap();
    assert!(
        message.contains("be1-bad/bad") && message.contains("\"app\""),
        "{message}"
    );
    world
        .event(ns, "LoadBalancer", "bad", "InvalidSelector")
        .await?;
    world.announced(ns, "good", vm(pool, "web")).await?;
    world
        .fake_vmi(ns, "v", json!({"app": "web"}), Some("10.132.0.1"))
        .await?;
    world.lb_reason(ns, "good", "Ready").await?;
    world.ready_endpoints(ns, "good", &["10.132.0.1"]).await?;
    // Corrected.
    let good = json!({"spec": {"backendServerSelector": {"app": ["web"]}}});
    world.merge(&world.lbs(ns), "bad", good).await?;
    world.ready_endpoints(ns, "bad", &["10.132.0.1"]).await?;
    // A working LoadBalancer keeps working when an edit breaks it.
    let address = world.lb_address(ns, "good").await?;
    let bad = json!({"spec": {"backendServerSelector": {"app": []}}});
    world.merge(&world.lbs(ns), "good", bad).await?;
    let lb = world.lb_reason(ns, "good", "InvalidSelector").await?;
    assert_eq!(lb.status.unwrap().address.as_deref(), Some(&*address));
    world.ready_endpoints(ns, "good", &["10.132.0.1"]).await?;
    Ok(())
}

async fn be_many_more_than_one_slice_takes(world: Arc<World>) -> anyhow::Result<()> {
    use futures::{StreamExt, TryStreamExt};
    let (ns, pool) = ("be-many", "be-many");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.33.0.0/24")]).await?;
    world.announced(ns, "web", vm(pool, "web")).await?;
    world.announced(ns, "other", vm(pool, "other")).await?;
    world
        .fake_vmi(ns, "other", json!({"app": "other"}), Some("10.134.0.1"))
        .await?;
    futures::stream::iter(0..1200_u32)
        .map(|n| {
            let world = Arc::clone(&world);
            async move {
                let vmi = json!({
                    "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
                    "metadata": {"name": format!("v{n:04}"), "labels": {"app": "web"}},
                    "spec": {},
                    "status": {"interfaces": [
                        {"name": "n", "ipAddress": format!("10.133.{}.{}", n / 200, n % 200 + 1)}
                    ]},
                });
                let vmi = serde_json::from_value(vmi)?;
                world
                    .vmis(ns)
                    .create(&kube::api::PostParams::default(), &vmi)
                    .await?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(16)
        .try_collect::<Vec<_>>()
        .await?;
    let lb = world
        .lb_until(ns, "web", "201 left out", |lb| {
            condition(lb, "BackendsLeftOut").is_some_and(|m| m.starts_with("201 more"))
        })
        .await?;
    assert_eq!(
        lb.status
            .as_ref()
            .unwrap()
            .backend_servers
            .as_ref()
            .unwrap()
            .len(),
        999
    );
    assert_eq!(ready(&lb).unwrap().1, "Ready");
    let slice = world.slices(ns).get("web").await?;
    assert_eq!(endpoints(&slice, true).len(), 999);
    assert_eq!(endpoints(&slice, true)[0], "10.133.0.1");
    world.lb_reason(ns, "other", "Ready").await?;
    Ok(())
}

/// A foreign Service, with the addresses that a Service can have.
async fn foreign_service(
    world: &World,
    ns: &str,
    external: &str,
    ingress: &str,
) -> anyhow::Result<()> {
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": ns, "name": "foreign"},
        "spec": {
            "type": "LoadBalancer", "externalIPs": [external],
            "ports": [{"port": 80, "protocol": "TCP"}],
        },
    });
    world.cluster.apply(&service).await?;
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": ingress}]}}});
    world
        .services(ns)
        .patch_status("foreign", &PatchParams::default(), &Patch::Merge(status))
        .await?;
    Ok(())
}

/// The guest agent of a VirtualMachineInstance reports addresses, the first one first.
async fn reports(world: &World, ns: &str, name: &str, addresses: &[&str]) -> anyhow::Result<()> {
    let interfaces = json!([
        {"name": "default", "ipAddress": addresses[0], "ipAddresses": addresses},
    ]);
    let patch = json!({"status": {"interfaces": interfaces}});
    world.merge(&world.vmis(ns), name, patch).await?;
    Ok(())
}

async fn be_8_no_traffic_where_a_guest_agent_says(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("be8", "be8");
    world.namespace(ns).await?;
    world.namespace("be8-other").await?;
    world.ranges(pool, &[subnet("10.80.0.0/24")]).await?;
    foreign_service(&world, "be8-other", "10.180.1.50", "10.180.1.60").await?;
    let cluster_ip = world.services("be8-other").get("foreign").await?;
    let cluster_ip = cluster_ip.spec.unwrap().cluster_ip.unwrap();
    let node = world.node_address("node1")?.to_string();
    for (name, address) in [("good", "10.180.0.1"), ("evil", "10.180.0.2")] {
        world
            .fake_vmi(ns, name, json!({"app": "web"}), Some(address))
            .await?;
    }
    let own = world.announced(ns, "web", vm(pool, "web")).await?;
    let both = ["10.180.0.2", "10.180.0.1"];
    world.ready_endpoints(ns, "web", &both).await?;
    // Another tenant's address, not announced.
    let others = world.served("be8-other", "guest", pool).await?;
    for (address, why) in [
        (&*node, "an address of a Node"),
        (&*cluster_ip, "the ClusterIP of a Service"),
        ("10.180.1.50", "an external IP of a Service"),
        ("10.180.1.60", "the external address of a Service"),
        (&*own, "the external address of a Service"),
        (&*others, "an address with an IPAllocation"),
        (DENIED, "denied to backends"),
    ] {
        // Regardless of its other addresses.
        reports(&world, ns, "evil", &[address, "10.180.0.2"]).await?;
        world.ready_endpoints(ns, "web", &["10.180.0.1"]).await?;
        let what = format!("{address} is refused");
        let lb = world
            .lb_until(ns, "web", &what, |lb| {
                condition(lb, "BackendAddressRefused")
                    .is_some_and(|m| m.contains("evil") && m.contains(address) && m.contains(why))
            })
            .await?;
        assert_eq!(ready(&lb).unwrap().1, "Ready");
        assert_eq!(lb.status.unwrap().backend_servers.unwrap(), ["10.180.0.1"]);
        let told = format!(
            "BackendAddressRefused: excluded from the backends: VirtualMachineInstance evil reports {address},"
        );
        world.event(ns, "LoadBalancer", "web", &told).await?;
    }
    // No backend is left.
    world
        .vmis(ns)
        .delete("good", &DeleteParams::default())
        .await?;
    world.ready_endpoints(ns, "web", &[DUMMY]).await?;
    let lb = world.lb_reason(ns, "web", "BackendsWithoutIP").await?;
    let (_, _, message) = ready(&lb).unwrap();
    assert!(message.contains("BackendAddressRefused"), "{message}");
    // A permitted address is used.
    reports(&world, ns, "evil", &["10.180.0.2", &node]).await?;
    world.ready_endpoints(ns, "web", &["10.180.0.2"]).await?;
    world
        .lb_until(ns, "web", "nothing is refused", |lb| {
            condition(lb, "BackendAddressRefused").is_none()
                && ready(lb).is_some_and(|(_, reason, _)| reason == "Ready")
        })
        .await?;
    Ok(())
}

async fn be_8_endpoints_follow_what_comes_later(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("be8-later", "be8-later");
    world.namespace(ns).await?;
    world.namespace("be8-later-other").await?;
    world.ranges(pool, &[subnet("10.81.0.0/24")]).await?;
    for (name, address) in [("a", "10.181.0.1"), ("b", "10.181.0.2")] {
        world
            .fake_vmi(ns, name, json!({"app": "web"}), Some(address))
            .await?;
    }
    world.announced(ns, "web", vm(pool, "web")).await?;
    let all = ["10.181.0.1", "10.181.0.2"];
    let without_b = async || world.ready_endpoints(ns, "web", &["10.181.0.1"]).await;
    let with_b = async || world.ready_endpoints(ns, "web", &all).await;
    with_b().await?;
    // A Service, and its deletion.
    foreign_service(&world, "be8-later-other", "10.181.0.2", "10.181.0.99").await?;
    without_b().await?;
    let services = world.services("be8-later-other");
    services.delete("foreign", &DeleteParams::default()).await?;
    with_b().await?;
    // A Node.
    let nodes: Api<Node> = Api::all(world.client());
    world
        .cluster
        .apply(&json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "be8-later"},
            "status": {"addresses": [{"type": "InternalIP", "address": "10.181.0.2"}]},
        }))
        .await?;
    let status =
        json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.181.0.2"}]}});
    nodes
        .patch_status("be8-later", &PatchParams::default(), &Patch::Merge(status))
        .await?;
    without_b().await?;
    nodes.delete("be8-later", &DeleteParams::default()).await?;
    with_b().await?;
    // An address that a pool allocates, and whose IPAllocation remains as history.
    world.ranges("be8-one", &[subnet("10.181.0.2/32")]).await?;
    let address = world.served("be8-later-other", "guest", "be8-one").await?;
    assert_eq!(address, "10.181.0.2");
    without_b().await?;
    world.remove("be8-later-other", "guest", &address).await?;
    without_b().await?;
    world
        .records()
        .delete("10.181.0.2", &DeleteParams::default())
        .await?;
    with_b().await?;
    Ok(())
}

async fn be_8_one_address_in_two_namespaces(world: Arc<World>) -> anyhow::Result<()> {
    let (spaces, pool) = (["be8-one", "be8-two"], "be8-shared");
    world.ranges(pool, &[subnet("10.82.0.0/24")]).await?;
    for ns in spaces {
        world.namespace(ns).await?;
        world
            .fake_vmi(ns, "a", json!({"app": "web"}), Some("10.182.0.1"))
            .await?;
        world.announced(ns, "web", vm(pool, "web")).await?;
    }
    for ns in spaces {
        world.ready_endpoints(ns, "web", &["10.182.0.1"]).await?;
        world.lb_reason(ns, "web", "Ready").await?;
        let told = "BackendAddressShared: a virtual machine of another namespace reports the same address: \
                    VirtualMachineInstance a reports 10.182.0.1";
        world.event(ns, "LoadBalancer", "web", told).await?;
    }
    reports(&world, spaces[1], "a", &["10.182.0.2"]).await?;
    for ns in spaces {
        let what = "the address is its own";
        let own = |lb: &_| condition(lb, "BackendAddressShared").is_none();
        world.lb_until(ns, "web", what, own).await?;
        // Reported once.
        let events = world.events(ns, "LoadBalancer", "web").await?;
        let told = events
            .iter()
            .filter(|e| e.starts_with("BackendAddressShared"));
        assert_eq!(told.count(), 1, "{events:?}");
    }
    Ok(())
}
