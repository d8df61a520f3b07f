//! The address of a load balancer of VM type that a DHCP server leases: what it is to have, by the record of the lease (DHC-1, DHC-3,
//! DHC-6). The DHCP process alone writes that.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use harvester_lb_api::{LoadBalancer, WorkloadType, keys};
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::cached::{self, Allocation, CachedService};
use harvester_lb_core::desired::{self, Ownership};
use harvester_lb_core::dhcp::Mode;
use harvester_lb_core::dhcp::claim::asks_for_lease;
use harvester_lb_core::dhcp::record::{self, LeasePhase, LeaseRecord};
use harvester_lb_core::dhcp::serving::{Serving, serving};
use harvester_lb_core::plan::{Address, Goal, Objects, SeenLease, Waiting};
use harvester_lb_core::spec::VmSpec;
use harvester_lb_core::status;
use harvester_lb_ipam::{Micros, Phase, Record, Uid, addr};
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tracing::info;

use crate::clock;
use crate::context::Context;
use crate::controllers::live;

/// How long after the expiry of a lease its load balancer is reconciled: timers are not exact.
const EXPIRY_MARGIN: Duration = Duration::from_millis(2);
/// Most time until it is looked at again, mostly in vain: no timer notices that the wall clock is set, or that the host slept.
const LOOK_AGAIN: Duration = Duration::from_mins(1);

/// The stored record of the lease of a load balancer.
struct Seen {
    stored: Option<Arc<Allocation>>,
    lease: SeenLease,
}

impl Seen {
    fn of(ctx: &Context, meta: &ObjectMeta) -> Self {
        let uid = Uid::new(meta.uid.as_deref().unwrap_or_default());
        let name = record::name(&uid);
        let stored = ctx.index.stores.allocations.get(&Key::new("", &*name));
        let mut seen = Self {
            stored,
            lease: SeenLease {
                name,
                version: None,
            },
        };
        seen.lease.version = seen.record().map(|record| record.version);
        seen
    }

    fn record(&self) -> Option<&LeaseRecord> {
        match self.stored.as_deref()? {
            Allocation::Lease(record) => Some(record),
            _ => None,
        }
    }
}

/// What a load balancer with a valid spec is to have.
pub fn goal(ctx: &Context, key: &Key, lb: &LoadBalancer, vm: Box<VmSpec>) -> Goal {
    let own = ctx.index.withdraw_from_pools(key);
    let seen = Seen::of(ctx, &lb.metadata);
    let service = ctx.index.stores.services.get(key);
    let is_kube_vips = service.is_some_and(|service| is_kube_vips(key, &service));
    let mode = ctx.index.settings.dhcp_mode;
    let now = clock::now();
    let lease = seen.record().map(|record| &record.spec);
    match serving(mode, lease, is_kube_vips, now) {
        Serving::Leased(address, expires_at) => {
            look_again_at(ctx, key, expires_at, now);
            Goal::Serve(vm, Address::leased(address, seen.lease, own))
        }
        Serving::KubeVip(handed) => {
            Goal::Serve(vm, Address::by_dhcp(own, Some(seen.lease), handed))
        }
        Serving::Waiting(why, until) => {
            look_again_at(ctx, key, until, now);
            let waiting = Waiting {
                lease: Some(seen.lease),
                ..Waiting::because(status::WAITING_FOR_LEASE, why, own)
            };
            Goal::Wait(Some(vm), waiting)
        }
    }
}

/// Whether the status of a load balancer that stays as it is has the address of a lease that is lost: the Service has gone with it
/// (DHC-3).
pub fn is_lost(ctx: &Context, key: &Key, lb: &LoadBalancer) -> bool {
    let address = lb.status.as_ref().and_then(|it| it.address.as_deref());
    let shows_one = address.is_some_and(|it| !it.is_empty());
    if !shows_one || ctx.index.stores.services.get(key).is_some() {
        return false;
    }
    let seen = Seen::of(ctx, &lb.metadata);
    let lease = seen.record().map(|record| &record.spec);
    // An edit that is refused may ask for an address of a pool, which it has not got (ALC-10).
    let has_one = lease.is_some() && !ctx.index.holds_address(key);
    if !is_of_lease(lb) && !has_one {
        return false;
    }
    match lease.map(|lease| &lease.phase) {
        Some(LeasePhase::Bound(held)) => held.is_expired(clock::now()),
        // In mode `kube-vip` too: one that stays as it is gets no Service of kube-vip's.
        Some(_) => true,
        None => ctx.index.settings.dhcp_mode == Mode::Builtin,
    }
}

