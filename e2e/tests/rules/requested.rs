//! Addresses that load balancers request (REQ-1 to REQ-4).

use std::sync::Arc;

use harvester_lb_api::{LoadBalancer, Phase, condition};
use harvester_lb_e2e::read::{allocated, ready};
use harvester_lb_e2e::{Test, World};
use harvester_lb_fixtures::{part, subnet, with};
use serde_json::{Value, json};

use super::exclusions::exclude;
use super::support::{RuleHelpers, cluster, vm};

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![
        req_2_the_pool_that_has_the_address,
        req_3_a_taken_address_is_waited_for,
        req_3_an_excluded_address_and_a_gateway_are_not_given,
        req_4_a_served_load_balancer_moves_when_it_can,
    ]
}

const KEY: &str = "loadbalancer.harvesterhci.io/requested-address";

/// The message of one that cannot have the address that it requests.
fn told(address: &str, why: &str) -> String {
    format!("annotation {KEY} is {address:?}: {why}")
}

/// Metadata of a load balancer that requests an address.
fn asking(ns: &str, name: &str, address: &str) -> Value {
    json!({"namespace": ns, "name": name, "annotations": { KEY: address }})
}

/// A merge patch that sets or removes the request.
fn request(address: Option<&str>) -> Value {
    json!({"metadata": {"annotations": { KEY: address }}})
}

/// The message of the condition RequestedAddress, which there is only while it is False (REQ-4).
fn unserved(lb: &LoadBalancer) -> Option<String> {
    let conditions = lb.status.as_ref()?.conditions.as_deref()?;
    let found = condition::find(conditions, "RequestedAddress")?;
    assert_eq!(found.status, "False");
    found.message.clone()
}

async fn req_2_the_pool_that_has_the_address(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "req2";
    world.namespace(ns).await?;
    let everybody = json!([{"project": "*", "namespace": ns, "guestCluster": "*"}]);
    for (name, range, priority) in [
        ("req2-low", "10.240.0.0/24", 1),
        ("req2-high", "10.240.1.0/24", 2),
    ] {
        let selector = json!({"priority": priority + 7_200, "scope": everybody});
        let spec = json!({"ranges": [subnet(range)], "selector": selector});
        world.pool(name, spec).await?;
    }
    // Of its own pool, although another one has a higher priority.
    let free = with(cluster(""), json!({"ipPool": Value::Null}));
    world
        .lb_with(asking(ns, "low", "10.240.0.77"), free.clone())
        .await?;
    assert_eq!(world.lb_address(ns, "low").await?, "10.240.0.77");
    let held = world.read(ns, "low").await?.status.unwrap();
    let pool = held.allocated_address.unwrap().ip_pool;
    assert_eq!(pool.as_deref(), Some("req2-low"));
    // In the pool that it names, and in no other.
    world
        .lb_with(asking(ns, "named", "10.240.0.78"), cluster("req2-high"))
        .await?;
    // The load balancer may be observed before its pool, and is told again when that appears.
    let expected = told(
        "10.240.0.78",
        "pool req2-high: 10.240.0.78 is in none of its ranges",
    );
    let lb = world
        .lb_until(ns, "named", &expected, |lb| {
            ready(lb).is_some_and(|(_, reason, message)| {
                reason == "RequestedAddressUnavailable" && message == expected
            })
        })
        .await?;
    assert_eq!(allocated(&lb), None);
    world
        .merge(&world.lbs(ns), "named", request(Some("10.240.1.78")))
        .await?;
    assert_eq!(world.lb_address(ns, "named").await?, "10.240.1.78");
    // A pool that appears.
    world
        .lb_with(asking(ns, "later", "10.240.2.9"), free)
        .await?;
    world
        .lb_reason(ns, "later", "RequestedAddressUnavailable")
        .await?;
    let selector = json!({"priority": 7_203, "scope": everybody});
    let spec = json!({"ranges": [subnet("10.240.2.0/24")], "selector": selector});
    world.pool("req2-later", spec).await?;
    assert_eq!(world.lb_address(ns, "later").await?, "10.240.2.9");
    Ok(())
}

async fn req_3_a_taken_address_is_waited_for(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("req3", "req3");
    world.namespace(ns).await?;
    let range = part("10.241.0.0/24", "10.241.0.10", "10.241.0.11");
    world.ranges(pool, &[range]).await?;
    assert_eq!(world.served(ns, "a", pool).await?, "10.241.0.10");
    world
        .lb_with(asking(ns, "first", "10.241.0.10"), cluster(pool))
        .await?;
    let lb = world
        .lb_reason(ns, "first", "RequestedAddressUnavailable")
        .await?;
    let (_, _, message) = ready(&lb).unwrap();
    assert_eq!(
        message,
        told(
            "10.241.0.10",
            "pool req3: 10.241.0.10 is held by LoadBalancer req3/a"
        )
    );
    world
        .event(ns, "LoadBalancer", "first", "RequestedAddressUnavailable")
        .await?;
    // It gets no other address, although one is free.
    assert_eq!(world.served(ns, "b", pool).await?, "10.241.0.11");
    harvester_lb_e2e::waits::next_second().await;
    world
        .lb_with(asking(ns, "second", "10.241.0.10"), cluster(pool))
        .await?;
    world
        .lb_reason(ns, "second", "RequestedAddressUnavailable")
        .await?;
    // One that takes any address waits too; the freed one is for those that ask for it, in their order.
    world.lb(ns, "any", cluster(pool)).await?;
    world.lb_reason(ns, "any", "NoAvailableIP").await?;
    world.delete_lb(ns, "a").await?;
    assert_eq!(world.lb_address(ns, "first").await?, "10.241.0.10");
    world
        .lb_until(ns, "second", "it names the new holder", |lb| {
            ready(lb).is_some_and(|(_, _, message)| message.contains("req3/first"))
        })
        .await?;
    world.delete_lb(ns, "first").await?;
    assert_eq!(world.lb_address(ns, "second").await?, "10.241.0.10");
    world.delete_lb(ns, "second").await?;
    assert_eq!(world.lb_address(ns, "any").await?, "10.241.0.10");
    Ok(())
}

