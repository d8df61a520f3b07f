//! An endpoint's ready value without and with a health check, and the addresses of DHCP (EPS-1, section 8.5, OPS-3). No
//! probe needs to succeed here.

use std::sync::Arc;
use std::time::Duration;

use harvester_lb_e2e::read::{condition, endpoints, ready};
use harvester_lb_e2e::world::SOON;
use harvester_lb_e2e::{Test, World};
use harvester_lb_fixtures::subnet;
use harvester_lb_testkit::eventually;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::support::{RuleHelpers, vm};

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![
        eps_1_ready_values_are_kept,
        hc_off_means_ready,
        hc_4_the_check_goes_on_when_an_edit_breaks_the_spec,
        dhcp_is_left_to_kube_vip,
        be_5_machines_that_are_over_or_paused,
        be_6_endpoints_follow_while_the_spec_is_refused,
        be_6_endpoints_follow_while_a_deletion_waits,
    ]
}

const DUMMY: &str = "10.52.0.255";

async fn eps_1_ready_values_are_kept(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("eps1", "eps1");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.35.0.0/24")]).await?;
    world
        .fake_vmi(ns, "a", json!({"app": "web"}), Some("10.135.0.1"))
        .await?;
    world.announced(ns, "web", vm(pool, "web")).await?;
    world.ready_endpoints(ns, "web", &["10.135.0.1"]).await?;
    // A slow check without an answer: ready endpoints stay ready, new ones are not.
    let check = json!({"port": 8080, "periodSeconds": 600, "timeoutSeconds": 1});
    world
        .merge(
            &world.lbs(ns),
            "web",
            json!({"spec": {"healthCheck": check}}),
        )
        .await?;
    world
        .fake_vmi(ns, "b", json!({"app": "web"}), Some("10.135.0.2"))
        .await?;
    eventually("the second is not ready, the first stays", SOON, || async {
        let slice = world.slices(ns).get("web").await?;
        let (up, down) = (endpoints(&slice, true), endpoints(&slice, false));
        anyhow::ensure!(
            up == ["10.135.0.1"] && down == ["10.135.0.2"],
            "{up:?} {down:?}"
        );
        Ok(Some(()))
    })
    .await?;
    // Other settings of the check, another listener: both keep their values.
    let check = json!({"periodSeconds": 700, "failureThreshold": 9});
    let listeners = json!([
        {"name": "alt", "port": 81, "protocol": "TCP", "backendPort": 8081},
        {"name": "http", "port": 80, "protocol": "TCP", "backendPort": 8080},
    ]);
    let patch = json!({"spec": {"healthCheck": check, "listeners": listeners}});
    world.merge(&world.lbs(ns), "web", patch).await?;
    eventually("the listener", SOON, || async {
        let slice = world.slices(ns).get("web").await?;
        let ports = slice.ports.clone().unwrap_or_default();
        anyhow::ensure!(ports.iter().any(|port| port.port == Some(8081)));
        assert_eq!(endpoints(&slice, true), ["10.135.0.1"]);
        assert_eq!(endpoints(&slice, false), ["10.135.0.2"]);
        Ok(Some(()))
    })
    .await?;
    world.lb_reason(ns, "web", "Ready").await?;
    // A new address is a new endpoint: none is ready, the dummy endpoint is added.
    let moved = json!({"status": {"interfaces": [{"name": "default", "ipAddress": "10.135.0.9"}]}});
    world.merge(&world.vmis(ns), "a", moved).await?;
    let slice = world.ready_endpoints(ns, "web", &[DUMMY]).await?;
    assert_eq!(endpoints(&slice, false), ["10.135.0.9", "10.135.0.2"]);
    let lb = world.lb_reason(ns, "web", "BackendsUnhealthy").await?;
    let (_, _, message) = ready(&lb).unwrap();
    assert!(
        message.contains(" 2 backends") && message.contains("port 8080"),
        "{message}"
    );
    Ok(())
}

