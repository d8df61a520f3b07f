//! What a DHCP server does to one lease: renewals, an absence, reservations (DHC-1, DHC-2).

use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_api::{IPAllocation, Phase};
use harvester_lb_e2e::World;
use harvester_lb_testkit::{Dhcp, lan};
use jiff::Timestamp;
use serde_json::json;

use harvester_lb_e2e::leases::{
    LIFETIME, NODE, SERVERS, address, bound, clients, delete, dnsmasq_with, given_back, held,
    in_state, kinds, lasting, lease, leased, leased_spec, no_record, phase, record_until, set,
    start,
};

/// A hardware address that a server knows.
const RESERVED: &str = "02:00:5e:10:00:2a";

fn expiry(record: &IPAllocation) -> anyhow::Result<Timestamp> {
    let expires_at = lease(record).expires_at.context("no expiry")?;
    Ok(expires_at.parse()?)
}

/// With Kea, and in the soak with dnsmasq.
pub async fn dhc_2_renewed_again_and_again_and_after_an_absence_of_the_server(
    world: Arc<World>,
) -> anyhow::Result<()> {
    for kind in SERVERS.into_iter().rev().take(kinds()) {
        renewed(&world, kind)
            .await
            .with_context(|| kind.to_owned())?;
    }
    Ok(())
}

async fn renewed(world: &World, kind: &str) -> anyhow::Result<()> {
    let ns = format!("renewed-{kind}");
    set(world, &ns).await?;
    let server = lasting(world, kind, &(230..=232), Some((4, 6))).await?;
    let process = start(world, "builtin").await?;
    let lb = leased(world, &ns, "web").await?;
    let first = phase(world, &lb, Phase::Bound).await?;
    let is_same = |record: &IPAllocation| {
        let (now, then) = (&record.spec, &first.spec);
        now.phase == Phase::Bound && now.address == then.address && now.bound_at == then.bound_at
    };
    let mut before = expiry(&first)?;
    for _ in 0..3 {
        let renewed = record_until(world, &lb, "renewed", |record| {
            !is_same(record) || expiry(record).is_ok_and(|expiry| expiry > before)
        })
        .await?;
        ensure!(
            is_same(&renewed),
            "{:?}, not {:?}",
            renewed.spec,
            first.spec
        );
        let later = expiry(&renewed)?.duration_since(before).as_secs();
        ensure!((3..=6).contains(&later), "{later} s later");
        before = expiry(&renewed)?;
    }

    // Nobody answers until after T2.
    server.process().stop()?;
    in_state(world, NODE, "rebinding", 1).await?;
    server.process().cont()?;
    let rebound = record_until(world, &lb, "renewed after T2", |record| {
        !is_same(record) || expiry(record).is_ok_and(|expiry| expiry > before)
    })
    .await?;
    ensure!(
        is_same(&rebound),
        "{:?}, not {:?}",
        rebound.spec,
        first.spec
    );
    in_state(world, NODE, "bound", 1).await?;
    let events = world.events(&ns, "LoadBalancer", "web").await?;
    ensure!(events.len() == 1, "{events:?}");
    ensure!(
        held(&server, &(230..=232)) == [address(&first)?],
        "{}",
        server.leases()
    );
    process.kill9()
}

pub async fn dhc_1_a_reservation_by_hardware_address(world: Arc<World>) -> anyhow::Result<()> {
    set(&world, "reserved").await?;
    let process = start(&world, "builtin").await?;
    for kind in SERVERS {
        // Outside of the range.
        let server = if kind == "kea" {
            let host = json!({"hw-address": RESERVED, "ip-address": "192.168.100.239"});
            let hosts = json!({"reservations": [host], "reservations-out-of-pool": true});
            let (first, last) = (lan(235), lan(236));
            Dhcp::kea_with(&world.cluster, first, last, LIFETIME, &hosts).await?
        } else {
            let host = format!("--dhcp-host={RESERVED},192.168.100.239");
            dnsmasq_with(&world, &(206..=207), &[&host]).await?
        };
        let annotation = json!({"loadbalancer.harvesterhci.io/dhcp-hardware-address": RESERVED});
        let meta = json!({"namespace": "reserved", "name": "web", "annotations": annotation});
        let lb = world.lb_with(meta, leased_spec()).await?;
        let other = leased(&world, "reserved", "other").await?;
        let record = phase(&world, &lb, Phase::Bound).await?;
        ensure!(address(&record)? == lan(239), "{kind}: {:?}", record.spec);
        ensure!(lease(&record).hardware_address == RESERVED, "{record:?}");
        ensure!(bound(&world, &other).await? != lan(239), "{kind}");
        for lb in [&lb, &other] {
            delete(&world, lb).await?;
            no_record(&world, lb).await?;
        }
        given_back(&server, lan(239)).await?;
    }
    let left = clients(&world, NODE, "bound").await?;
    ensure!(left < 0.5, "{left} clients are left");
    process.kill9()
}
