//! Annotations that are a part of the spec (section 15): the webhook judges a change of one of them, and is asked for no other.

use std::sync::Arc;

use anyhow::ensure;
use harvester_lb_api::keys;
use harvester_lb_e2e::World;
use harvester_lb_e2e::webhook::{self, Replica};
use harvester_lb_e2e::world::SOON;
use harvester_lb_fixtures::{cluster_spec, record, subnet, vm_spec, with};
use harvester_lb_testkit::eventually;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::admission::{NS, listeners, namespace};
use crate::stage::{finish, one};
use crate::table::{
    Accepted, Refused, Wanted, api, creation, judge, try_create, try_patch, warnings,
};

/// How often the webhook has judged an object of a kind.
async fn judged(replica: &Replica, kind: &str) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for result in ["allowed", "refused"] {
        let labels = format!("admission=\"validating\",kind=\"{kind}\",result=\"{result}\"");
        let series = format!("harvester_lb_admission_requests_total{{{labels}}}");
        sum += replica.metric(&series).await?;
    }
    Ok(sum)
}

pub async fn exc_1_req_1_shr_1_kva_2_annotations_are_judged_as_the_spec_is(
    world: Arc<World>,
) -> anyhow::Result<()> {
    const EXCLUDE: &str = keys::ANNOTATION_EXCLUDE;
    const REQUESTED: &str = keys::ANNOTATION_REQUESTED_ADDRESS;
    const PRIMARY: &str = keys::ANNOTATION_PRIMARY;
    const INTERFACE: &str = keys::ANNOTATION_KUBE_VIP_INTERFACE;
    const EGRESS: &str = "kube-vip.io/egress";
    let replica = one(&world).await?;
    namespace(&world, NS, "").await?;
    let ranges = json!({"ranges": [subnet("10.24.7.0/24")]});
    let lbs = api(&world, "LoadBalancer", NS).await?;
    let pools = api(&world, "IPPool", "").await?;
    world.pool("annotated", ranges).await?;
    world.lb(NS, "annotated", cluster_spec()).await?;
    // What is stored, what is tried, the answer, and whether the webhook is asked.
    let none = Value::Null;
    let rows: Vec<(&str, &str, Value, Value, Wanted, bool)> = vec![
        (
            "IPPool",
            EXCLUDE,
            none.clone(),
            json!({EXCLUDE: "10.24.7.x"}),
            Refused("annotation loadbalancer.harvesterhci.io/exclude"),
            true,
        ),
        (
            "IPPool",
            EXCLUDE,
            none.clone(),
            json!({EXCLUDE: "10.24.7.5"}),
            Accepted,
            true,
        ),
        (
            "IPPool",
            EXCLUDE,
            json!("10.24.7.5"),
            json!({EXCLUDE: "10.24.7.9-10.24.7.8"}),
            Refused("annotation loadbalancer.harvesterhci.io/exclude"),
            true,
        ),
        (
            "IPPool",
            EXCLUDE,
            json!("10.24.7.5"),
            json!({EXCLUDE: none}),
            Accepted,
            true,
        ),
        (
            "IPPool",
            EXCLUDE,
            json!("10.24.7.5"),
            json!({EXCLUDE: "10.24.7.5", "example.com/a": "b"}),
            Accepted,
            false,
        ),
        (
            "LoadBalancer",
            PRIMARY,
            none.clone(),
            json!({PRIMARY: "annotated"}),
            Refused(
                "annotation loadbalancer.harvesterhci.io/primary-load-balancer is \"annotated\", the load balancer itself",
            ),
            true,
        ),
        (
            "LoadBalancer",
            PRIMARY,
            none.clone(),
            json!({PRIMARY: "admission/other"}),
            Refused(
                "annotation loadbalancer.harvesterhci.io/primary-load-balancer is \"admission/other\": it must be the name",
            ),
            true,
        ),
        (
            "LoadBalancer",
            PRIMARY,
            none.clone(),
            json!({PRIMARY: "other"}),
            Accepted,
            true,
        ),
        (
            "LoadBalancer",
            PRIMARY,
            json!("other"),
            json!({PRIMARY: ""}),
            Refused(
                "annotation loadbalancer.harvesterhci.io/primary-load-balancer is \"\": it must be the name",
            ),
            true,
        ),
        (
            "LoadBalancer",
            PRIMARY,
            json!("other"),
            json!({PRIMARY: "other", "example.com/a": "b"}),
            Accepted,
            false,
        ),
        (
            "LoadBalancer",
            PRIMARY,
            json!("other"),
            json!({PRIMARY: none}),
            Accepted,
            true,
        ),
        (
            "LoadBalancer",
            PRIMARY,
            none.clone(),
            json!({PRIMARY: "other", REQUESTED: "10.24.7.9"}),
            Refused(
                "annotation loadbalancer.harvesterhci.io/primary-load-balancer is \"other\", and loadbalancer.harvesterhci.io/requested-address is set too",
            ),
            true,
        ),
        (
            "LoadBalancer",
            keys::ANNOTATION_DHCP_HARDWARE_ADDRESS,
            none.clone(),
            json!({keys::ANNOTATION_DHCP_HARDWARE_ADDRESS: "02:00:00:00:00:01"}),
            Accepted,
            true,
        ),
        // It has an address of a pool: no client of ours leases one for it.
        (
            "LoadBalancer",
            keys::ANNOTATION_DHCP_HARDWARE_ADDRESS,
            none.clone(),
            json!({keys::ANNOTATION_DHCP_HARDWARE_ADDRESS: "02:00:00:00:00"}),
            Accepted,
            true,
        ),
        (
            "LoadBalancer",
            REQUESTED,
            none.clone(),
            json!({REQUESTED: "10.24.7.x"}),
            Refused("annotation loadbalancer.harvesterhci.io/requested-address"),
            true,
        ),
        (
            "LoadBalancer",
            REQUESTED,
            none.clone(),
            json!({REQUESTED: "10.24.7.9"}),
            Accepted,
            true,
        ),
        (
            "LoadBalancer",
            REQUESTED,
            json!("10.24.7.9"),
            json!({REQUESTED: ""}),
            Refused("annotation loadbalancer.harvesterhci.io/requested-address"),
            true,
        ),
        (
            "LoadBalancer",
            REQUESTED,
            json!("10.24.7.9"),
            json!({REQUESTED: none}),
            Accepted,
            true,
        ),
        (
            "LoadBalancer",
            REQUESTED,
            json!("10.24.7.9"),
            json!({keys::ANNOTATION_NETWORK: "default/a"}),
            Accepted,
            false,
        ),
        (
            "LoadBalancer",
            INTERFACE,
            none.clone(),
            json!({INTERFACE: webhook::INTERFACE}),
            Accepted,
            true,
        ),
        // KVA-2: it is served without it.
        (
            "LoadBalancer",
            INTERFACE,
            none.clone(),
            json!({INTERFACE: "eth0"}),
            Accepted,
            true,
        ),
        (
            "LoadBalancer",
            INTERFACE,
            json!("eth0"),
            json!({INTERFACE: "eth0", "kube-vip.io/flush-conntrack": "true"}),
            Accepted,
            false,
        ),
        (
            "LoadBalancer",
            INTERFACE,
            json!("eth0"),
            json!({INTERFACE: none}),
            Accepted,
            true,
        ),
        // KVA-1: warned about when it is added.
        (
            "LoadBalancer",
            EGRESS,
            none.clone(),
            json!({EGRESS: "true"}),
            Accepted,
            true,
        ),
        (
            "LoadBalancer",
            EGRESS,
            json!("true"),
            json!({EGRESS: "false", "example.com/other": "1"}),
            Accepted,
            false,
        ),
        (
            "LoadBalancer",
            EGRESS,
            json!("false"),
            json!({EGRESS: none}),
            Accepted,
            false,
        ),
    ];
    for (kind, key, stored, tried, wanted, is_asked) in rows {
        let api = if kind == "IPPool" { &pools } else { &lbs };
        let annotations = |all: &Value| json!({"metadata": {"annotations": all}});
        let patch = Patch::Merge(annotations(&json!({ key: stored })));
        api.patch("annotated", &PatchParams::default(), &patch)
            .await?;
        let before = judged(&replica, kind).await?;
        let answer = try_patch(api, "annotated", annotations(&tried)).await;
        judge(&format!("{key} {stored} to {tried}"), wanted, answer)?;
        let more = judged(&replica, kind).await? - before;
        ensure!(
            (more > 0.0) == is_asked,
            "{stored} to {tried}: judged {more} times"
        );
    }
    // DHCP on either side is nothing that the annotation of an existing one decides: spec.ipam is immutable.
    let spec = with(cluster_spec(), json!({"ipam": "dhcp"}));
    let metadata = json!({"name": "row", "namespace": NS, "annotations": {PRIMARY: "annotated"}});
    let answer = try_create(&lbs, "LoadBalancer", metadata, spec).await?;
    let wanted = Refused(
        "annotation loadbalancer.harvesterhci.io/primary-load-balancer is \"annotated\", and spec.ipam is dhcp",
    );
    judge("with DHCP", wanted, answer)?;
    // DHC-1: no client can have it.
    let spec = with(vm_spec("web"), json!({"ipam": "dhcp"}));
    let hardware = json!({keys::ANNOTATION_DHCP_HARDWARE_ADDRESS: "02:00:00:00:00"});
    let metadata = json!({"name": "hardware", "namespace": NS, "annotations": hardware});
    let answer = try_create(&lbs, "LoadBalancer", metadata, spec).await?;
    let wanted = Refused(
        "annotation loadbalancer.harvesterhci.io/dhcp-hardware-address: \"02:00:00:00:00\"",
    );
    judge("hardware address", wanted, answer)?;
    finish(&world, &[&replica]).await
}

