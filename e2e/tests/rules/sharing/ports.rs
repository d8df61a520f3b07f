//! The ports of a shared address, and the Service and EndpointSlices that carry them (SHR-2, SHR-3).

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_api::Phase;
use harvester_lb_e2e::World;
use harvester_lb_e2e::read::{allocated, condition as condition_of, ready};
use harvester_lb_e2e::world::SOON;
use harvester_lb_fixtures::with;
use harvester_lb_testkit::eventually;
use kube::api::DeleteParams;
use serde_json::json;

use super::group::{carries, has_role, layout, naming, on_ports, serves, shared, slice_is, stage};
use crate::support::RuleHelpers;

pub(super) async fn shr_2_a_contested_port_stays_with_the_one_that_has_it(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let ns = "shr2";
    stage(&world, ns, "10.244.0.0/24", &["web"]).await?;
    let address = world
        .announced(ns, "web", on_ports(ns, "web", &[80]))
        .await?;
    world
        .lb_with(naming(ns, "b", "web"), on_ports(ns, "web", &[81]))
        .await?;
    serves(&world, ns, "b", &address).await?;
    world
        .lb_with(naming(ns, "c", "web"), on_ports(ns, "web", &[81, 82]))
        .await?;
    let lb = world.lb_reason(ns, "c", "PortConflict").await?;
    let (_, _, message) = ready(&lb).unwrap();
    assert_eq!(
        message,
        "annotation loadbalancer.harvesterhci.io/primary-load-balancer is \"web\", and port 81 TCP of that address belongs to b: no port of this load balancer is served"
    );
    assert_eq!(allocated(&lb), None);
    carries(&world, ns, "web", &[80, 81], &["b", "web"]).await?;
    ensure!(
        world.slices(ns).get_opt("c").await?.is_none(),
        "c has endpoints"
    );
    // The primary asks for it: the secondary keeps it, and the primary its address.
    let listeners = on_ports(ns, "web", &[80, 81])["listeners"].clone();
    world
        .merge(
            &world.lbs(ns),
            "web",
            json!({"spec": {"listeners": listeners}}),
        )
        .await?;
    let lb = world.lb_reason(ns, "web", "PortConflict").await?;
    let (_, _, message) = ready(&lb).unwrap();
    assert_eq!(
        message,
        "annotation loadbalancer.harvesterhci.io/primary-load-balancer of load balancer b is \"web\", and port 81 TCP of this address belongs to b: no port of this load balancer is served"
    );
    assert_eq!(allocated(&lb).as_ref(), Some(&address));
    carries(&world, ns, "web", &[81], &["b", "web"]).await?;
    assert_eq!(world.phase(&address, Phase::Bound).await?, "shr2/web");
    serves(&world, ns, "b", &address).await?;
    // Both get theirs once it is free: the primary first.
    world.delete_lb(ns, "b").await?;
    serves(&world, ns, "web", &address).await?;
    let lb = world.lb_until(ns, "c", "web has it", |lb| {
        ready(lb).is_some_and(|(_, _, message)| message.contains("belongs to web"))
    });
    lb.await?;
    let listeners = on_ports(ns, "web", &[80])["listeners"].clone();
    world
        .merge(
            &world.lbs(ns),
            "web",
            json!({"spec": {"listeners": listeners}}),
        )
        .await?;
    serves(&world, ns, "c", &address).await?;
    carries(&world, ns, "web", &[80, 81, 82], &["c", "web"]).await?;
    // The same number of another protocol is another port.
    let udp = json!([{"name": "u", "port": 82, "protocol": "UDP", "backendPort": 53}]);
    let spec = with(on_ports(ns, "web", &[]), json!({ "listeners": udp }));
    world.lb_with(naming(ns, "u", "web"), spec).await?;
    serves(&world, ns, "u", &address).await?;
    let both = world.service_until(ns, "web", "82 TCP and UDP", |service| {
        let ports = service.spec.iter().flat_map(|it| it.ports.iter().flatten());
        let names: Vec<&str> = ports.filter_map(|port| port.name.as_deref()).collect();
        names == ["80-tcp", "81-tcp", "82-tcp", "82-udp"]
    });
    both.await?;
    serves(&world, ns, "c", &address).await?;
    slice_is(&world, ns, "u", "web", &["82-udp"]).await?;
    Ok(())
}

