//! What becomes of an endpoint's ready value without and with a health check, and the addresses of DHCP (EPS-1, section
//! 8.5, OPS-3). That probes reach anybody is not needed here.

use std::sync::Arc;
use std::time::Duration;

use harvester_lb_e2e::world::{SOON, endpoints, ready};
use harvester_lb_e2e::{Test, World};
use harvester_lb_testkit::eventually;
use kube::api::DeleteParams;
use serde_json::json;

use super::support::{More, subnet, vm};

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![
        eps_1_ready_values_are_kept,
        hc_off_means_ready,
        hc_4_the_check_goes_on_when_an_edit_breaks_the_spec,
        dhcp_is_left_to_kube_vip,
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
    // A check that nobody answers, and that takes its time: what is ready stays so, what is new is not.
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
    let listeners = json!([{"name": "alt", "port": 81, "protocol": "TCP", "backendPort": 8081}]);
    let patch = json!({"spec": {"healthCheck": check, "listeners": listeners}});
    world.merge(&world.lbs(ns), "web", patch).await?;
    eventually("the listener", SOON, || async {
        let slice = world.slices(ns).get("web").await?;
        let ports = slice.ports.clone().unwrap_or_default();
        anyhow::ensure!(ports[0].port == Some(8081));
        assert_eq!(endpoints(&slice, true), ["10.135.0.1"]);
        assert_eq!(endpoints(&slice, false), ["10.135.0.2"]);
        Ok(Some(()))
    })
    .await?;
    world.lb_reason(ns, "web", "Ready").await?;
    // A new address is a new endpoint: nothing is ready, the stand-in comes.
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
    // Nobody answers, which shows after some six seconds; by then the load balancer cannot be served as it is.
    let check =
        json!({"port": 8080, "failureThreshold": 3, "periodSeconds": 2, "timeoutSeconds": 1});
    let probed = json!({"spec": {"healthCheck": check}});
    world.merge(&world.lbs(ns), "web", probed).await?;
    // One that comes now is not ready: the check is at work.
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
        // On again: what is ready stays so until it has failed; a new one is not.
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
    // Cluster type: the guest leases; nothing is written but the marker.
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
