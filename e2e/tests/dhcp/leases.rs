//! One process in mode `builtin`: leases, renewal, kills, release, conflicts (DHC-1 to DHC-5).

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_api::Phase;
use harvester_lb_e2e::World;
use harvester_lb_e2e::world::SOON;
use harvester_lb_fixtures as fixtures;
use harvester_lb_testkit::{GATEWAY, Process, consistently, eventually, lan};
use kube::api::PostParams;
use serde_json::json;

use harvester_lb_e2e::leases::host;
use harvester_lb_e2e::leases::{
    NODE, SERVERS, address, bound, counter, delete, dnsmasq, dnsmasq_with, given_back, held, kea,
    lease, leased, leased_spec, no_record, phase, record_name, record_until, serve, server_of, set,
    start, unserve,
};

/// Longest time to a lease after a kill: the Lease's duration, and the delay of the first REQUEST (10 s).
const SLOW: Duration = Duration::from_secs(45);
/// `CAP_NET_RAW` (linux/capability.h) alone, as bits.
const NET_RAW: u64 = 1 << 13;

pub async fn dhc_1_a_lease_is_recorded(world: Arc<World>) -> anyhow::Result<()> {
    set(&world, "lease").await?;
    let server = dnsmasq(&world, &(200..=205)).await?;
    let process = start(&world, "builtin").await?;
    let lb = leased(&world, "lease", "web").await?;
    let record = phase(&world, &lb, Phase::Bound).await?;
    let address = address(&record)?;
    ensure!((lan(200)..=lan(205)).contains(&address), "{address}");
    ensure!(
        held(&server, &(200..=205)) == [address],
        "{}",
        server.leases()
    );
    let lease = lease(&record);
    ensure!(lease.server == Some(GATEWAY.to_string()), "{lease:?}");
    ensure!(lease.interface == "eth0" && lease.expires_at.is_some());
    ensure!(server.leases().contains(&lease.hardware_address));
    ensure!(server.leases().contains(&lease.client_id));
    world
        .event("lease", "LoadBalancer", "web", "LeaseBound")
        .await?;
    ensure!(counter(&world, "harvester_lb_dhcp_clients{state=\"bound\"}").await? > 0.5);
    // SIGTERM gives nothing back (DHC-2).
    process.term()?;
    eventually("ended", SOON, || async {
        Ok(process.ended()?.map(|status| status.success()))
    })
    .await?;
    ensure!(
        held(&server, &(200..=205)) == [address],
        "{}",
        server.leases()
    );
    Ok(())
}

/// The capabilities of a process that it may use, and those that a program of its may ever get.
fn capabilities(process: &Process) -> anyhow::Result<Vec<u64>> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid()))?;
    let sets = ["CapPrm:", "CapEff:", "CapBnd:"].map(|set| {
        let line = status.lines().find_map(|line| line.strip_prefix(set));
        let bits = line.with_context(|| format!("no {set}"))?;
        Ok(u64::from_str_radix(bits.trim(), 16)?)
    });
    sets.into_iter().collect()
}

/// So is every DHCP process here.
pub async fn section_1_a_lease_needs_net_raw_alone(world: Arc<World>) -> anyhow::Result<()> {
    set(&world, "raw").await?;
    let server = dnsmasq(&world, &(250..=253)).await?;
    let process = start(&world, "builtin").await?;
    let all = capabilities(&process)?;
    ensure!(all == [NET_RAW; 3], "{all:x?}");
    let lb = leased(&world, "raw", "web").await?;
    let address = bound(&world, &lb).await?;
    ensure!(held(&server, &(250..=253)) == [address]);
    delete(&world, &lb).await?;
    no_record(&world, &lb).await?;
    given_back(&server, address).await?;
    process.kill9()
}

pub async fn dhc_2_killed_and_restarted_it_keeps_its_address(
    world: Arc<World>,
) -> anyhow::Result<()> {
    set(&world, "restart").await?;
    let server = kea(&world, &(206..=210)).await?;
    let process = start(&world, "builtin").await?;
    let lb = leased(&world, "restart", "web").await?;
    let first = phase(&world, &lb, Phase::Bound).await?;
    // Renewed at T1.
    let expiry = lease(&first).expires_at;
    let renewed = record_until(&world, &lb, "renewed", |record| {
        record.spec.phase == Phase::Bound && lease(record).expires_at > expiry
    })
    .await?;
    ensure!(renewed.spec.address == first.spec.address);
    ensure!(renewed.spec.bound_at == first.spec.bound_at);
    process.kill9()?;
    let process = start(&world, "builtin").await?;
    let expiry = lease(&renewed).expires_at;
    let name = record_name(&lb);
    eventually("confirmed after the restart", SLOW, || async {
        let record = world.records().get(&name).await?;
        ensure!(record.spec.phase == Phase::Bound, "{:?}", record.spec);
        ensure!(
            record.spec.address == first.spec.address,
            "{:?}",
            record.spec
        );
        Ok((lease(&record).expires_at > expiry).then_some(()))
    })
    .await?;
    ensure!(
        held(&server, &(206..=210)) == [address(&first)?],
        "{}",
        server.leases()
    );
    process.kill9()
}

