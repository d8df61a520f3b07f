//! Pool selectors, and requirements of LoadBalancers (section 5).

use harvester_lb_e2e::World;
use harvester_lb_fixtures::network_attachment_definition;
use serde_json::json;

use super::support::RuleHelpers;

/// Makes a NetworkAttachmentDefinition: the network of a pool must be one (WM-5). Answers how pools name it.
pub(crate) async fn network(world: &World, ns: &str, name: &str) -> anyhow::Result<String> {
    let object = network_attachment_definition(ns, name, &json!({}), "{}");
    world.cluster.apply(&object).await?;
    Ok(format!("{ns}/{name}"))
}

/// A pool with a selector.
pub(crate) async fn selecting(
    world: &World,
    name: &str,
    range: &str,
    network: &str,
    priority: u32,
    scope: [&str; 3],
) -> anyhow::Result<()> {
    let [project, namespace, cluster] = scope;
    let spec = json!({
        "ranges": [{"subnet": range}],
        "selector": {"network": network, "priority": priority, "scope": [
            {"project": project, "namespace": namespace, "guestCluster": cluster}
        ]},
    });
    world.pool(name, spec).await
}

/// A LoadBalancer that names no pool.
pub(crate) async fn asking(
    world: &World,
    ns: &str,
    name: &str,
    kind: &str,
    requirement: [&str; 4],
) -> anyhow::Result<()> {
    let [network, project, namespace, guest] = requirement;
    let metadata = json!({"namespace": ns, "name": name, "annotations": {
        "loadbalancer.harvesterhci.io/network": network,
        "loadbalancer.harvesterhci.io/project": project,
        "loadbalancer.harvesterhci.io/namespace": namespace,
        "loadbalancer.harvesterhci.io/cluster": guest,
    }});
    let spec = json!({"workloadType": kind, "listeners": [{"port": 80, "backendPort": 80, "protocol": "TCP"}]});
    world.lb_with(metadata, spec).await?;
    Ok(())
}

/// The pool from which a LoadBalancer got its address.
pub(crate) async fn pool_of(world: &World, ns: &str, name: &str) -> anyhow::Result<String> {
    world.lb_address(ns, name).await?;
    let lb = world.read(ns, name).await?;
    Ok(lb
        .status
        .unwrap()
        .allocated_address
        .unwrap()
        .ip_pool
        .unwrap())
}
