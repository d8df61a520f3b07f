//! What admission adds, through the API server (10.1): annotations and defaults to a LoadBalancer, and warnings to the response.

use std::sync::Arc;

use anyhow::ensure;
use harvester_lb_api::keys;
use harvester_lb_e2e::World;
use harvester_lb_e2e::world::SOON;
use harvester_lb_fixtures::{cluster_spec, vm_spec};
use harvester_lb_testkit::eventually;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use crate::admission::{NS, checked, listeners, namespace};
use crate::stage::{finish, one};
use crate::table::{api, creation, try_create, try_patch, warnings};

/// What is legal but probably wrong is stored, and the client gets the warnings.
pub async fn val_1_rng_9_warnings_reach_the_client(world: Arc<World>) -> anyhow::Result<()> {
    let replica = one(&world).await?;
    namespace(&world, NS, "").await?;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": NS, "name": "foreign"},
        "spec": {
            "type": "LoadBalancer", "loadBalancerIP": "10.25.1.9", "allocateLoadBalancerNodePorts": false,
            "ports": [{"port": 80, "protocol": "TCP"}],
        },
    });
    world.cluster.apply(&service).await?;
    let node = world.node_address("node1")?;
    let pool = |subnet: &str| json!({"ranges": [{"subnet": subnet}]});
    let (lbs, pools) = (
        api(&world, "LoadBalancer", NS).await?,
        api(&world, "IPPool", "").await?,
    );
    let rows = [
        (
            "LoadBalancer",
            &lbs,
            listeners(&[("a", "TCP", 22, 8080)]),
            Some("sshd".to_owned()),
        ),
        (
            "LoadBalancer",
            &lbs,
            listeners(&[("a", "TCP", 8080, 22)]),
            None,
        ),
        (
            "IPPool",
            &pools,
            pool("fd10::/127"),
            Some("no address to allocate".to_owned()),
        ),
        (
            "IPPool",
            &pools,
            pool(&format!("{node}/32")),
            Some(format!("{node}, the address of Node node1")),
        ),
        (
            "IPPool",
            &pools,
            pool("10.25.1.0/24"),
            Some(format!("10.25.1.9, the address of Service {NS}/foreign")),
        ),
        ("IPPool", &pools, pool("10.25.2.0/24"), None),
    ];
    for (kind, api, spec, wanted) in rows {
        // The webhook learns of Nodes and Services by its watches.
        eventually(&format!("{spec}: {wanted:?}"), SOON, || async {
            let request = creation(api, kind, &json!({"name": "row"}), &spec)?;
            let found = warnings(&world, request).await?;
            let is_right = match &wanted {
                None => found.is_empty(),
                Some(text) => found.iter().any(|warning| warning.contains(text)),
            };
            ensure!(is_right, "{found:?}");
            Ok(Some(()))
        })
        .await?;
    }
    world
        .cluster
        .delete("v1", "Service", Some(NS), "foreign")
        .await?;
    finish(&world, &[&replica]).await
}

