//! Admission of LoadBalancers through the API server (10.2): every accepted and refused example.

use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_api::keys;
use harvester_lb_e2e::World;
use harvester_lb_e2e::webhook::{
    CONFIGURATION, DEFINITION, MUTATING, Replica, VALIDATING, answers, definition, uninstall,
};
use harvester_lb_e2e::world::SOON;
use harvester_lb_fixtures::{cluster_spec, listener, vm_spec, with};
use harvester_lb_testkit::eventually;
use kube::Api;
use kube::api::PostParams;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use crate::stage::{finish, one};
use crate::table::{
    Accepted, Invalid, Refused, Wanted, api, held_in_deletion, judge, try_create, try_patch,
};

/// Namespace of the load balancers.
pub const NS: &str = "admission";
/// The second listener has the backend port of the first (WV-4).
const SAME_BACKEND_PORT: &str =
    "spec.listeners[1].backendPort is TCP 8080, as that of spec.listeners[0]:";

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
        (
            "WV-1 none",
            listeners(&[]),
            Refused("spec.listeners is empty"),
        ),
        ("WV-1 cluster type without", cluster_spec(), Accepted),
        (
            "WV-1 to WV-5 cluster type with what VM type may not have",
            with(
                listeners(&[
                    ("a", "TCP", 0, 0),
                    ("a", "TCP", 0, 0),
                    ("b", "UDP", 65536, -1),
                ]),
                json!({"workloadType": "cluster"}),
            ),
            Accepted,
        ),
        (
            "WV-2 different names",
            listeners(&[("a", "TCP", 80, 8080), ("b", "TCP", 81, 8081)]),
            Accepted,
        ),
        (
            "WV-2 the same name",
            listeners(&[("a", "TCP", 80, 8080), ("a", "TCP", 81, 8081)]),
            Refused("spec.listeners[1].name is \"a\", as another"),
        ),
        (
            "WV-2 two unnamed",
            listeners(&[("", "TCP", 80, 8080), ("", "TCP", 81, 8081)]),
            Refused("spec.listeners[1].name is \"\", as another"),
        ),
        (
            "WV-3 a port of two protocols",
            listeners(&[("a", "TCP", 53, 5353), ("b", "UDP", 53, 5353)]),
            Accepted,
        ),
        (
            "WV-3 a port twice",
            listeners(&[("a", "TCP", 80, 8080), ("b", "TCP", 80, 8081)]),
            Refused("spec.listeners[1] serves TCP 80, as another"),
        ),
        (
            "WV-4 two backend ports",
            listeners(&[("a", "TCP", 80, 8080), ("b", "TCP", 81, 8081)]),
            Accepted,
        ),
        (
            "WV-4 a backend port twice",
            listeners(&[("a", "TCP", 80, 8080), ("b", "TCP", 81, 8080)]),
            Refused(SAME_BACKEND_PORT),
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
            Refused("spec.listeners[0].port is 0:"),
        ),
        (
            "WV-5 port -1",
            listeners(&[("a", "TCP", -1, 1)]),
            Refused("spec.listeners[0].port is -1:"),
        ),
        (
            "WV-5 port 65536",
            listeners(&[("a", "TCP", 65536, 1)]),
            Refused("spec.listeners[0].port is 65536:"),
        ),
        (
            "WV-5 backend port 0",
            listeners(&[("a", "TCP", 1, 0)]),
            Refused("spec.listeners[0].backendPort is 0:"),
        ),
        (
            "WV-5 backend port -1",
            listeners(&[("a", "TCP", 1, -1)]),
            Refused("spec.listeners[0].backendPort is -1:"),
        ),
        (
            "WV-5 backend port 65536",
            listeners(&[("a", "TCP", 1, 65536)]),
            Refused("spec.listeners[0].backendPort is 65536:"),
        ),
        (
            "WV-4 before WV-5",
            listeners(&[("a", "TCP", 0, 8080), ("b", "TCP", 81, 8080)]),
            Refused(SAME_BACKEND_PORT),
        ),
        ("WV-6 a TCP backend port", numbers(8080), Accepted),
        (
            "WV-6 a UDP backend port",
            numbers(5353),
            Refused("spec.healthCheck.port 5353 is not the backendPort of a TCP listener"),
        ),
        (
            "WV-6 the front port",
            numbers(80),
            Refused("spec.healthCheck.port 80 is not the backendPort of a TCP listener"),
        ),
        (
            "WV-6 an unknown port",
            numbers(9),
            Refused("spec.healthCheck.port 9 is not the backendPort of a TCP listener"),
        ),
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
    count += fixed_fields(&world, &lbs).await?;
    status_of_an_old_object(&world, &replica).await?;
    held_in_deletion(
        &lbs,
        "plain",
        json!({"spec": {"listeners": []}}),
        Refused("spec.listeners is empty"),
    )
    .await?;
    eprintln!("{count} rows");
    finish(&world, &[&replica]).await
}

