//! Admission of IPPools through the API server (10.3, 10.4): every accepted and refused example.

use std::sync::Arc;

use anyhow::ensure;
use harvester_lb_api::keys;
use harvester_lb_e2e::World;
use harvester_lb_e2e::world::SOON;
use harvester_lb_fixtures::{network_attachment_definition, part, subnet};
use harvester_lb_testkit::eventually;
use kube::Api;
use kube::api::DeleteParams;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use crate::stage::{finish, one};
use crate::table::{
    Accepted, Refused, Wanted, api, held_in_deletion, judge, try_create, try_patch,
};

/// A global pool exists already (PV-5).
const SECOND_GLOBAL: &str = "spec.selector.scope is {\"*\", \"*\", \"*\"}, which makes the pool global, as IPPool global is:";

async fn rows(pools: &Api<DynamicObject>, rows: Vec<(&str, Value, Wanted)>) -> anyhow::Result<()> {
    for (what, spec, wanted) in rows {
        let answer = try_create(pools, "IPPool", json!({"name": "row"}), spec).await?;
        judge(what, wanted, answer)?;
    }
    Ok(())
}

/// Waits until the webhook knows of a pool: a pool with the same range is refused.
async fn known(pools: &Api<DynamicObject>, range: Value) -> anyhow::Result<()> {
    eventually("the pool is known", SOON, || async {
        let spec = json!({"ranges": [range.clone()]});
        let answer = try_create(pools, "IPPool", json!({"name": "row"}), spec).await?;
        Ok(answer.is_err().then_some(()))
    })
    .await
}

/// A NetworkAttachmentDefinition in the namespace `default`.
fn network(name: &str, labels: &Value, config: &str) -> Value {
    network_attachment_definition("default", name, labels, config)
}

/// Makes these networks: a pool that names one which does not exist is refused before its other rules (WM-5).
async fn networks(world: &World, names: &[&str]) -> anyhow::Result<()> {
    for name in names {
        let object = network(name, &json!({}), "{}");
        world.cluster.apply(&object).await?;
    }
    Ok(())
}

pub async fn pv_1_to_pv_3_ranges_of_pools(world: Arc<World>) -> anyhow::Result<()> {
    let replica = one(&world).await?;
    let pools = api(&world, "IPPool", "").await?;
    let ranges = |ranges: &[Value]| json!({ "ranges": ranges });
    let with_start = |start: &str| json!({"subnet": "10.10.5.0/24", "rangeStart": start});
    rows(
        &pools,
        vec![
            ("PV-1 a range", ranges(&[subnet("10.10.5.0/24")]), Accepted),
            ("PV-1 none", ranges(&[]), Refused("the pool has no range;")),
            (
                "RNG-1 host bits",
                ranges(&[subnet("10.10.5.9/24")]),
                Accepted,
            ),
            (
                "RNG-1 no prefix",
                ranges(&[subnet("10.10.5.0")]),
                Refused("spec.ranges[0].subnet \"10.10.5.0\" has no prefix length;"),
            ),
            (
                "RNG-1 an octet",
                ranges(&[subnet("10.10.256.0/24")]),
                Refused("spec.ranges[0].subnet \"10.10.256.0/24\" is not an IP address;"),
            ),
            (
                "RNG-1 a leading zero",
                ranges(&[subnet("10.10.05.0/24")]),
                Refused("spec.ranges[0].subnet \"10.10.05.0/24\" is not an IP address;"),
            ),
            (
                "RNG-1 a prefix",
                ranges(&[subnet("10.10.5.0/33")]),
                Refused("spec.ranges[0].subnet \"10.10.5.0/33\" has no valid prefix length;"),
            ),
            (
                "RNG-1 a zone",
                ranges(&[subnet("fe80::%eth0/64")]),
                Refused("spec.ranges[0].subnet \"fe80::%eth0/64\" is not an IP address;"),
            ),
            (
                "RNG-3 the network",
                ranges(&[with_start("10.10.5.0")]),
                Refused("spec.ranges[0].rangeStart \"10.10.5.0\" is the network address of 10.10.5.0/24;"),
            ),
            (
                "RNG-3 the broadcast address",
                ranges(&[json!({"subnet": "10.10.5.0/24", "rangeEnd": "10.10.5.255"})]),
                Refused("spec.ranges[0].rangeEnd \"10.10.5.255\" is the last address of 10.10.5.0/24,"),
            ),
            (
                "RNG-3 a gateway outside",
                ranges(&[json!({"subnet": "10.10.5.0/24", "gateway": "10.10.6.1"})]),
                Refused("spec.ranges[0].gateway \"10.10.6.1\" is outside the subnet 10.10.5.0/24;"),
            ),
            (
                "RNG-4 the wrong way round",
                ranges(&[part("10.10.5.0/24", "10.10.5.40", "10.10.5.31")]),
                Accepted,
            ),
            (
                "RNG-6 one address",
                ranges(&[subnet("10.10.5.8/32")]),
                Accepted,
            ),
            (
                "RNG-7 two addresses",
                ranges(&[subnet("10.10.5.6/31")]),
                Accepted,
            ),
            (
                "RNG-7 two addresses, explicit",
                ranges(&[json!({"subnet": "10.10.5.6/31", "rangeStart": "10.10.5.6"})]),
                Refused("spec.ranges[0].rangeStart \"10.10.5.6\" is the network address of 10.10.5.6/31;"),
            ),
            (
                "RNG-9 nothing to hand out",
                ranges(&[subnet("fd10::/127")]),
                Accepted,
            ),
            ("IPv6", ranges(&[subnet("fd10:5::/124")]), Accepted),
            (
                "PV-2 parts that touch",
                ranges(&[
                    part("10.10.5.0/24", "10.10.5.10", "10.10.5.20"),
                    part("10.10.5.0/24", "10.10.5.21", "10.10.5.30"),
                ]),
                Accepted,
            ),
            (
                "PV-2 a part of the whole",
                ranges(&[
                    subnet("10.10.5.0/24"),
                    part("10.10.5.0/24", "10.10.5.10", "10.10.5.20"),
                ]),
                Refused("spec.ranges[1] is 10.10.5.10-10.10.5.20, which shares addresses with spec.ranges[0], 10.10.5.1-10.10.5.254:"),
            ),
        ],
    )
    .await?;
    networks(&world, &["b"]).await?;
    world
        .pool("first", ranges(&[subnet("10.20.5.0/25")]))
        .await?;
    known(&pools, subnet("10.20.5.0/25")).await?;
    rows(
        &pools,
        vec![
            ("PV-3 beside", ranges(&[subnet("10.20.5.128/25")]), Accepted),
            (
                "PV-3 the same",
                ranges(&[subnet("10.20.5.0/25")]),
                Refused("spec.ranges[0] is 10.20.5.1-10.20.5.126, which shares addresses with 10.20.5.1-10.20.5.126 of IPPool first:"),
            ),
            (
                "PV-3 on another network",
                json!({"ranges": [subnet("10.20.5.0/24")], "selector": {"network": "default/b"}}),
                Refused("spec.ranges[0] is 10.20.5.1-10.20.5.254, which shares addresses with 10.20.5.1-10.20.5.126 of IPPool first:"),
            ),
        ],
    )
    .await?;
    held_in_deletion(
        &pools,
        "first",
        json!({"spec": {"ranges": []}}),
        Refused("the pool has no range;"),
    )
    .await?;
    finish(&world, &[&replica]).await
}

