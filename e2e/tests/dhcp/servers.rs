//! What a DHCP server does to one lease: renewals, an absence, reservations (DHC-1, DHC-2).

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_api::{IPAllocation, Phase};
use harvester_lb_e2e::World;
use harvester_lb_testkit::{Dhcp, eventually, lan};
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

use harvester_lb_e2e::leases::{
    LIFETIME, NODE, SERVERS, address, bound, clients, confirmed, delete, dnsmasq_with, given_back,
    held, in_state, kea_renewed, kinds, lasting, lease, leased, leased_spec, no_record, phase,
    record_name, record_until, serve, set, start, unserve,
};

/// A hardware address that a server knows.
const RESERVED: &str = "02:00:5e:10:00:2a";

const RANGE: RangeInclusive<u8> = 230..=232;
/// How long Kea leases here, those of dnsmasq last for [`LIFETIME`]. The REQUEST at T2 is lost; half of what the lease has left then passes
/// until the next one.
const SHORT: Duration = Duration::from_secs(24);

/// T1 and T2 of both, in seconds.
const TIMES: (u8, u8) = (4, 6);

async fn server(world: &World, kind: &str) -> anyhow::Result<Dhcp> {
    if kind == "kea" {
        return kea_renewed(world, &RANGE, SHORT, TIMES).await;
    }
    lasting(world, kind, &RANGE, Some(TIMES)).await
}

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
    let mut server = server(world, kind).await?;
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

    // There is no server until after T2, then one with its lease file.
    server.process().kill9()?;
    in_state(world, NODE, "rebinding", 1).await?;
    let before = expiry(&phase(world, &lb, Phase::Bound).await?)?;
    server.restart(&world.cluster).await?;
    let name = record_name(&lb);
    let rebound = eventually("renewed after T2", LIFETIME, || async {
        let record = world.records().get(&name).await?;
        let is_renewed = !is_same(&record) || expiry(&record)? > before;
        Ok(is_renewed.then_some(record))
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
        held(&server, &RANGE) == [address(&first)?],
        "{}",
        server.leases()
    );
    process.kill9()
}

/// Two servers with ranges of their own on one network: the second one refuses what it has not leased.
pub async fn dhc_2_another_server_ends_no_lease(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "two";
    set(&world, ns).await?;
    let (ours, others) = (240..=243, 244..=247);
    let server = lasting(&world, "kea", &ours, None).await?;
    let mut process = start(&world, "builtin").await?;
    let mut leases = Vec::new();
    for name in ["a", "b", "c"] {
        let lb = leased(&world, ns, name).await?;
        let address = bound(&world, &lb).await?;
        leases.push((lb, address));
    }
    let (first, last) = (lan(*others.start()), lan(*others.end()));
    let second = Dhcp::dnsmasq_in(&world.cluster, "client", first, last, &[]).await?;
    // Those of earlier tests, in the same file.
    let earlier = held(&second, &others);
    let refusals = || second.process().log().matches("DHCPNAK").count();
    for _ in 0..2 {
        let before = refusals();
        process.kill9()?;
        process = start(&world, "builtin").await?;
        // Each asks within ten seconds after the start, and the second server refuses it.
        eventually("three refusals", LIFETIME, || async {
            Ok((refusals() >= before + 3).then_some(()))
        })
        .await?;
        in_state(&world, NODE, "bound", 3).await?;
        for (lb, address) in &leases {
            ensure!(bound(&world, lb).await? == *address, "{lb:?}");
        }
    }
    for name in ["a", "b", "c"] {
        let events = world.events(ns, "LoadBalancer", name).await?;
        ensure!(events.len() == 1, "{events:?}");
    }
    ensure!(held(&server, &ours).len() == 3, "{}", server.leases());
    for (lb, address) in &leases {
        delete(&world, lb).await?;
        no_record(&world, lb).await?;
        given_back(&server, *address).await?;
    }
    let mut held = held(&second, &others).into_iter();
    let has_more = held.any(|address| !earlier.contains(&address));
    ensure!(!has_more, "{}", second.leases());
    process.kill9()
}

/// DHC-5: dnsmasq with a reservation, and two load balancers with its hardware address. It gives the lease to the one that asks last, and
/// then, as it is not authoritative, says nothing to the renewals of the other one.
pub async fn dhc_5_the_lease_of_a_twin_is_renewed_again_and_again(
    world: Arc<World>,
) -> anyhow::Result<()> {
    set(&world, "twin-a").await?;
    world.namespace("twin-b").await?;
    let process = start(&world, "builtin").await?;
    let host = format!("--dhcp-host={RESERVED},192.168.100.238");
    let flags = [&*host, "--dhcp-option=58,4", "--dhcp-option=59,6"];
    let (first, last) = (lan(206), lan(207));
    let server = Dhcp::dnsmasq_not_authoritative(&world.cluster, first, last, &flags).await?;
    let annotations = json!({"loadbalancer.harvesterhci.io/dhcp-hardware-address": RESERVED});
    let meta = |ns| json!({"namespace": ns, "name": ns, "annotations": annotations});
    let had = world.lb_with(meta("twin-a"), leased_spec()).await?;
    let mut record = phase(&world, &had, Phase::Bound).await?;
    ensure!(address(&record)? == lan(238), "{:?}", record.spec);
    let other = world.lb_with(meta("twin-b"), leased_spec()).await?;
    let text = "load balancer twin-a/twin-a, which has the same hardware address";
    world
        .event("twin-b", "LoadBalancer", "twin-b", text)
        .await?;
    // The other one asks again after 10 s.
    for _ in 0..4 {
        confirmed(&world, &had, &record).await?;
        record = phase(&world, &had, Phase::Bound).await?;
    }
    phase(&world, &other, Phase::Pending).await?;
    let leases = server.leases();
    ensure!(leases.contains(&lease(&record).client_id), "{leases}");
    let events = world.events("twin-a", "LoadBalancer", "twin-a").await?;
    ensure!(events.len() == 1, "{events:?}");
    // Then it is free.
    delete(&world, &had).await?;
    no_record(&world, &had).await?;
    ensure!(bound(&world, &other).await? == lan(238));
    delete(&world, &other).await?;
    no_record(&world, &other).await?;
    given_back(&server, lan(238)).await?;
    process.kill9()
}

/// The address of the reservation is also that of the next load balancer with the hardware address, which asks for it once the last one
/// has given it back.
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
        serve(&world, &lb, &lan(239).to_string(), json!({})).await?;
        delete(&world, &lb).await?;
        let next = format!("next-{kind}");
        let meta = json!({"namespace": "reserved", "name": next, "annotations": annotation});
        let next = world.lb_with(meta, leased_spec()).await?;
        world
            .event("reserved", "LoadBalancer", &next.name_any(), "LeaseWaits")
            .await?;
        phase(&world, &lb, Phase::Releasing).await?;
        phase(&world, &next, Phase::Pending).await?;
        unserve(&world, &lb).await?;
        ensure!(bound(&world, &next).await? == lan(239), "{kind}");
        no_record(&world, &lb).await?;
        for lb in [&next, &other] {
            delete(&world, lb).await?;
            no_record(&world, lb).await?;
        }
        given_back(&server, lan(239)).await?;
    }
    let left = clients(&world, NODE, "bound").await?;
    ensure!(left < 0.5, "{left} clients are left");
    process.kill9()
}
