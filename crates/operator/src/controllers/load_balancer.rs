//! The reconcile of one load balancer (section 8.1): its address, its Service and EndpointSlice, its health check, its
//! status. Each step writes only what differs, so a load balancer at rest causes no request at all (REC-5).
//!
//! The order is the contract's: the record reserves the address, the status commits it, the EndpointSlice and then the
//! Service follow (IPA-6, REC-3), so that no address is ever announced that is not recorded, or without its endpoints.

pub mod allocate;
pub mod owned_objects;
pub mod release;
pub mod spacing;
pub mod write_status;

use std::time::Duration;

use harvester_lb_api::{AllocatedAddress, Ipam, LoadBalancer, keys, meta};
use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::backends::Found;
use harvester_lb_core::cached::{self, Lb};
use harvester_lb_core::readiness::{self, Facts};
use harvester_lb_core::spec::{self, Checked, Source, VmSpec};
use harvester_lb_core::status::{self, Field, Readiness, Report};
use harvester_lb_core::unsupported::Unsupported;
use harvester_lb_ipam::{Lost, Record, WaitReason, addr};
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::time::Instant;
use tracing::{debug, info};

use self::allocate::Acquired;
use self::owned_objects::{Checking, Children, Committed};
use crate::context::Context;
use crate::controllers::invalid_object;
use crate::controllers::load_balancer::write_status::{drop_finalizers, write_status};

/// An address for a load balancer, whatever its source.
struct Address {
    allocated: AllocatedAddress,
    load_balancer_ip: String,
    surplus: Vec<Record>,
    lost: Option<Lost>,
    out_of_pool: bool,
}

/// Reconciles the load balancer of that name, or what one of that name has left behind.
pub async fn reconcile(ctx: &Context, key: &Key) -> Result<Requeue, WriteError> {
    let Some(lb) = ctx.index.stores.lbs.get(key) else {
        return release::departed(ctx, key).await;
    };
    ctx.index.with_leader(|leader| leader.followers.remove(key));
    match &*lb {
        Lb::Invalid(meta, error) => {
            ctx.index
                .with_leader(|leader| leader.ledger.dequeue(&cached::id(key)));
            let followed = if meta.deletion_timestamp.is_none() || is_held_up(meta) {
                owned_objects::follow(ctx, key, meta, Checking::AsItIs).await
            } else {
                Ok(())
            };
            invalid_object::tell::<LoadBalancer>(ctx, key, meta, error).await?;
            followed?;
            Ok(Requeue::AwaitChange)
        }
        Lb::Valid(lb) if lb.metadata.deletion_timestamp.is_some() => {
            let followed = if is_held_up(&lb.metadata) {
                follow(ctx, key, lb).await
            } else {
                Ok(())
            };
            let next = drop_finalizers(ctx, key, lb).await?;
            followed?;
            Ok(next)
        }
        Lb::Valid(lb) => reconcile_valid(ctx, key, lb).await,
    }
}

async fn reconcile_valid(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
) -> Result<Requeue, WriteError> {
    let unsupported = ctx
        .index
        .with_leader(|leader| leader.unsupported.of_lb(&leader.ledger, key, &lb.metadata));
    if let Some(unsupported) = unsupported.flatten() {
        return leave_alone(ctx, key, lb, &unsupported).await;
    }
    let checked = match spec::check(lb) {
        Ok(checked) => checked,
        Err(error) => {
            let followed = follow(ctx, key, lb).await;
            let kept = keep_what_it_has(ctx, key, lb).await;
            // Whatever came of that: its owner is told what is wrong with it (ALC-10).
            let message = format!("LoadBalancer {key}: {error}");
            let report = Report::only(Readiness::not(error.reason(), message));
            write_status(ctx, key, lb, &report).await?;
            return kept.and(followed).map(|()| Requeue::AwaitChange);
        }
    };
    let address = match &checked.source {
        Source::Dhcp => dhcp(ctx, key),
        Source::Pool(request) => match allocate::acquire(ctx, request).await {
            Err(WriteError::Refused(message)) => {
                let followed = follow(ctx, key, lb).await;
                let message = format!("the IPAllocation of {key} cannot be written: {message}");
                let report = Report::only(Readiness::not(status::API_ERROR, message));
                write_status(ctx, key, lb, &report).await?;
                followed?;
                return Ok(Requeue::Backoff);
            }
            Err(other) => return Err(follow_after(ctx, key, lb, other).await),
            Ok(Acquired::Granted {
                grant,
                surplus,
                written,
            }) => {
                let named = request.status.as_ref().map(|status| status.addr);
                if !written && named != Some(grant.addr) {
                    let renewed = allocate::renew(ctx, grant.addr).await;
                    if let Err(error) = renewed {
                        return Err(follow_after(ctx, key, lb, error).await);
                    }
                }
                Address {
                    allocated: allocate::allocated_address(lb, &grant),
                    load_balancer_ip: grant.addr.to_string(),
                    surplus,
                    lost: grant.lost,
                    out_of_pool: grant.out_of_pool,
                }
            }
            Ok(Acquired::Waiting {
                reason,
                message,
                lost,
                surplus,
            }) => {
                let readiness = Readiness::not(reason.as_str(), message);
                if reason == WaitReason::RecordUnreadable {
                    // The address is nobody else's; what serves goes on until the record is repaired.
                    let followed = follow(ctx, key, lb).await;
                    write_status(ctx, key, lb, &Report::only(readiness)).await?;
                    followed?;
                    return Ok(Requeue::Resync);
                }
                return wait(ctx, key, lb, &checked, readiness, lost, surplus).await;
            }
        },
    };
    match &checked.vm {
        None => serve_cluster(ctx, key, lb, address).await,
        Some(_) if is_ipv6(&address.load_balancer_ip) => keep_ipv6(ctx, key, lb, address).await,
        Some(vm) => serve_vm(ctx, key, lb, vm, address).await,
    }
}