pub async fn pv_4_pv_9_allocated_addresses_are_kept(world: Arc<World>) -> anyhow::Result<()> {
    let replica = one(&world).await?;
    let pools = api(&world, "IPPool", "").await?;
    let range = part("10.21.5.0/24", "10.21.5.10", "10.21.5.20");
    world.pool("held", json!({ "ranges": [range] })).await?;
    let record = |address: &str, phase: &str| {
        json!({
            "apiVersion": harvester_lb_api::API_VERSION, "kind": "IPAllocation",
            "metadata": {"name": address},
            "spec": {
                "address": address, "pool": "held", "phase": phase,
                "owner": {"namespace": "web", "name": "a", "uid": "u"},
                "boundAt": "2026-01-01T00:00:00Z",
            },
        })
    };
    world.cluster.apply(&record("10.21.5.12", "Bound")).await?;
    world
        .cluster
        .apply(&record("10.21.5.19", "Released"))
        .await?;
    let change = |range: Value| json!({"spec": {"ranges": [range]}});
    let out = change(part("10.21.5.0/24", "10.21.5.14", "10.21.5.20"));
    eventually("the records are known", SOON, || async {
        let answer = try_patch(&pools, "held", out.clone()).await;
        Ok(answer.is_err().then_some(()))
    })
    .await?;
    let mut gateway = part("10.21.5.0/24", "10.21.5.10", "10.21.5.20");
    gateway["gateway"] = json!("10.21.5.12");
    for (what, patch, wanted) in [
        (
            "PV-4 around the allocated",
            change(part("10.21.5.0/24", "10.21.5.12", "10.21.5.13")),
            Accepted,
        ),
        (
            "PV-4 one is left out",
            out,
            Refused("spec.ranges leaves out 1 allocated address, the first is 10.21.5.12 of "),
        ),
        (
            "PV-4 a gateway that is allocated",
            change(gateway),
            Refused("spec.ranges[0] has the gateway 10.21.5.12, which is allocated to "),
        ),
    ] {
        judge(what, wanted, try_patch(&pools, "held", patch).await)?;
    }
    // A map that another writer wrote, not imported yet.
    let listed = |allocated: Value| json!({"status": {"total": 0, "available": 0, "lastAllocated": "", "allocated": allocated}});
    let around = change(part("10.21.5.0/24", "10.21.5.12", "10.21.5.14"));
    world
        .merge(
            &world.pools(),
            "held",
            listed(json!({"10.21.5.x": "web/b"})),
        )
        .await?;
    eventually("the map is known", SOON, || async {
        let answer = try_patch(&pools, "held", around.clone()).await;
        Ok(answer.is_err().then_some(()))
    })
    .await?;
    judge(
        "PV-4 an unparseable key",
        Refused("status.allocated has the key \"10.21.5.x\", which is no address:"),
        try_patch(&pools, "held", around.clone()).await,
    )?;
    world
        .merge(&world.pools(), "held", listed(Value::Null))
        .await?;
    eventually("the map is gone", SOON, || async {
        Ok(try_patch(&pools, "held", around.clone()).await.ok())
    })
    .await?;
    let delete = |dry_run: bool| {
        let params = DeleteParams {
            dry_run,
            ..DeleteParams::default()
        };
        let pools = pools.clone();
        async move { pools.delete("held", &params).await }
    };
    judge(
        "PV-9 one allocated",
        Refused("1 of its addresses is allocated, the first is 10.21.5.12"),
        delete(false).await,
    )?;
    world
        .cluster
        .apply(&record("10.21.5.12", "Released"))
        .await?;
    eventually("PV-9 history only", SOON, || async {
        Ok(delete(true).await.ok().map(|_| ()))
    })
    .await?;
    judge("PV-9 history only", Accepted, delete(false).await)?;
    finish(&world, &[&replica]).await
}

