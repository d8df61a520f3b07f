//! The DHCP process is killed in each state of its clients; it is restarted, or a standby takes over (DHC-2, DHC-4).

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_api::{IPAllocation, LoadBalancer, Phase};
use harvester_lb_e2e::World;
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::seeds::Rounds;
use harvester_lb_e2e::world::SOON;
use harvester_lb_testkit::{Dhcp, Process, eventually};
use serde_json::json;

use crate::wire::{Filter, NO_ACKS, NO_REPLIES, asked};
use harvester_lb_e2e::leases::{
    EARLY, NODE, address, bound, delete, dnsmasq, dnsmasq_with, held, in_state, lease, leased,
    no_record, phase, record_until, serve, set, start_as, unserve,
};

/// Rounds of each test in the soak.
const SOAK: u64 = 200;
/// The node of the standby.
const OTHER: &str = "node2";

/// A process on a node.
struct Member {
    node: &'static str,
    process: Arc<Process>,
}

/// The leader, and perhaps a standby.
struct Group<'a> {
    world: &'a World,
    leader: Member,
    standby: Option<Member>,
    started: u32,
}

impl<'a> Group<'a> {
    /// Starts the leader, then the standby.
    async fn start(world: &'a World, has_standby: bool) -> anyhow::Result<Self> {
        let leader = Member {
            node: NODE,
            process: start_as(world, NODE, "builtin", "dhcp").await?,
        };
        // It has the Lease: a client of it works.
        let mut group = Self {
            world,
            leader,
            standby: None,
            started: 0,
        };
        if has_standby {
            group.leads().await?;
            group.standby = Some(group.member(OTHER).await?);
        }
        Ok(group)
    }

    /// Starts a process that is not the one that was killed, as far as the Lease shows.
    async fn member(&mut self, node: &'static str) -> anyhow::Result<Member> {
        self.started += 1;
        let uid = format!("standby-{}", self.started);
        let process = start_as(self.world, node, "builtin", &uid).await?;
        Ok(Member { node, process })
    }

    /// Waits until the leader has its term.
    async fn leads(&self) -> anyhow::Result<()> {
        let what = format!("{} leads", self.leader.node);
        eventually(&what, SOON, || async {
            let log = self.leader.process.log();
            // Of this process, not of one before it.
            let since = log.rfind("DHCP process starting").unwrap_or_default();
            let log = log.get(since..).unwrap_or_default();
            Ok(log.contains("became leader").then_some(()))
        })
        .await
    }

    /// Kills the leader. Another one leads when this returns.
    async fn kill(&mut self) -> anyhow::Result<()> {
        self.leader.process.kill9()?;
        let killed = self.leader.node;
        let Some(standby) = self.standby.take() else {
            self.leader.process = start_as(self.world, killed, "builtin", "dhcp").await?;
            return self.leads().await;
        };
        self.leader = standby;
        // Otherwise the next one may be faster.
        self.leads().await?;
        self.standby = Some(self.member(killed).await?);
        Ok(())
    }

    async fn in_state(&self, state: &str, count: u8) -> anyhow::Result<()> {
        in_state(self.world, self.leader.node, state, count).await
    }

    /// Messages that a member has sent.
    async fn sent(&self, member: &Member) -> anyhow::Result<f64> {
        let figures = MetricsSnapshot::read(self.world, member.node).await?;
        Ok(
            figures.sum("harvester_lb_dhcp_messages_sent_total", |series| {
                series.label("type") != "arp_probe"
            }),
        )
    }

    /// Whether the messages of the leader are all that have come to the server.
    async fn only_the_leader_sends(&self, at_server: usize) -> anyhow::Result<()> {
        let sent = self.sent(&self.leader).await?;
        let at_server = f64::from(u32::try_from(at_server)?);
        ensure!(
            sent > 0.5 && (sent - at_server).abs() < 0.5,
            "{sent} sent, {at_server} there"
        );
        if let Some(standby) = &self.standby {
            let sent = self.sent(standby).await?;
            ensure!(sent < 0.5, "the standby has sent {sent}");
        }
        Ok(())
    }
}

