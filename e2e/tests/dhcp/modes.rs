//! A change between kube-vip's DHCP client and the DHCP process (DHC-6).

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use harvester_lb_api::Phase;
use harvester_lb_e2e::world::SOON;
use harvester_lb_e2e::{World, permissions, requests};
use harvester_lb_testkit::{consistently, eventually, lan};
use serde_json::json;

use harvester_lb_e2e::leases::{
    USER, address, bound, counter, dnsmasq, given_back, held, lease, leased, no_record, phase,
    serve, set, start, unserve,
};

pub async fn dhc_6_no_discover_while_kube_vip_has_a_client(
    world: Arc<World>,
) -> anyhow::Result<()> {
    set(&world, "both").await?;
    let server = dnsmasq(&world, &(235..=239)).await?;
    let lb = leased(&world, "both", "web").await?;
    let of_kube_vip = json!({
        "kube-vip.io/requestedIP": "192.168.100.237",
        "kube-vip.io/hwaddr": "00:00:6c:11:22:33",
    });
    serve(&world, &lb, "0.0.0.0", of_kube_vip).await?;
    let process = start(&world, "builtin").await?;
    let record = phase(&world, &lb, Phase::Pending).await?;
    ensure!(lease(&record).requested_address.as_deref() == Some("192.168.100.237"));
    ensure!(lease(&record).hardware_address == "00:00:6c:11:22:33");
    let discovers = "harvester_lb_dhcp_messages_sent_total{type=\"discover\"}";
    consistently("no DISCOVER", Duration::from_secs(2), || async {
        ensure!(counter(&world, discovers).await? < 0.5);
        Ok(())
    })
    .await?;
    unserve(&world, &lb).await?;
    ensure!(bound(&world, &lb).await? == lan(237));
    ensure!(
        held(&server, &(235..=239)) == [lan(237)],
        "{}",
        server.leases()
    );
    process.kill9()
}

pub async fn dhc_6_kube_vip_takes_over(world: Arc<World>) -> anyhow::Result<()> {
    set(&world, "over").await?;
    let server = dnsmasq(&world, &(240..=244)).await?;
    let process = start(&world, "builtin").await?;
    let lb = leased(&world, "over", "web").await?;
    let had = bound(&world, &lb).await?;
    process.kill9()?;
    let process = start(&world, "kube-vip").await?;
    let record = phase(&world, &lb, Phase::Released).await?;
    ensure!(address(&record)? == had);
    given_back(&server, had).await?;
    let named = json!({"kube-vip.io/requestedIP": had.to_string()});
    serve(&world, &lb, "0.0.0.0", named).await?;
    no_record(&world, &lb).await?;
    process.kill9()?;
    // And back: the address of the Service is asked for.
    let process = start(&world, "builtin").await?;
    unserve(&world, &lb).await?;
    bound(&world, &lb).await?;
    process.kill9()
}

/// The last of the tests: what they have done needs every permission of docs/examples/rbac-dhcp.yaml.
pub async fn section_1_each_right_of_the_dhcp_process_is_used(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let all = permissions::of_example("rbac-dhcp.yaml")?;
    eventually("each right is used", SOON, || async {
        let seen = requests::of(&world, USER)?;
        let unused = permissions::unused(&all, &seen);
        ensure!(unused.is_empty(), "rights that nothing needs: {unused:#?}");
        Ok(Some(()))
    })
    .await
}
