//! The DHCP process is killed in each state of its clients; it is restarted, or a standby takes over (DHC-2, DHC-4, DHC-5).

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_api::{LoadBalancer, Phase};
use harvester_lb_e2e::World;
use harvester_lb_e2e::seeds::Rounds;
use harvester_lb_e2e::world::SOON;
use harvester_lb_testkit::{Dhcp, eventually, lan};
use serde_json::json;

use crate::group::{Group, Program};
use crate::wire::asked;
use harvester_lb_e2e::leases::filter::{Filter, NO_ACKS, NO_REPLIES};
use harvester_lb_e2e::leases::{
    SERVERS, address, bound, confirmed, delete, held, lasting, lease, leased, no_record, phase,
    record_until, serve, set, unserve,
};

/// Rounds of each test in the soak.
pub const SOAK: u64 = 200;

/// The server has exactly these leases.
pub fn exactly(
    server: &Dhcp,
    range: &RangeInclusive<u8>,
    mut wanted: Vec<Ipv4Addr>,
) -> anyhow::Result<()> {
    let mut held = held(server, range);
    held.sort_unstable();
    wanted.sort_unstable();
    ensure!(held == wanted, "the server has {held:?}, not {wanted:?}");
    Ok(())
}

/// Deletes them; nothing is left on the server.
pub async fn none_left(
    world: &World,
    server: &Dhcp,
    range: &RangeInclusive<u8>,
    lbs: &[&LoadBalancer],
) -> anyhow::Result<()> {
    for lb in lbs {
        delete(world, lb).await?;
    }
    for lb in lbs {
        no_record(world, lb).await?;
    }
    eventually("no lease on the server", SOON, || async {
        exactly(server, range, Vec::new()).map(Some)
    })
    .await
}

/// Before a lease, with one, and while it is given back.
async fn killed_in_each_state(
    world: &World,
    (ns, kind): (&str, &str),
    range: &RangeInclusive<u8>,
    has_standby: bool,
) -> anyhow::Result<()> {
    set(world, ns).await?;
    let server = lasting(world, kind, range, None).await?;
    let earlier = asked(&server.process().log());
    let mut group = Group::start(world, Program::Dhcp).await?;
    if has_standby {
        group.stand_by().await?;
    }
    let kept = leased(world, ns, "kept").await?;
    let leaving = leased(world, ns, "leaving").await?;
    let of_leaving = bound(world, &leaving).await?;
    let of_kept = bound(world, &kept).await?;
    serve(world, &leaving, &of_leaving.to_string(), json!({})).await?;
    delete(world, &leaving).await?;
    phase(world, &leaving, Phase::Releasing).await?;
    group
        .only_the_leader_sends(asked(&server.process().log()) - earlier)
        .await?;

    // Between ACK and the end of the ARP probe: the server has leased the address, and nobody has recorded it.
    let probing = leased(world, ns, "probing").await?;
    group.in_state("checking", 1).await?;
    group.leader.process.stop()?;
    let record = phase(world, &probing, Phase::Pending).await?;
    let hardware = lease(&record).hardware_address;
    let of_probing = server.held_by(&hardware);
    let of_probing = of_probing.with_context(|| server.leases())?;
    group.kill().await?;
    if has_standby {
        group.stand_by().await?;
    }
    let got = bound(world, &probing).await?;
    ensure!(got == of_probing, "{got}, not {of_probing}");

    // Between OFFER and ACK: the server has leased the address, and the client does not know.
    let no_acks = Filter::set(world, NO_ACKS)?;
    let asking = leased(world, ns, "asking").await?;
    group.in_state("requesting", 1).await?;
    let record = phase(world, &asking, Phase::Pending).await?;
    let hardware = lease(&record).hardware_address;
    let of_asking = eventually("leased to the client that asks", SOON, || async {
        Ok(server.held_by(&hardware))
    })
    .await?;
    drop(no_acks);
    // Another one gets no answer to its DISCOVER. All of them are killed at once.
    let silence = Filter::set(world, NO_REPLIES)?;
    let waiting = leased(world, ns, "waiting").await?;
    group.in_state("selecting", 1).await?;
    let before = phase(world, &kept, Phase::Bound).await?;
    group.kill().await?;
    for (lb, had) in [(&kept, of_kept), (&leaving, of_leaving), (&probing, got)] {
        let record = record_until(world, lb, "as before", |_| true).await?;
        ensure!(address(&record)? == had, "{had}: {:?}", record.spec);
    }
    phase(world, &leaving, Phase::Releasing).await?;
    drop(silence);
    let got = bound(world, &asking).await?;
    ensure!(got == of_asking, "{got}, not {of_asking}");
    let of_waiting = bound(world, &waiting).await?;
    confirmed(world, &kept, &before).await?;
    let all = vec![of_kept, of_leaving, of_probing, of_asking, of_waiting];
    exactly(&server, range, all)?;

    // Nothing is given back while a Service has the address, and all of it afterwards.
    phase(world, &leaving, Phase::Releasing).await?;
    unserve(world, &leaving).await?;
    no_record(world, &leaving).await?;
    none_left(world, &server, range, &[&kept, &probing, &asking, &waiting]).await
}

/// The namespaces of the rounds, and the kind of the server: both in turn, from this one on. What the seed does not decide, the machine
/// does: at which instruction a process is killed.
fn rounds(
    prefix: &'static str,
    first: &'static str,
) -> impl Iterator<Item = (String, &'static str)> {
    let rounds = Rounds::from_env(1, SOAK);
    let kinds = SERVERS.into_iter().cycle();
    let kinds = kinds.skip_while(move |kind| *kind != first);
    let namespaces = rounds.seeds().map(move |seed| format!("{prefix}-{seed}"));
    namespaces.zip(kinds)
}

