//! Admission of LoadBalancers through the API server (10.1, 10.2): every accepted and refused example.

use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_api::keys;
use harvester_lb_e2e::World;
use harvester_lb_e2e::webhook::{CONFIGURATION, MUTATING, Replica, VALIDATING, answers, uninstall};
use harvester_lb_e2e::world::{SOON, node_address};
use harvester_lb_fixtures::{cluster_spec, listener, vm_spec, with};
use harvester_lb_testkit::eventually;
use kube::Api;
use kube::api::PostParams;
use kube::client::Body;
use kube::core::{DynamicObject, Request};
use serde_json::{Value, json};

use crate::stage::{finish, one};
use crate::table::{Accepted, Refused, Wanted, api, judge, try_create, try_patch};

const NS: &str = "admission";

async fn namespace(world: &World, name: &str, project: &str) -> anyhow::Result<()> {
    world
        .cluster
        .apply(&json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "annotations": {"field.cattle.io/projectId": project}},
        }))
        .await?;
    Ok(())
}

/// A spec of VM type with these listeners: name, protocol, port, backend port.
fn listeners(rows: &[(&str, &str, i64, i64)]) -> Value {
    let rows: Vec<Value> = rows
        .iter()
        .map(|(name, protocol, port, backend)| listener(name, protocol, *port, *backend))
        .collect();
    with(vm_spec("web"), json!({ "listeners": rows }))
}

fn checked(health_check: &Value) -> Value {
    let spec = listeners(&[("a", "TCP", 80, 8080), ("b", "UDP", 53, 5353)]);
    with(spec, json!({ "healthCheck": health_check }))
}

fn numbers(port: i64) -> Value {
    checked(&json!({
        "port": port, "successThreshold": 1, "failureThreshold": 3, "periodSeconds": 5, "timeoutSeconds": 3,
    }))
}

pub async fn wv_1_to_wv_9_specs_of_load_balancers(world: Arc<World>) -> anyhow::Result<()> {
    let replica = one(&world).await?;
    namespace(&world, NS, "").await?;
    let lbs = api(&world, "LoadBalancer", NS).await?;
    let rows: Vec<(&str, Value, Wanted)> = vec![
        (
            "WV-1 a listener",
            listeners(&[("a", "TCP", 80, 8080)]),
            Accepted,
        ),
        ("WV-1 none", listeners(&[]), Refused("listener")),
        ("WV-1 cluster type without", cluster_spec(), Accepted),
        (
            "WV-2 different names",
            listeners(&[("a", "TCP", 80, 8080), ("b", "TCP", 81, 8081)]),
            Accepted,
        ),
        (
            "WV-2 the same name",
            listeners(&[("a", "TCP", 80, 8080), ("a", "TCP", 81, 8081)]),
            Refused("\"a\""),
        ),
        (
            "WV-2 two unnamed",
            listeners(&[("", "TCP", 80, 8080), ("", "TCP", 81, 8081)]),
            Refused("name"),
        ),
        (
            "WV-3 a port of two protocols",
            listeners(&[("a", "TCP", 53, 5353), ("b", "UDP", 53, 5353)]),
            Accepted,
        ),
        (
            "WV-3 a port twice",
            listeners(&[("a", "TCP", 80, 8080), ("b", "TCP", 80, 8081)]),
            Refused("80"),
        ),
        (
            "WV-4 two backend ports",
            listeners(&[("a", "TCP", 80, 8080), ("b", "TCP", 81, 8081)]),
            Accepted,
        ),
        (
            "WV-4 a backend port twice",
            listeners(&[("a", "TCP", 80, 8080), ("b", "TCP", 81, 8080)]),
            Refused("8080"),
        ),
        ("WV-5 least", listeners(&[("a", "TCP", 1, 1)]), Accepted),
        (
            "WV-5 most",
            listeners(&[("a", "TCP", 65535, 65535)]),
            Accepted,
        ),
        (
            "WV-5 port 0",
            listeners(&[("a", "TCP", 0, 1)]),
            Refused("port"),
        ),
        (
            "WV-5 port -1",
            listeners(&[("a", "TCP", -1, 1)]),
            Refused("port"),
        ),
        (
            "WV-5 port 65536",
            listeners(&[("a", "TCP", 65536, 1)]),
            Refused("65536"),
        ),
        (
            "WV-5 backend port 65536",
            listeners(&[("a", "TCP", 1, 65536)]),
            Refused("65536"),
        ),
        ("WV-6 a TCP backend port", numbers(8080), Accepted),
        ("WV-6 a UDP backend port", numbers(5353), Refused("5353")),
        ("WV-6 the front port", numbers(80), Refused("80")),
        ("WV-6 an unknown port", numbers(9), Refused("9")),
        // The mutating webhook fills zeros in, so WV-7 has nothing to refuse while it runs.
        ("WV-7 completed", checked(&json!({"port": 8080})), Accepted),
        ("WV-6 no port", checked(&json!({"port": 0})), Accepted),
    ];
    let mut count = rows.len();
    for (what, spec, wanted) in rows {
        let metadata = json!({"name": "row", "namespace": NS});
        let answer = try_create(&lbs, "LoadBalancer", metadata, spec).await?;
        judge(what, wanted, answer)?;
    }
    // WV-8, WV-9: what is stored decides.
    for (name, spec) in [
        ("plain", vm_spec("web")),
        (
            "full",
            with(
                vm_spec("web"),
                json!({"ipam": "pool", "workloadType": "vm"}),
            ),
        ),
        ("guest", with(cluster_spec(), json!({"ipam": "dhcp"}))),
    ] {
        world.lb(NS, name, spec).await?;
    }
    let changes: [(&str, &str, Value, Wanted); 12] = [
        (
            "WV-8 absent to pool",
            "plain",
            json!({"ipam": "pool"}),
            Accepted,
        ),
        (
            "WV-8 pool to absent",
            "full",
            json!({"ipam": null}),
            Accepted,
        ),
        (
            "WV-8 absent to dhcp",
            "plain",
            json!({"ipam": "dhcp"}),
            Refused("ipam"),
        ),
        (
            "WV-8 pool to dhcp",
            "full",
            json!({"ipam": "dhcp"}),
            Refused("ipam"),
        ),
        (
            "WV-8 dhcp to pool",
            "guest",
            json!({"ipam": "pool"}),
            Refused("ipam"),
        ),
        (
            "WV-8 dhcp to absent",
            "guest",
            json!({"ipam": null}),
            Refused("ipam"),
        ),
        (
            "WV-9 absent to vm",
            "plain",
            json!({"workloadType": "vm"}),
            Accepted,
        ),
        (
            "WV-9 vm to absent",
            "full",
            json!({"workloadType": null}),
            Accepted,
        ),
        (
            "WV-9 absent to cluster",
            "plain",
            json!({"workloadType": "cluster"}),
            Refused("workloadType"),
        ),
        (
            "WV-9 vm to cluster",
            "full",
            json!({"workloadType": "cluster"}),
            Refused("workloadType"),
        ),
        (
            "WV-9 cluster to absent",
            "guest",
            json!({"workloadType": null}),
            Refused("workloadType"),
        ),
        (
            "WV-9 cluster to vm",
            "guest",
            json!({"workloadType": "vm"}),
            Refused("workloadType"),
        ),
    ];
    count += changes.len();
    for (what, name, spec, wanted) in changes {
        let answer = try_patch(&lbs, name, json!({ "spec": spec })).await;
        judge(what, wanted, answer)?;
    }
    status_of_an_old_object(&world, &replica).await?;
    eprintln!("{count} rows");
    finish(&world, &[&replica]).await
}