pub async fn pv_5_to_pv_8_scopes_of_pools(world: Arc<World>) -> anyhow::Result<()> {
    let replica = one(&world).await?;
    let pools = api(&world, "IPPool", "").await?;
    let tuple = |project: &str, namespace: &str, cluster: &str| json!({"project": project, "namespace": namespace, "guestCluster": cluster});
    let spec = |priority: i64, network: &str, scope: &[Value]| {
        json!({
            "ranges": [subnet("10.22.9.0/24")],
            "selector": {"priority": priority, "network": network, "scope": scope},
        })
    };
    networks(&world, &["a", "b", "c", "z"]).await?;
    let global = tuple("*", "*", "*");
    let mut first = spec(1, "", std::slice::from_ref(&global));
    first["ranges"] = json!([subnet("10.22.1.0/24")]);
    world.pool("global", first).await?;
    let mut second = spec(1, "default/a", &[tuple("p1", "x", "gc")]);
    second["ranges"] = json!([subnet("10.22.2.0/24")]);
    world.pool("priority", second).await?;
    let mut third = spec(0, "default/b", &[tuple("*", "a", "*")]);
    third["ranges"] = json!([subnet("10.22.3.0/24")]);
    world.pool("scoped", third).await?;
    for third in ["1", "2", "3"] {
        known(&pools, subnet(&format!("10.22.{third}.0/24"))).await?;
    }
    let unscoped = tuple("", "a", "");
    rows(
        &pools,
        vec![
            (
                "PV-5 a second global pool",
                spec(0, "", std::slice::from_ref(&global)),
                Refused(SECOND_GLOBAL),
            ),
            (
                "PV-6 apart",
                spec(0, "", &[tuple("p1", "a", "*"), tuple("p1", "b", "*")]),
                Accepted,
            ),
            (
                "PV-6 crossing",
                spec(0, "", &[tuple("p1", "a", "*"), tuple("p1", "*", "gc")]),
                Refused("spec.selector.scope[1] is {\"p1\", \"*\", \"gc\"}, which matches what spec.selector.scope[0],"),
            ),
            (
                "PV-6 the same twice",
                spec(0, "", &[unscoped.clone(), unscoped.clone()]),
                Refused("spec.selector.scope[1] is {\"\", \"a\", \"\"}, which matches what spec.selector.scope[0],"),
            ),
            (
                "PV-7 another priority",
                spec(2, "default/a", &[tuple("p9", "y", "gc")]),
                Accepted,
            ),
            (
                "PV-7 the same priority",
                spec(1, "default/z", &[tuple("p9", "y", "gc")]),
                Refused("spec.selector.priority is 1, as that of IPPool priority:"),
            ),
            (
                "PV-8 the scope on another network",
                spec(0, "default/c", &[tuple("*", "a", "*")]),
                Accepted,
            ),
            (
                "PV-8 a scope inside",
                spec(0, "default/b", &[tuple("p1", "a", "gc")]),
                Refused("spec.selector.scope[0] is {\"p1\", \"a\", \"gc\"}, which matches what IPPool scoped matches"),
            ),
        ],
    )
    .await?;
    // PV-5 goes by the scope; a label says nothing.
    for (what, label, spec, wanted) in [
        (
            "PV-5 labelled as global",
            "true",
            spec(0, "", &[unscoped]),
            Accepted,
        ),
        (
            "PV-5 global, and labelled as not",
            "false",
            spec(0, "", &[global]),
            Refused(SECOND_GLOBAL),
        ),
    ] {
        let metadata = json!({"name": "row", "labels": {keys::LABEL_GLOBAL_IP_POOL: label}});
        let answer = try_create(&pools, "IPPool", metadata, spec).await?;
        judge(what, wanted, answer)?;
    }
    // A global pool is compared with no other: the pool `priority` was stored beside it with the same priority.
    let selector = |fields: Value| json!({"spec": {"selector": fields}});
    for (what, update) in [
        (
            "PV-5 updating it beside an equal priority",
            json!({"spec": {"description": "changed"}}),
        ),
        (
            "PV-5 a scope inside on its network",
            selector(json!({"priority": 0, "network": "default/b"})),
        ),
    ] {
        judge(what, Accepted, try_patch(&pools, "global", update).await)?;
    }
    finish(&world, &[&replica]).await
}