/// DHC-3: ends the Service of a load balancer that stays as it is, once its lease is lost. Its address may be somebody else's.
/// `lb`: whether its address is that of a lease; `None` if that cannot be told.
///
/// # Errors
/// Those of the requests; `Conflict` if there is a lease again.
pub async fn end_lost(
    ctx: &Context,
    key: &Key,
    meta: &ObjectMeta,
    lb: Option<&LoadBalancer>,
) -> Result<(), WriteError> {
    let service = ctx.index.stores.services.get(key);
    let objects = Objects {
        key,
        service: service.as_deref(),
        slice: None,
    };
    let (Some(from), Some(service)) = (objects.deletable_service(), objects.service) else {
        return Ok(());
    };
    // kube-vip has leased its own, and one of a pool has a Bound record of this load balancer, or of those that share it.
    let is_own = |record: Record| {
        let id = cached::id(key);
        let is_its = record.spec.owner.id == id || record.spec.address_of() == id;
        is_its && record.spec.phase == Phase::Bound
    };
    let is_leased =
        |it: &IpAddr| !it.is_unspecified() && !ctx.index.record(*it).is_some_and(is_own);
    let Some(served) = cached::asked_address(service)
        .and_then(addr::parse)
        .filter(is_leased)
    else {
        return Ok(());
    };
    let seen = Seen::of(ctx, meta);
    let now = clock::now();
    let is_lost = match seen.record().map(|record| &record.spec.phase) {
        Some(LeasePhase::Bound(held)) if !held.is_expired(now) => {
            let expires_at = held.times.map(|times| times.expires_at);
            look_again_at(ctx, key, expires_at, now);
            served != IpAddr::from(held.address)
        }
        Some(_) => true,
        // Somebody has deleted the record; the DHCP process renews no lease without one.
        None => {
            let mode = ctx.index.settings.dhcp_mode;
            seen.stored.is_none() && lb.is_some_and(is_of_lease) && mode == Mode::Builtin
        }
    };
    if is_lost {
        live::ensure_lease_unchanged(ctx, &seen.lease).await?;
        live::ensure_not_own(ctx, served, is_own).await?;
        info!(service = %key, "deleting Service, its lease is lost");
        ctx.client.delete::<Service>(key, from).await?;
    }
    Ok(())
}

/// Whether a load balancer asks for a lease. The status tells of one whose spec asks for an address of a pool by an edit that is refused:
/// it says DHCP until it has that address.
fn is_of_lease(lb: &LoadBalancer) -> bool {
    let is_vm = lb.spec.workload() == WorkloadType::Vm;
    asks_for_lease(&lb.spec) || is_vm && status::allocated(lb) == Some(keys::DHCP_ADDRESS)
}

/// Whether kube-vip's DHCP client works for a Service, or will.
fn is_kube_vips(key: &Key, service: &CachedService) -> bool {
    desired::ownership(&service.metadata, &key.name) == Ownership::Ours
        && cached::asked_address(service) == Some(keys::DHCP_ADDRESS)
}

/// DHC-3: the load balancer is due when its lease expires, whether the DHCP process runs or not.
fn look_again_at(ctx: &Context, key: &Key, expires_at: Option<Micros>, now: Micros) {
    let Some(left) = expires_at.map(|at| at.0.saturating_sub(now.0)) else {
        return;
    };
    let left = Duration::from_micros(u64::try_from(left).unwrap_or(0));
    let due = left.saturating_add(EXPIRY_MARGIN).min(LOOK_AGAIN);
    ctx.index.queues.lbs.add_after(key.clone(), due);
}

#[cfg(test)]
mod tests;
