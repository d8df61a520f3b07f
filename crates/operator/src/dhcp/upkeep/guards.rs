//! The live reads behind the guards of a step: what a new leader's stored copies say may be over.

use std::net::Ipv4Addr;

use harvester_lb_api::{IPAllocation, LoadBalancer, meta};
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::dhcp::claim::ServiceView;
use harvester_lb_core::dhcp::record::LeaseRecord;
use harvester_lb_core::dhcp::upkeep::{Guard, Holder, Situation};
use harvester_lb_core::{cached, spec};
use harvester_lb_ipam::Owner;
use k8s_openapi::api::core::v1::Service;
use tracing::debug;

use crate::dhcp::context::Context;
use crate::dhcp::index::{pool_record_key, record_key};

/// The live read behind a guard. Whatever it finds is in the stores afterwards.
///
/// An object that cannot be decoded confirms nothing: it is there, and it may serve the address. It is not read again before it changes,
/// which the watch tells.
pub(super) async fn is_confirmed(
    ctx: &Context,
    owner: &Owner,
    situation: &Situation<'_>,
    guard: Guard,
) -> Result<bool, WriteError> {
    let is_so = match is_so(ctx, owner, situation, guard).await {
        Err(WriteError::Undecodable(why)) => {
            debug!(lease = %owner.uid, ?guard, why, "object cannot be decoded");
            false
        }
        told => told?,
    };
    if !is_so {
        debug!(lease = %owner.uid, ?guard, "not so, waiting");
    }
    Ok(is_so)
}

async fn is_so(
    ctx: &Context,
    owner: &Owner,
    situation: &Situation<'_>,
    guard: Guard,
) -> Result<bool, WriteError> {
    Ok(match guard {
        Guard::None => true,
        Guard::AsSeen => is_as_seen(ctx, owner, situation).await?,
        Guard::Gone => is_gone(ctx, owner).await?,
        Guard::NotKubeVips => is_not_kube_vips(ctx, owner).await?,
        Guard::AsSeenAndNotKubeVips => {
            is_as_seen(ctx, owner, situation).await? && is_not_kube_vips(ctx, owner).await?
        }
        Guard::NotOfPool(address) => {
            let key = pool_record_key(address);
            ctx.client.get_live::<IPAllocation>(&key).await?;
            !ctx.index.is_held_by_pool(address)
        }
        Guard::NotServed(address) => is_unserved(ctx, owner, address).await?,
        Guard::GoneAndNotServed(address) => {
            is_gone(ctx, owner).await? && is_unserved(ctx, owner, address).await?
        }
        Guard::Held(address) => is_held(ctx, owner, situation, address).await?,
        Guard::NamedForKubeVip => live_service(ctx, owner)
            .await?
            .is_some_and(|service| service.is_kube_vips && service.kube_vip_address.is_some()),
    })
}

/// Whether the stored record is that of the API server; else the store has that now. A client of an older one would ask for an
/// address that is served, or for another one (DHC-2).
pub(super) async fn is_current(ctx: &Context, record: &LeaseRecord) -> Result<bool, WriteError> {
    let key = record_key(&record.spec.owner.uid);
    let live = ctx.client.get_live::<IPAllocation>(&key).await?;
    Ok(live.is_some_and(|live| meta::version(&live.metadata) == record.version))
}

async fn is_as_seen(
    ctx: &Context,
    owner: &Owner,
    situation: &Situation<'_>,
) -> Result<bool, WriteError> {
    let key = cached::key(&owner.id);
    ctx.client.get_live::<LoadBalancer>(&key).await?;
    Ok(ctx.index.lb(owner).as_deref() == situation.lb)
}

async fn is_not_kube_vips(ctx: &Context, owner: &Owner) -> Result<bool, WriteError> {
    let service = live_service(ctx, owner).await?;
    Ok(!service.is_some_and(|service| service.is_kube_vips))
}

async fn is_gone(ctx: &Context, owner: &Owner) -> Result<bool, WriteError> {
    let key = cached::key(&owner.id);
    let lb = ctx.client.get_live::<LoadBalancer>(&key).await?;
    Ok(lb.is_none_or(|lb| spec::owner(&lb.metadata) != *owner))
}

/// Whether who else has the address is as it was seen. The holder's record is in the store afterwards; of one that cannot be decoded the
/// earlier copy counts, since nothing says that its address is free (IPA-8).
async fn is_held(
    ctx: &Context,
    owner: &Owner,
    situation: &Situation<'_>,
    address: Ipv4Addr,
) -> Result<bool, WriteError> {
    let Some(holder) = situation.holder else {
        return Ok(false);
    };
    let key = match holder {
        Holder::Pool => pool_record_key(address),
        Holder::Lease { lb, .. } => record_key(&lb.uid),
    };
    match ctx.client.get_live::<IPAllocation>(&key).await {
        Ok(_) | Err(WriteError::Undecodable(_)) => {}
        Err(error) => return Err(error),
    }
    Ok(ctx.index.holder(&owner.uid, address).as_ref() == Some(holder))
}

/// Whether a Service of ours has the address, by the stored copies. `own`: that of the load balancer's name.
pub(super) fn may_be_served(ctx: &Context, own: Option<&ServiceView>, address: Ipv4Addr) -> bool {
    own.is_some_and(|own| own.may_serve(address)) || !ctx.index.services_with(address).is_empty()
}

/// Whether no Service of ours has the address: the one of the load balancer's name, and those of others that show it, if a server has
/// leased an address twice.
async fn is_unserved(ctx: &Context, owner: &Owner, at: Ipv4Addr) -> Result<bool, WriteError> {
    let service = live_service(ctx, owner).await?;
    if service.is_some_and(|service| service.may_serve(at)) {
        return Ok(false);
    }
    for key in ctx.index.services_with(at) {
        let service = ctx.client.get_live::<Service>(&key).await?;
        let service = service.as_ref().and_then(ServiceView::of);
        if service.is_some_and(|service| service.shown.contains(&at)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The Service of ours of the load balancer's name. One that cannot be decoded is an error.
pub(super) async fn live_service(
    ctx: &Context,
    owner: &Owner,
) -> Result<Option<ServiceView>, WriteError> {
    let key = cached::key(&owner.id);
    let service = ctx.client.get_live::<Service>(&key).await?;
    Ok(service.as_ref().and_then(ServiceView::of))
}
