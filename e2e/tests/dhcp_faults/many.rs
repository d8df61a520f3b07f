//! Many leases at once, on a network that works and on one that loses messages (DHC-1, DHC-4).

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use harvester_lb_api::{LoadBalancer, Phase};
use harvester_lb_e2e::World;
use harvester_lb_e2e::leases;
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::seeds::soaks;
use harvester_lb_e2e::world::SOON;
use harvester_lb_testkit::{Dhcp, eventually};
use kube::ResourceExt;
use kube::api::ListParams;

use crate::wire::asked;
use harvester_lb_e2e::leases::filter::{Filter, LOSS};
use harvester_lb_e2e::leases::{
    NODE, SERVERS, address, bound, counter, delete, held, kea_renewed, lasting, lease, leased,
    no_record, phase, record_name, server_of, set, start,
};

/// How long a process lives while messages are lost. A client whose messages were lost four times in a row waits for half a
/// minute and longer, as RFC 2131 has it; the next process begins anew.
const LIFE: Duration = Duration::from_secs(25);
/// Processes, one after another. A client fails in one of five.
const LIVES: usize = 8;

/// Lifetime of the leases of the short form of a test.
const BRIEF: Duration = Duration::from_secs(30);

/// Creates load balancers with a lease.
async fn create(world: &World, ns: &str, count: usize) -> anyhow::Result<Vec<LoadBalancer>> {
    let mut all = Vec::new();
    for number in 0..count {
        all.push(async move { leased(world, ns, &format!("web-{number}")).await });
    }
    try_join_all(all).await
}

async fn delete_all(world: &World, lbs: &[LoadBalancer]) -> anyhow::Result<()> {
    let mut all = Vec::new();
    for lb in lbs {
        all.push(delete(world, lb));
    }
    try_join_all(all).await?;
    Ok(())
}

/// Waits until each has a lease; the addresses, in order. No two have the same.
async fn addresses(
    world: &World,
    lbs: &[LoadBalancer],
    limit: Duration,
) -> anyhow::Result<Vec<Ipv4Addr>> {
    let names: BTreeSet<String> = lbs.iter().map(record_name).collect();
    let all = eventually("all have a lease", limit, || async {
        let records = world.records().list(&ListParams::default()).await?;
        let bound = records.items.iter().filter(|record| {
            let name = record.metadata.name.as_ref();
            record.spec.phase == Phase::Bound && name.is_some_and(|name| names.contains(name))
        });
        let bound = bound.map(address).collect::<anyhow::Result<Vec<_>>>()?;
        ensure!(bound.len() == names.len(), "{} have one", bound.len());
        Ok(Some(bound))
    })
    .await?;
    let different: BTreeSet<Ipv4Addr> = all.iter().copied().collect();
    ensure!(different.len() == all.len(), "the same twice: {all:?}");
    Ok(different.into_iter().collect())
}

/// The addresses of the leases, by the name of the record.
async fn bound_now(world: &World) -> anyhow::Result<BTreeMap<String, Ipv4Addr>> {
    let records = world.records().list(&ListParams::default()).await?;
    let bound = records
        .items
        .iter()
        .filter(|record| record.spec.phase == Phase::Bound);
    bound
        .map(|record| {
            let name = record.metadata.name.clone().unwrap_or_default();
            Ok((name, address(record)?))
        })
        .collect()
}

/// Waits until the server has exactly these leases.
async fn has(server: &Dhcp, range: &RangeInclusive<u8>, wanted: &[Ipv4Addr]) -> anyhow::Result<()> {
    let what = format!("the server has {} leases", wanted.len());
    eventually(&what, SOON, || async {
        let mut held = held(server, range);
        held.sort_unstable();
        ensure!(held == wanted, "it has {held:?}, not {wanted:?}");
        Ok(Some(()))
    })
    .await
}

/// With Kea, and in the soak with dnsmasq, which offers an address to several clients at once and refuses it to all but one: those wait
/// before they ask again.
pub async fn dhc_1_a_hundred_leases_at_once(world: Arc<World>) -> anyhow::Result<()> {
    let kinds = [("kea", SOON), ("dnsmasq", 10 * SOON)];
    for (kind, limit) in kinds.into_iter().take(leases::kinds()) {
        a_hundred(&world, kind, limit).await?;
    }
    Ok(())
}

