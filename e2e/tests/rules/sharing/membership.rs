//! Who may share an address, and how load balancers join and leave (SHR-1, SHR-7).

use std::sync::Arc;

use anyhow::ensure;
use harvester_lb_api::Phase;
use harvester_lb_e2e::World;
use harvester_lb_e2e::read::{allocated, condition as condition_of, ready};
use harvester_lb_fixtures::{subnet, with};
use serde_json::{Value, json};

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
    Ok(())
}