pub async fn dhc_2_killed_in_each_state_and_restarted(world: Arc<World>) -> anyhow::Result<()> {
    for (ns, kind) in rounds("again", "kea") {
        let done = killed_in_each_state(&world, (&ns, kind), &(188..=193), false).await;
        done.context(kind)?;
    }
    Ok(())
}

pub async fn dhc_2_killed_in_each_state_with_a_standby(world: Arc<World>) -> anyhow::Result<()> {
    for (ns, kind) in rounds("standby", "dnsmasq") {
        let done = killed_in_each_state(&world, (&ns, kind), &(194..=199), true).await;
        done.context(kind)?;
    }
    Ok(())
}

pub async fn dhc_2_killed_while_the_server_is_away(world: Arc<World>) -> anyhow::Result<()> {
    for (number, (ns, kind)) in rounds("away", "dnsmasq").enumerate() {
        let done =
            killed_while_the_server_is_away(&world, (&ns, kind), is_with_standby(number)).await;
        done.context(kind)?;
    }
    Ok(())
}

/// Whether there is a standby in this round: each kind of server has rounds with one and without.
const fn is_with_standby(number: usize) -> bool {
    number % 4 > 1
}

/// After T1 and after T2, when nobody renews the lease; and the next one too, before anybody confirms it. A standby takes over after T1,
/// and a restarted process after T2, or the other way round. After T2 the server has ended, and starts again with its lease file.
async fn killed_while_the_server_is_away(
    world: &World,
    (ns, kind): (&str, &str),
    is_standby_first: bool,
) -> anyhow::Result<()> {
    set(world, ns).await?;
    let range = 225..=229;
    let mut server = lasting(world, kind, &range, Some((4, 7))).await?;
    let mut group = Group::start(world, Program::Dhcp).await?;
    let lb = leased(world, ns, "web").await?;
    let had = bound(world, &lb).await?;
    for (state, ends) in [("renewing", false), ("rebinding", true)] {
        // The second kill is followed by the other of the two.
        let has_standby = is_standby_first != ends;
        if has_standby {
            group.stand_by().await?;
        }
        if ends {
            server.process().kill9()?;
        } else {
            server.process().stop()?;
        }
        group.in_state(state, 1).await?;
        let before = phase(world, &lb, Phase::Bound).await?;
        group.kill().await?;
        group.in_state("rebooting", 1).await?;
        if !has_standby {
            group.stand_by().await?;
        }
        group.kill().await?;
        group.in_state("rebooting", 1).await?;
        let now = phase(world, &lb, Phase::Bound).await?;
        ensure!(now.spec == before.spec, "{:?}", now.spec);
        if ends {
            server.restart(&world.cluster).await?;
        } else {
            server.process().cont()?;
        }
        confirmed(world, &lb, &before).await?;
        group.in_state("bound", 1).await?;
        exactly(&server, &range, vec![had])?;
    }
    none_left(world, &server, &range, &[&lb]).await
}

pub async fn dhc_2_killed_after_a_decline(world: Arc<World>) -> anyhow::Result<()> {
    for (number, (ns, kind)) in rounds("declined", "dnsmasq").enumerate() {
        let done = killed_after_a_decline(&world, (&ns, kind), is_with_standby(number)).await;
        done.context(kind)?;
    }
    Ok(())
}

/// Gives addresses to a host of the LAN, or takes them away.
fn host(world: &World, verb: &str, addresses: &[Ipv4Addr]) -> anyhow::Result<()> {
    let commands: Vec<String> = addresses
        .iter()
        .map(|it| format!("address {verb} {it}/24 dev eth0"))
        .collect();
    world.cluster.ip("client", &commands.join("\n"))
}

/// Waits until an address was declined.
async fn declined(world: &World, ns: &str) -> anyhow::Result<Ipv4Addr> {
    eventually("declined", SOON, || async {
        let mut events = world.events(ns, "LoadBalancer", "web").await?.into_iter();
        let event = events.find_map(|it| Some(it.strip_prefix("LeaseDeclined: ")?.to_owned()));
        let event = event.context("no Event")?;
        let mut words = event.split_whitespace();
        Ok(words.find_map(|word| word.parse::<Ipv4Addr>().ok()))
    })
    .await
}

/// In the pause before the next DISCOVER, of which the next process does not know (DHC-5). A host has all addresses at first.
async fn killed_after_a_decline(
    world: &World,
    (ns, kind): (&str, &str),
    has_standby: bool,
) -> anyhow::Result<()> {
    set(world, ns).await?;
    let range = 244..=249;
    let all: Vec<Ipv4Addr> = range.clone().map(lan).collect();
    host(world, "add", &all)?;
    let server = lasting(world, kind, &range, None).await?;
    let mut group = Group::start(world, Program::Dhcp).await?;
    if has_standby {
        group.stand_by().await?;
    }
    let lb = leased(world, ns, "web").await?;
    let of_host = declined(world, ns).await?;
    let (kept, free): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| *it == of_host);
    host(world, "del", &free)?;
    group.in_state("init", 1).await?;
    group.kill().await?;
    let got = bound(world, &lb).await?;
    ensure!(got != of_host, "{got} is the host's");
    exactly(&server, &range, vec![got])?;
    none_left(world, &server, &range, &[&lb]).await?;
    host(world, "del", &kept)
}
