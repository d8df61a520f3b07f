//! An operator beside the DHCP process: its start, and what it makes of a lease.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::ensure;
use harvester_lb_api::LoadBalancer;
use harvester_lb_testkit::{Process, eventually};

use super::names;
use crate::http;
use crate::read::ready;
use crate::world::{QUICK_LEASE, SOON, World};

/// The admin port: the DHCP process of the node has that of other operators.
const PORT: u16 = 8083;

/// Starts an operator in mode `builtin` on a node, in a Pod of this uid, and waits until it is ready. One with the uid of the
/// leader that was killed takes its Lease over at once.
pub async fn start_operator(
    world: &World,
    node: &str,
    uid: &str,
    flags: &[&str],
) -> anyhow::Result<Arc<Process>> {
    let port = format!("--admin-address=[::]:{PORT}");
    let flags = [&["--dhcp-mode=builtin", &port], flags, &QUICK_LEASE].concat();
    let process = world.spawn_operator(node, &flags, &[("POD_UID", uid)])?;
    let at = SocketAddr::from((world.node_address(node)?, PORT));
    process
        .ready(SOON, || async move {
            let ready = http::get(at, "/readyz").await;
            Ok(ready.is_ok_and(|(code, _)| code == 200))
        })
        .await?;
    Ok(process)
}

/// Waits until a load balancer is served at this address: its Service asks for it, and the status shows it. Answers the uid of the
/// Service.
pub async fn served(world: &World, lb: &LoadBalancer, at: Ipv4Addr) -> anyhow::Result<String> {
    let (ns, name) = names(lb);
    eventually(&format!("{name} is served at {at}"), SOON, || async {
        let service = world.services(ns).get(name).await?;
        let asked = service.spec.and_then(|spec| spec.load_balancer_ip);
        ensure!(
            asked == Some(at.to_string()),
            "the Service asks for {asked:?}"
        );
        let status = world.lbs(ns).get(name).await?;
        let is_ready = ready(&status).is_some_and(|(status, ..)| status == "True");
        let shown = status.status.and_then(|status| status.address);
        ensure!(is_ready && shown == asked, "ready: {is_ready}, {shown:?}");
        Ok(service.metadata.uid)
    })
    .await
}

/// Waits until a load balancer without a lease has no Service, and says so.
pub async fn unserved(world: &World, lb: &LoadBalancer) -> anyhow::Result<()> {
    let (ns, name) = names(lb);
    world.gone(&world.services(ns), name).await?;
    let waiting = world.lb_reason(ns, name, "WaitingForLease").await?;
    let shown = waiting.status.and_then(|status| status.address);
    ensure!(shown.is_none(), "it shows {shown:?}");
    Ok(())
}