/// An object that breaks a rule, stored while no webhook ran: its status can be written, its spec only to the better.
async fn status_of_an_old_object(world: &World, replica: &Replica) -> anyhow::Result<()> {
    let before = replica.metric(DENIED).await?;
    for (version, kind) in [VALIDATING, MUTATING] {
        world
            .cluster
            .delete(version, kind, None, CONFIGURATION)
            .await?;
    }
    let broken = listeners(&[("a", "TCP", 80, 8080), ("b", "TCP", 81, 8080)]);
    eventually("it is stored", SOON, || async {
        Ok(world.lb(NS, "old", broken.clone()).await.ok())
    })
    .await?;
    replica.registered().await?;
    answers(world).await?;
    let lbs = api(world, "LoadBalancer", NS).await?;
    let status = json!({"status": {"address": "192.0.2.1"}});
    judge("a status", Accepted, try_patch(&lbs, "old", status).await)?;
    let spec = json!({"spec": {"description": "x"}});
    judge(
        "a spec",
        Refused("8080"),
        try_patch(&lbs, "old", spec).await,
    )?;
    ensure!(
        replica.metric(DENIED).await? > before,
        "refusals are counted"
    );
    Ok(())
}

/// WV-7 has something to refuse only while no mutating webhook runs: the validating configuration alone is put back after
/// `uninstall-webhook`, when the replica still answers, and registers nothing any more.
pub async fn wv_7_numbers_that_nobody_completed(world: Arc<World>) -> anyhow::Result<()> {
    let replica = one(&world).await?;
    namespace(&world, NS, "").await?;
    let (version, kind) = VALIDATING;
    let found = world
        .cluster
        .get(version, kind, None, CONFIGURATION)
        .await?;
    let found = found.context("no configuration")?;
    uninstall(&world).await?;
    world
        .cluster
        .apply(&json!({
            "apiVersion": version, "kind": kind, "metadata": {"name": CONFIGURATION},
            "webhooks": found.data["webhooks"],
        }))
        .await?;
    let lbs = api(&world, "LoadBalancer", NS).await?;
    let attempt = async |check: Value| {
        let metadata = json!({"name": "row", "namespace": NS});
        try_create(&lbs, "LoadBalancer", metadata, checked(&check)).await
    };
    eventually("the API server asks the webhook", SOON, || async {
        let answer = attempt(json!({"port": 8080})).await?;
        Ok(answer.is_err().then_some(()))
    })
    .await?;
    for (name, wanted) in [
        ("successThreshold", "healthCheck.successThreshold is 0"),
        ("failureThreshold", "healthCheck.failureThreshold is 0"),
        ("periodSeconds", "healthCheck.periodSeconds is 0"),
        ("timeoutSeconds", "healthCheck.timeoutSeconds is 0"),
    ] {
        let mut check = numbers(8080)["healthCheck"].clone();
        check[name] = json!(0);
        judge(name, Refused(wanted), attempt(check).await?)?;
    }
    let complete = numbers(8080)["healthCheck"].clone();
    judge("all four", Accepted, attempt(complete).await?)?;
    finish(&world, &[&replica]).await
}

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
    let node = node_address("node1")?;
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
            let found = warnings(&world, kind, api, &spec).await?;
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