/// A load balancer as it is stored: the primary that it names, and its role in the condition AddressShared.
fn stored(name: &str, primary: Option<&str>, role: Option<&str>, spec: &Value) -> Value {
    let annotations = primary.map(|primary| json!({ keys::ANNOTATION_PRIMARY: primary }));
    let conditions =
        role.map(|role| json!([{"type": "AddressShared", "status": "True", "reason": role}]));
    json!({
        "apiVersion": harvester_lb_api::API_VERSION, "kind": "LoadBalancer",
        "metadata": {"namespace": NS, "name": name, "annotations": annotations.unwrap_or_else(|| json!({}))},
        "spec": spec, "status": {"conditions": conditions.unwrap_or_else(|| json!([]))},
    })
}

/// What another load balancer may cure is a warning; so is the name of a group that has outlived its primary.
pub async fn shr_1_shr_2_shr_6_requests_to_share_are_warned_about(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let replica = one(&world).await?;
    namespace(&world, NS, "").await?;
    let on = |port: i64| listeners(&[("a", "TCP", port, 8080)]);
    let in_pool = |port: i64, pool: &str| with(on(port), json!({ "ipPool": pool }));
    for object in [
        stored("web", None, None, &in_pool(8000, "one")),
        stored("second", Some("web"), None, &on(7000)),
        stored("guest", None, None, &cluster_spec()),
        stored(
            "leased",
            None,
            None,
            &with(on(8001), json!({"ipam": "dhcp"})),
        ),
    ] {
        world.cluster.apply(&object).await?;
    }
    let mut outlived = record("10.24.8.9", "one", "Bound", (NS, "second", "u"));
    outlived["apiVersion"] = json!(harvester_lb_api::API_VERSION);
    outlived["kind"] = json!("IPAllocation");
    outlived["metadata"]["annotations"] = json!({keys::ANNOTATION_PRIMARY: "gone"});
    world.cluster.apply(&outlived).await?;
    let lbs = api(&world, "LoadBalancer", NS).await?;
    let rows: Vec<(&str, Option<&str>, Value, Option<&str>)> = vec![
        // First: the webhook learns of the IPAllocation by its watch.
        (
            "gone",
            None,
            on(5432),
            Some("other load balancers share the address of an earlier one of this name"),
        ),
        ("row", Some("web"), on(5432), None),
        ("row", Some("web"), in_pool(5432, "one"), None),
        ("row", Some("gone"), on(5432), None),
        ("row", None, on(8000), None),
        (
            "row",
            Some("none"),
            on(5432),
            Some("there is no such load balancer in this namespace, and this one waits for it"),
        ),
        (
            "row",
            Some("guest"),
            on(5432),
            Some("a load balancer of workload type cluster, and this one is of type vm"),
        ),
        (
            "row",
            Some("leased"),
            on(5432),
            Some("spec.ipam of that load balancer is dhcp"),
        ),
        (
            "row",
            Some("second"),
            on(5432),
            Some("which shares the address of \\\"web\\\" itself"),
        ),
        (
            "row",
            Some("web"),
            in_pool(5432, "two"),
            Some("whose address is of pool one, and spec.ipPool is two"),
        ),
        (
            "row",
            Some("web"),
            on(8000),
            Some("port is TCP 8000, which load balancer web has on the same address"),
        ),
        (
            "row",
            Some("web"),
            on(7000),
            Some("port is TCP 7000, which load balancer second has on the same address"),
        ),
    ];
    for (name, primary, spec, wanted) in rows {
        let what = format!("{name} of {primary:?}: {wanted:?}");
        let metadata = &stored(name, primary, None, &spec)["metadata"];
        eventually(&what, SOON, || async {
            let request = creation(&lbs, "LoadBalancer", metadata, &spec)?;
            let found = warnings(&world, request).await?;
            let is_right = match wanted {
                None => found.is_empty(),
                Some(text) => matches!(&found[..], [only] if only.contains(text)),
            };
            ensure!(is_right, "{found:?}");
            Ok(Some(()))
        })
        .await?;
    }
    world
        .records()
        .delete("10.24.8.9", &DeleteParams::default())
        .await?;
    finish(&world, &[&replica]).await
}

