//! The leader of the DHCP processes changes without a kill: it ends, or is paused and resumed while another one leads (DHC-2).

use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_api::{IPAllocation, Phase};
use harvester_lb_e2e::World;
use harvester_lb_e2e::world::SOON;
use harvester_lb_testkit::eventually;
use jiff::Timestamp;

use crate::group::{Group, Program};
use crate::killed::{exactly, none_left};
use crate::wire::asked;
use harvester_lb_e2e::leases::filter::{Filter, NO_ACKS, NO_REPLIES};
use harvester_lb_e2e::leases::{
    SERVERS, bound, confirmed, kinds, lasting, lease, leased, phase, set,
};

/// T1 and T2 of the leases, in seconds.
const TIMES: Option<(u8, u8)> = Some((4, 100));

/// While one client has a lease, and the server has leased another one that its client does not know of. With dnsmasq, in the soak with
/// Kea too.
pub async fn dhc_2_a_leader_that_ends_hands_its_leases_over(
    world: Arc<World>,
) -> anyhow::Result<()> {
    for kind in SERVERS.into_iter().take(kinds()) {
        ends(&world, kind).await.context(kind)?;
    }
    Ok(())
}

async fn ends(world: &World, kind: &str) -> anyhow::Result<()> {
    let ns = &*format!("ends-{kind}");
    set(world, ns).await?;
    let range = 210..=214;
    let server = lasting(world, kind, &range, TIMES).await?;
    let earlier = server.process().log().len();
    let mut group = Group::start(world, Program::Dhcp).await?;
    let kept = leased(world, ns, "kept").await?;
    let of_kept = bound(world, &kept).await?;
    let no_acks = Filter::set(world, NO_ACKS)?;
    let asking = leased(world, ns, "asking").await?;
    group.in_state("requesting", 1).await?;
    let record = phase(world, &asking, Phase::Pending).await?;
    let hardware = lease(&record).hardware_address;
    let of_asking = eventually("leased to the client that asks", SOON, || async {
        Ok(server.held_by(&hardware))
    })
    .await?;
    group.stand_by().await?;
    let before = phase(world, &kept, Phase::Bound).await?;
    group.hand_over().await?;
    drop(no_acks);
    confirmed(world, &kept, &before).await?;
    ensure!(bound(world, &asking).await? == of_asking);
    exactly(&server, &range, vec![of_kept, of_asking])?;
    let log = server.process().log();
    let log = log.get(earlier..).unwrap_or_default();
    let released = ["DHCPRELEASE(", "DHCP4_RELEASE "];
    ensure!(!released.iter().any(|it| log.contains(it)), "{log}");
    none_left(world, &server, &range, &[&kept, &asking]).await
}

/// Whether T1 of a recorded lease has passed.
pub fn is_due(record: &IPAllocation) -> anyhow::Result<bool> {
    let renew_at = lease(record).renew_at.context("no T1")?;
    Ok(renew_at.parse::<Timestamp>()? < Timestamp::now())
}

/// With dnsmasq, in the soak with Kea too.
pub async fn dhc_2_a_paused_leader_sends_nothing_when_it_resumes(
    world: Arc<World>,
) -> anyhow::Result<()> {
    for kind in SERVERS.into_iter().take(kinds()) {
        paused(&world, kind).await.context(kind)?;
    }
    Ok(())
}

async fn paused(world: &World, kind: &str) -> anyhow::Result<()> {
    let ns = &*format!("paused-{kind}");
    set(world, ns).await?;
    let range = 215..=219;
    let server = lasting(world, kind, &range, TIMES).await?;
    let at_server = || asked(&server.process().log());
    let mut group = Group::start(world, Program::Dhcp).await?;
    group.stand_by().await?;
    let kept = leased(world, ns, "kept").await?;
    let of_kept = bound(world, &kept).await?;
    let silence = Filter::set(world, NO_REPLIES)?;
    let waiting = leased(world, ns, "waiting").await?;
    group.in_state("selecting", 1).await?;
    let before = phase(world, &kept, Phase::Bound).await?;
    let paused = group.pause().await?;
    drop(silence);
    confirmed(world, &kept, &before).await?;
    let of_waiting = bound(world, &waiting).await?;
    // The paused one has a REQUEST to send since T1, and a DISCOVER since before that.
    eventually("T1 has passed", SOON, || async {
        Ok(is_due(&before)?.then_some(()))
    })
    .await?;
    let (sent, came) = (group.sent_by_leader().await?, at_server());
    paused.process.cont()?;
    eventually("it knows that another one leads", SOON, || async {
        let log = paused.log()?;
        Ok(log.contains("leadership lost").then_some(()))
    })
    .await?;
    // The other one goes on.
    let before = phase(world, &kept, Phase::Bound).await?;
    confirmed(world, &kept, &before).await?;
    eventually("only the leader has sent", SOON, || async {
        let came = at_server() - came;
        let sent = group.sent_by_leader().await? - sent;
        let came = f64::from(u32::try_from(came)?);
        ensure!((came - sent).abs() < 0.5, "{came} came, {sent} were sent");
        Ok(Some(()))
    })
    .await?;
    exactly(&server, &range, vec![of_kept, of_waiting])?;
    none_left(world, &server, &range, &[&kept, &waiting]).await
}