async fn hc_4_the_check_goes_on_when_an_edit_breaks_the_spec(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let (ns, pool) = ("hc4-broken", "hc4-broken");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.49.0.0/24")]).await?;
    world
        .fake_vmi(ns, "a", json!({"app": "web"}), Some("10.149.0.1"))
        .await?;
    world.announced(ns, "web", vm(pool, "web")).await?;
    world.ready_endpoints(ns, "web", &["10.149.0.1"]).await?;
    // Probes fail, which shows after about six seconds; by then the LoadBalancer cannot be served as it is.
    let check =
        json!({"port": 8080, "failureThreshold": 3, "periodSeconds": 2, "timeoutSeconds": 1});
    let probed = json!({"spec": {"healthCheck": check}});
    world.merge(&world.lbs(ns), "web", probed).await?;
    // A new one is not ready: the check is active.
    world
        .fake_vmi(ns, "b", json!({"app": "web"}), Some("10.149.0.2"))
        .await?;
    eventually("the second waits for its check", SOON, || async {
        let slice = world.slices(ns).get("web").await?;
        Ok((endpoints(&slice, false).contains(&"10.149.0.2")).then_some(()))
    })
    .await?;
    let broken = json!({"spec": {"backendServerSelector": {"app": []}}});
    world.merge(&world.lbs(ns), "web", broken).await?;
    world.lb_reason(ns, "web", "InvalidSelector").await?;
    let slice = world.ready_endpoints(ns, "web", &[DUMMY]).await?;
    assert_eq!(endpoints(&slice, false), ["10.149.0.1", "10.149.0.2"]);
    Ok(())
}

pub(crate) async fn hc_7_a_check_port_of_no_listener_is_served_and_named(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let (ns, pool) = ("hc7", "hc7");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.116.0.0/24")]).await?;
    world
        .fake_vmi(ns, "a", json!({"app": "web"}), Some("10.216.0.1"))
        .await?;
    let mut spec = vm(pool, "web");
    // The front port, a common mistake; the check has no verdict yet.
    spec["healthCheck"] = json!({"port": 80, "periodSeconds": 600});
    world.announced(ns, "web", spec).await?;
    let type_ = "HealthCheckPortMismatch";
    let lb = world
        .lb_until(ns, "web", type_, |lb| condition(lb, type_).is_some())
        .await?;
    let message = condition(&lb, type_).unwrap();
    assert!(
        message.contains(" 80 ") && message.contains(" 8080"),
        "{message}"
    );
    world.event(ns, "LoadBalancer", "web", type_).await?;
    // The check is active: new endpoints wait for it.
    let lb = world.lb_reason(ns, "web", "BackendsUnhealthy").await?;
    assert!(ready(&lb).unwrap().2.contains("port 80 "));
    let marker = "FirstHealthChecks";
    assert!(condition(&lb, marker).is_some(), "no fault yet: {lb:?}");
    let events = world.events(ns, "LoadBalancer", "web").await?;
    assert!(
        !events.iter().any(|e| e.contains("BackendsUnhealthy")),
        "{events:?}"
    );
    let right = json!({"spec": {"healthCheck": {"port": 8080}}});
    world.merge(&world.lbs(ns), "web", right).await?;
    world
        .lb_until(ns, "web", "no mismatch", |lb| {
            condition(lb, type_).is_none()
        })
        .await?;
    let off = json!({"spec": {"healthCheck": null}});
    world.merge(&world.lbs(ns), "web", off).await?;
    let lb = world.lb_reason(ns, "web", "Ready").await?;
    assert_eq!(condition(&lb, marker), None);
    Ok(())
}