pub async fn dhc_4_a_deleted_load_balancer_gives_its_lease_back(
    world: Arc<World>,
) -> anyhow::Result<()> {
    set(&world, "gone").await?;
    let process = start(&world, "builtin").await?;
    for kind in SERVERS {
        let server = server_of(&world, kind, &(211..=215)).await?;
        let lb = leased(&world, "gone", "web").await?;
        let address = bound(&world, &lb).await?;
        delete(&world, &lb).await?;
        no_record(&world, &lb).await?;
        given_back(&server, address).await?;
        world
            .event("gone", "LoadBalancer", "web", "LeaseReleased")
            .await?;
    }
    process.kill9()
}

pub async fn dhc_4_nothing_is_given_back_while_a_service_has_the_address(
    world: Arc<World>,
) -> anyhow::Result<()> {
    set(&world, "served").await?;
    let server = dnsmasq(&world, &(216..=219)).await?;
    let process = start(&world, "builtin").await?;
    let lb = leased(&world, "served", "web").await?;
    let address = bound(&world, &lb).await?;
    serve(&world, &lb, &address.to_string(), json!({})).await?;
    delete(&world, &lb).await?;
    phase(&world, &lb, Phase::Releasing).await?;
    consistently("leased", Duration::from_secs(3), || async {
        ensure!(
            held(&server, &(216..=219)) == [address],
            "{}",
            server.leases()
        );
        Ok(())
    })
    .await?;
    unserve(&world, &lb).await?;
    no_record(&world, &lb).await?;
    given_back(&server, address).await?;
    process.kill9()
}

pub async fn dhc_4_what_went_while_the_process_was_down(world: Arc<World>) -> anyhow::Result<()> {
    set(&world, "down").await?;
    let server = dnsmasq(&world, &(220..=224)).await?;
    let process = start(&world, "builtin").await?;
    let (lb, kept) = (
        leased(&world, "down", "web").await?,
        leased(&world, "down", "kept").await?,
    );
    let (address, other) = (bound(&world, &lb).await?, bound(&world, &kept).await?);
    ensure!(address != other);
    let left = phase(&world, &lb, Phase::Bound).await?;
    let hardware_address = &lease(&left).hardware_address;
    process.kill9()?;
    delete(&world, &lb).await?;
    // Another one of its name has another lease.
    let again = leased(&world, "down", "web").await?;
    let process = start(&world, "builtin").await?;
    no_record(&world, &lb).await?;
    // The server may have given the same address to the other one at once.
    eventually(&format!("{address} given back"), SOON, || async {
        let leases = server.leases();
        ensure!(!leases.contains(hardware_address), "{leases}");
        Ok(Some(()))
    })
    .await?;
    let new = bound(&world, &again).await?;
    ensure!(new != other);
    ensure!(bound(&world, &kept).await? == other);
    process.kill9()
}

pub async fn dhc_3_an_interface_that_is_down_for_a_while(world: Arc<World>) -> anyhow::Result<()> {
    set(&world, "interface").await?;
    let _server = kea(&world, &(225..=229)).await?;
    let process = start(&world, "builtin").await?;
    let lb = leased(&world, "interface", "web").await?;
    let first = phase(&world, &lb, Phase::Bound).await?;
    world.cluster.ip(NODE, "link set eth0 down")?;
    world
        .event("interface", "LoadBalancer", "web", "LeaseInterfaceDown")
        .await?;
    world.cluster.ip(NODE, "link set eth0 up")?;
    let name = record_name(&lb);
    eventually("renewed", SLOW, || async {
        let record = world.records().get(&name).await?;
        ensure!(record.spec.phase == Phase::Bound, "{:?}", record.spec);
        Ok((lease(&record).expires_at > lease(&first).expires_at).then_some(()))
    })
    .await?;
    ensure!(counter(&world, "harvester_lb_dhcp_interface_up{interface=\"eth0\"}").await? > 0.5);
    process.kill9()
}

/// The host of the client, and that of the process, which does not answer its own ARP probe.
pub async fn dhc_5_an_address_that_a_host_has(world: Arc<World>) -> anyhow::Result<()> {
    for (host, last) in [("client", 230), (NODE, 187)] {
        let namespace = format!("host-{last}");
        set(&world, &namespace).await?;
        // It has the only address of the range.
        let address = |verb| format!("address {verb} 192.168.100.{last}/24 dev eth0");
        world.cluster.ip(host, &address("add"))?;
        let server = dnsmasq(&world, &(last..=last)).await?;
        let process = start(&world, "builtin").await?;
        let lb = leased(&world, &namespace, "web").await?;
        world
            .event(&namespace, "LoadBalancer", "web", "LeaseDeclined")
            .await?;
        let record = phase(&world, &lb, Phase::Pending).await?;
        ensure!(record.spec.address.is_empty());
        ensure!(server.process().log().contains("DHCPDECLINE"));
        world.cluster.ip(host, &address("del"))?;
        process.kill9()?;
        delete(&world, &lb).await?;
    }
    Ok(())
}