pub(super) async fn shr_3_several_load_balancers_on_one_address(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let ns = "shr3";
    stage(&world, ns, "10.245.0.0/24", &["web", "api", "db"]).await?;
    let address = world
        .announced(ns, "web", on_ports(ns, "web", &[80]))
        .await?;
    let service = world.services(ns).get("web").await?;
    assert_eq!(layout(&service).0, BTreeMap::from([(80, "p80".to_owned())]));
    world
        .lb_with(naming(ns, "api", "web"), on_ports(ns, "api", &[443, 8443]))
        .await?;
    let lb = serves(&world, ns, "api", &address).await?;
    let (role, message) = shared(&lb).context("no condition")?;
    assert_eq!(
        (&*role, &*message),
        (
            "Secondary",
            "10.245.0.2 is the address of load balancer web"
        )
    );
    assert_eq!(
        lb.status.unwrap().backend_servers,
        Some(vec!["10.229.7.2".to_owned()])
    );
    let now = carries(&world, ns, "web", &[80, 443, 8443], &["api", "web"]).await?;
    assert_eq!(now.metadata.uid, service.metadata.uid);
    has_role(&world, ns, "web", "Primary").await?;
    ensure!(
        world.services(ns).get_opt("api").await?.is_none(),
        "a Service of its own"
    );
    slice_is(&world, ns, "api", "web", &["443-tcp", "8443-tcp"]).await?;
    slice_is(&world, ns, "web", "web", &["80-tcp"]).await?;
    assert_eq!(world.phase(&address, Phase::Bound).await?, "shr3/web");
    // From the second join on: one EndpointSlice, one Service, nothing of the others.
    let before = world.versions(ns, &[]).await?;
    world
        .lb_with(naming(ns, "db", "web"), on_ports(ns, "db", &[5432]))
        .await?;
    serves(&world, ns, "db", &address).await?;
    carries(
        &world,
        ns,
        "web",
        &[80, 443, 8443, 5432],
        &["api", "db", "web"],
    )
    .await?;
    world
        .at_rest(ns, &[ns], std::time::Duration::from_secs(1))
        .await?;
    let after = world.versions(ns, &[]).await?;
    let changed: Vec<_> = before
        .iter()
        .filter(|(what, version)| after[*what] != **version)
        .collect();
    ensure!(
        changed.len() == 1 && changed[0].0.contains("Service web"),
        "{changed:?}"
    );
    // Its ports follow its spec, and its endpoints its machines.
    let listeners = on_ports(ns, "db", &[5433])["listeners"].clone();
    world
        .merge(
            &world.lbs(ns),
            "db",
            json!({"spec": {"listeners": listeners}}),
        )
        .await?;
    carries(
        &world,
        ns,
        "web",
        &[80, 443, 8443, 5433],
        &["api", "db", "web"],
    )
    .await?;
    serves(&world, ns, "db", &address).await?;
    world
        .fake_vmi(ns, "db", json!({"app": "db"}), Some("10.229.7.33"))
        .await?;
    world
        .lb_until(ns, "db", "its backend", |lb| {
            lb.status.as_ref().and_then(|it| it.backend_servers.clone())
                == Some(vec!["10.229.7.33".to_owned()])
        })
        .await?;
    // They leave, and the primary is alone as before.
    world.delete_lb(ns, "db").await?;
    carries(&world, ns, "web", &[80, 443, 8443], &["api", "web"]).await?;
    world.delete_lb(ns, "api").await?;
    slice_is(&world, ns, "web", "web", &["p80"]).await?;
    let now = world.service_until(ns, "web", "the name of its listener", |service| {
        layout(service)
            == (
                BTreeMap::from([(80, "p80".to_owned())]),
                vec!["web".to_owned()],
            )
    });
    assert_eq!(now.await?.metadata.uid, service.metadata.uid);
    world
        .lb_until(ns, "web", "alone", |lb| {
            condition_of(lb, "AddressShared").is_none()
        })
        .await?;
    serves(&world, ns, "web", &address).await?;
    Ok(())
}

/// Somebody deletes the Service. One whose spec is refused is served from what it has (BE-6), and the one that has a port keeps it (SHR-2).
pub(super) async fn shr_3_what_load_balancers_share_is_in_the_next_service_too(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let ns = "shr3-anew";
    stage(&world, ns, "10.248.64.0/24", &["web"]).await?;
    let address = world
        .announced(ns, "web", on_ports(ns, "web", &[80]))
        .await?;
    for (name, port) in [("b", 81), ("c", 82)] {
        world
            .lb_with(naming(ns, name, "web"), on_ports(ns, "web", &[port]))
            .await?;
        serves(&world, ns, name, &address).await?;
    }
    let broken = json!({"spec": {"backendServerSelector": {"app": []}}});
    world.merge(&world.lbs(ns), "b", broken).await?;
    world.lb_reason(ns, "b", "InvalidSelector").await?;
    // The first has its port, and the second one gets none of its own.
    let listeners = on_ports(ns, "web", &[80, 82])["listeners"].clone();
    let wanted = json!({"spec": {"listeners": listeners}});
    world.merge(&world.lbs(ns), "web", wanted).await?;
    world.lb_reason(ns, "web", "PortConflict").await?;
    let owners = ["b", "c", "web"];
    let service = carries(&world, ns, "web", &[81, 82], &owners).await?;
    let services = world.services(ns);
    services.delete("web", &DeleteParams::default()).await?;
    eventually("the Service is made anew", SOON, || async {
        let now = services.get("web").await?;
        Ok((now.metadata.uid != service.metadata.uid).then_some(()))
    })
    .await?;
    carries(&world, ns, "web", &[81, 82], &owners).await?;
    // Nobody announces it here.
    world.lb_reason(ns, "c", "WaitingForExternalIP").await?;
    world.lb_reason(ns, "web", "PortConflict").await?;
    let lb = world.lb_reason(ns, "b", "InvalidSelector").await?;
    assert_eq!(allocated(&lb), Some(address));
    slice_is(&world, ns, "b", "web", &["81-tcp"]).await
}