/// A load balancer that is not this version's to touch: its readiness is told, and that of its endpoints (IPA-9).
async fn leave_alone(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    unsupported: &Unsupported,
) -> Result<Requeue, WriteError> {
    ctx.index
        .with_leader(|leader| leader.ledger.set_aside(&cached::id(key)));
    let followed = follow(ctx, key, lb).await;
    let message = format!("LoadBalancer {key}: {unsupported}");
    let report = Report::only(Readiness::not(status::UNSUPPORTED_ANNOTATION, message));
    write_status(ctx, key, lb, &report).await?;
    followed.map(|()| Requeue::AwaitChange)
}

fn is_ipv6(address: &str) -> bool {
    addr::parse(address).is_some_and(|address| address.is_ipv6())
}

/// VM type with an IPv6 address, from before it could have none: it keeps the address, what there is of a Service goes on,
/// and nothing is made for it (BE-7).
async fn keep_ipv6(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    address: Address,
) -> Result<Requeue, WriteError> {
    let followed = follow(ctx, key, lb).await;
    let message = format!(
        "{} of pool {} is an IPv6 address, and the endpoints of a load balancer of workload type vm have IPv4 addresses: name a pool with IPv4 addresses",
        address.load_balancer_ip,
        address.allocated.ip_pool.as_deref().unwrap_or_default()
    );
    let report = Report {
        extras: readiness::extras(
            address.lost.as_ref(),
            Some(&address.load_balancer_ip),
            address.out_of_pool,
            &Found::default(),
        ),
        allocated: Field::Set(Some(address.allocated)),
        ..Report::only(Readiness::not(
            WaitReason::AddressFamilyMismatch.as_str(),
            message,
        ))
    };
    write_status(ctx, key, lb, &report).await?;
    release::surplus_of_living(ctx, key, address.surplus).await?;
    followed?;
    Ok(Requeue::AwaitChange)
}

/// Lets the endpoints that are served follow the world (BE-6).
async fn follow(ctx: &Context, key: &Key, lb: &LoadBalancer) -> Result<(), WriteError> {
    let check = spec::health_check(lb).map_or(Checking::AsItIs, Checking::from);
    owned_objects::follow(ctx, key, &lb.metadata, check).await
}

/// As [`follow`], after an error that ends the work: what keeps the record from being written need not keep the
/// EndpointSlice. Answers that error.
async fn follow_after(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    error: WriteError,
) -> WriteError {
    if !matches!(error, WriteError::Fenced)
        && let Err(also) = follow(ctx, key, lb).await
    {
        debug!(lb = %key, error = %also, "its endpoints could not follow");
    }
    error
}

/// Whether an object that is being deleted waits for somebody's finalizer. Those of the garbage collector and those of old
/// keep it for a moment only (FIN-2).
fn is_held_up(meta: &ObjectMeta) -> bool {
    let passing = ["foregroundDeletion", "orphan"];
    let mut all = meta.finalizers.iter().flatten().map(String::as_str);
    all.any(|f| !passing.contains(&f) && !keys::LEGACY_FINALIZERS.contains(&f))
}

