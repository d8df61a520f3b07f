//! Changes of load balancers that share an address: to another group, to another address, to a pool that has nothing for the primary,
//! and a Service of somebody else under the name of the group (SHR-1, SHR-4, SHR-5, SHR-7, REL-4, REQ-4).

use std::sync::Arc;

use anyhow::ensure;
use harvester_lb_api::{LoadBalancer, Phase, keys};
use harvester_lb_e2e::read::{allocated, condition, ready};
use harvester_lb_e2e::{Test, World};
use harvester_lb_fixtures::{subnet, with};
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use super::sharing::{
    carries, has_role, is_alone, name_primary, naming, on_ports, serves, slice_is, stage,
};
use super::support::RuleHelpers;

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![
        shr_4_a_service_of_somebody_else_has_the_name_of_the_group,
        rel_4_req_4_a_primary_moves_with_all_that_share_its_address,
        shr_5_a_primary_that_nothing_is_free_for_keeps_the_address_that_others_share,
        shr_7_from_one_group_to_another,
    ]
}

async fn shr_7_from_one_group_to_another(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "shr7-groups";
    stage(&world, ns, "10.244.4.0/24", &["web"]).await?;
    let first = world.announced(ns, "p", on_ports(ns, "web", &[80])).await?;
    let second = world.announced(ns, "q", on_ports(ns, "web", &[80])).await?;
    world
        .lb_with(naming(ns, "m", "p"), on_ports(ns, "web", &[81]))
        .await?;
    serves(&world, ns, "m", &first).await?;
    carries(&world, ns, "p", &[80, 81], &["m", "p"]).await?;
    for (to, address, from) in [("q", &second, "p"), ("p", &first, "q")] {
        world
            .merge(&world.lbs(ns), "m", name_primary(Some(to)))
            .await?;
        serves(&world, ns, "m", address).await?;
        carries(&world, ns, to, &[80, 81], &["m", to]).await?;
        slice_is(&world, ns, "m", to, &["81-tcp"]).await?;
        is_alone(&world, ns, from).await?;
        for (name, address) in [("p", &first), ("q", &second)] {
            let owner = world.phase(address, Phase::Bound).await?;
            ensure!(owner == format!("{ns}/{name}"), "{address}: {owner}");
        }
    }
    // The one that it left may go, with its address.
    world.delete_lb(ns, "q").await?;
    world.phase(&second, Phase::Released).await?;
    serves(&world, ns, "m", &first).await?;
    Ok(())
}

async fn shr_5_a_primary_that_nothing_is_free_for_keeps_the_address_that_others_share(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let ns = "shr5-full";
    stage(&world, ns, "10.244.5.0/24", &["web"]).await?;
    let full = "shr5-full-other";
    world.ranges(full, &[subnet("10.244.6.0/30")]).await?;
    // Its only address besides that of the gateway.
    let mut spec = on_ports(full, "web", &[80]);
    spec["ipPool"] = full.into();
    world.announced(ns, "x", spec).await?;
    let address = world
        .announced(ns, "web", on_ports(ns, "web", &[80]))
        .await?;
    world
        .lb_with(naming(ns, "b", "web"), on_ports(ns, "web", &[81]))
        .await?;
    serves(&world, ns, "b", &address).await?;
    let is_of = |pool: &str| json!({"spec": {"ipPool": pool}});
    world.merge(&world.lbs(ns), "web", is_of(full)).await?;
    world
        .lb_until(ns, "web", "not ready", |lb| {
            ready(lb).is_some_and(|(status, _, _)| status == "False")
        })
        .await?;
    world
        .at_rest(ns, &[ns], std::time::Duration::from_secs(1))
        .await?;
    carries(&world, ns, "web", &[80, 81], &["b", "web"]).await?;
    let owner = world.phase(&address, Phase::Bound).await?;
    ensure!(owner == format!("{ns}/web"), "{owner}");
    serves(&world, ns, "b", &address).await?;
    world.merge(&world.lbs(ns), "web", is_of(ns)).await?;
    serves(&world, ns, "web", &address).await?;
    serves(&world, ns, "b", &address).await?;
    Ok(())
}

