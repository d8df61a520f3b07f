//! Messages that no server has sent, to a client whose lease they must not change (DHC-1, DHC-3).

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_api::{LoadBalancer, Phase};
use harvester_lb_e2e::World;
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::world::SOON;
use harvester_lb_testkit::{Dhcp, GATEWAY, eventually, lan};

use crate::malformed::{malformed, nonsense};
use crate::wire::{
    ACK, DISCOVER, Forged, IMPOSTOR, Impostor, NAK, OFFER, REQUEST, asked, hardware, last_xid,
    seconds, server,
};
use harvester_lb_e2e::leases::filter::{Filter, NO_REPLIES};
use harvester_lb_e2e::leases::{
    NODE, SERVERS, address, delete, given_back, in_state, kinds, lasting, lease, leased, no_record,
    phase, record_name, record_until, set, start,
};

/// Messages in a row, fewer than a socket's buffer holds.
const AT_ONCE: usize = 50;

/// Messages that were ignored for a reason; all if it is empty.
async fn ignored(world: &World, reason: &str) -> anyhow::Result<f64> {
    let figures = MetricsSnapshot::read(world, NODE).await?;
    Ok(
        figures.sum("harvester_lb_dhcp_messages_ignored_total", |series| {
            reason.is_empty() || series.label("reason") == reason
        }),
    )
}

/// Sends messages, each of which has to be counted as ignored for this reason.
async fn each_ignored(
    world: &World,
    impostor: &Impostor,
    reason: &str,
    payloads: &[Vec<u8>],
) -> anyhow::Result<()> {
    for some in payloads.chunks(AT_ONCE) {
        let before = ignored(world, reason).await?;
        for payload in some {
            impostor.send(payload)?;
        }
        let what = format!("{} messages ignored: {reason}", some.len());
        eventually(&what, SOON, || async {
            let now = ignored(world, reason).await?;
            let count = f64::from(u32::try_from(some.len())?);
            ensure!((now - before - count).abs() < 0.5, "{now} after {before}");
            Ok(Some(()))
        })
        .await?;
    }
    Ok(())
}

/// The lease is as it was, and nothing has happened to it.
async fn unchanged(world: &World, lb: &LoadBalancer, had: Ipv4Addr) -> anyhow::Result<()> {
    let record = world.records().get(&record_name(lb)).await?;
    ensure!(record.spec.phase == Phase::Bound, "{:?}", record.spec);
    ensure!(address(&record)? == had, "{:?}", record.spec);
    let server = lease(&record).server;
    ensure!(server == Some(GATEWAY.to_string()), "{server:?}");
    let figures = MetricsSnapshot::read(world, NODE).await?;
    let lost = figures.sum("harvester_lb_dhcp_lease_events_total", |series| {
        ["refused", "expired", "declined", "released"].contains(&series.label("event"))
    });
    ensure!(lost < 0.5, "{lost} events");
    Ok(())
}

/// The transaction id of the message of this kind that comes to the server after so many messages.
async fn xid_after(server: &Dhcp, before: usize, kind: [&str; 2]) -> anyhow::Result<u32> {
    eventually(kind[0], SOON, || async {
        let log = server.process().log();
        (asked(&log) > before)
            .then(|| last_xid(&log, kind))
            .transpose()
    })
    .await
}

/// Malformed messages to a client that waits for this reply. They are counted, and none as a reply to somebody else.
async fn malformed_ignored(
    world: &World,
    impostor: &Impostor,
    reply: &Forged,
) -> anyhow::Result<()> {
    let before = ignored(world, "unknown").await?;
    for (reason, payloads) in malformed(reply) {
        each_ignored(world, impostor, reason, &payloads).await?;
    }
    each_ignored(world, impostor, "", &nonsense(reply)).await?;
    let now = ignored(world, "unknown").await?;
    ensure!(now - before < 0.5, "{now} after {before}");
    Ok(())
}

/// Beside dnsmasq, and in the soak beside Kea.
pub async fn dhc_3_what_no_server_has_sent_is_ignored(world: Arc<World>) -> anyhow::Result<()> {
    for kind in SERVERS.into_iter().take(kinds()) {
        forged(&world, kind)
            .await
            .with_context(|| kind.to_owned())?;
    }
    Ok(())
}