async fn hc_off_means_ready(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("hc-off", "hc-off");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.36.0.0/24")]).await?;
    world
        .fake_vmi(ns, "a", json!({"app": "web"}), Some("10.136.0.1"))
        .await?;
    let mut spec = vm(pool, "web");
    spec["healthCheck"] = json!({"port": 8080, "periodSeconds": 600});
    world.announced(ns, "web", spec).await?;
    let unhealthy = async || {
        eventually("not ready, with the stand-in", SOON, || async {
            let slice = world.slices(ns).get("web").await?;
            let (up, down) = (endpoints(&slice, true), endpoints(&slice, false));
            anyhow::ensure!(up == [DUMMY] && down == ["10.136.0.1"], "{up:?} {down:?}");
            Ok(Some(()))
        })
        .await?;
        let lb = world.lb_reason(ns, "web", "BackendsUnhealthy").await?;
        let servers = lb.status.unwrap().backend_servers.unwrap();
        assert_eq!(servers, ["10.136.0.1"]);
        anyhow::Ok(())
    };
    unhealthy().await?;
    let lbs = world.lbs(ns);
    for off in [json!(null), json!({"port": 0})] {
        world
            .merge(&lbs, "web", json!({"spec": {"healthCheck": off}}))
            .await?;
        let slice = world.ready_endpoints(ns, "web", &["10.136.0.1"]).await?;
        assert!(endpoints(&slice, false).is_empty());
        world.lb_reason(ns, "web", "Ready").await?;
        // Enabled again: ready endpoints stay ready until they fail; a new one is not.
        world
            .merge(
                &lbs,
                "web",
                json!({"spec": {"healthCheck": {"port": 8080, "periodSeconds": 600}}}),
            )
            .await?;
        world.vmis(ns).delete("a", &DeleteParams::default()).await?;
        world.lb_reason(ns, "web", "NoBackend").await?;
        world
            .fake_vmi(ns, "a", json!({"app": "web"}), Some("10.136.0.1"))
            .await?;
        unhealthy().await?;
    }
    Ok(())
}

async fn dhcp_is_left_to_kube_vip(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("dhcp", "no-pool-at-all");
    world.namespace(ns).await?;
    world
        .fake_vmi(ns, "a", json!({"app": "web"}), Some("10.137.0.1"))
        .await?;
    let mut spec = vm(pool, "web");
    spec["ipam"] = json!("dhcp");
    world.lb(ns, "web", spec).await?;
    let lb = world.lb_reason(ns, "web", "WaitingForExternalIP").await?;
    let status = json!(lb.status);
    assert_eq!(status["allocatedAddress"], json!({"ip": "0.0.0.0"}));
    let service = world.service_until(ns, "web", "exists", |_| true).await?;
    assert_eq!(
        service.spec.unwrap().load_balancer_ip.as_deref(),
        Some("0.0.0.0")
    );
    let lease = json!({
        "metadata": {"annotations": {
            "kube-vip.io/hwaddr": "00:00:6c:11:22:33", "kube-vip.io/requestedIP": "10.37.0.50",
        }},
    });
    world.merge(&world.services(ns), "web", lease).await?;
    world
        .ingress(ns, "web", json!([{"ip": "10.37.0.50"}]))
        .await?;
    let lb = world.lb_reason(ns, "web", "Ready").await?;
    assert_eq!(lb.status.unwrap().address.as_deref(), Some("10.37.0.50"));
    let listeners = json!([{"name": "alt", "port": 81, "protocol": "TCP", "backendPort": 8081}]);
    world
        .merge(
            &world.lbs(ns),
            "web",
            json!({"spec": {"listeners": listeners}}),
        )
        .await?;
    let service = world
        .service_until(ns, "web", "port 81", |s| {
            let ports = s.spec.as_ref().and_then(|s| s.ports.as_ref());
            ports.is_some_and(|p| p[0].port == 81)
        })
        .await?;
    let annotations = service.metadata.annotations.unwrap();
    assert_eq!(annotations["kube-vip.io/hwaddr"], "00:00:6c:11:22:33");
    assert_eq!(annotations["kube-vip.io/requestedIP"], "10.37.0.50");
    // Cluster type: the guest cluster has the DHCP lease; only the marker is written.
    world
        .lb(
            ns,
            "guest",
            json!({"ipam": "dhcp", "workloadType": "cluster"}),
        )
        .await?;
    let lb = world.lb_reason(ns, "guest", "Ready").await?;
    let status = lb.status.unwrap();
    assert_eq!(json!(status.allocated_address), json!({"ip": "0.0.0.0"}));
    assert_eq!(status.address, None);
    world.at_rest(ns, &[], Duration::from_secs(1)).await?;
    world.delete_lb(ns, "web").await?;
    world.gone(&world.services(ns), "web").await?;
    Ok(())
}