/// To an address that it requests, and to another pool. There is one Service, which asks for the new address; then the status of each
/// names that, and the former one is released. Nobody waits for the Service, which has the ports.
async fn rel_4_req_4_a_primary_moves_with_all_that_share_its_address(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let (ns, other) = ("shr3-moves", "shr3-moves-other");
    stage(&world, ns, "10.244.11.0/24", &["web"]).await?;
    world.ranges(other, &[subnet("10.244.12.0/24")]).await?;
    let mut address = world
        .announced(ns, "web", on_ports(ns, "web", &[80]))
        .await?;
    // One that names the pool could not follow.
    let free = with(on_ports(ns, "web", &[81]), json!({"ipPool": Value::Null}));
    world.lb_with(naming(ns, "b", "web"), free).await?;
    serves(&world, ns, "b", &address).await?;
    let (ports, owners) = ([80, 81], ["b", "web"]);
    let service = carries(&world, ns, "web", &ports, &owners).await?;
    let waiting = waiting_events(&world, ns).await?;
    let requests = |address: Value| json!({ keys::ANNOTATION_REQUESTED_ADDRESS: address });
    for (edit, pool, to) in [
        (
            json!({"metadata": {"annotations": requests(json!("10.244.11.77"))}}),
            ns,
            "10.244.11.77",
        ),
        (
            json!({"metadata": {"annotations": requests(Value::Null)}, "spec": {"ipPool": other}}),
            other,
            "10.244.12.2",
        ),
    ] {
        world.merge(&world.lbs(ns), "web", edit).await?;
        let asks = |service: &Service| {
            let spec = service.spec.as_ref();
            spec.and_then(|spec| spec.load_balancer_ip.as_deref()) == Some(to)
        };
        let now = world.service_until(ns, "web", to, asks).await?;
        ensure!(now.metadata.uid == service.metadata.uid, "another Service");
        world.ingress(ns, "web", json!([{ "ip": to }])).await?;
        for (name, role) in [("web", "Primary"), ("b", "Secondary")] {
            let lb = serves(&world, ns, name, to).await?;
            let given = lb.status.and_then(|status| status.allocated_address);
            let of = given.and_then(|given| given.ip_pool);
            ensure!(of.as_deref() == Some(pool), "{name}: {of:?}");
            let lb = has_role(&world, ns, name, role).await?;
            let message = condition(&lb, "AddressShared").unwrap_or_default();
            ensure!(message.contains(to), "{name}: {message}");
        }
        carries(&world, ns, "web", &ports, &owners).await?;
        for (name, port) in [("web", "80-tcp"), ("b", "81-tcp")] {
            slice_is(&world, ns, name, "web", &[port]).await?;
        }
        let second = world.services(ns).get_opt("b").await?;
        ensure!(second.is_none(), "a Service of its own: {second:?}");
        for (address, phase) in [(&*address, Phase::Released), (to, Phase::Bound)] {
            let owner = world.phase(address, phase).await?;
            ensure!(owner == format!("{ns}/web"), "{address}: {owner}");
        }
        world.event(ns, "LoadBalancer", "b", to).await?;
        to.clone_into(&mut address);
    }
    let now = waiting_events(&world, ns).await?;
    ensure!(now == waiting, "{now:?}, before the moves {waiting:?}");
    Ok(())
}