async fn a_hundred(world: &World, kind: &str, limit: Duration) -> anyhow::Result<()> {
    let ns = format!("hundred-{kind}");
    set(world, &ns).await?;
    let process = start(world, "builtin").await?;
    let range = 61..=160;
    let server = server_of(world, kind, &range).await?;
    // As many as there are addresses.
    let lbs = create(world, &ns, range.clone().count()).await?;
    let all = addresses(world, &lbs, limit).await?;
    has(&server, &range, &all).await?;
    gives_all_back(world, &lbs, &server, &range).await?;
    process.kill9()
}

/// Until all have one, the process is killed now and then, in whatever states its clients are. With dnsmasq, in the soak with Kea too.
pub async fn dhc_1_leases_while_three_of_ten_frames_are_lost(
    world: Arc<World>,
) -> anyhow::Result<()> {
    for kind in SERVERS.into_iter().take(leases::kinds()) {
        leases_under_loss(&world, kind).await.context(kind)?;
    }
    Ok(())
}

async fn leases_under_loss(world: &World, kind: &str) -> anyhow::Result<()> {
    let count = if soaks() { 20 } else { 8 };
    let ns = &*format!("loss-{kind}");
    set(world, ns).await?;
    let range = 161..=182;
    let server = lasting(world, kind, &range, None).await?;
    let earlier = asked(&server.process().log());
    let mut process = start(world, "builtin").await?;
    let loss = Filter::set(world, LOSS)?;
    let lbs = create(world, ns, count).await?;
    let mut all = addresses(world, &lbs, LIFE).await;
    let mut had = Vec::new();
    for _ in 1..LIVES {
        if all.is_ok() {
            break;
        }
        had.extend(bound_now(world).await?);
        process.kill9()?;
        process = start(world, "builtin").await?;
        all = addresses(world, &lbs, LIFE).await;
    }
    let all = all?;
    let now = bound_now(world).await?;
    for (name, address) in had {
        ensure!(
            now.get(&name) == Some(&address),
            "{name} had {address}: {now:?}"
        );
    }
    let asked = asked(&server.process().log()) - earlier;
    // A DISCOVER and a REQUEST each would be all.
    ensure!(
        asked > 2 * count,
        "nothing was lost: {asked} messages at the server"
    );
    has(&server, &range, &all).await?;
    // A RELEASE is sent once.
    drop(loss);
    gives_all_back(world, &lbs, &server, &range).await?;
    process.kill9()
}

/// Deletes them all; nothing is left at the server.
async fn gives_all_back(
    world: &World,
    lbs: &[LoadBalancer],
    server: &Dhcp,
    range: &RangeInclusive<u8>,
) -> anyhow::Result<()> {
    delete_all(world, lbs).await?;
    for lb in lbs {
        no_record(world, lb).await?;
    }
    has(server, range, &[]).await
}

/// Messages between clients and servers: sent, and answered.
async fn exchanged(world: &World) -> anyhow::Result<[f64; 2]> {
    let figures = MetricsSnapshot::read(world, NODE).await?;
    let kinds = [
        (
            "harvester_lb_dhcp_messages_sent_total",
            ["discover", "request"],
        ),
        (
            "harvester_lb_dhcp_messages_received_total",
            ["offer", "ack"],
        ),
    ];
    Ok(kinds.map(|(name, kinds)| figures.sum(name, |it| kinds.contains(&it.label("type")))))
}

/// When each lease expires, by the name of the record.
async fn expiries(world: &World) -> anyhow::Result<BTreeMap<String, Option<String>>> {
    let records = world.records().list(&ListParams::default()).await?;
    let all = records
        .iter()
        .map(|it| (it.name_any(), lease(it).expires_at));
    Ok(all.collect())
}

