//! Load balancers that share an address (SHR-1 to SHR-8), without traffic.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use anyhow::{Context, ensure};
use futures::StreamExt;
use harvester_lb_api::{LoadBalancer, Phase, condition};
use harvester_lb_e2e::read::{allocated, condition as condition_of, ready};
use harvester_lb_e2e::world::SOON;
use harvester_lb_e2e::{Test, World};
use harvester_lb_fixtures::{subnet, with};
use harvester_lb_testkit::eventually;
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, WatchEvent, WatchParams};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::support::{RuleHelpers, cluster, vm};

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![
        shr_1_who_may_not_share_is_told,
        shr_2_a_contested_port_stays_with_the_one_that_has_it,
        shr_3_several_load_balancers_on_one_address,
        shr_4_fifty_join_with_two_writes_each,
        shr_5_the_address_outlives_its_primary,
        shr_6_one_of_the_groups_name_waits_until_it_ends,
        shr_7_one_with_an_address_of_its_own_joins_and_leaves,
        shr_8_cluster_type,
    ]
}

const KEY: &str = "loadbalancer.harvesterhci.io/primary-load-balancer";

/// Metadata of a load balancer that asks for the address of another one.
pub(crate) fn naming(ns: &str, name: &str, primary: &str) -> Value {
    json!({"namespace": ns, "name": name, "annotations": { KEY: primary }})
}

/// A merge patch that sets or removes the request.
pub(crate) fn name_primary(primary: Option<&str>) -> Value {
    json!({"metadata": {"annotations": { KEY: primary }}})
}

/// Spec of VM type with listeners on these ports, for machines labelled `app`.
pub(crate) fn on_ports(pool: &str, app: &str, ports: &[u16]) -> Value {
    let listeners: Vec<Value> = ports
        .iter()
        .map(|port| {
            json!({"name": format!("p{port}"), "port": port, "protocol": "TCP", "backendPort": 8000 + port})
        })
        .collect();
    let spec = vm(pool, app);
    with(
        with(spec, json!({"listeners": []})),
        json!({ "listeners": listeners }),
    )
}

/// Names of the ports of a Service, and names of its owners.
fn layout(service: &Service) -> (BTreeMap<i32, String>, Vec<String>) {
    let ports = service
        .spec
        .iter()
        .flat_map(|spec| spec.ports.iter().flatten());
    let ports = ports.map(|port| (port.port, port.name.clone().unwrap_or_default()));
    let owners = service.metadata.owner_references.iter().flatten();
    let mut owners: Vec<String> = owners.map(|owner| owner.name.clone()).collect();
    owners.sort();
    (ports.collect(), owners)
}

/// Waits until a Service has these ports, under the names of shared ones, and owners.
pub(crate) async fn carries(
    world: &World,
    ns: &str,
    name: &str,
    ports: &[i32],
    owners: &[&str],
) -> anyhow::Result<Service> {
    let names = ports.iter().map(|port| (*port, format!("{port}-tcp")));
    let names: BTreeMap<i32, String> = names.collect();
    world
        .service_until(ns, name, "its ports and owners", |service| {
            layout(service)
                == (
                    names.clone(),
                    owners.iter().map(|it| (*it).to_owned()).collect(),
                )
        })
        .await
}

/// Waits until the Service of a load balancer on port 80 is its own again, with the name of its listener.
pub(crate) async fn is_alone(world: &World, ns: &str, name: &str) -> anyhow::Result<Service> {
    let names = BTreeMap::from([(80, "p80".to_owned())]);
    world
        .service_until(ns, name, "its own port alone", |service| {
            layout(service) == (names.clone(), vec![name.to_owned()])
        })
        .await
}

/// Reason and message of the condition AddressShared.
fn shared(lb: &LoadBalancer) -> Option<(String, String)> {
    let conditions = lb.status.as_ref()?.conditions.as_deref()?;
    let found = condition::find(conditions, "AddressShared")?;
    Some((found.reason.clone()?, found.message.clone()?))
}

pub(crate) async fn has_role(
    world: &World,
    ns: &str,
    name: &str,
    role: &str,
) -> anyhow::Result<LoadBalancer> {
    world
        .lb_until(ns, name, role, |lb| {
            shared(lb).is_some_and(|(reason, _)| reason == role)
        })
        .await
}

/// Waits until a load balancer is served on an address.
pub(crate) async fn serves(
    world: &World,
    ns: &str,
    name: &str,
    address: &str,
) -> anyhow::Result<LoadBalancer> {
    world
        .lb_until(ns, name, address, |lb| {
            let external = lb.status.as_ref().and_then(|it| it.address.as_deref());
            allocated(lb).as_deref() == Some(address)
                && external == Some(address)
                && ready(lb).is_some_and(|(status, _, _)| status == "True")
        })
        .await
}

/// The name of the Service in the EndpointSlice of a load balancer, and the names of its ports.
async fn slice(world: &World, ns: &str, name: &str) -> anyhow::Result<(String, Vec<String>)> {
    let slice = world.slices(ns).get(name).await?;
    let labels = slice.metadata.labels.context("no labels")?;
    let of = labels
        .get("kubernetes.io/service-name")
        .context("no label")?;
    let ports = slice.ports.into_iter().flatten();
    let mut names: Vec<String> = ports.map(|port| port.name.unwrap_or_default()).collect();
    names.sort();
    Ok((of.clone(), names))
}

pub(crate) async fn slice_is(
    world: &World,
    ns: &str,
    name: &str,
    of: &str,
    names: &[&str],
) -> anyhow::Result<()> {
    eventually(&format!("EndpointSlice {ns}/{name}"), 2 * SOON, || async {
        let (is_of, has) = slice(world, ns, name).await?;
        ensure!(
            is_of == of && has == names,
            "it is of {is_of} and has {has:?}"
        );
        Ok(Some(()))
    })
    .await
}

