//! A Service that the API server refuses: who waits for its ports is told why, and who has them is not disturbed (SHR-3).

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use harvester_lb_api::{LoadBalancer, Phase};
use harvester_lb_e2e::World;
use harvester_lb_e2e::fake_kube_vip::announce;
use harvester_lb_e2e::policies;
use harvester_lb_e2e::read::ready;
use harvester_lb_fixtures::{subnet, with};
use k8s_openapi::api::core::v1::Service;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::group::{carries, has_role, naming, on_ports, serves, slice_is, stage};
use crate::support::RuleHelpers;

/// How long kube-vip has for a changed address, as the operator of these tests is told.
const MOVE_LIMIT: Duration = Duration::from_secs(3);
/// What the policy says.
const WHY: &str = "an administrator does not allow it";

/// Makes the API server refuse the Services of a namespace with this port.
async fn deny(world: &World, ns: &str, port: u16) -> anyhow::Result<()> {
    let is_denied = format!("object.spec.ports.exists(it, it.port == {port})");
    deny_if(world, ns, &is_denied, json!({"ports": [{"port": port}]})).await
}

/// The same of those for which the CEL expression is true, as for `spec`.
async fn deny_if(world: &World, ns: &str, is_denied: &str, spec: Value) -> anyhow::Result<()> {
    let rule = json!({
        "apiGroups": [""], "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"], "resources": ["services"],
    });
    let expression = format!("object.metadata.namespace != '{ns}' || !({is_denied})");
    let probe = json!({"metadata": {"name": "probe"}, "spec": spec});
    let probe: Service = serde_json::from_value(probe)?;
    let services = world.services(ns);
    policies::deny(world, ns, rule, (&expression, WHY), (&services, &probe)).await
}

/// Waits until the status of a load balancer says that the API server refuses the Service.
async fn is_told(world: &World, ns: &str, name: &str) -> anyhow::Result<LoadBalancer> {
    let lb = world.lb_reason(ns, name, "ApiError").await?;
    let (_, _, message) = ready(&lb).unwrap_or_default();
    ensure!(
        message.contains("primary-load-balancer is \"web\"")
            && message.contains("Service web")
            && message.contains(WHY),
        "{message}"
    );
    Ok(lb)
}

pub(super) async fn shr_3_who_waits_for_a_refused_service_is_told(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let ns = "shr3-refused";
    stage(&world, ns, "10.198.0.0/24", &["web", "api", "db"]).await?;
    let address = world
        .announced(ns, "web", on_ports(ns, "web", &[80]))
        .await?;
    world
        .lb_with(naming(ns, "api", "web"), on_ports(ns, "api", &[81]))
        .await?;
    serves(&world, ns, "api", &address).await?;
    deny(&world, ns, 7777).await?;
    let before = [
        world.lbs(ns).get("web").await?,
        world.lbs(ns).get("api").await?,
    ];
    world
        .lb_with(naming(ns, "db", "web"), on_ports(ns, "db", &[7777]))
        .await?;
    is_told(&world, ns, "db").await?;
    for lb in before {
        let name = lb.metadata.name.unwrap_or_default();
        let now = world.lbs(ns).get(&name).await?;
        let is_ready = ready(&now).is_some_and(|(status, _, _)| status == "True");
        ensure!(is_ready, "{name}: {:?}", ready(&now));
        ensure!(
            now.metadata.resource_version == lb.metadata.resource_version,
            "the status of {name} was written"
        );
    }
    // Nor does it keep others from joining and leaving.
    world
        .lb_with(naming(ns, "late", "web"), on_ports(ns, "api", &[8888]))
        .await?;
    serves(&world, ns, "late", &address).await?;
    carries(&world, ns, "web", &[80, 81, 8888], &["api", "late", "web"]).await?;
    world.delete_lb(ns, "late").await?;
    carries(&world, ns, "web", &[80, 81], &["api", "web"]).await?;
    is_told(&world, ns, "db").await?;
    policies::allow(&world, ns).await?;
    serves(&world, ns, "db", &address).await?;
    carries(&world, ns, "web", &[80, 81, 7777], &["api", "db", "web"]).await?;

    // The primary is gone, and so is the Service of those that share the address: it comes back with the ports that are allowed.
    world.delete_lb(ns, "web").await?;
    has_role(&world, ns, "api", "Holder").await?;
    carries(&world, ns, "web", &[81, 7777], &["api", "db"]).await?;
    deny(&world, ns, 81).await?;
    let services = world.services(ns);
    services.delete("web", &DeleteParams::default()).await?;
    is_told(&world, ns, "api").await?;
    let service = carries(&world, ns, "web", &[7777], &["db"]).await?;
    announce(&world.client(), &service).await?;
    serves(&world, ns, "db", &address).await?;
    policies::allow(&world, ns).await?;
    carries(&world, ns, "web", &[81, 7777], &["api", "db"]).await?;
    serves(&world, ns, "api", &address).await?;
    Ok(())
}

