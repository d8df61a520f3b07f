//! Who may share an address, and how load balancers join and leave (SHR-1, SHR-7).

use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_api::{IPAllocation, Phase};
use harvester_lb_e2e::World;
use harvester_lb_e2e::read::{allocated, condition as condition_of, ready};
use harvester_lb_e2e::world::SOON;
use harvester_lb_fixtures::{subnet, with};
use harvester_lb_testkit::eventually;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::changes::Changes;
use super::group::{
    KEY, carries, has_role, layout, name_primary, naming, on_ports, serves, shared, slice_is, stage,
};
use crate::support::{RuleHelpers, cluster, vm};

pub(super) async fn shr_1_who_may_not_share_is_told(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "shr1";
    stage(&world, ns, "10.243.0.0/24", &["web"]).await?;
    world
        .ranges("shr1-other", &[subnet("10.243.1.0/24")])
        .await?;
    // It waits for the one that it names.
    world
        .lb_with(naming(ns, "early", "web"), on_ports(ns, "web", &[81]))
        .await?;
    let lb = world.lb_reason(ns, "early", "PrimaryNotFound").await?;
    let (_, _, message) = ready(&lb).unwrap();
    assert_eq!(
        message,
        "annotation loadbalancer.harvesterhci.io/primary-load-balancer is \"web\": there is no such load balancer in this namespace"
    );
    assert_eq!(allocated(&lb), None);
    world
        .event(ns, "LoadBalancer", "early", "PrimaryNotFound")
        .await?;
    let address = world
        .announced(ns, "web", on_ports(ns, "web", &[80]))
        .await?;
    serves(&world, ns, "early", &address).await?;
    // The next address is the next.
    world
        .lb(
            ns,
            "dhcp",
            with(
                vm(ns, "web"),
                json!({"ipam": "dhcp", "ipPool": Value::Null}),
            ),
        )
        .await?;
    for (name, primary, spec, part) in [
        (
            "type",
            "web",
            cluster(ns),
            "workload type vm, and this one is of type cluster",
        ),
        (
            "pool",
            "web",
            on_ports("shr1-other", "web", &[83]),
            "spec.ipPool is shr1-other",
        ),
        (
            "chain",
            "early",
            on_ports(ns, "web", &[84]),
            "which shares the address of \"web\" itself",
        ),
        (
            "leased",
            "dhcp",
            on_ports(ns, "web", &[85]),
            "spec.ipam of that load balancer is dhcp",
        ),
    ] {
        world.lb_with(naming(ns, name, primary), spec).await?;
        let lb = world.lb_reason(ns, name, "InvalidPrimary").await?;
        let (_, _, message) = ready(&lb).unwrap();
        ensure!(message.contains(part) && message.contains(KEY), "{message}");
        ensure!(allocated(&lb).is_none(), "{name}");
        ensure!(world.services(ns).get_opt(name).await?.is_none(), "{name}");
    }
    // Corrected.
    world
        .merge(&world.lbs(ns), "pool", json!({"spec": {"ipPool": ns}}))
        .await?;
    serves(&world, ns, "pool", &address).await?;
    world
        .merge(&world.lbs(ns), "chain", name_primary(Some("web")))
        .await?;
    serves(&world, ns, "chain", &address).await?;
    // One that others share cannot join another one, and goes on serving.
    let other = world
        .announced(ns, "other", on_ports(ns, "web", &[80]))
        .await?;
    world
        .merge(&world.lbs(ns), "web", name_primary(Some("other")))
        .await?;
    let lb = has_role(&world, ns, "web", "InvalidPrimary").await?;
    let (_, message) = shared(&lb).unwrap();
    ensure!(
        message.contains("shares the address of this load balancer"),
        "{message}"
    );
    ensure!(
        message.contains(&format!("{address} is served meanwhile")),
        "{message}"
    );
    serves(&world, ns, "web", &address).await?;
    serves(&world, ns, "other", &other).await?;
    Ok(())
}

