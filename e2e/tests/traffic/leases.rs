//! Addresses that the DHCP process leases, with real traffic: operator, DHCP process, kube-vip, kube-proxy and a real DHCP server
//! (DHC-1, DHC-3, DHC-4, DHC-6).

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_api::{IPAllocation, LoadBalancer, Phase, keys, meta};
use harvester_lb_e2e::leases::kea_renewed;
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::read::{allocated, ready};
use harvester_lb_e2e::world::SOON;
use harvester_lb_e2e::{Test, World, tests};
use harvester_lb_fixtures::{self as fixtures, with};
use harvester_lb_testkit::{Dhcp, Process, Vm, eventually, lan};
use kube::api::DeleteParams;
use serde_json::json;

use crate::operator::without;
use crate::vips::{answered_by, silent};

/// Node of the operator.
const OPERATOR: &str = "node1";
/// Node of the DHCP process.
const DHCP: &str = "node2";
/// Until a lease of Kea is over, and what follows has been done.
const EXPIRY: Duration = Duration::from_mins(1);

/// All tests.
pub fn all() -> Vec<Test> {
    let others = tests![
        dhc_3_the_service_ends_with_the_lease_and_comes_back_with_another,
        dhc_4_a_deleted_namespace_gives_its_leased_address_back,
        dhc_6_from_kube_vip_to_leases_and_back,
    ];
    [on_any_data_path(), others].concat()
}

/// What is tested with each data path.
pub fn on_any_data_path() -> Vec<Test> {
    tests![dhc_1_traffic_reaches_a_leased_address_until_it_is_given_back]
}

async fn operator(world: &World, mode: &str) -> anyhow::Result<Arc<Process>> {
    let mode = format!("--dhcp-mode={mode}");
    let env = [("POD_UID", "traffic")];
    world.start_operator_with(OPERATOR, &[&mode], &env).await
}

/// Starts the DHCP process on the interface of the default route.
fn dhcp(world: &World, mode: &str) -> anyhow::Result<Arc<Process>> {
    world.spawn_dhcp(DHCP, &[&format!("--dhcp-mode={mode}")], &[])
}

/// A load balancer in a namespace of its name, and its virtual machine.
async fn stage(world: &World, ns: &str) -> anyhow::Result<(LoadBalancer, Vm)> {
    world.namespace(ns).await?;
    let vm = world.vm(ns, ns, &[("app", ns)], 8080).await?;
    let spec = with(fixtures::vm_spec(ns), json!({"ipam": "dhcp"}));
    Ok((world.lb(ns, ns, spec).await?, vm))
}

/// Waits until a load balancer is ready, and returns its address.
async fn served(world: &World, ns: &str) -> anyhow::Result<Ipv4Addr> {
    let lb = world.lb_reason(ns, ns, "Ready").await?;
    ensure!(allocated(&lb).as_deref() == Some("0.0.0.0"), "{lb:?}");
    let address = lb.status.and_then(|status| status.address);
    Ok(address.context("no address")?.parse()?)
}

fn record_name(lb: &LoadBalancer) -> String {
    format!("dhcp-{}", lb.metadata.uid.clone().unwrap_or_default())
}

async fn record(world: &World, lb: &LoadBalancer) -> anyhow::Result<Option<IPAllocation>> {
    Ok(world.records().get_opt(&record_name(lb)).await?)
}

async fn no_record(world: &World, lb: &LoadBalancer) -> anyhow::Result<()> {
    eventually("the record is deleted", SOON, || async {
        let left = record(world, lb).await?;
        ensure!(left.is_none(), "{:?}", left.map(|it| it.spec));
        Ok(Some(()))
    })
    .await
}

/// When the lease of a record expires.
fn expiry(record: &IPAllocation) -> anyhow::Result<jiff::Timestamp> {
    let lease = record.spec.lease.as_ref();
    let expires_at = lease.and_then(|lease| lease.expires_at.as_ref());
    Ok(expires_at.context("no expiry")?.parse()?)
}

/// Waits until the operator exports the one lease that there is as one in this state.
async fn exported(world: &World, state: &str) -> anyhow::Result<()> {
    eventually(&format!("the lease is {state}"), EXPIRY, || async {
        let figures = MetricsSnapshot::read(world, OPERATOR).await?;
        let name = "harvester_lb_dhcp_leases";
        let so = figures.sum(name, |it| it.label("state") == state);
        let all = figures.sum(name, |_| true);
        ensure!(so > 0.5 && all < 1.5, "{so} of {all}");
        Ok(Some(()))
    })
    .await
}

