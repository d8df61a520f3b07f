//! What the defaults of the chart promise and no Pod of a test shows: replicas apart, probes, budgets, ports of the
//! NetworkPolicies, no monitoring, no DHCP process.

use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_e2e::World;
use serde_json::{Value, json};

use crate::helm::{id, object, rendered};

/// The components with replicas.
const COMPONENTS: [&str; 2] = ["operator", "webhook"];

pub async fn chart_defaults_are_for_two_nodes_without_monitoring(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let objects = rendered(&world, &json!({})).await?;
    for component in COMPONENTS {
        outlives_a_node(&objects, component).context(component)?;
        ports_match(&objects, component, [8081, 8443]).context(component)?;
    }
    let is_monitoring = |object: &&Value| {
        object["apiVersion"] == "monitoring.coreos.com/v1" || object["kind"] == "ConfigMap"
    };
    let found: Vec<String> = objects.iter().filter(is_monitoring).map(id).collect();
    ensure!(found.is_empty(), "by default there are {found:?}");
    let of_dhcp = |id: &String| id.contains("dhcp");
    let found: Vec<String> = objects.iter().map(id).filter(of_dhcp).collect();
    ensure!(found.is_empty(), "by default there are {found:?}");

    let values = json!({"adminPort": 9081, "webhook": {"httpsPort": 9443}});
    let objects = rendered(&world, &values).await?;
    for component in COMPONENTS {
        ports_match(&objects, component, [9081, 9443]).context(component)?;
    }
    Ok(())
}

/// Two replicas on different nodes where that is possible, of which a drain evicts one at a time; probes.
fn outlives_a_node(objects: &[Value], component: &str) -> anyhow::Result<()> {
    let name = format!("harvester-lb-{component}");
    let spec = &object(objects, "Deployment", &name)?["spec"];
    ensure!(spec["replicas"] == 2, "{spec:#}");
    let pod = &spec["template"]["spec"];
    let others = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 100,
        "podAffinityTerm": {
            "topologyKey": "kubernetes.io/hostname", "labelSelector": spec["selector"],
        },
    }]}});
    ensure!(pod["affinity"] == others, "{:#}", pod["affinity"]);
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        let found = &pod["containers"][0][probe]["httpGet"];
        let wanted = json!({"path": path, "port": "admin"});
        ensure!(*found == wanted, "{probe}: {found}");
    }
    let budget = &object(objects, "PodDisruptionBudget", &name)?["spec"];
    let wanted = json!({"maxUnavailable": 1, "selector": spec["selector"]});
    ensure!(*budget == wanted, "{budget:#}");
    Ok(())
}

/// Port `admin` of a component, and `https` of the webhook: the program listens there, its container names them, and its
/// NetworkPolicy lets others reach these ports and no more.
fn ports_match(objects: &[Value], component: &str, [admin, https]: [u16; 2]) -> anyhow::Result<()> {
    let name = format!("harvester-lb-{component}");
    let spec = &object(objects, "Deployment", &name)?["spec"];
    let container = &spec["template"]["spec"]["containers"][0];
    let mut wanted = vec![("admin", admin, "ADMIN_ADDRESS", format!("[::]:{admin}"))];
    if component == "webhook" {
        wanted.push((
            "https",
            https,
            "WEBHOOK_SERVER_HTTPS_PORT",
            https.to_string(),
        ));
    }
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let (ports, env) = (list(&container["ports"]), list(&container["env"]));
    let policy = &object(objects, "NetworkPolicy", &name)?["spec"];
    let rules = list(&policy["ingress"]);
    for (port, number, variable, value) in &wanted {
        let named = json!({"name": port, "containerPort": number});
        ensure!(ports.contains(&named), "{named}: {ports:?}");
        let set = json!({"name": variable, "value": value});
        ensure!(env.contains(&set), "{set}: {env:?}");
        let open = json!({"ports": [{"protocol": "TCP", "port": number}]});
        ensure!(rules.contains(&open), "{open}: {rules:?}");
    }
    let counts = [ports.len(), rules.len()];
    ensure!(counts == [wanted.len(); 2], "{ports:?}, {rules:?}");
    let selector = &policy["podSelector"];
    ensure!(*selector == spec["selector"], "{selector}");
    let types = &policy["policyTypes"];
    ensure!(*types == json!(["Ingress", "Egress"]), "{types}");
    let egress = &policy["egress"];
    ensure!(
        *egress == json!([{"ports": [{"protocol": "TCP"}]}]),
        "{egress}"
    );
    Ok(())
}
