//! What kube-vip announces for a load balancer: whether it follows a changed address (REL-4), and from which node.

use std::net::IpAddr;

use harvester_lb_api::{LoadBalancer, keys, meta};
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::address_move::{ObservedService, Shown};
use harvester_lb_core::cached::{self, Allocation, CachedService};
use harvester_lb_core::dhcp::record;
use harvester_lb_core::plan::{self, Address, Objects};
use harvester_lb_core::{detail_events, readiness};
use harvester_lb_ipam::{Phase, Uid, addr};
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;
use tokio::time::{Duration, Instant};
use tracing::info;

use crate::clock;
use crate::context::Context;
use crate::index::leader_ops::ObservedMove;

/// Longest name of a Node.
const NODE_NAME_LIMIT: usize = 253;

/// Updates the move of a Service to this address (REL-4). The copies are to be observed in the order of their versions. `None` for one that
/// does not ask for the address yet, as that write is refused (SHR-3): kube-vip has nothing to follow.
///
/// kube-vip can miss a change of a Service's address, and some versions ignore each. Recreating the Service helps.
pub fn observe_move(
    ctx: &Context,
    key: &Key,
    service: &Service,
    address: &Address,
) -> Option<ObservedMove> {
    if cached::asked_address(service) != Some(&*address.load_balancer_ip) {
        return None;
    }
    let observed = ObservedService {
        uid: service.metadata.uid.as_deref().unwrap_or_default(),
        desired: &address.load_balancer_ip,
        shown: shown(ctx, key, service, address),
    };
    let limits = ctx.timings.move_limits();
    let observed = ctx.index.observe_move(key, &observed, &limits);
    if let Some(outcome) = observed.outcome {
        info!(lb = %key, ?outcome, history = ?observed.history, "kube-vip announces the changed address");
    }
    Some(observed)
}

/// Updates the move of a Service to its address, and deletes it if kube-vip has ignored the change for too long; the event of the
/// deletion brings the load balancer back, which creates it anew. Returns the remaining time until then (REL-4).
pub async fn move_on(
    ctx: &Context,
    key: &Key,
    service: &CachedService,
    address: &Address,
) -> Result<Option<Duration>, WriteError> {
    let Some(observed) = observe_move(ctx, key, service, address) else {
        return Ok(None);
    };
    let ObservedMove {
        remaining, history, ..
    } = observed;
    if remaining == Some(Duration::ZERO) {
        let address = &address.load_balancer_ip;
        info!(lb = %key, address, ?history, "Service still shows the previous address, recreating it");
        let objects = Objects {
            key,
            service: Some(service),
            slice: None,
        };
        // One that a finalizer holds in deletion is deleted already.
        if let Some(from) = objects.deletable_service() {
            ctx.client.delete::<Service>(key, from).await?;
        }
        ctx.index.moved_service_deleted(key);
    }
    Ok(remaining)
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
    let is_kube_vips = address.load_balancer_ip == keys::DHCP_ADDRESS;
    // An address announced only after the release of its record may have another owner by now.
    if is_to_leave
        || plan::shows_other_address(service, address) && ctx.index.record(external).is_some()
        || !is_desired && is_leased(ctx, key, external, is_kube_vips)
    {
        Shown::Previous
    } else if is_desired {
        Shown::Desired
    } else {
        Shown::Other
    }
}

/// Whether kube-vip announces an address from which the Service is to move, and not the one that the Service asks for. Until it announces
/// that one it may announce each that the Service has asked for in between (REL-4). It ends: else the Service is recreated.
pub fn is_behind(ctx: &Context, key: &Key, service: &Service) -> bool {
    cached::announced_instead(service).is_some_and(|external| {
        ctx.index.record(external).is_some() || is_leased(ctx, key, external, false)
    })
}

/// Whether a load balancer of this name has the record of a lease with this address. The lease is given back once the Service has left the
/// address (DHC-4); one that has ended may be somebody else's by now. `is_kube_vips`: kube-vip's own client has the address from a server,
/// which gives it the one that the load balancer itself had (DHC-6), or one whose lease has ended.
fn is_leased(ctx: &Context, key: &Key, address: IpAddr, is_kube_vips: bool) -> bool {
    let stores = &ctx.index.stores;
    let own = stores.lbs.get(key).and_then(|lb| lb.meta().uid.clone());
    let now = clock::now();
    let is_valid = |uid: &Uid| {
        let name = Key::new("", record::name(uid));
        match stores.allocations.get(&name).as_deref() {
            Some(Allocation::Lease(record)) => {
                let held = record.spec.phase.lease();
                held.is_some_and(|held| !held.is_expired(now))
            }
            _ => false,
        }
    };
    let is_anothers = |uid: &Uid| own.as_deref() != Some(&uid.to_string()) && is_valid(uid);
    let mut leases = ctx.index.leases_of(key).into_iter();
    leases.any(|(uid, leased)| leased == address && (!is_kube_vips || is_anothers(&uid)))
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
