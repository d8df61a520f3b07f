//! The address of a load balancer, from either source: a pool or DHCP (OPS-3).

use harvester_lb_api::{AllocatedAddress, LoadBalancer, keys};
use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::spec::Source;
use harvester_lb_core::status::{self, Readiness};
use harvester_lb_ipam::{AddressConflict, Record, Request};
use harvester_lb_object::Key;

use crate::context::Context;
use crate::controllers::load_balancer::allocate::{self, Acquired};
use crate::controllers::load_balancer::live::{self, SeenPool};

/// The address of a load balancer.
pub struct Address {
    /// `status.allocatedAddress` (ALC-6).
    pub allocated: AllocatedAddress,
    /// `spec.loadBalancerIP` of the Service: the address, or 0.0.0.0 for DHCP.
    pub load_balancer_ip: String,
    /// Further records of the load balancer's name, to be released once no Service shows their addresses.
    pub extra_records: Vec<Record>,
    /// Another address that the status named and that is not this load balancer's.
    pub address_conflict: Option<AddressConflict>,
    /// Whether the address is no longer in the ranges of its pool (IPA-7).
    pub out_of_pool: bool,
}

/// A load balancer without an address.
pub struct Waiting {
    /// The reason.
    pub readiness: Readiness,
    /// An address that the status names and that is not this load balancer's.
    pub address_conflict: Option<AddressConflict>,
    /// Records of its name, to be released once no Service shows their addresses.
    pub extra_records: Vec<Record>,
    /// The pool that it names, as the allocation saw it.
    pub pool: Option<SeenPool>,
}

/// The result of [`obtain`].
pub enum Obtained {
    /// The address is recorded.
    Address(Address),
    /// There is no address; the Service and EndpointSlice are deleted.
    Waiting(Waiting),
    /// The address, Service and EndpointSlice stay as they are until the next reconcile.
    Unchanged(Readiness, Requeue),
}

/// Allocates an address, or returns the present one.
pub async fn obtain(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    source: &Source,
) -> Result<Obtained, WriteError> {
    match source {
        Source::Dhcp => Ok(Obtained::Address(dhcp(ctx, key))),
        Source::Pool(request) => from_pool(ctx, key, lb, request).await,
    }
}

async fn from_pool(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    request: &Request,
) -> Result<Obtained, WriteError> {
    let pool = live::seen_pool(ctx, request);
    match allocate_and_touch(ctx, request).await {
        Ok(Acquired::Granted {
            grant,
            extra_records,
            ..
        }) => Ok(Obtained::Address(Address {
            allocated: allocate::allocated_address(lb, &grant),
            load_balancer_ip: grant.addr.to_string(),
            extra_records,
            address_conflict: grant.address_conflict,
            out_of_pool: grant.out_of_pool,
        })),
        Ok(Acquired::Waiting {
            reason,
            message,
            address_conflict,
            extra_records,
            keep_service,
        }) => {
            let readiness = Readiness::not(reason.as_str(), message);
            // No other load balancer has the address, so the Service stays until the IPAllocation or the pool is readable.
            if keep_service {
                return Ok(Obtained::Unchanged(readiness, Requeue::Resync));
            }
            Ok(Obtained::Waiting(Waiting {
                readiness,
                address_conflict,
                extra_records,
                pool,
            }))
        }
        Err(WriteError::Refused(message)) => {
            let message = format!("the IPAllocation of {key} cannot be written: {message}");
            let readiness = Readiness::not(status::API_ERROR, message);
            Ok(Obtained::Unchanged(readiness, Requeue::Backoff))
        }
        Err(other) => Err(other),
    }
}

/// Allocates; an earlier record that the status did not name so far is written anew (IPA-5).
async fn allocate_and_touch(ctx: &Context, request: &Request) -> Result<Acquired, WriteError> {
    let acquired = allocate::acquire(ctx, request).await?;
    if let Acquired::Granted { grant, written, .. } = &acquired
        && !written
        && !request.names(grant.addr)
    {
        allocate::touch_record(ctx, grant.addr).await?;
    }
    Ok(acquired)
}

/// kube-vip is the DHCP client (OPS-3). Records from a pool that the load balancer still has become extra records.
fn dhcp(ctx: &Context, key: &Key) -> Address {
    Address {
        allocated: AllocatedAddress {
            ip: Some(keys::DHCP_ADDRESS.to_owned()),
            ..AllocatedAddress::default()
        },
        load_balancer_ip: keys::DHCP_ADDRESS.to_owned(),
        extra_records: ctx.index.withdraw_from_pools(key),
        address_conflict: None,
        out_of_pool: false,
    }
}