/// Somebody chose the hardware address of a host, for which the server has a reservation: its lease must neither end nor become that of
/// the load balancer.
pub async fn dhc_5_the_lease_of_a_host_with_the_same_hardware_address_is_not_declined(
    world: Arc<World>,
) -> anyhow::Result<()> {
    for (host, last) in [("client", 248), (NODE, 249)] {
        let namespace = format!("twin-{last}");
        set(&world, &namespace).await?;
        let address = |verb| format!("address {verb} 192.168.100.{last}/24 dev eth0");
        world.cluster.ip(host, &address("add"))?;
        let hardware = host::hardware(&world, host)?;
        let reservation = format!("--dhcp-host={hardware},192.168.100.{last}");
        let server = dnsmasq_with(&world, &(last..=last), &[&reservation]).await?;
        host::lease(&world, host, &server, lan(last)).await?;
        // The servers of a test cluster write into one log.
        let earlier = server.process().log().len();
        let process = start(&world, "builtin").await?;
        let annotation = json!({"loadbalancer.harvesterhci.io/dhcp-hardware-address": hardware});
        let meta = json!({"namespace": namespace, "name": "web", "annotations": annotation});
        let lb = world.lb_with(meta, leased_spec()).await?;
        let text = "another host with the same hardware address";
        world.event(&namespace, "LoadBalancer", "web", text).await?;
        let record = phase(&world, &lb, Phase::Pending).await?;
        ensure!(record.spec.address.is_empty());
        delete(&world, &lb).await?;
        no_record(&world, &lb).await?;
        let log = server.process().log();
        let log = log.get(earlier..).unwrap_or_default();
        ensure!(log.contains("DHCPOFFER"), "{log}");
        for sent in ["DHCPREQUEST", "DHCPDECLINE", "DHCPRELEASE"] {
            ensure!(!log.contains(sent), "{sent}");
        }
        let is_left = host::has_lease(&server, &hardware, lan(last));
        ensure!(is_left, "{}", server.leases());
        world.cluster.ip(host, &address("del"))?;
        process.kill9()?;
    }
    Ok(())
}

pub async fn dhc_5_an_address_that_a_pool_holds(world: Arc<World>) -> anyhow::Result<()> {
    set(&world, "pool").await?;
    let server = dnsmasq(&world, &(231..=234)).await?;
    let process = start(&world, "builtin").await?;
    let lb = leased(&world, "pool", "web").await?;
    let address = bound(&world, &lb).await?;
    let owner = ("pool", "other", "00000000-0000-4000-8000-000000000001");
    let record = fixtures::record(&address.to_string(), "lan", "Bound", owner);
    world
        .records()
        .create(&PostParams::default(), &serde_json::from_value(record)?)
        .await?;
    record_until(&world, &lb, "another address, or none", |record| {
        record.spec.address != address.to_string()
    })
    .await?;
    world
        .event("pool", "LoadBalancer", "web", "LeaseDeclined")
        .await?;
    ensure!(server.process().log().contains("DHCPDECLINE"));
    // After ten seconds it asks again.
    let next = record_until(&world, &lb, "another address", |record| {
        record.spec.phase == Phase::Bound
    })
    .await?;
    ensure!(next.spec.address != address.to_string(), "{:?}", next.spec);
    process.kill9()
}

/// IPA-5: a write that was decided from an older copy is refused, read again and decided again.
pub async fn ipa_5_a_record_that_somebody_edits_meanwhile(world: Arc<World>) -> anyhow::Result<()> {
    set(&world, "edits").await?;
    let _server = dnsmasq(&world, &(245..=249)).await?;
    let process = start(&world, "builtin").await?;
    let conflicts = "harvester_lb_write_conflicts_total{kind=\"IPAllocation\"}";
    eventually("a conflict", SLOW, || async {
        let lb = leased(&world, "edits", "web").await?;
        bound(&world, &lb).await?;
        let (records, name) = (world.records(), record_name(&lb));
        let edits = async {
            for number in 0..40 {
                let edit = json!({"metadata": {"labels": {"edit": number.to_string()}}});
                // It is gone in the end.
                let _ = world.merge(&records, &name, edit).await;
            }
        };
        let (deleted, ()) = tokio::join!(delete(&world, &lb), edits);
        deleted?;
        no_record(&world, &lb).await?;
        let seen = world.metric(NODE, conflicts).await?;
        Ok(seen.filter(|count| *count > 0.5))
    })
    .await?;
    process.kill9()
}
