//! The detail conditions of a load balancer, from its address, its Service and its backends; and the Events about the node that
//! announces it.

use harvester_lb_api::{LoadBalancer, keys, meta};
use harvester_lb_core::backends::{self, DiscoveredBackends};
use harvester_lb_core::cached::VmiState;
use harvester_lb_core::detail_events;
use harvester_lb_core::details::{self, BackendHealth, DetailCondition};
use harvester_lb_core::readiness;
use harvester_lb_core::spec::VmSpec;
use harvester_lb_ipam::addr;
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;
use tokio::time::Instant;

use crate::context::Context;
use crate::controllers::load_balancer::address::Address;

/// Longest name of a Node.
const NODE_NAME_LIMIT: usize = 253;

/// `AddressAllocated` of a load balancer with an address. `leased`: the ingress address of its Service, for DHCP.
pub fn allocated(address: &Address, leased: Option<&str>) -> DetailCondition {
    if address.load_balancer_ip == keys::DHCP_ADDRESS {
        return details::allocated_by_dhcp(leased);
    }
    let pool = address.allocated.ip_pool.as_deref().unwrap_or_default();
    details::allocated_from_pool(&address.load_balancer_ip, pool)
}

/// `AddressAllocated` of a load balancer of cluster type.
pub fn allocated_to_cluster(address: &Address) -> DetailCondition {
    if address.load_balancer_ip == keys::DHCP_ADDRESS {
        return details::allocated_by_guest();
    }
    allocated(address, None)
}

/// `BackendsHealthy` of a load balancer without a backend; `None` if it has one.
pub fn no_backends(key: &Key, found: &DiscoveredBackends) -> Option<DetailCondition> {
    let none = readiness::no_backends(key, found)?;
    Some(details::no_backends(none.reason, &none.message))
}

/// The detail conditions in the write that commits an address, before Service and EndpointSlice have it. Those of a new load
/// balancer are still right after both are created, and so cause no write.
pub fn first(
    ctx: &Context,
    key: &Key,
    vm: &VmSpec,
    found: &DiscoveredBackends,
    address: &Address,
) -> Vec<DetailCondition> {
    let mut all = vec![
        allocated(address, None),
        details::announced(None, &address.load_balancer_ip, false),
    ];
    // The readiness of existing endpoints is known only after the EndpointSlice is written.
    if ctx.index.stores.slices.get(key).is_none() {
        let is_checked = vm.check.is_some();
        let states = found.backends.iter().map(|b| (b.state, !is_checked));
        let ready = backends::ready(&states.collect::<Vec<(VmiState, bool)>>());
        let health = found.backends.iter().zip(ready);
        let health: Vec<BackendHealth<'_>> = health
            .map(|(backend, ready)| BackendHealth::new(backend, ready, None))
            .collect();
        let healthy = || details::backends_healthy(&health, is_checked, &[]);
        all.push(no_backends(key, found).unwrap_or_else(healthy));
    }
    all
}

/// Whether kube-vip announces another address than the allocated one, or none, although nobody has asked it to.
pub fn shows_other_address(service: &Service, address: &Address) -> bool {
    // A user may request another address from kube-vip by annotation, and a DHCP server chooses its own.
    let may_differ = address.load_balancer_ip == keys::DHCP_ADDRESS
        || meta::annotation(&service.metadata, keys::ANNOTATION_KUBE_VIP_ADDRESSES).is_some();
    let external = readiness::external_ip(service).and_then(|ip| addr::parse(&ip));
    !may_differ && external != addr::parse(&address.load_balancer_ip)
}

/// Publishes an Event if another node announces the address than before, as far as the budget for such Events allows; all are
/// counted.
pub fn note_announcing_node(ctx: &Context, key: &Key, lb: &LoadBalancer, service: &Service) {
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