/// A namespace with a pool of its own and a machine for each of these names.
pub(crate) async fn stage(
    world: &World,
    ns: &str,
    range: &str,
    machines: &[&str],
) -> anyhow::Result<()> {
    world.namespace(ns).await?;
    world.ranges(ns, &[subnet(range)]).await?;
    for (n, machine) in machines.iter().enumerate() {
        let address = format!("{}.{}", "10.229.7", n + 1);
        let label = json!({ "app": machine });
        world.fake_vmi(ns, machine, label, Some(&address)).await?;
    }
    Ok(())
}

async fn shr_1_who_may_not_share_is_told(world: Arc<World>) -> anyhow::Result<()> {
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

async fn shr_2_a_contested_port_stays_with_the_one_that_has_it(
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
        "port 81 TCP of the shared address belongs to b, so no port of this load balancer is served"
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
    Ok(())
}

async fn shr_3_several_load_balancers_on_one_address(world: Arc<World>) -> anyhow::Result<()> {
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

async fn shr_5_the_address_outlives_its_primary(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "shr5";
    stage(&world, ns, "10.246.0.0/24", &["web"]).await?;
    let address = world
        .announced(ns, "web", on_ports(ns, "web", &[80]))
        .await?;
    let service = world.services(ns).get("web").await?;
    for (name, port) in [("b", 81), ("c", 82)] {
        world
            .lb_with(naming(ns, name, "web"), on_ports(ns, "web", &[port]))
            .await?;
        serves(&world, ns, name, &address).await?;
        harvester_lb_e2e::waits::next_second().await;
    }
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
        .event(ns, "LoadBalancer", "b", "AddressShared")
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

async fn shr_6_one_of_the_groups_name_waits_until_it_ends(world: Arc<World>) -> anyhow::Result<()> {
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

async fn shr_7_one_with_an_address_of_its_own_joins_and_leaves(
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

async fn shr_8_cluster_type(world: Arc<World>) -> anyhow::Result<()> {
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

/// Counts the changes of the objects of a namespace by name and kind of change, until it is dropped.
fn count<K>(api: Api<K>) -> (JoinHandle<()>, Arc<Mutex<BTreeMap<String, usize>>>)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let counts: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let all = Arc::clone(&counts);
    let task = tokio::spawn(async move {
        let Ok(stream) = api.watch(&WatchParams::default(), "0").await else {
            return;
        };
        let mut stream = pin!(stream);
        while let Some(Ok(event)) = stream.next().await {
            let (what, object) = match event {
                WatchEvent::Added(object) => ("added", object),
                WatchEvent::Modified(object) => ("modified", object),
                WatchEvent::Deleted(object) => ("deleted", object),
                WatchEvent::Bookmark(_) | WatchEvent::Error(_) => continue,
            };
            let name = object.meta().name.clone().unwrap_or_default();
            *all.lock()
                .unwrap()
                .entry(format!("{name} {what}"))
                .or_default() += 1;
        }
    });
    (task, counts)
}

async fn shr_4_fifty_join_with_two_writes_each(world: Arc<World>) -> anyhow::Result<()> {
    const ALL: u16 = 50;
    let ns = "shr4";
    stage(&world, ns, "10.250.0.0/24", &["web"]).await?;
    let address = world
        .announced(ns, "web", on_ports(ns, "web", &[80]))
        .await?;
    let join = |n: u16| {
        world.lb_with(
            naming(ns, &format!("s{n}"), "web"),
            on_ports(ns, "web", &[1000 + n]),
        )
    };
    join(0).await?;
    serves(&world, ns, "s0", &address).await?;
    // The names of the primary's ports have changed to the end.
    slice_is(&world, ns, "web", "web", &["80-tcp"]).await?;
    world
        .at_rest(ns, &[ns], std::time::Duration::from_secs(1))
        .await?;
    let (services, of_services) = count(world.services(ns));
    let (slices, of_slices) = count(world.slices(ns));
    eventually("both are watched", SOON, || async {
        let seen = of_services.lock().unwrap().len() + of_slices.lock().unwrap().len();
        Ok((seen >= 3).then_some(()))
    })
    .await?;
    let before = of_services.lock().unwrap().values().sum::<usize>();
    for n in 1..ALL {
        join(n).await?;
        serves(&world, ns, &format!("s{n}"), &address).await?;
    }
    world
        .at_rest(ns, &[ns], std::time::Duration::from_secs(1))
        .await?;
    let service = world.services(ns).get("web").await?;
    assert_eq!(layout(&service).0.len(), usize::from(ALL) + 1);
    assert_eq!(layout(&service).1.len(), usize::from(ALL) + 1);
    let writes = of_services.lock().unwrap().values().sum::<usize>() - before;
    ensure!(writes < usize::from(ALL), "{writes} writes of the Service");
    let of_slices = of_slices.lock().unwrap().clone();
    let others: Vec<_> = of_slices
        .iter()
        .filter(|(what, _)| !what.ends_with(" added"))
        .collect();
    ensure!(others.is_empty(), "writes of EndpointSlices: {others:?}");
    ensure!(of_slices.values().all(|count| *count == 1), "{of_slices:?}");
    assert_eq!(world.phase(&address, Phase::Bound).await?, "shr4/web");
    services.abort();
    slices.abort();
    // All go, in any order.
    world.delete_lb(ns, "web").await?;
    for n in (0..ALL).rev() {
        world.delete_lb(ns, &format!("s{n}")).await?;
    }
    world.phase(&address, Phase::Released).await?;
    world.collected(&world.services(ns), "web").await
}
