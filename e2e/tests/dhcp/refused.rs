//! A server that refuses the renewal, since its range has changed: the Service goes at once, and comes back with the address of the
//! next lease (DHC-3). With both servers.

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_api::{IPAllocation, Phase};
use harvester_lb_e2e::World;
use harvester_lb_e2e::fake_kube_vip::FakeKubeVip;
use harvester_lb_testkit::{Dhcp, lan};
use jiff::Timestamp;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use harvester_lb_e2e::leases::filter::{Filter, NO_DISCOVERS};
use harvester_lb_e2e::leases::operator::{served, start_operator, unserved};
use harvester_lb_e2e::leases::{
    EARLY, LIFETIME, NODE, SERVERS, bound, counter, delete, dnsmasq_with, given_back, held, lease,
    leased, no_record, phase, set, start,
};

/// A hardware address that none of the clients has.
const OTHER: &str = "02:00:5e:10:00:2b";

/// A server with a range of two addresses. Kea says nothing to a client that asks for an address outside of it; it refuses one that
/// is reserved for another client.
async fn server(
    world: &World,
    kind: &str,
    first: u8,
    reserved: Option<Ipv4Addr>,
) -> anyhow::Result<Dhcp> {
    if kind == "dnsmasq" {
        return dnsmasq_with(world, &(first..=first + 1), &[EARLY]).await;
    }
    let (first, last) = (lan(first), lan(first + 1));
    let hosts: Vec<Value> = reserved
        .map(|address| json!({"hw-address": OTHER, "ip-address": address}))
        .into_iter()
        .collect();
    let of_subnet = json!({"renew-timer": 4, "reservations": hosts});
    Dhcp::kea_with(&world.cluster, first, last, LIFETIME, &of_subnet).await
}

fn is_over(record: &IPAllocation) -> anyhow::Result<bool> {
    let expires_at = lease(record).expires_at.context("no expiry")?;
    Ok(expires_at.parse::<Timestamp>()? <= Timestamp::now())
}

pub async fn dhc_3_the_service_ends_when_the_server_refuses_the_renewal(
    world: Arc<World>,
) -> anyhow::Result<()> {
    for kind in SERVERS {
        refused(&world, kind)
            .await
            .with_context(|| kind.to_owned())?;
    }
    Ok(())
}

async fn refused(world: &World, kind: &str) -> anyhow::Result<()> {
    let ns = format!("refused-{kind}");
    set(world, &ns).await?;
    let labels = json!({"app": "web"});
    world.fake_vmi(&ns, "vm", labels, Some("10.81.0.1")).await?;
    let _kube_vip = FakeKubeVip::start(&world.client());
    let before = server(world, kind, 188, None).await?;
    let operator = start_operator(world, NODE, "operator", &[]).await?;
    let process = start(world, "builtin").await?;
    let lb = leased(world, &ns, "web").await?;
    let had = bound(world, &lb).await?;
    let service = served(world, &lb, had).await?;

    // Another lease waits until it was looked whether the Service is gone.
    let no_discovers = Filter::set(world, NO_DISCOVERS)?;
    let record = phase(world, &lb, Phase::Bound).await?;
    drop(before);
    let server = server(world, kind, 191, Some(had)).await?;
    unserved(world, &lb).await?;
    ensure!(!is_over(&record)?, "the lease has expired: {record:?}");
    let naks = counter(
        world,
        "harvester_lb_dhcp_messages_received_total{type=\"nak\"}",
    )
    .await?;
    ensure!(naks > 0.5, "no NAK");
    let pending = phase(world, &lb, Phase::Pending).await?;
    ensure!(pending.spec.address.is_empty(), "{:?}", pending.spec);
    world.event(&ns, "LoadBalancer", "web", "LeaseLost").await?;

    drop(no_discovers);
    let next = bound(world, &lb).await?;
    ensure!((lan(191)..=lan(192)).contains(&next), "{next}");
    let again = served(world, &lb, next).await?;
    ensure!(again != service, "the Service has outlived its lease");
    let bound = format!("leased {next}");
    world.event(&ns, "LoadBalancer", "web", &bound).await?;
    let held = held(&server, &(188..=192));
    ensure!(held == [next], "{}", server.leases());

    taken_to_pools(world, &ns, next).await?;
    delete(world, &lb).await?;
    no_record(world, &lb).await?;
    given_back(&server, next).await?;
    process.kill9()?;
    operator.kill9()
}

/// DHC-5: a pool does not allocate a leased address that is in its ranges.
async fn taken_to_pools(world: &World, ns: &str, next: Ipv4Addr) -> anyhow::Result<()> {
    let range = json!({"subnet": "192.168.100.0/24", "rangeStart": lan(191), "rangeEnd": lan(192)});
    world.pool_for(ns, ns, &[range]).await?;
    let free = [lan(191), lan(192)].into_iter().find(|it| *it != next);
    let of_pool = json!({
        "workloadType": "vm", "ipam": "pool", "ipPool": ns,
        "listeners": [{"name": "http", "port": 80, "protocol": "TCP", "backendPort": 8080}],
        "backendServerSelector": {"app": ["web"]},
    });
    world.lb(ns, "first", of_pool.clone()).await?;
    let given = world.lb_address(ns, "first").await?;
    ensure!(
        Some(given.parse()?) == free,
        "{given}, and {next} is leased"
    );
    world.lb(ns, "second", of_pool).await?;
    world.lb_reason(ns, "second", "NoAvailableIP").await?;
    for name in ["second", "first"] {
        world.delete_lb(ns, name).await?;
        world.gone(&world.lbs(ns), name).await?;
    }
    world.pools().delete(ns, &DeleteParams::default()).await?;
    world.gone(&world.pools(), ns).await
}