async fn forged(world: &World, kind: &str) -> anyhow::Result<()> {
    let ns = format!("forged-{kind}");
    set(world, &ns).await?;
    // After T1 one REQUEST is sent, and the next one half of the time until T2 later.
    let real = lasting(world, kind, &(207..=208), Some((4, 100))).await?;
    let process = start(world, "builtin").await?;
    let silence = Filter::set(world, NO_REPLIES)?;
    let before = asked(&real.process().log());
    let lb = leased(world, &ns, "web").await?;
    in_state(world, NODE, "selecting", 1).await?;
    let record = phase(world, &lb, Phase::Pending).await?;
    let impostor = Impostor::open(world)?;
    let reply = Forged {
        kind: OFFER,
        xid: xid_after(&real, before, DISCOVER).await?,
        hardware: hardware(&lease(&record).hardware_address)?,
        address: lan(208),
        options: [server(GATEWAY), seconds(3_600)].concat(),
    };
    malformed_ignored(world, &impostor, &reply).await?;
    in_state(world, NODE, "selecting", 1).await?;
    drop(silence);

    let record = phase(world, &lb, Phase::Bound).await?;
    let had = address(&record)?;
    in_state(world, NODE, "bound", 1).await?;
    let before = asked(&real.process().log());
    let silence = Filter::set(world, NO_REPLIES)?;
    in_state(world, NODE, "renewing", 1).await?;
    let ack = Forged {
        kind: ACK,
        xid: xid_after(&real, before, REQUEST).await?,
        address: had,
        ..reply
    };
    let of_kind = |kind: u8| Forged {
        kind,
        ..ack.clone()
    };
    let to_others = |forged: Forged| Forged {
        xid: forged.xid.wrapping_add(1),
        ..forged
    };
    // Nobody has asked for these.
    let unknown = [ACK, NAK, OFFER].map(|kind| to_others(of_kind(kind)).bytes());
    each_ignored(world, &impostor, "unknown", &unknown).await?;
    let mut elsewhere = ack.clone();
    elsewhere.hardware[5] ^= 1;
    each_ignored(world, &impostor, "unknown", &[elsewhere.bytes()]).await?;
    // With the transaction id that the client waits for.
    malformed_ignored(world, &impostor, &ack).await?;
    let other_id = [61, 3, 0, 1, 2].to_vec();
    let lasting = seconds(3_600);
    let cases = [
        ("other_server", of_kind(NAK).with(&[server(IMPOSTOR)])),
        (
            "other_server",
            ack.with(&[server(IMPOSTOR), lasting.clone()]),
        ),
        ("no_server", of_kind(NAK).with(&[])),
        ("no_server", ack.with(std::slice::from_ref(&lasting))),
        ("no_lease_time", ack.with(&[server(GATEWAY)])),
        ("client_id", ack.with(&[server(GATEWAY), lasting, other_id])),
        ("state", of_kind(OFFER)),
        (
            "other_address",
            Forged {
                address: lan(251),
                ..ack.clone()
            },
        ),
        (
            "unusable_address",
            Forged {
                address: Ipv4Addr::BROADCAST,
                ..ack.clone()
            },
        ),
    ];
    for (reason, forged) in cases {
        each_ignored(world, &impostor, reason, &[forged.bytes()]).await?;
    }
    unchanged(world, &lb, had).await?;
    in_state(world, NODE, "renewing", 1).await?;

    // With nothing wrong about it, it is heeded: the others did arrive. It shortens the lease, which its server then renews.
    impostor.send(&ack.with(&[server(GATEWAY), seconds(10)]).bytes())?;
    in_state(world, NODE, "bound", 1).await?;
    drop(silence);
    record_until(world, &lb, "renewed", |renewed| {
        lease(renewed).expires_at > lease(&record).expires_at
    })
    .await?;
    unchanged(world, &lb, had).await?;
    delete(world, &lb).await?;
    no_record(world, &lb).await?;
    given_back(&real, had).await?;
    process.kill9()
}