/// The warnings in the answer to the creation of an object, which is not stored.
async fn warnings(
    world: &World,
    kind: &str,
    api: &Api<DynamicObject>,
    spec: &Value,
) -> anyhow::Result<Vec<String>> {
    let object = json!({
        "apiVersion": harvester_lb_api::API_VERSION, "kind": kind, "metadata": {"name": "row"}, "spec": spec,
    });
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let request =
        Request::new(api.resource_url()).create(&params, object.to_string().into_bytes())?;
    let answer = world.client().send(request.map(Body::from)).await?;
    ensure!(answer.status() == 201, "{}", answer.status());
    let texts = answer.headers().get_all(http::header::WARNING).iter();
    Ok(texts
        .map(|text| String::from_utf8_lossy(text.as_bytes()).into_owned())
        .collect())
}

const DENIED: &str = "harvester_lb_admission_requests_total{admission=\"validating\",kind=\"LoadBalancer\",result=\"refused\"}";

pub async fn wv_10_a_guest_cluster_that_is_being_removed(world: Arc<World>) -> anyhow::Result<()> {
    let replica = one(&world).await?;
    namespace(&world, "removed", "").await?;
    let machine = |name: &str, cluster: &str, creator: &str, removed: &str| {
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {
                "namespace": "removed", "name": name,
                "labels": {keys::LABEL_GUEST_CLUSTER: cluster, keys::LABEL_CREATOR: creator},
                "annotations": {keys::ANNOTATION_REMOVE_ALL_PVCS: removed},
            },
            "spec": {},
        })
    };
    let driver = keys::CREATOR_NODE_DRIVER;
    for object in [
        machine("a", "gone", driver, "true"),
        machine("b", "alive", driver, "false"),
        machine("c", "manual", "somebody", "true"),
        machine("d", "kubernetes", driver, "true"),
    ] {
        world.cluster.apply(&object).await?;
    }
    let lbs = api(&world, "LoadBalancer", "removed").await?;
    let of = |cluster: Option<&str>| {
        let labels = cluster.map(|c| json!({keys::LABEL_CLOUDPROVIDER_CLUSTER: c}));
        json!({"name": "row", "namespace": "removed", "labels": labels.unwrap_or_else(|| json!({}))})
    };
    // The webhook learns of the machines by its watch.
    eventually("it is known", SOON, || async {
        let answer = try_create(&lbs, "LoadBalancer", of(Some("gone")), cluster_spec()).await?;
        Ok(answer.is_err().then_some(()))
    })
    .await?;
    let rows = [
        (
            "being removed",
            Some("gone"),
            cluster_spec(),
            Refused("gone"),
        ),
        ("alive", Some("alive"), cluster_spec(), Accepted),
        (
            "of another creator",
            Some("manual"),
            cluster_spec(),
            Accepted,
        ),
        ("no machines", Some("other"), cluster_spec(), Accepted),
        (
            "the cluster's default name",
            Some("kubernetes"),
            cluster_spec(),
            Accepted,
        ),
        ("no name", Some(""), cluster_spec(), Accepted),
        ("no label", None, cluster_spec(), Accepted),
        ("VM type", Some("gone"), vm_spec("web"), Accepted),
    ];
    for (what, cluster, spec, wanted) in rows {
        let answer = try_create(&lbs, "LoadBalancer", of(cluster), spec).await?;
        judge(what, wanted, answer)?;
    }
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
        let found = json!(made.metadata.annotations.unwrap_or_default());
        for (key, value) in wanted.as_object().into_iter().flatten() {
            ensure!(&found[key] == value, "{what}: {key} is {}", found[key]);
        }
        if what == "VM type" {
            ensure!(
                found.as_object().is_some_and(|o| o.len() == 1),
                "{what}: {found}"
            );
        }
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