/// The webhook is asked about the deletion of a load balancer only if others share its address, and only warns. A deletion needs no
/// webhook.
pub async fn shr_9_the_deletion_of_a_primary_is_warned_about(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let replica = one(&world).await?;
    namespace(&world, NS, "").await?;
    let (primary, secondary) = (Some("Primary"), Some("Secondary"));
    for (name, named, role) in [
        ("web", None, primary),
        ("api", Some("web"), secondary),
        ("db", Some("web"), secondary),
        // It asks for the address and does not have it.
        ("waits", Some("web"), None),
        ("plain", None, None),
    ] {
        let spec = listeners(&[("a", "TCP", 8080, 8080)]);
        let object = stored(name, named, role, &spec);
        world.cluster.apply(&object).await?;
    }
    let lbs = api(&world, "LoadBalancer", NS).await?;
    let deletion = async |name: &str, dry_run: bool| {
        let params = DeleteParams {
            dry_run,
            ..DeleteParams::default()
        };
        let request = kube::core::Request::new(lbs.resource_url()).delete(name, &params)?;
        warnings(&world, request).await
    };
    let text = format!("LoadBalancer {NS}/web: those that share its address keep it: api, db");
    for (name, wanted) in [
        ("web", Some(&text)),
        ("api", None),
        ("waits", None),
        ("plain", None),
    ] {
        let before = judged(&replica, "LoadBalancer").await?;
        let found = deletion(name, true).await?;
        let is_right = match wanted {
            None => found.is_empty(),
            Some(text) => matches!(&found[..], [only] if only.contains(&**text)),
        };
        ensure!(is_right, "{name}: {found:?}");
        let more = judged(&replica, "LoadBalancer").await? - before;
        ensure!(
            (more > 0.0) == wanted.is_some(),
            "{name}: asked {more} times"
        );
    }
    // Nobody answers: a creation is refused, a deletion is not.
    replica.process.kill9()?;
    let metadata = json!({"name": "row", "namespace": NS});
    let answer = try_create(&lbs, "LoadBalancer", metadata, cluster_spec()).await?;
    ensure!(answer.is_err(), "{answer:?}");
    let start = Instant::now();
    deletion("web", false).await?;
    ensure!(start.elapsed() < SOON, "it took {:?}", start.elapsed());
    ensure!(lbs.get_opt("web").await?.is_none());
    for name in ["api", "db"] {
        ensure!(lbs.get_opt(name).await?.is_some(), "{name} is gone");
    }
    finish(&world, &[]).await
}
