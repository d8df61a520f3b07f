//! A shared address whose primary is deleted, of both types of load balancers (SHR-5, SHR-6, SHR-8).

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_api::Phase;
use harvester_lb_api::keys::LABEL_SERVICELB;
use harvester_lb_e2e::World;
use harvester_lb_e2e::read::{allocated, condition as condition_of};
use harvester_lb_e2e::world::SOON;
use harvester_lb_fixtures::subnet;
use harvester_lb_testkit::eventually;
use k8s_openapi::api::core::v1::Service;
use kube::api::DeleteParams;
use serde_json::json;

use super::group::{KEY, carries, has_role, layout, name_primary, naming, on_ports, serves, stage};
use crate::support::{RuleHelpers, cluster};

/// Two join the group of `web`, the later one in another second: so it is the younger one.
async fn b_and_c_join(world: &World, ns: &str, address: &str) -> anyhow::Result<()> {
    for (name, port) in [("b", 81), ("c", 82)] {
        world
            .lb_with(naming(ns, name, "web"), on_ports(ns, "web", &[port]))
            .await?;
        serves(world, ns, name, address).await?;
        harvester_lb_e2e::waits::next_second().await;
    }
    Ok(())
}

pub(super) async fn shr_5_the_address_outlives_its_primary(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let ns = "shr5";
    stage(&world, ns, "10.246.0.0/24", &["web"]).await?;
    let address = world
        .announced(ns, "web", on_ports(ns, "web", &[80]))
        .await?;
    let service = world.services(ns).get("web").await?;
    b_and_c_join(&world, ns, &address).await?;
    world.delete_lb(ns, "web").await?;
    let now = carries(&world, ns, "web", &[81, 82], &["b", "c"]).await?;
    assert_eq!(now.metadata.uid, service.metadata.uid);
    eventually("b owns the record", SOON, || async {
        let owner = world.phase(&address, Phase::Bound).await?;
        ensure!(owner == "shr5/b", "{owner} does");
        Ok(Some(()))
    })
    .await?;
    let record = world.record(&address).await?.context("no record")?;
    let annotations = record.metadata.annotations.unwrap_or_default();
    assert_eq!(annotations.get(KEY).map(String::as_str), Some("web"));
    has_role(&world, ns, "b", "Holder").await?;
    world
        .event(
            ns,
            "LoadBalancer",
            "b",
            "was the address of load balancer web, which is gone, and belongs to this load balancer now",
        )
        .await?;
    world.collected(&world.slices(ns), "web").await?;
    serves(&world, ns, "c", &address).await?;
    // A new one names the group; the Service and the record are made again if they are deleted by hand.
    world
        .lb_with(naming(ns, "d", "web"), on_ports(ns, "web", &[83]))
        .await?;
    serves(&world, ns, "d", &address).await?;
    world
        .records()
        .delete(&address, &DeleteParams::default())
        .await?;
    eventually("the record is there again", SOON, || async {
        let record = world.record(&address).await?.context("no record")?;
        ensure!(
            record.spec.owner.name == "b" && record.spec.phase == Phase::Bound,
            "{:?}",
            record.spec
        );
        Ok(Some(()))
    })
    .await?;
    world
        .services(ns)
        .delete("web", &DeleteParams::default())
        .await?;
    let again = world.service_until(ns, "web", "made again", |now| {
        now.metadata.uid != service.metadata.uid
    });
    let again = again.await?;
    world.ingress(ns, "web", json!([{ "ip": address }])).await?;
    carries(&world, ns, "web", &[81, 82, 83], &["b", "c", "d"]).await?;
    serves(&world, ns, "d", &address).await?;
    assert_eq!(
        again.spec.unwrap().load_balancer_ip.as_ref(),
        Some(&address)
    );
    // The holder goes, then another one, then the last.
    world.delete_lb(ns, "b").await?;
    has_role(&world, ns, "c", "Holder").await?;
    world.merge(&world.lbs(ns), "c", name_primary(None)).await?;
    has_role(&world, ns, "d", "Holder").await?;
    carries(&world, ns, "web", &[83], &["d"]).await?;
    assert_eq!(world.phase(&address, Phase::Bound).await?, "shr5/d");
    let alone = world.lb_until(ns, "c", "an address of its own", |lb| {
        allocated(lb).is_some_and(|it| it != address)
    });
    ensure!(
        condition_of(&alone.await?, "AddressLost").is_none(),
        "it left"
    );
    world.delete_lb(ns, "d").await?;
    world.collected(&world.services(ns), "web").await?;
    world.phase(&address, Phase::Released).await?;
    let record = world.record(&address).await?.context("no record")?;
    ensure!(
        !record
            .metadata
            .annotations
            .unwrap_or_default()
            .contains_key(KEY),
        "still of the group"
    );
    Ok(())
}