/// Waits until an EndpointSlice has these ready and these other endpoints, including the dummy endpoint.
async fn served(world: &World, ns: &str, up: &[&str], down: &[&str]) -> anyhow::Result<()> {
    eventually(&format!("{ns}: {up:?} up, {down:?} down"), SOON, || async {
        let slice = world.slices(ns).get("web").await?;
        let is = (endpoints(&slice, true), endpoints(&slice, false));
        anyhow::ensure!(is.0 == up && is.1 == down, "{is:?}");
        Ok(Some(()))
    })
    .await
}

/// KubeVirt reports the phase of a VirtualMachineInstance.
async fn is_at(
    world: &World,
    ns: &str,
    name: &str,
    phase: &str,
    paused: Option<&str>,
) -> anyhow::Result<()> {
    let conditions: Vec<Value> = paused
        .map(|reason| json!({"type": "Paused", "status": "True", "reason": reason}))
        .into_iter()
        .collect();
    let status = json!({"status": {"phase": phase, "conditions": conditions}});
    world.merge(&world.vmis(ns), name, status).await?;
    Ok(())
}

async fn be_5_machines_that_are_over_or_paused(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("be5", "be5");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.83.0.0/24")]).await?;
    let app = || json!({"app": "web"});
    let [a, b] = ["10.183.0.1", "10.183.0.2"];
    world.fake_vmi(ns, "a", app(), Some(a)).await?;
    world.fake_vmi(ns, "b", app(), Some(b)).await?;
    world.announced(ns, "web", vm(pool, "web")).await?;
    served(&world, ns, &[a, b], &[]).await?;
    is_at(&world, ns, "a", "Running", Some("PausedByUser")).await?;
    served(&world, ns, &[b], &[a]).await?;
    // The pause of a migration does not count.
    is_at(&world, ns, "a", "Running", Some("PausedByMigrationMonitor")).await?;
    served(&world, ns, &[a, b], &[]).await?;
    // If no other backend is ready, a paused one is better than none.
    is_at(&world, ns, "a", "Running", Some("PausedIOError")).await?;
    served(&world, ns, &[b], &[a]).await?;
    is_at(&world, ns, "b", "Succeeded", None).await?;
    served(&world, ns, &[a], &[b]).await?;
    let lb = world.lb_reason(ns, "web", "Ready").await?;
    assert_eq!(lb.status.unwrap().backend_servers.unwrap(), [a, b]);
    is_at(&world, ns, "a", "Failed", None).await?;
    served(&world, ns, &[DUMMY], &[a, b]).await?;
    let lb = world.lb_reason(ns, "web", "BackendsUnhealthy").await?;
    let (_, _, message) = ready(&lb).unwrap();
    assert!(message.contains("1 Succeeded, 1 Failed"), "{message}");
    // Another VirtualMachineInstance has the address by now.
    world.fake_vmi(ns, "c", app(), Some(a)).await?;
    served(&world, ns, &[a], &[b]).await?;
    let lb = world.lb_reason(ns, "web", "Ready").await?;
    assert_eq!(lb.status.unwrap().backend_servers.unwrap(), [b, a]);
    // With a slow health check.
    let check = json!({"spec": {"healthCheck": {"port": 8080, "periodSeconds": 600}}});
    world.merge(&world.lbs(ns), "web", check).await?;
    is_at(&world, ns, "c", "Succeeded", None).await?;
    served(&world, ns, &[DUMMY], &[a, b]).await?;
    let lb = world.lb_reason(ns, "web", "BackendsUnhealthy").await?;
    let (_, _, message) = ready(&lb).unwrap();
    assert!(message.contains("1 Succeeded, 1 Failed"), "{message}");
    Ok(())
}