/// A load balancer that cannot be served as it is gets no new address and waits for none; what it has stays its own
/// (ALC-10). What an earlier load balancer of its name has left is released.
async fn keep_what_it_has(ctx: &Context, key: &Key, lb: &LoadBalancer) -> Result<(), WriteError> {
    let request = spec::request(lb);
    let further = match lb.spec.address_source() {
        Ipam::Pool => allocate::keep(ctx, &request).await?,
        Ipam::Dhcp => {
            let id = cached::id(key);
            let mut left = ctx
                .index
                .with_leader(|leader| {
                    leader.ledger.withdraw(&id);
                    leader.ledger.records_of(&id)
                })
                .unwrap_or_default();
            left.retain(|record| record.spec.owner != request.owner);
            allocate::earlier_ones_only(ctx, &request, &left).await?;
            left
        }
    };
    release::surplus_of_living(ctx, key, further).await
}

/// DHCP is done by kube-vip (OPS-3); a pool's address that the load balancer may have had is given back.
fn dhcp(ctx: &Context, key: &Key) -> Address {
    let id = cached::id(key);
    let surplus = ctx
        .index
        .with_leader(|leader| {
            leader.ledger.withdraw(&id);
            leader.ledger.records_of(&id)
        })
        .unwrap_or_default();
    Address {
        allocated: AllocatedAddress {
            ip: Some(keys::DHCP_ADDRESS.to_owned()),
            ..AllocatedAddress::default()
        },
        load_balancer_ip: keys::DHCP_ADDRESS.to_owned(),
        surplus,
        lost: None,
        out_of_pool: false,
    }
}

/// There is no address. What the load balancer served before is taken down before its address is given back (REL-4).
async fn wait(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    checked: &Checked,
    readiness: Readiness,
    lost: Option<Lost>,
    surplus: Vec<Record>,
) -> Result<Requeue, WriteError> {
    ctx.prober.remove_group(&key.to_string());
    release::take_down(ctx, key).await?;
    let is_vm = checked.vm.is_some();
    let mut extras = readiness::extras(lost.as_ref(), None, false, &Found::default());
    extras.push(readiness::port_mismatch(checked.vm.as_ref()));
    let report = Report {
        readiness,
        allocated: Field::Set(None),
        // A guest keeps its own address in there (REC-1).
        address: if is_vm { Field::Set(None) } else { Field::Keep },
        backend_servers: if is_vm { Field::Set(None) } else { Field::Keep },
        extras,
    };
    write_status(ctx, key, lb, &report).await?;
    release::surplus_of_living(ctx, key, surplus).await?;
    Ok(Requeue::Resync)
}

/// Cluster type: the address and nothing else (REC-1).
async fn serve_cluster(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    address: Address,
) -> Result<Requeue, WriteError> {
    // There is nothing of the kind, unless it was of VM type before, under this uid (past WV-9) or an earlier one.
    ctx.prober.remove_group(&key.to_string());
    release::take_down(ctx, key).await?;
    let present = lb
        .status
        .as_ref()
        .and_then(|s| s.address.as_deref())
        .unwrap_or_default();
    let from_pool = address.load_balancer_ip != keys::DHCP_ADDRESS;
    let mut extras = readiness::extras(
        address.lost.as_ref(),
        Some(&address.load_balancer_ip),
        address.out_of_pool,
        &Found::default(),
    );
    extras.push(readiness::port_mismatch(None));
    let report = Report {
        readiness: Readiness::ready(),
        address: if from_pool && present.is_empty() {
            Field::Set(Some(address.load_balancer_ip.clone()))
        } else {
            Field::Keep
        },
        backend_servers: Field::Keep,
        extras,
        allocated: Field::Set(Some(address.allocated)),
    };
    write_status(ctx, key, lb, &report).await?;
    release::surplus_of_living(ctx, key, address.surplus).await?;
    Ok(Requeue::AwaitChange)
}

