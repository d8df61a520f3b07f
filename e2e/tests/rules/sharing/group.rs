//! Shared by the tests of load balancers that share an address: their specs, and what is waited for.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use harvester_lb_api::{LoadBalancer, condition};
use harvester_lb_e2e::World;
use harvester_lb_e2e::read::{allocated, ready};
use harvester_lb_e2e::world::SOON;
use harvester_lb_fixtures::{subnet, with};
use harvester_lb_testkit::eventually;
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use crate::support::{RuleHelpers, vm};

pub(super) const KEY: &str = "loadbalancer.harvesterhci.io/primary-load-balancer";

/// Metadata of a load balancer that asks for the address of another one.
pub(crate) fn naming(ns: &str, name: &str, primary: &str) -> Value {
    json!({"namespace": ns, "name": name, "annotations": { KEY: primary }})
}

/// A merge patch that sets or removes the request.
pub(crate) fn name_primary(primary: Option<&str>) -> Value {
    json!({"metadata": {"annotations": { KEY: primary }}})
}

/// Spec of VM type with listeners on these ports, for machines labelled `app`.
pub(crate) fn on_ports(pool: &str, app: &str, ports: &[u16]) -> Value {
    let listeners: Vec<Value> = ports
        .iter()
        .map(|port| {
            json!({"name": format!("p{port}"), "port": port, "protocol": "TCP", "backendPort": 8000 + port})
        })
        .collect();
    let spec = vm(pool, app);
    with(
        with(spec, json!({"listeners": []})),
        json!({ "listeners": listeners }),
    )
}

/// Names of the ports of a Service, and names of its owners.
pub(super) fn layout(service: &Service) -> (BTreeMap<i32, String>, Vec<String>) {
    let ports = service
        .spec
        .iter()
        .flat_map(|spec| spec.ports.iter().flatten());
    let ports = ports.map(|port| (port.port, port.name.clone().unwrap_or_default()));
    let owners = service.metadata.owner_references.iter().flatten();
    let mut owners: Vec<String> = owners.map(|owner| owner.name.clone()).collect();
    owners.sort();
    (ports.collect(), owners)
}

/// Waits until a Service has these ports, under the names of shared ones, and owners.
pub(crate) async fn carries(
    world: &World,
    ns: &str,
    name: &str,
    ports: &[i32],
    owners: &[&str],
) -> anyhow::Result<Service> {
    let names = ports.iter().map(|port| (*port, format!("{port}-tcp")));
    let names: BTreeMap<i32, String> = names.collect();
    world
        .service_until(ns, name, "its ports and owners", |service| {
            layout(service)
                == (
                    names.clone(),
                    owners.iter().map(|it| (*it).to_owned()).collect(),
                )
        })
        .await
}

/// Waits until the Service of a load balancer on port 80 is its own again, with the name of its listener.
pub(crate) async fn is_alone(world: &World, ns: &str, name: &str) -> anyhow::Result<Service> {
    let names = BTreeMap::from([(80, "p80".to_owned())]);
    world
        .service_until(ns, name, "its own port alone", |service| {
            layout(service) == (names.clone(), vec![name.to_owned()])
        })
        .await
}

/// Reason and message of the condition AddressShared.
pub(super) fn shared(lb: &LoadBalancer) -> Option<(String, String)> {
    let conditions = lb.status.as_ref()?.conditions.as_deref()?;
    let found = condition::find(conditions, "AddressShared")?;
    Some((found.reason.clone()?, found.message.clone()?))
}

pub(crate) async fn has_role(
    world: &World,
    ns: &str,
    name: &str,
    role: &str,
) -> anyhow::Result<LoadBalancer> {
    world
        .lb_until(ns, name, role, |lb| {
            shared(lb).is_some_and(|(reason, _)| reason == role)
        })
        .await
}

/// Waits until a load balancer is served on an address.
pub(crate) async fn serves(
    world: &World,
    ns: &str,
    name: &str,
    address: &str,
) -> anyhow::Result<LoadBalancer> {
    world
        .lb_until(ns, name, address, |lb| {
            let external = lb.status.as_ref().and_then(|it| it.address.as_deref());
            allocated(lb).as_deref() == Some(address)
                && external == Some(address)
                && ready(lb).is_some_and(|(status, _, _)| status == "True")
        })
        .await
}

/// The name of the Service in the EndpointSlice of a load balancer, and the names of its ports.
async fn slice(world: &World, ns: &str, name: &str) -> anyhow::Result<(String, Vec<String>)> {
    let slice = world.slices(ns).get(name).await?;
    let labels = slice.metadata.labels.context("no labels")?;
    let of = labels
        .get("kubernetes.io/service-name")
        .context("no label")?;
    let ports = slice.ports.into_iter().flatten();
    let mut names: Vec<String> = ports.map(|port| port.name.unwrap_or_default()).collect();
    names.sort();
    Ok((of.clone(), names))
}

pub(crate) async fn slice_is(
    world: &World,
    ns: &str,
    name: &str,
    of: &str,
    names: &[&str],
) -> anyhow::Result<()> {
    eventually(&format!("EndpointSlice {ns}/{name}"), 2 * SOON, || async {
        let (is_of, has) = slice(world, ns, name).await?;
        ensure!(
            is_of == of && has == names,
            "it is of {is_of} and has {has:?}"
        );
        Ok(Some(()))
    })
    .await
}

/// A namespace with a pool of its own and a machine for each of these names.
pub(crate) async fn stage(
    world: &World,
    ns: &str,
    range: &str,
    machines: &[&str],
) -> anyhow::Result<()> {
    world.namespace(ns).await?;
    world.ranges(ns, &[subnet(range)]).await?;
    for (n, machine) in machines.iter().enumerate() {
        let address = format!("{}.{}", "10.229.7", n + 1);
        let label = json!({ "app": machine });
        world.fake_vmi(ns, machine, label, Some(&address)).await?;
    }
    Ok(())
}