/// Waits until a lease is confirmed: it ends later than the given one. Its address stays meanwhile.
async fn confirmed(world: &World, lb: &LoadBalancer, before: &IPAllocation) -> anyhow::Result<()> {
    let is_kept = |record: &IPAllocation| {
        record.spec.phase == Phase::Bound && record.spec.address == before.spec.address
    };
    let record = record_until(world, lb, "confirmed", |record| {
        !is_kept(record) || lease(record).expires_at > lease(before).expires_at
    })
    .await?;
    ensure!(
        is_kept(&record),
        "{:?} after {:?}",
        record.spec,
        before.spec
    );
    Ok(())
}

/// The server has exactly these leases.
fn exactly(
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
async fn none_left(
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
    ns: &str,
    range: &RangeInclusive<u8>,
    has_standby: bool,
) -> anyhow::Result<()> {
    set(world, ns).await?;
    let server = dnsmasq(world, range).await?;
    let earlier = asked(&server.process().log());
    let mut group = Group::start(world, has_standby).await?;
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
    let of_probing = held_by(&server, &hardware)?;
    group.kill().await?;
    let got = bound(world, &probing).await?;
    ensure!(got == of_probing, "{got}, not {of_probing}");

    // Between OFFER and ACK: the server has leased the address, and the client does not know.
    let no_acks = Filter::set(world, NO_ACKS)?;
    let asking = leased(world, ns, "asking").await?;
    group.in_state("requesting", 1).await?;
    let record = phase(world, &asking, Phase::Pending).await?;
    let hardware = lease(&record).hardware_address;
    let of_asking = eventually("leased to the client that asks", SOON, || async {
        held_by(&server, &hardware).map(Some)
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

/// The address that dnsmasq has leased to a client.
fn held_by(server: &Dhcp, hardware: &str) -> anyhow::Result<Ipv4Addr> {
    let leases = server.leases();
    let line = leases.lines().find(|line| line.contains(hardware));
    let line = line.with_context(|| format!("none of {hardware}: {leases}"))?;
    let address = line.split_whitespace().nth(2).context("no address")?;
    Ok(address.parse()?)
}

/// The namespaces of the rounds. What the seed does not decide, the machine does: at which instruction a process is killed.
fn namespaces(prefix: &'static str) -> impl Iterator<Item = String> {
    let seeds = Rounds::from_env(1, SOAK).seeds();
    seeds.map(move |seed| format!("{prefix}-{seed}"))
}

pub async fn dhc_2_killed_in_each_state_and_restarted(world: Arc<World>) -> anyhow::Result<()> {
    for ns in namespaces("again") {
        killed_in_each_state(&world, &ns, &(188..=193), false).await?;
    }
    Ok(())
}

pub async fn dhc_2_killed_in_each_state_with_a_standby(world: Arc<World>) -> anyhow::Result<()> {
    for ns in namespaces("standby") {
        killed_in_each_state(&world, &ns, &(194..=199), true).await?;
    }
    Ok(())
}

pub async fn dhc_2_killed_while_the_server_is_away(world: Arc<World>) -> anyhow::Result<()> {
    for ns in namespaces("away") {
        killed_while_the_server_is_away(&world, &ns).await?;
    }
    Ok(())
}

/// After T1 and after T2, when nobody renews the lease.
async fn killed_while_the_server_is_away(world: &World, ns: &str) -> anyhow::Result<()> {
    set(world, ns).await?;
    let range = 225..=229;
    let server = dnsmasq_with(world, &range, &[EARLY, "--dhcp-option=59,7"]).await?;
    let mut group = Group::start(world, true).await?;
    let lb = leased(world, ns, "web").await?;
    let had = bound(world, &lb).await?;
    for state in ["renewing", "rebinding"] {
        server.process().stop()?;
        group.in_state(state, 1).await?;
        let before = phase(world, &lb, Phase::Bound).await?;
        group.kill().await?;
        group.in_state("rebooting", 1).await?;
        server.process().cont()?;
        confirmed(world, &lb, &before).await?;
        group.in_state("bound", 1).await?;
        exactly(&server, &range, vec![had])?;
    }
    none_left(world, &server, &range, &[&lb]).await
}
