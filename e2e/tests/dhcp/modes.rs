//! A change between kube-vip's DHCP client and the DHCP process (DHC-6).

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_api::Phase;
use harvester_lb_e2e::world::SOON;
use harvester_lb_e2e::{World, permissions, requests};
use harvester_lb_testkit::{consistently, eventually, lan};
use serde_json::json;

use harvester_lb_e2e::leases::{
    SERVERS, USER, address, bound, counter, given_back, held, kinds, lease, leased, no_record,
    phase, record_until, serve, server_of, set, start, unserve,
};

/// With dnsmasq, and in the soak with Kea.
pub async fn dhc_6_no_discover_while_kube_vip_has_a_client(
    world: Arc<World>,
) -> anyhow::Result<()> {
    for kind in SERVERS.into_iter().take(kinds()) {
        no_discover(&world, kind)
            .await
            .with_context(|| kind.to_owned())?;
    }
    Ok(())
}

async fn no_discover(world: &World, kind: &str) -> anyhow::Result<()> {
    let ns = format!("both-{kind}");
    set(world, &ns).await?;
    let server = server_of(world, kind, &(235..=239)).await?;
    let lb = leased(world, &ns, "web").await?;
    let of_kube_vip = json!({
        "kube-vip.io/requestedIP": "192.168.100.237",
        "kube-vip.io/hwaddr": "00:00:6c:11:22:33",
    });
    serve(world, &lb, "0.0.0.0", of_kube_vip).await?;
    let process = start(world, "builtin").await?;
    let record = phase(world, &lb, Phase::Pending).await?;
    ensure!(lease(&record).requested_address.as_deref() == Some("192.168.100.237"));
    ensure!(lease(&record).hardware_address == "00:00:6c:11:22:33");
    let discovers = "harvester_lb_dhcp_messages_sent_total{type=\"discover\"}";
    consistently("no DISCOVER", Duration::from_secs(2), || async {
        ensure!(counter(world, discovers).await? < 0.5);
        Ok(())
    })
    .await?;
    unserve(world, &lb).await?;
    ensure!(bound(world, &lb).await? == lan(237));
    ensure!(
        held(&server, &(235..=239)) == [lan(237)],
        "{}",
        server.leases()
    );
    process.kill9()
}

/// With dnsmasq, and in the soak with Kea.
pub async fn dhc_6_kube_vip_takes_over(world: Arc<World>) -> anyhow::Result<()> {
    for kind in SERVERS.into_iter().take(kinds()) {
        takes_over(&world, kind)
            .await
            .with_context(|| kind.to_owned())?;
    }
    Ok(())
}

async fn takes_over(world: &World, kind: &str) -> anyhow::Result<()> {
    let ns = format!("over-{kind}");
    set(world, &ns).await?;
    let server = server_of(world, kind, &(240..=244)).await?;
    let process = start(world, "builtin").await?;
    let lb = leased(world, &ns, "web").await?;
    let had = bound(world, &lb).await?;
    process.kill9()?;
    let process = start(world, "kube-vip").await?;
    let record = phase(world, &lb, Phase::Released).await?;
    ensure!(address(&record)? == had);
    given_back(&server, had).await?;
    let named = json!({"kube-vip.io/requestedIP": had.to_string()});
    serve(world, &lb, "0.0.0.0", named).await?;
    no_record(world, &lb).await?;
    process.kill9()?;
    // And back: the address of the Service is asked for.
    let process = start(world, "builtin").await?;
    let wanted = Some(had.to_string());
    record_until(world, &lb, "asks for the same", |record| {
        lease(record).requested_address == wanted
    })
    .await?;
    unserve(world, &lb).await?;
    let back = bound(world, &lb).await?;
    ensure!(back == had, "{back}, not {had}");
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
