//! Messages that no server has sent, to a client whose lease they must not change (DHC-1, DHC-3).

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::ensure;
use harvester_lb_api::{LoadBalancer, Phase};
use harvester_lb_e2e::World;
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::world::SOON;
use harvester_lb_testkit::{GATEWAY, eventually, lan};

use crate::wire::{
    ACK, Filter, Forged, IMPOSTOR, Impostor, NAK, NO_REPLIES, OFFER, asked, hardware, last_request,
    seconds, server,
};
use harvester_lb_e2e::leases::{
    EARLY, NODE, address, delete, dnsmasq_with, given_back, in_state, lease, leased, no_record,
    phase, record_name, record_until, set, start,
};

/// Messages in a row, fewer than a socket's buffer holds.
const AT_ONCE: usize = 50;
/// Option 52: the fields `file` and `sname` hold options as well.
const OVERLOAD: [u8; 3] = [52, 1, 3];

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

/// Byte strings of any length, the same ones each time, and options that do not end where they should.
fn nonsense(forged: &Forged) -> Vec<Vec<u8>> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut all: Vec<Vec<u8>> = (0..150)
        .map(|_| (0..random.usize(..1_400)).map(|_| random.u8(..)).collect())
        .collect();
    // The header is right, and the options are random.
    all.extend((0..100).map(|_| {
        let mut bytes = forged.bytes();
        bytes.truncate(240);
        bytes.extend((0..random.usize(..300)).map(|_| random.u8(..)));
        bytes
    }));
    let overloaded = [OVERLOAD.to_vec(), OVERLOAD.to_vec(), server(GATEWAY)];
    all.push(forged.with(&overloaded).bytes());
    // The fields that hold options as well name each other.
    let mut bytes = forged.with(&[OVERLOAD.to_vec()]).bytes();
    for start in [44, 108] {
        bytes[start..start + 3].copy_from_slice(&OVERLOAD);
    }
    all.push(bytes);
    // Longer than the message.
    all.push(forged.with(&[vec![54, 255, 1]]).bytes());
    // The same option as often as it fits, then one byte each.
    all.push(forged.with(&vec![server(GATEWAY); 180]).bytes());
    all.push(forged.with(&vec![vec![54, 1, 192]; 300]).bytes());
    all.push(forged.with(&[vec![0; 1_200]]).bytes());
    all
}

pub async fn dhc_3_what_no_server_has_sent_is_ignored(world: Arc<World>) -> anyhow::Result<()> {
    set(&world, "forged").await?;
    // After T1 one REQUEST is sent, and the next one half of the time until T2 later.
    let flags = [EARLY, "--dhcp-option=59,100"];
    let dnsmasq = dnsmasq_with(&world, &(207..=208), &flags).await?;
    let process = start(&world, "builtin").await?;
    let lb = leased(&world, "forged", "web").await?;
    let record = phase(&world, &lb, Phase::Bound).await?;
    let had = address(&record)?;
    in_state(&world, NODE, "bound", 1).await?;
    let before = asked(&dnsmasq.process().log());
    let silence = Filter::set(&world, NO_REPLIES)?;
    in_state(&world, NODE, "renewing", 1).await?;
    let renewal = eventually("the REQUEST is at the server", SOON, || async {
        let log = dnsmasq.process().log();
        (asked(&log) > before)
            .then(|| last_request(&log))
            .transpose()
    })
    .await?;

    let impostor = Impostor::open(&world)?;
    let ack = Forged {
        kind: ACK,
        xid: renewal,
        hardware: hardware(&lease(&record).hardware_address)?,
        address: had,
        options: [server(GATEWAY), seconds(3_600)].concat(),
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
    each_ignored(&world, &impostor, "unknown", &unknown).await?;
    let mut elsewhere = ack.clone();
    elsewhere.hardware[5] ^= 1;
    each_ignored(&world, &impostor, "unknown", &[elsewhere.bytes()]).await?;
    // Each byte of the message may be the last one that arrives. Without its end mark, and with as many options as count for
    // nothing, it is still complete: to another transaction.
    let whole = to_others(ack.clone()).bytes();
    let cut: Vec<Vec<u8>> = (0..whole.len()).map(|end| whole[..end].to_vec()).collect();
    each_ignored(&world, &impostor, "", &cut).await?;
    each_ignored(&world, &impostor, "", &nonsense(&to_others(ack.clone()))).await?;

    // With the transaction id that the client waits for.
    let other_id = [61, 3, 0, 1, 2].to_vec();
    let lasting = seconds(3_600);
    let cases = [
        ("other_server", of_kind(NAK).with(&[server(IMPOSTOR)])),
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
        each_ignored(&world, &impostor, reason, &[forged.bytes()]).await?;
    }
    unchanged(&world, &lb, had).await?;
    in_state(&world, NODE, "renewing", 1).await?;

    // With nothing wrong about it, it is heeded: the others did arrive. It shortens the lease, which its server then renews.
    impostor.send(&ack.with(&[server(GATEWAY), seconds(10)]).bytes())?;
    in_state(&world, NODE, "bound", 1).await?;
    drop(silence);
    record_until(&world, &lb, "renewed", |renewed| {
        lease(renewed).expires_at > lease(&record).expires_at
    })
    .await?;
    unchanged(&world, &lb, had).await?;
    delete(&world, &lb).await?;
    no_record(&world, &lb).await?;
    given_back(&dnsmasq, had).await?;
    process.kill9()
}