pub async fn wm_5_labels_of_pools(world: Arc<World>) -> anyhow::Result<()> {
    let replica = one(&world).await?;
    let pools = api(&world, "IPPool", "").await?;
    for object in [
        network(
            "labelled",
            &json!({keys::LABEL_VLAN_ID: "20"}),
            "{\"vlan\":30}",
        ),
        network("configured", &json!({}), "{\"vlan\":30}"),
        network("untagged", &json!({}), "{}"),
        network("wrong", &json!({keys::LABEL_VLAN_ID: "x"}), "{}"),
    ] {
        world.cluster.apply(&object).await?;
    }
    let spec = |network: &str| json!({"ranges": [subnet("10.23.1.0/24")], "selector": {"network": network}});
    for (network, vid) in [
        ("", "0"),
        ("default/labelled", "20"),
        ("default/configured", "30"),
        ("default/untagged", "0"),
    ] {
        let metadata = json!({"name": "row", "labels": {"own": "x"}});
        let made = try_create(&pools, "IPPool", metadata, spec(network)).await??;
        let labels = made.metadata.labels.unwrap_or_default();
        let label = |key: &str| labels.get(key).map(String::as_str);
        ensure!(label(keys::LABEL_VID) == Some(vid), "{network}: {labels:?}");
        ensure!(
            label(keys::LABEL_GLOBAL_IP_POOL) == Some("false"),
            "{labels:?}"
        );
        ensure!(label("own") == Some("x"), "{labels:?}");
    }
    rows(
        &pools,
        vec![
            (
                "WM-5 no such network",
                spec("default/none"),
                Refused("spec.selector.network \"default/none\": this NetworkAttachmentDefinition does not exist"),
            ),
            ("WM-5 not numeric", spec("default/wrong"), Refused("spec.selector.network \"default/wrong\": this NetworkAttachmentDefinition has the label ")),
            ("WM-5 no namespace", spec("labelled"), Refused("spec.selector.network \"labelled\": this NetworkAttachmentDefinition is not written as <namespace>/<name>")),
        ],
    )
    .await?;
    // The scope says whether it is global; what a client writes is put right.
    for (scope, given, wanted) in [
        (["*", "*", "*"], "false", "true"),
        (["*", "x", "*"], "true", "false"),
    ] {
        let [project, namespace, cluster] = scope;
        let mut spec = spec("");
        spec["selector"]["scope"] =
            json!([{"project": project, "namespace": namespace, "guestCluster": cluster}]);
        let metadata = json!({"name": "row", "labels": {keys::LABEL_GLOBAL_IP_POOL: given}});
        let made = try_create(&pools, "IPPool", metadata, spec).await??;
        let labels = made.metadata.labels.unwrap_or_default();
        let found = labels.get(keys::LABEL_GLOBAL_IP_POOL).map(String::as_str);
        ensure!(found == Some(wanted), "{scope:?}: {labels:?}");
    }
    // Unchanged, it keeps its id although the network is gone.
    world.pool("kept", spec("default/labelled")).await?;
    let kind = "NetworkAttachmentDefinition";
    let version = "k8s.cni.cncf.io/v1";
    world
        .cluster
        .delete(version, kind, Some("default"), "labelled")
        .await?;
    let update = json!({"spec": {"description": "changed"}});
    let made = try_patch(&pools, "kept", update).await?;
    let labels = made.metadata.labels.unwrap_or_default();
    ensure!(
        labels.get(keys::LABEL_VID).map(String::as_str) == Some("20"),
        "{labels:?}"
    );
    finish(&world, &[&replica]).await
}
