//! The hardware address that a load balancer names for its lease (DHC-1).

use std::sync::Arc;

use anyhow::ensure;
use harvester_lb_api::keys::ANNOTATION_DHCP_HARDWARE_ADDRESS;
use harvester_lb_api::{IPAllocation, Phase};
use harvester_lb_e2e::World;
use harvester_lb_e2e::fake_kube_vip::FakeKubeVip;
use harvester_lb_testkit::lan;
use serde_json::json;

use harvester_lb_e2e::leases::operator::{served, start_operator};
use harvester_lb_e2e::leases::{
    NODE, address, delete, dnsmasq, given_back, lease, leased, leased_spec, no_record, phase,
    record_name, record_until, set, start,
};

const NS: &str = "hardware";

/// Of a load balancer without a record nothing is asked of a server; one that has a lease keeps it.
pub async fn dhc_1_a_hardware_address_that_is_none_leases_nothing(
    world: Arc<World>,
) -> anyhow::Result<()> {
    const NONE: &str = "02:00:5e:10:00";
    const VALID: &str = "02:00:5e:10:00:2b";
    set(&world, NS).await?;
    let labels = json!({"app": "web"});
    world.fake_vmi(NS, "vm", labels, Some("10.81.0.1")).await?;
    let _kube_vip = FakeKubeVip::start(&world.client());
    let server = dnsmasq(&world, &(240..=242)).await?;
    let operator = start_operator(&world, NODE, "operator", &[]).await?;
    let process = start(&world, "builtin").await?;
    let set_to = async |name: &str, value: &str| {
        let annotation = json!({ ANNOTATION_DHCP_HARDWARE_ADDRESS: value });
        let patch = json!({"metadata": {"annotations": annotation}});
        world.merge(&world.lbs(NS), name, patch).await
    };

    let annotation = json!({ ANNOTATION_DHCP_HARDWARE_ADDRESS: NONE });
    let metadata = json!({"namespace": NS, "name": "web", "annotations": annotation});
    let lb = world.lb_with(metadata, leased_spec()).await?;
    let told = world.lb_reason(NS, "web", "InvalidHardwareAddress").await?;
    let status = format!("{:?}", told.status);
    ensure!(status.contains(NONE), "{status}");
    world
        .event(NS, "LoadBalancer", "web", "InvalidHardwareAddress")
        .await?;
    // Another one that is created later has its lease before: the process has seen both.
    let other = leased(&world, NS, "other").await?;
    let had = address(&phase(&world, &other, Phase::Bound).await?)?;
    served(&world, &other, had).await?;
    let record = world.records().get_opt(&record_name(&lb)).await?;
    ensure!(record.is_none(), "{record:?}");
    ensure!(world.services(NS).get_opt("web").await?.is_none());

    // It is corrected.
    set_to("web", VALID).await?;
    let record = phase(&world, &lb, Phase::Bound).await?;
    ensure!(lease(&record).hardware_address == VALID, "{record:?}");
    let leased = address(&record)?;
    ensure!((lan(240)..=lan(242)).contains(&leased), "{leased}");
    served(&world, &lb, leased).await?;

    // With one that is none it keeps what it has.
    set_to("web", NONE).await?;
    world.lb_reason(NS, "web", "InvalidHardwareAddress").await?;
    let is_kept = |it: &IPAllocation| {
        it.spec.phase == Phase::Bound
            && it.spec.address == leased.to_string()
            && lease(it).hardware_address == VALID
    };
    record_until(&world, &lb, "the lease is kept", is_kept).await?;
    let service = world.services(NS).get("web").await?;
    let shown = service.spec.and_then(|spec| spec.load_balancer_ip);
    ensure!(shown == Some(leased.to_string()), "{shown:?}");

    for lb in [&lb, &other] {
        delete(&world, lb).await?;
        no_record(&world, lb).await?;
    }
    given_back(&server, leased).await?;
    given_back(&server, had).await?;
    process.kill9()?;
    operator.kill9()
}