/// WV-8, WV-9: what is stored decides. The definition refuses it first; Harvester's own definition has no such rules, so the
/// webhook is asked without them too. Returns the number of rows.
async fn fixed_fields(world: &World, lbs: &Api<DynamicObject>) -> anyhow::Result<usize> {
    const TO_DHCP: Wanted = Refused("spec.ipam cannot be changed from pool to dhcp:");
    const TO_POOL: Wanted = Refused("spec.ipam cannot be changed from dhcp to pool:");
    const TO_CLUSTER: Wanted = Refused("spec.workloadType cannot be changed from vm to cluster:");
    const TO_VM: Wanted = Refused("spec.workloadType cannot be changed from cluster to vm:");

    let guest = json!({"ipam": "dhcp", "workloadType": "cluster"});
    for (name, fields) in [
        ("plain", json!({})),
        ("full", json!({"ipam": "pool", "workloadType": "vm"})),
        ("guest", guest),
    ] {
        world.lb(NS, name, with(vm_spec("web"), fields)).await?;
    }
    // The stored one, the field, its new value.
    let rows: [(&str, &str, Value, Wanted); 12] = [
        ("plain", "ipam", json!("pool"), Accepted),
        ("full", "ipam", Value::Null, Accepted),
        ("plain", "ipam", json!("dhcp"), TO_DHCP),
        ("full", "ipam", json!("dhcp"), TO_DHCP),
        ("guest", "ipam", json!("pool"), TO_POOL),
        ("guest", "ipam", Value::Null, TO_POOL),
        ("plain", "workloadType", json!("vm"), Accepted),
        ("full", "workloadType", Value::Null, Accepted),
        ("plain", "workloadType", json!("cluster"), TO_CLUSTER),
        ("full", "workloadType", json!("cluster"), TO_CLUSTER),
        ("guest", "workloadType", Value::Null, TO_VM),
        ("guest", "workloadType", json!("vm"), TO_VM),
    ];
    let judge_all = async |has_rules: bool| {
        for (name, field, value, wanted) in &rows {
            let wanted = match wanted {
                Refused(_) if has_rules => {
                    Invalid("cannot be changed once the load balancer exists")
                }
                wanted => *wanted,
            };
            let what = format!("{name}: {field} {value}");
            let answer = try_patch(lbs, name, json!({"spec": {*field: value}})).await;
            judge(&what, wanted, answer)?;
        }
        anyhow::Ok(())
    };
    judge_all(true).await?;
    let rules = exchange_rules(world, None).await?;
    eventually("without the definition's rules", SOON, || async {
        judge_all(false).await.map(Some)
    })
    .await?;
    exchange_rules(world, Some(rules)).await?;
    eventually("with the definition's rules", SOON, || async {
        judge_all(true).await.map(Some)
    })
    .await?;
    Ok(2 * rows.len())
}

/// Sets the definition's rules (CEL) about a spec of v1beta1, and returns those that it had.
async fn exchange_rules(world: &World, rules: Option<Value>) -> anyhow::Result<Value> {
    let api = definition(world).await?;
    let mut object = api.get(DEFINITION).await?;
    let versions = object.data["spec"]["versions"].as_array_mut();
    let mut versions = versions.context("no versions")?.iter_mut();
    let stored = versions.find(|version| version["name"] == "v1beta1");
    let spec = stored
        .context("no v1beta1")?
        .pointer_mut("/schema/openAPIV3Schema/properties/spec")
        .and_then(Value::as_object_mut);
    let spec = spec.context("no spec")?;
    let key = "x-kubernetes-validations";
    let before = spec.remove(key).unwrap_or_default();
    spec.extend(rules.map(|rules| (key.to_owned(), rules)));
    object.metadata.managed_fields = None;
    api.replace(DEFINITION, &PostParams::default(), &object)
        .await?;
    Ok(before)
}

/// An object that breaks a rule, stored while no webhook ran: its status can be written, its spec only to the better.
async fn status_of_an_old_object(world: &World, replica: &Replica) -> anyhow::Result<()> {
    let before = replica.metric(DENIED).await?;
    let broken = listeners(&[("a", "TCP", 80, 8080), ("b", "TCP", 81, 8080)]);
    eventually("it is stored", SOON, || async {
        // The webhook restores them, which the API server may see before this creation; each time a little later.
        for (version, kind) in [VALIDATING, MUTATING] {
            let deleted = world.cluster.delete(version, kind, None, CONFIGURATION);
            deleted.await?;
        }
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
        Refused(SAME_BACKEND_PORT),
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
        (
            "successThreshold",
            "spec.healthCheck.successThreshold is 0:",
        ),
        (
            "failureThreshold",
            "spec.healthCheck.failureThreshold is 0:",
        ),
        ("periodSeconds", "spec.healthCheck.periodSeconds is 0:"),
        ("timeoutSeconds", "spec.healthCheck.timeoutSeconds is 0:"),
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
    let machine = |name: &str, cluster: Option<&str>, creator: Option<&str>, removed: &str| {
        let labels = [
            (keys::LABEL_GUEST_CLUSTER, cluster),
            (keys::LABEL_CREATOR, creator),
        ];
        let labels: Value = labels
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)))
            .collect();
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {
                "namespace": "removed", "name": name, "labels": labels,
                "annotations": {keys::ANNOTATION_REMOVE_ALL_PVCS: removed},
            },
            "spec": {},
        })
    };
    let driver = Some(keys::CREATOR_NODE_DRIVER);
    for object in [
        machine("unlabelled-pool-1", None, driver, "true"),
        machine("uncreated-pool-1", Some("uncreated"), None, "true"),
        machine("b", Some("alive"), driver, "false"),
        machine("c", Some("manual"), Some("somebody"), "true"),
        machine("d", Some("kubernetes"), driver, "true"),
        // Last: once the webhook knows of it, it knows of all.
        machine("z", Some("gone"), driver, "true"),
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
            Refused(
                "metadata.labels[\"cloudprovider.harvesterhci.io/cluster\"] is \"gone\", a guest cluster that is being removed:",
            ),
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
            "a machine without the label of its cluster",
            Some("unlabelled"),
            cluster_spec(),
            Accepted,
        ),
        (
            "a machine without a creator",
            Some("uncreated"),
            cluster_spec(),
            Accepted,
        ),
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
