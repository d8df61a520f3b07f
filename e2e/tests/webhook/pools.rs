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
use crate::table::{Accepted, Refused, Wanted, api, judge, try_create, try_patch};

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
            ("PV-1 none", ranges(&[]), Refused("range")),
            (
                "RNG-1 host bits",
                ranges(&[subnet("10.10.5.9/24")]),
                Accepted,
            ),
            (
                "RNG-1 no prefix",
                ranges(&[subnet("10.10.5.0")]),
                Refused("10.10.5.0"),
            ),
            (
                "RNG-1 an octet",
                ranges(&[subnet("10.10.256.0/24")]),
                Refused("256"),
            ),
            (
                "RNG-1 a leading zero",
                ranges(&[subnet("10.10.05.0/24")]),
                Refused("05"),
            ),
            (
                "RNG-1 a prefix",
                ranges(&[subnet("10.10.5.0/33")]),
                Refused("33"),
            ),
            (
                "RNG-1 a zone",
                ranges(&[subnet("fe80::%eth0/64")]),
                Refused("eth0"),
            ),
            (
                "RNG-3 the network",
                ranges(&[with_start("10.10.5.0")]),
                Refused("10.10.5.0"),
            ),
            (
                "RNG-3 the broadcast address",
                ranges(&[json!({"subnet": "10.10.5.0/24", "rangeEnd": "10.10.5.255"})]),
                Refused("10.10.5.255"),
            ),
            (
                "RNG-3 a gateway outside",
                ranges(&[json!({"subnet": "10.10.5.0/24", "gateway": "10.10.6.1"})]),
                Refused("10.10.6.1"),
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
                Refused("10.10.5.6"),
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
                Refused("10.10.5"),
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
                Refused("first"),
            ),
            (
                "PV-3 on another network",
                json!({"ranges": [subnet("10.20.5.0/24")], "selector": {"network": "default/b"}}),
                Refused("first"),
            ),
        ],
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
        ("PV-4 one is left out", out, Refused("10.21.5.12")),
        (
            "PV-4 a gateway that is allocated",
            change(gateway),
            Refused("10.21.5.12"),
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
        Refused("10.21.5.x"),
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
        Refused("10.21.5.12"),
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
    let mut first = spec(0, "", std::slice::from_ref(&global));
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
                spec(0, "", &[global]),
                Refused("global"),
            ),
            (
                "PV-6 apart",
                spec(0, "", &[tuple("p1", "a", "*"), tuple("p1", "b", "*")]),
                Accepted,
            ),
            (
                "PV-6 crossing",
                spec(0, "", &[tuple("p1", "a", "*"), tuple("p1", "*", "gc")]),
                Refused("scope"),
            ),
            (
                "PV-6 the same twice",
                spec(0, "", &[unscoped.clone(), unscoped]),
                Refused("scope"),
            ),
            (
                "PV-7 another priority",
                spec(2, "default/a", &[tuple("p9", "y", "gc")]),
                Accepted,
            ),
            (
                "PV-7 the same priority",
                spec(1, "default/z", &[tuple("p9", "y", "gc")]),
                Refused("priority"),
            ),
            (
                "PV-8 the scope on another network",
                spec(0, "default/c", &[tuple("*", "a", "*")]),
                Accepted,
            ),
            (
                "PV-8 a scope inside",
                spec(0, "default/b", &[tuple("p1", "a", "gc")]),
                Refused("scoped"),
            ),
        ],
    )
    .await?;
    let update = json!({"spec": {"description": "changed"}});
    judge(
        "PV-5 updating it",
        Accepted,
        try_patch(&pools, "global", update).await,
    )?;
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
                Refused("default/none"),
            ),
            ("WM-5 not numeric", spec("default/wrong"), Refused("wrong")),
            ("WM-5 no namespace", spec("labelled"), Refused("labelled")),
        ],
    )
    .await?;
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