/// VM type: the address, an EndpointSlice, a Service, and the probes.
async fn serve_vm(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    vm: &VmSpec,
    address: Address,
) -> Result<Requeue, WriteError> {
    let found = find_backends(ctx, key, vm);
    let servers: Vec<String> = found
        .backends
        .iter()
        .map(|b| b.address.to_string())
        .collect();
    let servers = Field::Set((!servers.is_empty()).then_some(servers));
    // The status commits the address before anything serves it (IPA-6). What else is known goes along, so that the
    // next write is that of the external address.
    // Mask and gateway commit nothing: where they alone are others than before, the last write brings them along (ALC-9).
    let committed = lb
        .status
        .as_ref()
        .and_then(|s| s.allocated_address.as_ref())
        .and_then(|before| before.ip.as_ref());
    let (lb, committed) = if committed == address.allocated.ip.as_ref() {
        (lb.clone(), Committed::Stored)
    } else {
        let waiting = readiness::waiting_for_external_ip(key, &address.load_balancer_ip);
        let report = Report {
            allocated: Field::Set(Some(address.allocated.clone())),
            backend_servers: servers.clone(),
            extras: vec![readiness::port_mismatch(Some(vm))],
            ..Report::only(waiting)
        };
        let written = write_status(ctx, key, lb, &report).await?;
        (written, Committed::Written)
    };

    let ip = &address.load_balancer_ip;
    let children = owned_objects::ensure(ctx, key, &lb, vm, &found, ip, committed).await;
    let (readiness, external, next) = match children {
        // What the API server refused has changed nothing: a Service that is there goes on.
        Err(WriteError::Refused(message)) => {
            let message = format!("Service or EndpointSlice {key}: {message}");
            let readiness = Readiness::not(status::API_ERROR, message);
            (readiness, Field::Keep, Requeue::Backoff)
        }
        Err(other) => return Err(other),
        Ok(Children::Failed(readiness)) => (readiness, Field::Set(None), Requeue::Backoff),
        Ok(Children::Present {
            service,
            healthy,
            probed,
        }) => {
            let external = readiness::external_ip(&service);
            let stuck = move_is_stuck(ctx, key, &service, &address);
            if stuck == Some(Duration::ZERO) {
                info!(lb = %key, address = address.load_balancer_ip, "the Service still shows the address before, making it anew");
                release::delete_service(ctx, key).await?;
                ctx.index.with_leader(|leader| leader.moving.remove(key));
            }
            let readiness = readiness::readiness(&Facts {
                key,
                vm,
                found: &found,
                wanted: &address.load_balancer_ip,
                external: external.as_deref(),
                healthy,
                probed,
                before: status::conditions(&lb),
            });
            let next = match stuck {
                Some(left) => Requeue::After(left),
                None if readiness.is_ready() => Requeue::AwaitChange,
                None => Requeue::Resync,
            };
            (readiness, Field::Set(external), next)
        }
    };
    let mut extras = readiness::extras(
        address.lost.as_ref(),
        Some(&address.load_balancer_ip),
        address.out_of_pool,
        &found,
    );
    extras.push(readiness::port_mismatch(Some(vm)));
    let report = Report {
        readiness,
        allocated: Field::Set(Some(address.allocated)),
        address: external,
        backend_servers: servers,
        extras,
    };
    write_status(ctx, key, &lb, &report).await?;
    release::surplus_of_living(ctx, key, address.surplus).await?;
    Ok(next)
}

/// The virtual machines behind a load balancer, less those whose address is refused (BE-1, BE-2, BE-8).
fn find_backends(ctx: &Context, key: &Key, vm: &VmSpec) -> Found {
    let mut found = Found::default();
    let vmis = &ctx.index.stores.vmis;
    vmis.visit_namespace(&key.namespace, |name, vmi| {
        found.look_at(&vm.selector, name, vmi);
    });
    found.judge(|address| ctx.index.standing(address));
    for refused in &found.refused {
        // Whose address it is goes to the log alone; the tenant's condition does not name another's object.
        debug!(lb = %key, vmi = %refused.name, address = %refused.address, why = ?refused.why, "an address is not usable as a backend's");
    }
    found
}

/// How long the move to another address may still take (REL-4); `None` if none is under way.
///
/// kube-vip can miss that a Service's address was changed: its election for the Service is restarted with the copy from
/// before, and the old address is announced again and for good. A Service that is made anew it takes as it is.
fn move_is_stuck(
    ctx: &Context,
    key: &Key,
    service: &Service,
    address: &Address,
) -> Option<Duration> {
    let external = readiness::external_ip(service).and_then(|ip| addr::parse(&ip));
    let is_to_leave = address
        .surplus
        .iter()
        .any(|r| external == Some(r.spec.addr));
    // Whoever asked kube-vip for another address gets what was asked for, and a lease is the DHCP server's to choose.
    let may_differ = address.load_balancer_ip == keys::DHCP_ADDRESS
        || meta::annotation(&service.metadata, keys::ANNOTATION_KUBE_VIP_ADDRESSES).is_some();
    let differs = !may_differ && external != addr::parse(&address.load_balancer_ip);
    ctx.index
        .with_leader(|leader| {
            // First announced late, when its record had been released already, an address may be another's by now.
            let is_recorded = || external.is_some_and(|ip| leader.ledger.record(ip).is_some());
            let moving = is_to_leave || (differs && is_recorded());
            if !moving {
                leader.moving.remove(key);
                return None;
            }
            let since = *leader
                .moving
                .entry(key.clone())
                .or_insert_with(Instant::now);
            Some(ctx.timings.move_limit.saturating_sub(since.elapsed()))
        })
        .flatten()
}
