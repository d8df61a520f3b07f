//! kube-vip's annotations on a load balancer, and their copies on its Service (KVA-1, KVA-2).

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_api::condition;
use harvester_lb_e2e::{Test, World};
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use super::sharing::{carries, name_primary, naming, on_ports, serves, slice_is, stage};
use super::support::RuleHelpers;

const INTERFACE: &str = "kube-vip.io/serviceInterface";
const HOSTNAME: &str = "kube-vip.io/loadbalancerHostname";
const ELECTION: &str = "kube-vip.io/forcePerServiceElection";
const FLUSH: &str = "kube-vip.io/flush-conntrack";

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![
        kva_1_annotations_follow_the_load_balancer,
        kva_1_in_a_group_those_of_the_primary_count,
        kva_2_an_interface_only_if_it_is_allowed,
    ]
}

/// kube-vip's annotations on a Service.
fn of_kube_vip(service: &Service) -> BTreeMap<String, String> {
    let all = service.metadata.annotations.iter().flatten();
    all.filter(|(key, _)| key.starts_with("kube-vip.io/"))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

async fn has(world: &World, ns: &str, name: &str, wanted: &[(&str, &str)]) -> anyhow::Result<()> {
    let wanted: BTreeMap<String, String> = wanted
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    world
        .service_until(ns, name, &format!("{wanted:?}"), |service| {
            of_kube_vip(service) == wanted
        })
        .await?;
    Ok(())
}

fn annotations(all: &Value) -> Value {
    json!({"metadata": {"annotations": all}})
}

async fn kva_1_annotations_follow_the_load_balancer(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "kva1";
    stage(&world, ns, "10.244.8.0/24", &["web"]).await?;
    let metadata = json!({"namespace": ns, "name": "web", "annotations": {
        HOSTNAME: "a.example", "kube-vip.io/dhcp-broadcast": "true", "kube-vip.io/egress": "true",
        ELECTION: "true",
    }});
    world.lb_with(metadata, on_ports(ns, "web", &[80])).await?;
    has(
        &world,
        ns,
        "web",
        &[
            (HOSTNAME, "a.example"),
            ("kube-vip.io/dhcp-broadcast", "true"),
            (ELECTION, "true"),
        ],
    )
    .await?;
    // Somebody else's, and one that is edited on the Service.
    let edit = annotations(&json!({"kube-vip.io/forwardUPNP": "true", HOSTNAME: "b.example"}));
    world.merge(&world.services(ns), "web", edit).await?;
    has(
        &world,
        ns,
        "web",
        &[
            (HOSTNAME, "a.example"),
            ("kube-vip.io/dhcp-broadcast", "true"),
            (ELECTION, "true"),
            ("kube-vip.io/forwardUPNP", "true"),
        ],
    )
    .await?;
    let edit =
        annotations(&json!({HOSTNAME: null, "kube-vip.io/dhcp-broadcast": null, ELECTION: null}));
    world.merge(&world.lbs(ns), "web", edit).await?;
    has(&world, ns, "web", &[("kube-vip.io/forwardUPNP", "true")]).await?;
    let service = world.services(ns).get("web").await?;
    let left = service.metadata.annotations.unwrap_or_default();
    ensure!(left.len() == 1, "{left:?}");
    Ok(())
}

async fn kva_1_in_a_group_those_of_the_primary_count(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "kva1-group";
    stage(&world, ns, "10.244.9.0/24", &["web"]).await?;
    let metadata = json!({"namespace": ns, "name": "web", "annotations": { HOSTNAME: "primary" }});
    world.lb_with(metadata, on_ports(ns, "web", &[80])).await?;
    let address = world.lb_address(ns, "web").await?;
    world.ingress(ns, "web", json!([{ "ip": address }])).await?;
    world
        .lb_with(naming(ns, "b", "web"), on_ports(ns, "web", &[81]))
        .await?;
    serves(&world, ns, "b", &address).await?;
    carries(&world, ns, "web", &[80, 81], &["b", "web"]).await?;
    // The EndpointSlice of the first load balancer takes the names of the shared Service step by step (SHR-4).
    slice_is(&world, ns, "web", "web", &["80-tcp"]).await?;
    slice_is(&world, ns, "b", "web", &["81-tcp"]).await?;
    let own = annotations(&json!({ FLUSH: "true" }));
    world.merge(&world.lbs(ns), "b", own).await?;
    world
        .at_rest(ns, &[ns], std::time::Duration::from_secs(1))
        .await?;
    has(&world, ns, "web", &[(HOSTNAME, "primary")]).await?;
    world.delete_lb(ns, "web").await?;
    carries(&world, ns, "web", &[81], &["b"]).await?;
    has(&world, ns, "web", &[(HOSTNAME, "primary")]).await?;
    let edited = annotations(&json!({ FLUSH: "false" }));
    world.merge(&world.lbs(ns), "b", edited).await?;
    has(&world, ns, "web", &[(FLUSH, "false")]).await?;
    // It leaves: what is made for it has its own.
    world.merge(&world.lbs(ns), "b", name_primary(None)).await?;
    has(&world, ns, "b", &[(FLUSH, "false")]).await
}

async fn kva_2_an_interface_only_if_it_is_allowed(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "kva2";
    stage(&world, ns, "10.244.10.0/24", &["web"]).await?;
    let metadata = json!({"namespace": ns, "name": "web", "annotations": { INTERFACE: "mgmt0" }});
    world.lb_with(metadata, on_ports(ns, "web", &[80])).await?;
    let address = world.lb_address(ns, "web").await?;
    world.ingress(ns, "web", json!([{ "ip": address }])).await?;
    let lb = serves(&world, ns, "web", &address).await?;
    let conditions = lb.status.and_then(|it| it.conditions).unwrap_or_default();
    let told = condition::find(&conditions, "InterfaceNotAllowed").context("no condition")?;
    let message = told.message.clone().unwrap_or_default();
    ensure!(told.status == "True", "{told:?}");
    ensure!(
        message.contains("\"mgmt0\"") && message.contains("vlan20"),
        "{message}"
    );
    has(&world, ns, "web", &[]).await?;
    let allowed = annotations(&json!({ INTERFACE: "vlan20" }));
    world.merge(&world.lbs(ns), "web", allowed).await?;
    has(&world, ns, "web", &[(INTERFACE, "vlan20")]).await?;
    world
        .lb_until(ns, "web", "no InterfaceNotAllowed", |lb| {
            let conditions = lb.status.as_ref().and_then(|it| it.conditions.as_deref());
            condition::find(conditions.unwrap_or_default(), "InterfaceNotAllowed").is_none()
        })
        .await?;
    Ok(())
}