pub(super) async fn shr_5_an_older_one_joins_and_the_holder_drops_out(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let ns = "shr5-holder";
    stage(&world, ns, "10.246.1.0/24", &["web"]).await?;
    let own = world
        .announced(ns, "older", on_ports(ns, "web", &[83]))
        .await?;
    harvester_lb_e2e::waits::next_second().await;
    let address = world
        .announced(ns, "web", on_ports(ns, "web", &[80]))
        .await?;
    b_and_c_join(&world, ns, &address).await?;
    world.delete_lb(ns, "web").await?;
    has_role(&world, ns, "b", "Holder").await?;
    let join = name_primary(Some("web"));
    world.merge(&world.lbs(ns), "older", join).await?;
    serves(&world, ns, "older", &address).await?;
    carries(&world, ns, "web", &[81, 82, 83], &["b", "c", "older"]).await?;
    assert_eq!(world.phase(&address, Phase::Bound).await?, "shr5-holder/b");
    world.phase(&own, Phase::Released).await?;
    // The label is the only mark that the Service of a group without primary has besides its owners (SVC-1).
    let unmarked = json!({"metadata": {"labels": { LABEL_SERVICELB: null }}});
    world.merge(&world.services(ns), "web", unmarked).await?;
    let is_marked = |service: &Service| {
        let labels = service.metadata.labels.as_ref();
        labels.is_some_and(|labels| labels.contains_key(LABEL_SERVICELB))
    };
    world
        .service_until(ns, "web", "its label", is_marked)
        .await?;
    carries(&world, ns, "web", &[81, 82, 83], &["b", "c", "older"]).await?;
    // The holder asks for a port of another one: it loses the record, and the others go on.
    let contests = json!({ "spec": on_ports(ns, "web", &[82]) });
    world.merge(&world.lbs(ns), "b", contests).await?;
    world.lb_reason(ns, "b", "PortConflict").await?;
    has_role(&world, ns, "older", "Holder").await?;
    carries(&world, ns, "web", &[82, 83], &["c", "older"]).await?;
    assert_eq!(
        world.phase(&address, Phase::Bound).await?,
        "shr5-holder/older"
    );
    serves(&world, ns, "c", &address).await?;
    Ok(())
}

pub(super) async fn shr_6_one_of_the_groups_name_waits_until_it_ends(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let ns = "shr6";
    stage(&world, ns, "10.247.0.0/24", &["web"]).await?;
    let address = world
        .announced(ns, "web", on_ports(ns, "web", &[80]))
        .await?;
    world
        .lb_with(naming(ns, "b", "web"), on_ports(ns, "web", &[81]))
        .await?;
    serves(&world, ns, "b", &address).await?;
    world.delete_lb(ns, "web").await?;
    world.gone(&world.lbs(ns), "web").await?;
    world.lb(ns, "web", on_ports(ns, "web", &[80])).await?;
    let lb = world.lb_reason(ns, "web", "NameConflict").await?;
    assert_eq!(allocated(&lb), None);
    carries(&world, ns, "web", &[81], &["b"]).await?;
    has_role(&world, ns, "b", "Holder").await?;
    assert_eq!(world.phase(&address, Phase::Bound).await?, "shr6/b");
    world.delete_lb(ns, "b").await?;
    let lb = world.lb_reason(ns, "web", "WaitingForExternalIP").await;
    if lb.is_err() {
        world.lb_reason(ns, "web", "Ready").await?;
    }
    let own = world.lb_address(ns, "web").await?;
    assert_eq!(world.phase(&own, Phase::Bound).await?, "shr6/web");
    world
        .service_until(ns, "web", "its own ports", |service| {
            layout(service)
                == (
                    BTreeMap::from([(80, "p80".to_owned())]),
                    vec!["web".to_owned()],
                )
        })
        .await?;
    Ok(())
}

pub(super) async fn shr_8_cluster_type(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "shr8";
    world.namespace(ns).await?;
    world.ranges(ns, &[subnet("10.249.0.0/24")]).await?;
    let address = world.served(ns, "first", ns).await?;
    world
        .lb_with(naming(ns, "second", "first"), cluster(ns))
        .await?;
    assert_eq!(world.lb_address(ns, "second").await?, address);
    let lb = has_role(&world, ns, "second", "Secondary").await?;
    assert_eq!(lb.status.unwrap().address.as_ref(), Some(&address));
    ensure!(
        world.services(ns).get_opt("second").await?.is_none(),
        "a Service"
    );
    // With an address of its own.
    let own = world.served(ns, "third", ns).await?;
    world
        .merge(&world.lbs(ns), "third", name_primary(Some("first")))
        .await?;
    world.phase(&own, Phase::Released).await?;
    assert_eq!(
        allocated(&world.read(ns, "third").await?).as_ref(),
        Some(&address)
    );
    world.delete_lb(ns, "first").await?;
    has_role(&world, ns, "second", "Holder").await?;
    assert_eq!(world.phase(&address, Phase::Bound).await?, "shr8/second");
    // IPA-7: a record that somebody deletes is made again for the one that holds the address, and nobody moves.
    let gone = world.records().get(&address).await?.metadata.uid;
    world
        .records()
        .delete(&address, &DeleteParams::default())
        .await?;
    assert_eq!(world.phase(&address, Phase::Bound).await?, "shr8/second");
    ensure!(world.records().get(&address).await?.metadata.uid != gone);
    for name in ["second", "third"] {
        let lb = world.lb_reason(ns, name, "Ready").await?;
        assert_eq!(allocated(&lb).as_ref(), Some(&address));
    }
    world.lb(ns, "first", cluster(ns)).await?;
    world.lb_reason(ns, "first", "NameConflict").await?;
    for name in ["second", "third"] {
        world.delete_lb(ns, name).await?;
    }
    // The group has ended.
    world.lb_reason(ns, "first", "Ready").await?;
    Ok(())
}