/// The operator exports when the lease expires.
async fn expiry_is_exported(world: &World, ns: &str, at: jiff::Timestamp) -> anyhow::Result<()> {
    let figures = MetricsSnapshot::read(world, OPERATOR).await?;
    let name = "harvester_lb_dhcp_lease_expiry_timestamp_seconds";
    let shown = figures.sum(name, |it| {
        it.label("namespace") == ns && it.label("loadbalancer") == ns
    });
    let expected = at.as_duration().as_secs_f64();
    ensure!((shown - expected).abs() < 0.01, "{shown}, not {expected}");
    Ok(())
}

/// What kube-vip's DHCP client has for a Service, or is to ask for: the address and the hardware address.
async fn of_kube_vip(world: &World, ns: &str) -> anyhow::Result<[Option<String>; 2]> {
    let service = world.services(ns).get(ns).await?;
    let all = [
        keys::ANNOTATION_KUBE_VIP_REQUESTED_IP,
        keys::ANNOTATION_KUBE_VIP_HARDWARE,
    ];
    Ok(all.map(|key| meta::annotation(&service.metadata, key).map(ToOwned::to_owned)))
}

async fn dhc_1_traffic_reaches_a_leased_address_until_it_is_given_back(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let _alone = without().await?;
    let server = Dhcp::dnsmasq(&world.cluster, lan(250), lan(253)).await?;
    let (operator, dhcp) = (operator(&world, "builtin").await?, dhcp(&world, "builtin")?);
    let ns = "dhc1";
    let (lb, _vm) = stage(&world, ns).await?;
    let vip = served(&world, ns).await?;
    let bound = record(&world, &lb).await?.context("no record")?;
    ensure!(bound.spec.phase == Phase::Bound && bound.spec.address == vip.to_string());
    answered_by(&world, vip, &[ns]).await?;
    ensure!(
        server.leases().contains(&vip.to_string()),
        "{}",
        server.leases()
    );
    let service = world.services(ns).get(ns).await?;
    let asked = service.spec.and_then(|spec| spec.load_balancer_ip);
    ensure!(asked == Some(vip.to_string()), "{asked:?}");

    // Both killed: nothing changes.
    let uid = service.metadata.uid;
    dhcp.kill9()?;
    operator.kill9()?;
    answered_by(&world, vip, &[ns]).await?;
    let operator = self::operator(&world, "builtin").await?;
    let dhcp = self::dhcp(&world, "builtin")?;
    ensure!(served(&world, ns).await? == vip);
    ensure!(world.services(ns).get(ns).await?.metadata.uid == uid);

    world.delete_lb(ns, ns).await?;
    world.gone(&world.services(ns), ns).await?;
    no_record(&world, &lb).await?;
    ensure!(
        !server.leases().contains(&vip.to_string()),
        "{}",
        server.leases()
    );
    dhcp.end().await?;
    operator.end().await?;
    Ok(())
}

async fn dhc_4_a_deleted_namespace_gives_its_leased_address_back(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let _alone = without().await?;
    let server = Dhcp::dnsmasq(&world.cluster, lan(180), lan(183)).await?;
    let (operator, dhcp) = (operator(&world, "builtin").await?, dhcp(&world, "builtin")?);
    let (ns, other) = ("dhc4", "dhc4-other");
    let (lb, _vm) = stage(&world, ns).await?;
    let (of_other, _other_vm) = stage(&world, other).await?;
    let (vip, kept) = (served(&world, ns).await?, served(&world, other).await?);
    answered_by(&world, vip, &[ns]).await?;
    answered_by(&world, kept, &[other]).await?;
    let before = record(&world, &of_other).await?.context("no record")?.spec;

    let namespaces = world.namespaces();
    namespaces.delete(ns, &DeleteParams::default()).await?;
    // It goes when the last of its objects is gone.
    world.gone(&namespaces, ns).await?;
    no_record(&world, &lb).await?;
    silent(&world, vip, 80).await?;
    let leases = server.leases();
    ensure!(!leases.contains(&vip.to_string()), "{leases}");
    ensure!(leases.contains(&kept.to_string()), "{leases}");
    answered_by(&world, kept, &[other]).await?;
    let after = record(&world, &of_other).await?.context("no record")?.spec;
    ensure!(
        after.address == before.address && after.phase == before.phase,
        "{after:?}"
    );

    world.delete_lb(other, other).await?;
    no_record(&world, &of_other).await?;
    dhcp.end().await?;
    operator.end().await?;
    Ok(())
}