async fn req_3_an_excluded_address_and_a_gateway_are_not_given(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let (ns, pool) = ("req3-never", "req3-never");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.241.1.0/24")]).await?;
    let list = exclude("10.241.1.7");
    world.merge(&world.pools(), pool, list).await?;
    world
        .pool_until(pool, "one is excluded", |pool| {
            pool.status.as_ref().is_some_and(|it| it.total == 252)
        })
        .await?;
    for (name, address, why) in [
        (
            "excluded",
            "10.241.1.7",
            "is excluded by its annotation exclude",
        ),
        ("gateway", "10.241.1.1", "is a gateway of its ranges"),
    ] {
        world
            .lb_with(asking(ns, name, address), cluster(pool))
            .await?;
        let lb = world
            .lb_reason(ns, name, "RequestedAddressUnavailable")
            .await?;
        let (_, _, message) = ready(&lb).unwrap();
        let why = format!("pool {pool}: {address} {why}");
        assert_eq!(message, told(address, &why));
        assert_eq!(allocated(&lb), None);
    }
    // It gets the address once that may be allocated.
    world.merge(&world.pools(), pool, exclude("")).await?;
    assert_eq!(world.lb_address(ns, "excluded").await?, "10.241.1.7");
    let lb = world.read(ns, "gateway").await?;
    assert_eq!(allocated(&lb), None);
    Ok(())
}

async fn req_4_a_served_load_balancer_moves_when_it_can(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("req4", "req4");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.242.0.0/24")]).await?;
    let label = json!({"app": ns});
    world.fake_vmi(ns, "vm", label, Some("10.230.0.1")).await?;
    let before = world.announced(ns, "web", vm(pool, ns)).await?;
    world.lb_reason(ns, "web", "Ready").await?;
    let other = world.served(ns, "other", pool).await?;
    world
        .merge(&world.lbs(ns), "web", request(Some(&other)))
        .await?;
    let is_told = |lb: &LoadBalancer| unserved(lb).is_some();
    let lb = world
        .lb_until(ns, "web", "RequestedAddress", is_told)
        .await?;
    let message = unserved(&lb).unwrap();
    assert!(
        message.contains(&before) && message.contains("req4/other"),
        "{message}"
    );
    // The present one stays and serves.
    assert_eq!(ready(&lb).unwrap().1, "Ready");
    assert_eq!(allocated(&lb).as_ref(), Some(&before));
    world.delete_lb(ns, "other").await?;
    world
        .service_until(ns, "web", "it has the requested address", |service| {
            let spec = service.spec.as_ref();
            spec.and_then(|spec| spec.load_balancer_ip.as_ref()) == Some(&other)
        })
        .await?;
    world.ingress(ns, "web", json!([{ "ip": other }])).await?;
    world
        .lb_until(ns, "web", "moved", |lb| {
            let address = lb.status.as_ref().and_then(|it| it.address.as_ref());
            unserved(lb).is_none()
                && [allocated(lb).as_ref(), address] == [Some(&other); 2]
                && ready(lb).is_some_and(|(_, reason, _)| reason == "Ready")
        })
        .await?;
    world.phase(&before, Phase::Released).await?;
    // Without the request the address stays.
    world.merge(&world.lbs(ns), "web", request(None)).await?;
    let time = std::time::Duration::from_secs(2);
    world.stays_bound(&other, "req4/web", time).await?;
    assert_eq!(world.lb_address(ns, "web").await?, other);
    Ok(())
}

/// REQ-1. The webhook refuses such requests: they are older than the webhook, or were written while that was not registered.
pub(crate) async fn req_1_what_is_no_address_of_a_pool_is_refused(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let (ns, pool) = ("req1", "req1");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.243.0.0/24")]).await?;
    let dhcp = with(vm("", ns), json!({"ipam": "dhcp", "ipPool": Value::Null}));
    for (name, address, spec) in [
        ("text", "10.243.0.x", cluster(pool)),
        ("empty", "", vm(pool, ns)),
        ("dhcp", "10.243.0.9", dhcp),
    ] {
        world.lb_with(asking(ns, name, address), spec).await?;
        let lb = world.lb_reason(ns, name, "InvalidRequestedAddress").await?;
        let (_, _, message) = ready(&lb).unwrap();
        let quoted = format!("{KEY} is {address:?}");
        assert!(message.contains(&quoted), "{message}");
        assert_eq!(allocated(&lb), None);
    }
    // What is served stays as it is.
    let address = world.served(ns, "served", pool).await?;
    world
        .merge(&world.lbs(ns), "served", request(Some("x")))
        .await?;
    let lb = world
        .lb_reason(ns, "served", "InvalidRequestedAddress")
        .await?;
    assert_eq!(allocated(&lb).as_ref(), Some(&address));
    assert_eq!(world.phase(&address, Phase::Bound).await?, "req1/served");
    // Corrected.
    world
        .merge(&world.lbs(ns), "text", request(Some(" 10.243.0.77 ")))
        .await?;
    assert_eq!(world.lb_address(ns, "text").await?, "10.243.0.77");
    Ok(())
}