/// One whose spec is refused after it has joined: it is served as before, and its status names the address to which its primary moves, so
/// that the former one is released.
pub(crate) async fn rel_4_one_whose_spec_is_refused_moves_with_the_address_that_it_shares(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let (ns, other) = ("rel4-refused", "rel4-refused-other");
    stage(&world, ns, "10.244.13.0/24", &["web"]).await?;
    world.ranges(other, &[subnet("10.244.14.0/24")]).await?;
    let before = world
        .announced(ns, "web", on_ports(ns, "web", &[80]))
        .await?;
    let free = with(on_ports(ns, "web", &[81]), json!({"ipPool": Value::Null}));
    world.lb_with(naming(ns, "b", "web"), free).await?;
    serves(&world, ns, "b", &before).await?;
    let (ports, owners) = ([80, 81], ["b", "web"]);
    carries(&world, ns, "web", &ports, &owners).await?;
    let empty = json!({"spec": {"listeners": []}});
    world.merge(&world.lbs(ns), "b", empty).await?;
    world.lb_reason(ns, "b", "InvalidListener").await?;
    let named = json!({"spec": {"ipPool": other}});
    world.merge(&world.lbs(ns), "web", named).await?;
    let to = "10.244.14.2";
    world
        .service_until(ns, "web", to, |service| {
            let spec = service.spec.as_ref();
            spec.and_then(|spec| spec.load_balancer_ip.as_deref()) == Some(to)
        })
        .await?;
    world.ingress(ns, "web", json!([{ "ip": to }])).await?;
    serves(&world, ns, "web", to).await?;
    let follows = |lb: &LoadBalancer| {
        let status = lb.status.as_ref();
        status.and_then(|status| status.address.as_deref()) == Some(to)
            && allocated(lb).as_deref() == Some(to)
            && condition(lb, "Announced").as_deref() == Some(to)
            && condition(lb, "AddressShared").is_some_and(|message| message.contains(to))
    };
    let lb = world.lb_until(ns, "b", to, follows).await?;
    let reason = ready(&lb).map(|(_, reason, _)| reason);
    ensure!(reason.as_deref() == Some("InvalidListener"), "{lb:?}");
    carries(&world, ns, "web", &ports, &owners).await?;
    slice_is(&world, ns, "b", "web", &["81-tcp"]).await?;
    for (address, phase) in [(&*before, Phase::Released), (to, Phase::Bound)] {
        let owner = world.phase(address, phase).await?;
        ensure!(owner == format!("{ns}/web"), "{address}: {owner}");
    }
    Ok(())
}

/// The Events by which `b` waits for a port of the Service of `web`.
async fn waiting_events(world: &World, ns: &str) -> anyhow::Result<Vec<String>> {
    let mut all = world.events(ns, "LoadBalancer", "b").await?;
    all.retain(|event| event.contains("waiting until Service"));
    Ok(all)
}

async fn shr_4_a_service_of_somebody_else_has_the_name_of_the_group(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let ns = "shr4-foreign";
    stage(&world, ns, "10.244.7.0/24", &["web"]).await?;
    let foreign: Service = serde_json::from_value(json!({
        "metadata": {"namespace": ns, "name": "web", "labels": {"app": "theirs"}},
        "spec": {"ports": [{"name": "http", "port": 8080}]},
    }))?;
    let services = world.services(ns);
    let created = services.create(&PostParams::default(), &foreign).await?;
    world.lb(ns, "web", on_ports(ns, "web", &[80])).await?;
    world
        .lb_with(naming(ns, "b", "web"), on_ports(ns, "web", &[81]))
        .await?;
    world.lb_reason(ns, "web", "NameConflict").await?;
    world
        .lb_until(ns, "b", "not ready", |lb| {
            ready(lb).is_some_and(|(status, _, _)| status == "False")
        })
        .await?;
    world
        .at_rest(ns, &[ns], std::time::Duration::from_secs(1))
        .await?;
    let now = services.get("web").await?;
    ensure!(
        now.metadata.resource_version == created.metadata.resource_version,
        "it was changed: {now:#?}"
    );
    services.delete("web", &DeleteParams::default()).await?;
    let address = world.lb_address(ns, "web").await?;
    world.ingress(ns, "web", json!([{ "ip": address }])).await?;
    has_role(&world, ns, "b", "Secondary").await?;
    carries(&world, ns, "web", &[80, 81], &["b", "web"]).await?;
    serves(&world, ns, "b", &address).await?;
    Ok(())
}
