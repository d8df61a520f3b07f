//! Admission of LoadBalancers through the API server (10.2): every accepted and refused example.

use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_api::keys;
use harvester_lb_e2e::World;
use harvester_lb_e2e::webhook::{CONFIGURATION, MUTATING, Replica, VALIDATING, answers, uninstall};
use harvester_lb_e2e::world::SOON;
use harvester_lb_fixtures::{cluster_spec, listener, vm_spec, with};
use harvester_lb_testkit::eventually;
use serde_json::{Value, json};

use crate::stage::{finish, one};
use crate::table::{Accepted, Refused, Wanted, api, judge, try_create, try_patch};

/// Namespace of the load balancers.
pub const NS: &str = "admission";

/// Makes a namespace of a Rancher project.
pub async fn namespace(world: &World, name: &str, project: &str) -> anyhow::Result<()> {
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
pub fn listeners(rows: &[(&str, &str, i64, i64)]) -> Value {
    let rows: Vec<Value> = rows
        .iter()
        .map(|(name, protocol, port, backend)| listener(name, protocol, *port, *backend))
        .collect();
    with(vm_spec("web"), json!({ "listeners": rows }))
}

/// A spec with this health check.
pub fn checked(health_check: &Value) -> Value {
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