/// VirtualMachineInstances of the LoadBalancer, at these addresses.
async fn machines(world: &World, ns: &str, addresses: &[(&str, &str)]) -> anyhow::Result<()> {
    for (name, address) in addresses {
        world
            .fake_vmi(ns, name, json!({"app": "web"}), Some(address))
            .await?;
    }
    Ok(())
}

async fn be_6_endpoints_follow_while_the_spec_is_refused(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("be6", "be6");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.84.0.0/24")]).await?;
    let [a, b, c, d] = ["10.184.0.1", "10.184.0.2", "10.184.0.3", "10.184.0.4"];
    machines(&world, ns, &[("a", a), ("b", b), ("c", c), ("d", d)]).await?;
    world.announced(ns, "web", vm(pool, "web")).await?;
    served(&world, ns, &[a, b, c, d], &[]).await?;
    // The selector itself is invalid.
    let broken = json!({"spec": {"backendServerSelector": {"app": []}}});
    world.merge(&world.lbs(ns), "web", broken).await?;
    world.lb_reason(ns, "web", "InvalidSelector").await?;
    // No new backend is added.
    machines(&world, ns, &[("e", "10.184.0.5")]).await?;
    world.vmis(ns).delete("a", &DeleteParams::default()).await?;
    served(&world, ns, &[b, c, d], &[]).await?;
    let moved = json!({"status": {"interfaces": [{"name": "default", "ipAddress": "10.184.0.9"}]}});
    world.merge(&world.vmis(ns), "b", moved).await?;
    served(&world, ns, &[c, d], &[]).await?;
    is_at(&world, ns, "c", "Running", Some("PausedByUser")).await?;
    served(&world, ns, &[d], &[c]).await?;
    // An address that is refused from now on (BE-8).
    world.ranges("be6-one", &[subnet("10.184.0.4/32")]).await?;
    assert_eq!(world.served(ns, "guest", "be6-one").await?, d);
    served(&world, ns, &[c], &[]).await?;
    // Restarted with the same name: a different VirtualMachineInstance.
    world.vmis(ns).delete("c", &DeleteParams::default()).await?;
    machines(&world, ns, &[("c", c)]).await?;
    served(&world, ns, &[DUMMY], &[]).await?;
    let repaired = json!({"spec": {"backendServerSelector": {"app": ["web"]}}});
    world.merge(&world.lbs(ns), "web", repaired).await?;
    served(&world, ns, &["10.184.0.9", c, "10.184.0.5"], &[]).await?;
    world
        .lb_until(ns, "web", "d is refused", |lb| {
            condition(lb, "BackendAddressRefused").is_some_and(|m| m.contains(d))
        })
        .await?;
    Ok(())
}

async fn be_6_endpoints_follow_while_a_deletion_waits(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("be6-held", "be6-held");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.85.0.0/24")]).await?;
    let [a, b] = ["10.185.0.1", "10.185.0.2"];
    machines(&world, ns, &[("a", a), ("b", b)]).await?;
    world.announced(ns, "web", vm(pool, "web")).await?;
    served(&world, ns, &[a, b], &[]).await?;
    let held = json!({"metadata": {"finalizers": ["example.org/held"]}});
    world.merge(&world.lbs(ns), "web", held).await?;
    world.delete_lb(ns, "web").await?;
    machines(&world, ns, &[("c", "10.185.0.3")]).await?;
    world.vmis(ns).delete("a", &DeleteParams::default()).await?;
    served(&world, ns, &[b], &[]).await?;
    is_at(&world, ns, "b", "Failed", None).await?;
    served(&world, ns, &[DUMMY], &[b]).await?;
    // Its Service is not recreated, and the rest is deleted with it.
    let free = json!({"metadata": {"finalizers": null}});
    world.merge(&world.lbs(ns), "web", free).await?;
    world.gone(&world.slices(ns), "web").await?;
    Ok(())
}