pub async fn wm_1_wm_2_wm_3_annotations_of_load_balancers(world: Arc<World>) -> anyhow::Result<()> {
    let replica = one(&world).await?;
    namespace(&world, "shop", "c-1:p-2").await?;
    let instance = |name: &str, labels: Value, networks: Value| {
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"namespace": "shop", "name": name, "labels": labels},
            "spec": {"networks": networks},
        })
    };
    let v20 =
        json!([{"name": "p", "pod": {}}, {"name": "n", "multus": {"networkName": "net/v20"}}]);
    let v30 = json!([{"name": "n", "multus": {"networkName": "net/v30"}}]);
    let driver = json!({keys::LABEL_CREATOR: keys::CREATOR_NODE_DRIVER});
    world
        .cluster
        .apply(&instance("gc1-pool-x", driver, v20))
        .await?;
    let labelled = json!({keys::LABEL_GUEST_CLUSTER: "gc2"});
    world.cluster.apply(&instance("any", labelled, v30)).await?;
    let lbs = api(&world, "LoadBalancer", "shop").await?;
    let [network, project, own, cluster] = [
        keys::ANNOTATION_NETWORK,
        keys::ANNOTATION_PROJECT,
        keys::ANNOTATION_NAMESPACE,
        keys::ANNOTATION_CLUSTER,
    ];
    let management = keys::ANNOTATION_MANAGEMENT_NETWORK;
    eventually("it is known", SOON, || async {
        let metadata = json!({"name": "row", "namespace": "shop", "annotations": {cluster: "gc1"}});
        let made = try_create(&lbs, "LoadBalancer", metadata, cluster_spec()).await??;
        let annotations = made.metadata.annotations.unwrap_or_default();
        Ok((annotations.get(network).map(String::as_str) == Some("net/v20")).then_some(()))
    })
    .await?;
    let full = |found: &str| json!({own: "shop", project: "c-1/p-2", network: found});
    let rows: Vec<(&str, Value, Value, Value)> = vec![
        ("VM type", json!({}), vm_spec("web"), json!({own: "shop"})),
        (
            "the example",
            json!({cluster: "gc1"}),
            cluster_spec(),
            full("net/v20"),
        ),
        (
            "by label",
            json!({cluster: "gc2"}),
            cluster_spec(),
            full("net/v30"),
        ),
        (
            "no such cluster",
            json!({cluster: "gc9"}),
            cluster_spec(),
            full(""),
        ),
        ("no cluster", json!({}), cluster_spec(), full("")),
        (
            "its own network first",
            json!({cluster: "gc1", network: "a/b", management: "c/d"}),
            cluster_spec(),
            full("a/b"),
        ),
        (
            "then the management network",
            json!({cluster: "gc1", network: "", management: "c/d"}),
            cluster_spec(),
            full("c/d"),
        ),
        (
            "what a guest writes is put right",
            json!({cluster: "gc1", project: "", own: "guest"}),
            cluster_spec(),
            full("net/v20"),
        ),
    ];
    for (what, annotations, spec, wanted) in rows {
        let metadata = json!({"name": "row", "namespace": "shop", "annotations": annotations});
        let made = try_create(&lbs, "LoadBalancer", metadata, spec).await??;
        let found = annotated(what, made, &wanted)?;
        if what == "VM type" {
            ensure!(
                found.as_object().is_some_and(|o| o.len() == 1),
                "{what}: {found}"
            );
        }
    }
    // What a guest writes into a stored one is put right each time, and what it removes comes back.
    let metadata = json!({"name": "stored", "namespace": "shop", "annotations": {cluster: "gc1"}});
    world.lb_with(metadata, cluster_spec()).await?;
    for annotations in [
        json!({project: "", own: "guest"}),
        json!({project: null, own: null, network: null}),
    ] {
        let what = format!("an update with {annotations}");
        let patch = json!({"metadata": {"annotations": annotations}});
        let made = try_patch(&lbs, "stored", patch).await?;
        annotated(&what, made, &full("net/v20"))?;
    }
    // A Namespace that was created in the same moment.
    namespace(&world, "just-now", "c-1:p-9").await?;
    let new = api(&world, "LoadBalancer", "just-now").await?;
    let metadata = json!({"name": "row", "namespace": "just-now"});
    let made = try_create(&new, "LoadBalancer", metadata, cluster_spec()).await??;
    let annotations = made.metadata.annotations.unwrap_or_default();
    ensure!(
        annotations.get(project).map(String::as_str) == Some("c-1/p-9"),
        "{annotations:?}"
    );
    finish(&world, &[&replica]).await
}

/// Fails unless an object has these annotations; returns all that it has.
fn annotated(what: &str, made: DynamicObject, wanted: &Value) -> anyhow::Result<Value> {
    let found = json!(made.metadata.annotations.unwrap_or_default());
    for (key, value) in wanted.as_object().into_iter().flatten() {
        ensure!(&found[key] == value, "{what}: {key} is {}", found[key]);
    }
    Ok(found)
}

pub async fn wm_4_health_checks_are_completed(world: Arc<World>) -> anyhow::Result<()> {
    let replica = one(&world).await?;
    namespace(&world, NS, "").await?;
    let lbs = api(&world, "LoadBalancer", NS).await?;
    let complete = |port: i64, numbers: [i64; 4]| {
        let [success, failure, period, timeout] = numbers;
        json!({
            "port": port, "successThreshold": success, "failureThreshold": failure,
            "periodSeconds": period, "timeoutSeconds": timeout,
        })
    };
    let rows = [
        (json!({"port": 8080}), complete(8080, [1, 3, 5, 3])),
        (
            json!({"port": 8080, "failureThreshold": 7, "timeoutSeconds": 0}),
            complete(8080, [1, 7, 5, 3]),
        ),
        (complete(8080, [2, 2, 2, 1]), complete(8080, [2, 2, 2, 1])),
        (
            json!({"port": 0, "periodSeconds": 4}),
            json!({"port": 0, "periodSeconds": 4}),
        ),
    ];
    for (given, wanted) in rows {
        let metadata = json!({"name": "row", "namespace": NS});
        let spec = checked(&given);
        let made = try_create(&lbs, "LoadBalancer", metadata, spec).await??;
        let found = &made.data["spec"]["healthCheck"];
        ensure!(*found == wanted, "{given}: {found}");
    }
    finish(&world, &[&replica]).await
}