/// The Service goes on with the address that it has, and others join and leave meanwhile.
pub(super) async fn shr_3_a_refused_move_of_the_primary_ends_no_service(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let (ns, other) = ("shr3-refused-move", "shr3-refused-move-other");
    stage(&world, ns, "10.198.1.0/24", &["web", "api", "db"]).await?;
    world.ranges(other, &[subnet("10.198.2.0/24")]).await?;
    let address = world
        .announced(ns, "web", on_ports(ns, "web", &[80]))
        .await?;
    let of_any_pool = |app: &str, port: u16| {
        let spec = on_ports(ns, app, &[port]);
        with(spec, json!({"ipPool": Value::Null}))
    };
    let service = world.services(ns).get("web").await?;
    let is_denied =
        "has(object.spec.loadBalancerIP) && object.spec.loadBalancerIP.startsWith('10.198.2.')";
    let denied = json!({"ports": [{"port": 80}], "loadBalancerIP": "10.198.2.9"});
    deny_if(&world, ns, is_denied, denied).await?;
    let moves = json!({"spec": {"ipPool": other}});
    world.merge(&world.lbs(ns), "web", moves).await?;
    let lb = world.lb_reason(ns, "web", "ApiError").await?;
    let (_, _, message) = ready(&lb).unwrap_or_default();
    ensure!(message.contains(WHY), "{message}");
    for (name, port) in [("api", 81), ("db", 82)] {
        world
            .lb_with(naming(ns, name, "web"), of_any_pool(name, port))
            .await?;
        serves(&world, ns, name, &address).await?;
    }
    carries(&world, ns, "web", &[80, 81, 82], &["api", "db", "web"]).await?;
    slice_is(&world, ns, "web", "web", &["80-tcp"]).await?;
    // Longer than kube-vip would have for a changed address (REL-4).
    world.at_rest(ns, &[ns, other], 2 * MOVE_LIMIT).await?;
    let now = carries(&world, ns, "web", &[80, 81, 82], &["api", "db", "web"]).await?;
    ensure!(now.metadata.uid == service.metadata.uid, "another Service");
    let asked = now.spec.and_then(|spec| spec.load_balancer_ip);
    ensure!(asked.as_deref() == Some(&*address), "{asked:?}");
    let owner = world.phase(&address, Phase::Bound).await?;
    ensure!(owner == format!("{ns}/web"), "{owner}");
    world.delete_lb(ns, "api").await?;
    carries(&world, ns, "web", &[80, 82], &["db", "web"]).await?;
    policies::allow(&world, ns).await?;
    let asks = |service: &Service| {
        let spec = service.spec.as_ref();
        let asked = spec.and_then(|spec| spec.load_balancer_ip.as_deref());
        asked.is_some_and(|asked| asked.starts_with("10.198.2."))
    };
    let now = world
        .service_until(ns, "web", "the new address", asks)
        .await?;
    ensure!(now.metadata.uid == service.metadata.uid, "another Service");
    let asked = now.spec.and_then(|spec| spec.load_balancer_ip);
    let asked = asked.unwrap_or_default();
    world.ingress(ns, "web", json!([{ "ip": asked }])).await?;
    for name in ["web", "db"] {
        serves(&world, ns, name, &asked).await?;
    }
    world.phase(&address, Phase::Released).await?;
    Ok(())
}