async fn dhc_3_the_service_ends_with_the_lease_and_comes_back_with_another(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let _alone = without().await?;
    let lifetime = Duration::from_secs(16);
    let mut server = kea_renewed(&world, &(184..=187), lifetime, (4, 8)).await?;
    let (operator, dhcp) = (operator(&world, "builtin").await?, dhcp(&world, "builtin")?);
    let ns = "dhc3";
    let (lb, _vm) = stage(&world, ns).await?;
    let vip = served(&world, ns).await?;
    answered_by(&world, vip, &[ns]).await?;
    exported(&world, "bound").await?;
    // Nobody renews it any more, and nobody but the operator knows.
    dhcp.kill9()?;
    exported(&world, "rebinding").await?;
    let bound = record(&world, &lb).await?.context("no record")?;
    expiry_is_exported(&world, ns, expiry(&bound)?).await?;
    eventually("the Service is gone", EXPIRY, || async {
        let left = world.services(ns).get_opt(ns).await?;
        Ok(left.is_none().then_some(()))
    })
    .await?;
    let expired = record(&world, &lb).await?.context("no record")?;
    let expires_at = expiry(&expired)?;
    ensure!(expired.spec.phase == Phase::Bound);
    let late = jiff::Timestamp::now().duration_since(expires_at);
    ensure!(late.is_positive() && late.as_secs() < 5, "{late:?} late");
    let told = world.lb_reason(ns, ns, "WaitingForLease").await?;
    ensure!(told.status.as_ref().is_some_and(|it| it.address.is_none()));
    ensure!(allocated(&told).as_deref() == Some("0.0.0.0"));
    ensure!(ready(&told).is_some_and(|(_, _, message)| message.contains("expired")));
    exported(&world, "expired").await?;
    expiry_is_exported(&world, ns, expires_at).await?;

    let dhcp = self::dhcp(&world, "builtin")?;
    let again = served(&world, ns).await?;
    answered_by(&world, again, &[ns]).await?;
    // The server is away for longer than the lease.
    server.process().kill9()?;
    exported(&world, "rebinding").await?;
    world.lb_reason(ns, ns, "WaitingForLease").await?;
    world.gone(&world.services(ns), ns).await?;
    exported(&world, "pending").await?;
    server.restart(&world.cluster).await?;
    eventually("served again", EXPIRY, || async {
        let lb = world.lbs(ns).get(ns).await?;
        Ok(ready(&lb)
            .is_some_and(|(status, ..)| status == "True")
            .then_some(()))
    })
    .await?;
    let vip = served(&world, ns).await?;
    answered_by(&world, vip, &[ns]).await?;
    world.delete_lb(ns, ns).await?;
    no_record(&world, &lb).await?;
    dhcp.end().await?;
    operator.end().await?;
    Ok(())
}

async fn dhc_6_from_kube_vip_to_leases_and_back(world: Arc<World>) -> anyhow::Result<()> {
    let _alone = without().await?;
    let server = Dhcp::dnsmasq(&world.cluster, lan(188), lan(191)).await?;
    let before = operator(&world, "kube-vip").await?;
    let ns = "dhc6";
    let (lb, _vm) = stage(&world, ns).await?;
    let vip = served(&world, ns).await?;
    answered_by(&world, vip, &[ns]).await?;
    ensure!(record(&world, &lb).await?.is_none());
    let [_, hardware] = of_kube_vip(&world, ns).await?;

    // One after the other, as a rollout does.
    before.end().await?;
    let operator = operator(&world, "builtin").await?;
    ensure!(served(&world, ns).await? == vip);
    answered_by(&world, vip, &[ns]).await?;
    let dhcp = dhcp(&world, "builtin")?;
    let bound = eventually("a lease", EXPIRY, || async {
        let bound = record(&world, &lb).await?.context("no record")?;
        ensure!(bound.spec.phase == Phase::Bound, "{:?}", bound.spec);
        Ok(Some(bound.spec))
    })
    .await?;
    let lease = bound.lease.context("no lease")?;
    let of_lease = Some(lease.hardware_address);
    ensure!(of_lease == hardware, "{of_lease:?}, not {hardware:?}");
    let leased = served(&world, ns).await?;
    ensure!(
        leased == vip,
        "{leased} instead of {vip}: {}",
        server.leases()
    );
    answered_by(&world, vip, &[ns]).await?;

    // And back: the lease is given back first.
    operator.end().await?;
    dhcp.end().await?;
    let operator = self::operator(&world, "kube-vip").await?;
    let dhcp = self::dhcp(&world, "kube-vip")?;
    no_record(&world, &lb).await?;
    let back = served(&world, ns).await?;
    ensure!(
        back == vip,
        "{back} instead of {vip}: {}\n{}",
        server.leases(),
        server.process().log()
    );
    answered_by(&world, vip, &[ns]).await?;
    let service = world.services(ns).get(ns).await?;
    let asked = service.spec.and_then(|spec| spec.load_balancer_ip);
    ensure!(asked.as_deref() == Some("0.0.0.0"), "{asked:?}");
    let handed = of_kube_vip(&world, ns).await?;
    let expected = [Some(vip.to_string()), of_lease];
    ensure!(handed == expected, "{handed:?}, not {expected:?}");
    world.delete_lb(ns, ns).await?;
    world.gone(&world.services(ns), ns).await?;
    dhcp.end().await?;
    operator.end().await?;
    Ok(())
}
