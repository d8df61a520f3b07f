//! The API server is away from the DHCP process: no process leads and nobody renews, afterwards each load balancer has its address again,
//! and one that was deleted meanwhile gives it back (DHC-2, DHC-4). `docs/operations.md` says the same, in "DHCP process".

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_api::{IPAllocation, LoadBalancer, Phase};
use harvester_lb_e2e::World;
use harvester_lb_e2e::leases;
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::seeds::soaks;
use harvester_lb_e2e::world::SOON;
use harvester_lb_testkit::proxy::{Proxy, Unavailable};
use harvester_lb_testkit::{Dhcp, Process, consistently, eventually};
use tokio::time::Instant;

use crate::killed::{exactly, none_left};
use crate::leaders::is_due;
use crate::wire::asked;
use harvester_lb_e2e::leases::{
    NODE, bound, confirmed, counter, delete, lasting, lease, leased, no_record, phase,
    record_until, set, start_behind,
};

const RANGE: RangeInclusive<u8> = 240..=243;

/// How long it is away: for longer than from T1 to T2, in the soak for longer than the leases last.
fn absence() -> Duration {
    if soaks() {
        Duration::from_mins(5)
    } else {
        Duration::from_secs(10)
    }
}

/// It refuses connections; in the soak it also says nothing, with the other server.
pub async fn dhc_2_the_api_server_is_away(world: Arc<World>) -> anyhow::Result<()> {
    let kinds = [
        ("kea", Unavailable::Refused),
        ("dnsmasq", Unavailable::Silent),
    ];
    for (kind, how) in kinds.into_iter().take(leases::kinds()) {
        away(&world, kind, how)
            .await
            .with_context(|| kind.to_owned())?;
    }
    Ok(())
}

async fn away(world: &World, kind: &str, how: Unavailable) -> anyhow::Result<()> {
    let ns = format!("absent-{kind}");
    set(world, &ns).await?;
    let server = lasting(world, kind, &RANGE, Some((4, 7))).await?;
    let earlier = asked(&server.process().log());
    let proxy = Proxy::start(&world.cluster).await?;
    let process = start_behind(world, &proxy).await?;
    let first = leased(world, &ns, "first").await?;
    let second = leased(world, &ns, "second").await?;
    let leaving = leased(world, &ns, "leaving").await?;
    let had = vec![bound(world, &first).await?, bound(world, &second).await?];
    let all = [had.clone(), vec![bound(world, &leaving).await?]].concat();

    let begun = Instant::now();
    proxy.make_unavailable(how);
    eventually("nobody leads", SOON, || async {
        Ok((!leads(world).await?).then_some(()))
    })
    .await?;
    delete(world, &leaving).await?;
    let before = [
        phase(world, &first, Phase::Bound).await?,
        phase(world, &second, Phase::Bound).await?,
    ];
    let left = absence().saturating_sub(begun.elapsed());
    nothing_is_sent(world, &server, earlier, &process, left).await?;
    for record in &before {
        // A leader would have renewed it.
        ensure!(is_due(record)?, "{:?}", record.spec);
    }
    if !soaks() {
        exactly(&server, &RANGE, all)?;
    }

    proxy.make_available();
    for (lb, before) in [&first, &second].into_iter().zip(&before) {
        again(world, lb, before).await?;
    }
    no_record(world, &leaving).await?;
    eventually("the same leases on the server", SOON, || async {
        exactly(&server, &RANGE, had.clone()).map(Some)
    })
    .await?;
    ensure!(leads(world).await?, "nobody leads");
    none_left(world, &server, &RANGE, &[&first, &second]).await?;
    // The same process all the time.
    process.kill9()
}

/// Whether the process has its clients.
async fn leads(world: &World) -> anyhow::Result<bool> {
    Ok(counter(world, "harvester_lb_dhcp_leader").await? > 0.5)
}

/// Without a leader nothing comes to the server for this time, and the process waits for the API server. `earlier`: messages that are
/// not of this process.
async fn nothing_is_sent(
    world: &World,
    server: &Dhcp,
    earlier: usize,
    process: &Process,
    time: Duration,
) -> anyhow::Result<()> {
    let came = || asked(&server.process().log()) - earlier;
    let all = eventually("what was sent before has come", SOON, || async {
        let figures = MetricsSnapshot::read(world, NODE).await?;
        let sent = figures.sum("harvester_lb_dhcp_messages_sent_total", |series| {
            series.label("type") != "arp_probe"
        });
        let came = came();
        let count = f64::from(u32::try_from(came)?);
        ensure!((sent - count).abs() < 0.5, "{came} of {sent} have come");
        Ok(Some(came))
    })
    .await?;
    consistently("nothing is sent", time, || async {
        let now = came();
        ensure!(now == all, "{now} messages after {all}");
        ensure!(process.is_running(), "it has ended: {}", process.tail());
        ensure!(!leads(world).await?, "it leads");
        Ok(())
    })
    .await
}

/// Waits until a load balancer has a newer lease, of the same address. One that has expired meanwhile is asked for anew.
async fn again(world: &World, lb: &LoadBalancer, before: &IPAllocation) -> anyhow::Result<()> {
    if !soaks() {
        return confirmed(world, lb, before).await;
    }
    let record = record_until(world, lb, "leased again", |record| {
        let is_newer = lease(record).expires_at > lease(before).expires_at;
        record.spec.phase == Phase::Bound && is_newer
    })
    .await?;
    let (now, had) = (&record.spec.address, &before.spec.address);
    ensure!(now == had, "{now}, not {had}");
    Ok(())
}