pub(super) async fn shr_7_one_with_an_address_of_its_own_joins_and_leaves(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let ns = "shr7";
    stage(&world, ns, "10.248.0.0/24", &["web"]).await?;
    let address = world
        .announced(ns, "web", on_ports(ns, "web", &[80]))
        .await?;
    let own = world.announced(ns, "b", on_ports(ns, "web", &[80])).await?;
    serves(&world, ns, "b", &own).await?;
    let changes = Changes::watch(world.services(ns)).await?;
    let records = Changes::watch(world.records()).await?;
    // Not accepted: it serves as it is.
    world
        .merge(&world.lbs(ns), "b", name_primary(Some("web")))
        .await?;
    let lb = has_role(&world, ns, "b", "PortConflict").await?;
    let (_, message) = shared(&lb).unwrap();
    ensure!(
        message.starts_with(&format!("{own} is served meanwhile")),
        "{message}"
    );
    serves(&world, ns, "b", &own).await?;
    assert_eq!(world.phase(&own, Phase::Bound).await?, "shr7/b");
    let listeners = on_ports(ns, "web", &[81])["listeners"].clone();
    world
        .merge(
            &world.lbs(ns),
            "b",
            json!({"spec": {"listeners": listeners}}),
        )
        .await?;
    serves(&world, ns, "b", &address).await?;
    world.phase(&own, Phase::Released).await?;
    ensure!(
        world.services(ns).get_opt("b").await?.is_none(),
        "its Service is left"
    );
    carries(&world, ns, "web", &[80, 81], &["b", "web"]).await?;
    // It leaves, and is served like a new one.
    world.merge(&world.lbs(ns), "b", name_primary(None)).await?;
    world.ingress(ns, "b", json!([{ "ip": own }])).await?;
    let lb = serves(&world, ns, "b", &own).await?;
    ensure!(condition_of(&lb, "AddressLost").is_none(), "it left");
    world
        .service_until(ns, "web", "alone", |service| layout(service).1 == ["web"])
        .await?;
    slice_is(&world, ns, "b", "b", &["p81"]).await?;
    let order = eventually("all changes are seen", SOON, || async {
        order(&changes, &records, &own).map(Some)
    });
    let order = order.await?;
    ensure!(order.is_sorted(), "{order:?}");
    Ok(())
}

/// When the Service of `b` went, its address was released, its port came to the Service of `web`, left that, and the Service of
/// `b` was there again. In this order no two Services have the port, and nobody two addresses.
fn order(
    services: &Changes<Service>,
    records: &Changes<IPAllocation>,
    own: &str,
) -> anyhow::Result<[u64; 5]> {
    let web = |service: &Service| service.metadata.name.as_deref() == Some("web");
    let has = |service: &Service| layout(service).0.contains_key(&81);
    let first = |what: &str, wanted: &dyn Fn(&'static str, &Service) -> bool| {
        let versions = services.map(|how, it| wanted(how, it).then(|| version(&it.metadata)));
        let first = versions.into_iter().flatten().next();
        first.with_context(|| format!("no Service has {what}"))
    };
    let gone = first("gone", &|how, it| how == "deleted" && !web(it))?;
    let joined = first("the port", &|_, it| web(it) && has(it))?;
    let left = first("lost the port", &|_, it| {
        web(it) && !has(it) && version(&it.metadata) > joined
    })?;
    let again = first("come again", &|how, it| {
        how == "added" && !web(it) && version(&it.metadata) > gone
    })?;
    let released = records.map(|_, it| {
        let is_it = it.spec.address == own && it.spec.phase == Phase::Released;
        is_it.then(|| version(&it.metadata))
    });
    let released = released.into_iter().flatten().next();
    let released = released.context("its address is not released")?;
    Ok([gone, released, joined, left, again])
}

/// The resource version. Those of all objects grow in the order of the writes; that of a deleted one is of its deletion.
fn version(meta: &ObjectMeta) -> u64 {
    let version = meta.resource_version.as_deref().unwrap_or_default();
    version.parse().unwrap()
}

/// SHR-1. The webhook refuses such load balancers: they are older than the webhook, or were written while that was not registered.
pub(crate) async fn shr_1_what_no_edit_of_others_cures_is_refused(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let ns = "shr1-refused";
    stage(&world, ns, "10.243.2.0/24", &["web"]).await?;
    let address = world
        .announced(ns, "web", on_ports(ns, "web", &[80]))
        .await?;
    let requested = "loadbalancer.harvesterhci.io/requested-address";
    let both = json!({ KEY: "web", requested: "10.243.2.77" });
    let dhcp = json!({"ipam": "dhcp", "ipPool": Value::Null});
    let own = on_ports(ns, "web", &[81]);
    for (name, metadata, spec, why) in [
        (
            "self",
            naming(ns, "self", "self"),
            own.clone(),
            "the load balancer itself",
        ),
        (
            "path",
            naming(ns, "path", "other/web"),
            own.clone(),
            "without the namespace",
        ),
        (
            "empty",
            naming(ns, "empty", ""),
            own.clone(),
            "must be the name",
        ),
        (
            "both",
            json!({"namespace": ns, "name": "both", "annotations": both}),
            own.clone(),
            "requested-address is set too",
        ),
        (
            "leased",
            naming(ns, "leased", "web"),
            with(own, dhcp),
            "spec.ipam is dhcp",
        ),
    ] {
        world.lb_with(metadata, spec).await?;
        let lb = world.lb_reason(ns, name, "InvalidPrimary").await?;
        let (_, _, message) = ready(&lb).unwrap();
        ensure!(message.contains(KEY) && message.contains(why), "{message}");
        ensure!(allocated(&lb).is_none(), "{name}: {lb:?}");
        ensure!(world.services(ns).get_opt(name).await?.is_none(), "{name}");
    }
    // Corrected.
    let edit = json!({"metadata": {"annotations": { requested: Value::Null }}});
    world.merge(&world.lbs(ns), "both", edit).await?;
    serves(&world, ns, "both", &address).await?;
    carries(&world, ns, "web", &[80, 81], &["both", "web"]).await?;
    Ok(())
}