/// One process, which nobody kills, repeats what is lost: what begins a lease, and renewals. With Kea, in the soak with dnsmasq too.
pub async fn dhc_2_renewed_while_three_of_ten_frames_are_lost(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let kinds = ["kea", "dnsmasq"];
    for kind in kinds.into_iter().take(leases::kinds()) {
        renewed_under_loss(&world, kind).await.context(kind)?;
    }
    Ok(())
}

async fn renewed_under_loss(world: &World, kind: &str) -> anyhow::Result<()> {
    // Of a longer lease, more messages may be lost before it is over; and the pauses between them are longer.
    let count = if soaks() { 20 } else { 3 };
    // A client that is out of luck waits for a minute between two DISCOVERs.
    let limit = Duration::from_mins(20);
    let ns = &*format!("lossy-{kind}");
    set(world, ns).await?;
    let range = 161..=182;
    let server = if soaks() {
        lasting(world, kind, &range, Some((4, 6))).await?
    } else {
        kea_renewed(world, &range, BRIEF, (4, 6)).await?
    };
    let process = start(world, "builtin").await?;
    let loss = Filter::set(world, LOSS)?;
    let lbs = create(world, ns, count).await?;
    let all = addresses(world, &lbs, limit).await?;
    let before = expiries(world).await?;
    eventually("each is renewed, and a message was lost", limit, || async {
        let now = expiries(world).await?;
        let renewed = before.iter().filter(|(name, at)| now.get(*name) > Some(at));
        let (renewed, [sent, answered]) = (renewed.count(), exchanged(world).await?);
        ensure!(
            renewed == count && sent - answered > 0.5,
            "{renewed} are renewed, {answered} of {sent} messages answered"
        );
        Ok(Some(()))
    })
    .await?;
    // One of many may have lost its lease, and asks for it again.
    let now = addresses(world, &lbs, limit).await?;
    ensure!(now == all, "{now:?} after {all:?}");
    has(&server, &range, &all).await?;
    drop(loss);
    gives_all_back(world, &lbs, &server, &range).await?;
    process.kill9()
}

/// With dnsmasq, and in the soak with Kea.
pub async fn dhc_1_no_address_is_left(world: Arc<World>) -> anyhow::Result<()> {
    let kinds = [
        ("dnsmasq", "no address available"),
        ("kea", "ALLOC_ENGINE_V4_ALLOC_FAIL"),
    ];
    for (kind, text) in kinds.into_iter().take(leases::kinds()) {
        no_address_is_left(&world, kind, text).await?;
    }
    Ok(())
}

/// `text`: what the server logs.
async fn no_address_is_left(world: &World, kind: &str, text: &str) -> anyhow::Result<()> {
    let ns = format!("full-{kind}");
    set(world, &ns).await?;
    let range = 186..=187;
    let server = server_of(world, kind, &range).await?;
    let process = start(world, "builtin").await?;
    let first = create(world, &ns, 2).await?;
    addresses(world, &first, SOON).await?;
    // One of the first two may have needed more than one DISCOVER on a busy machine.
    let discovers = "harvester_lb_dhcp_messages_sent_total{type=\"discover\"}";
    let before = counter(world, discovers).await?;
    let late = leased(world, &ns, "late").await?;
    // The server does not answer. Two more DISCOVERs follow, after 4 and 8 s.
    eventually("three DISCOVERs", SOON, || async {
        let sent = counter(world, discovers).await? - before;
        ensure!(sent > 2.5, "{sent}");
        Ok(Some(()))
    })
    .await?;
    let record = phase(world, &late, Phase::Pending).await?;
    ensure!(record.spec.address.is_empty(), "{:?}", record.spec);
    let log = server.process().log();
    ensure!(log.contains(text), "{log}");
    let gone = &first[0];
    let freed = bound(world, gone).await?;
    delete(world, gone).await?;
    no_record(world, gone).await?;
    // It is there with the next DISCOVER, which is the fourth.
    let got = bound(world, &late).await?;
    ensure!(got == freed, "{got}, not {freed}");
    world
        .event(&ns, "LoadBalancer", "late", "LeaseUnanswered")
        .await?;
    process.kill9()
}
