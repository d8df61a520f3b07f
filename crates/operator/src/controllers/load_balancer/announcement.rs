//! What kube-vip announces for a load balancer: whether it follows a changed address (REL-4), and from which node.

use std::net::IpAddr;

use harvester_lb_api::{LoadBalancer, keys, meta};
use harvester_lb_core::address_move::{ObservedService, Shown};
use harvester_lb_core::plan::{self, Address};
use harvester_lb_core::{detail_events, readiness};
use harvester_lb_ipam::{Phase, addr};
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;
use tokio::time::{Duration, Instant};
use tracing::info;

use crate::context::Context;
use crate::index::leader_ops::ObservedMove;

/// Longest name of a Node.
const NODE_NAME_LIMIT: usize = 253;

/// Updates the move of a Service that asks for this address. Returns the remaining time until it is to be recreated; `None` if it
/// need not be (REL-4).
///
/// kube-vip can miss a change of a Service's address, and some versions ignore each. Recreating the Service helps.
pub fn observe_move(
    ctx: &Context,
    key: &Key,
    service: &Service,
    address: &Address,
) -> Option<Duration> {
    let observed = ObservedService {
        uid: service.metadata.uid.as_deref().unwrap_or_default(),
        desired: &address.load_balancer_ip,
        shown: shown(ctx, key, service, address),
    };
    let limits = ctx.timings.move_limits();
    let ObservedMove {
        remaining,
        outcome,
        history,
    } = ctx.index.observe_move(key, &observed, &limits);
    if let Some(outcome) = outcome {
        info!(lb = %key, ?outcome, ?history, "kube-vip announces the changed address");
    }
    if remaining == Some(Duration::ZERO) {
        info!(lb = %key, address = address.load_balancer_ip, ?history, "Service still shows the previous address, recreating it");
    }
    remaining
}

/// The address that a Service shows, compared with the desired one.
fn shown(ctx: &Context, key: &Key, service: &Service, address: &Address) -> Shown {
    let Some(external) = readiness::external_ip(service).and_then(|ip| addr::parse(&ip)) else {
        return Shown::Nothing;
    };
    let is_to_leave = address
        .extra_records
        .iter()
        .any(|r| r.spec.phase == Phase::Bound && r.spec.addr == external);
    let is_desired = addr::parse(&address.load_balancer_ip) == Some(external);
    // An address announced only after the release of its record may have another owner by now.
    if is_to_leave
        || plan::shows_other_address(service, address) && ctx.index.record(external).is_some()
        || !is_desired && is_left_lease(ctx, key, external, address)
    {
        Shown::Previous
    } else if is_desired {
        Shown::Desired
    } else {
        Shown::Other
    }
}

/// Whether an address is the lease of the load balancer, or of an earlier one of its name, that waits for the Service to leave it before it
/// is given back (DHC-4). kube-vip asks a server for the one that the load balancer itself had (DHC-6).
fn is_left_lease(ctx: &Context, key: &Key, external: IpAddr, address: &Address) -> bool {
    let is_kube_vips = address.load_balancer_ip == keys::DHCP_ADDRESS;
    let stored = ctx.index.stores.lbs.get(key);
    let own = stored.and_then(|lb| lb.meta().uid.clone());
    let mut leases = ctx.index.leases_of(key).into_iter();
    leases.any(|(uid, leased)| {
        leased == external && !(is_kube_vips && own.as_ref() == Some(&uid.to_string()))
    })
}

/// Publishes an Event if another node announces the address than before, as far as the budget for such Events allows; all are
/// counted.
pub fn note_node(ctx: &Context, key: &Key, lb: &LoadBalancer, service: &Service) {
    let node = meta::annotation(&service.metadata, keys::ANNOTATION_KUBE_VIP_HOST);
    // Anybody who may write the Service chooses the text.
    let Some(node) = node.filter(|node| !node.is_empty() && node.len() <= NODE_NAME_LIMIT) else {
        return;
    };
    let Some(before) = ctx.index.set_announcing_node(key, node) else {
        return;
    };
    let is_sent = ctx.node_event_budget.take(Instant::now());
    if is_sent {
        let draft = detail_events::announcing_node_changed(&before, node);
        ctx.notify_lb(&lb.metadata, &draft);
    }
    let event = if is_sent { "sent" } else { "suppressed" };
    let changes = &ctx.metrics.announcing_node_changes;
    changes.with_label_values(&[event]).inc();
}
