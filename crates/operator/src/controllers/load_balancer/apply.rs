//! Applies the desired Service, EndpointSlice and health checks of a load balancer with an address, or deletes them if it has
//! none, and computes its status.

use std::borrow::Cow;
use std::time::Duration;

use harvester_lb_api::{LoadBalancer, keys};
use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::address_move::{ObservedService, Shown};
use harvester_lb_core::backends::DiscoveredBackends;
use harvester_lb_core::details;
use harvester_lb_core::readiness::{self, ReadinessInput};
use harvester_lb_core::spec::VmSpec;
use harvester_lb_core::status::{self, ExtraCondition, FieldUpdate, Readiness, StatusUpdate};
use harvester_lb_ipam::{Phase, Record, WaitReason, addr};
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;
use tracing::info;

use crate::context::Context;
use crate::controllers::load_balancer::address::{Address, Obtained, Waiting};
use crate::controllers::load_balancer::detail_conditions::{self, allocated, shows_other_address};
use crate::controllers::load_balancer::observe::find_backends;
use crate::controllers::load_balancer::owned_objects::{self, OwnedObjects};
use crate::controllers::load_balancer::release;
use crate::controllers::load_balancer::unserved::{update_endpoints, update_of};
use crate::controllers::load_balancer::write_status::write_status;
use crate::index::leader_ops::ObservedMove;

/// The result of [`apply`], and the remaining steps.
pub struct Applied<'a> {
    /// The load balancer with its newest resource version.
    pub lb: Cow<'a, LoadBalancer>,
    /// The status to write.
    pub report: StatusUpdate,
    /// Records to release after the status write.
    pub extra_records: Vec<Record>,
    /// The requeue, or an error that must not prevent the status write.
    pub next: Result<Requeue, WriteError>,
}

/// Applies the objects of a load balancer. `vm`: the spec of VM type, `None` for cluster type.
pub async fn apply<'a>(
    ctx: &Context,
    key: &Key,
    lb: &'a LoadBalancer,
    vm: Option<&VmSpec>,
    obtained: Obtained,
) -> Result<Applied<'a>, WriteError> {
    match (obtained, vm) {
        (Obtained::Unchanged(readiness, next), _) => {
            let updated = update_endpoints(ctx, key, lb).await;
            Ok(Applied {
                lb: Cow::Borrowed(lb),
                report: update_of(lb, readiness, &updated),
                extra_records: Vec::new(),
                next: updated.map(|_| next),
            })
        }
        (Obtained::Waiting(waiting), vm) => wait(ctx, key, lb, vm, waiting).await,
        (Obtained::Address(address), None) => serve_cluster(ctx, key, lb, address).await,
        (Obtained::Address(address), Some(_)) if is_ipv6(&address.load_balancer_ip) => {
            Ok(keep_ipv6(ctx, key, lb, address).await)
        }
        (Obtained::Address(address), Some(vm)) => serve_vm(ctx, key, lb, vm, address).await,
    }
}

fn is_ipv6(address: &str) -> bool {
    addr::parse(address).is_some_and(|address| address.is_ipv6())
}

/// The conditions besides `Ready` of a load balancer with an address.
fn extras(address: &Address, found: &DiscoveredBackends) -> Vec<ExtraCondition> {
    readiness::extras(
        address.address_conflict.as_ref(),
        Some(&address.load_balancer_ip),
        address.out_of_pool,
        found,
    )
}

/// VM type with an IPv6 address of an earlier version: it keeps the address and an existing Service, and nothing is created
/// (BE-7).
async fn keep_ipv6<'a>(
    ctx: &Context,
    key: &Key,
    lb: &'a LoadBalancer,
    address: Address,
) -> Applied<'a> {
    let updated = update_endpoints(ctx, key, lb).await;
    let message = format!(
        "{} of pool {} is an IPv6 address, and the endpoints of a load balancer of workload type vm have IPv4 addresses: name a pool with IPv4 addresses",
        address.load_balancer_ip,
        address.allocated.ip_pool.as_deref().unwrap_or_default()
    );
    let readiness = Readiness::not(WaitReason::AddressFamilyMismatch.as_str(), message);
    let mut report = update_of(lb, readiness, &updated);
    report.extras = extras(&address, &DiscoveredBackends::default());
    report.details.push(allocated(&address, None));
    report.allocated = FieldUpdate::Set(Some(address.allocated));
    Applied {
        lb: Cow::Borrowed(lb),
        report,
        extra_records: address.extra_records,
        next: updated.map(|_| Requeue::AwaitChange),
    }
}

/// No address. The Service and EndpointSlice are deleted before the old address is released (REL-4).
async fn wait<'a>(
    ctx: &Context,
    key: &Key,
    lb: &'a LoadBalancer,
    vm: Option<&VmSpec>,
    waiting: Waiting,
) -> Result<Applied<'a>, WriteError> {
    release::delete_owned_of(ctx, key, lb, waiting.pool.as_ref()).await?;
    let is_vm = vm.is_some();
    let mut extras = readiness::extras(
        waiting.address_conflict.as_ref(),
        None,
        false,
        &DiscoveredBackends::default(),
    );
    extras.push(readiness::port_mismatch(vm));
    let report = StatusUpdate {
        details: details::waiting(waiting.readiness.reason),
        verdicts_changed: false,
        readiness: waiting.readiness,
        allocated: FieldUpdate::Set(None),
        // For cluster type the guest writes `status.address` (REC-1).
        address: if is_vm {
            FieldUpdate::Set(None)
        } else {
            FieldUpdate::Unchanged
        },
        backend_servers: if is_vm {
            FieldUpdate::Set(None)
        } else {
            FieldUpdate::Unchanged
        },
        extras,
    };
    Ok(Applied {
        lb: Cow::Borrowed(lb),
        report,
        extra_records: waiting.extra_records,
        next: Ok(Requeue::Resync),
    })
}

/// Cluster type: the address and nothing else (REC-1).
async fn serve_cluster<'a>(
    ctx: &Context,
    key: &Key,
    lb: &'a LoadBalancer,
    address: Address,
) -> Result<Applied<'a>, WriteError> {
    // Such objects exist only if it was of VM type before, with this uid (despite WV-9) or an earlier one.
    release::delete_owned_of(ctx, key, lb, None).await?;
    let present = lb
        .status
        .as_ref()
        .and_then(|s| s.address.as_deref())
        .unwrap_or_default();
    let from_pool = address.load_balancer_ip != keys::DHCP_ADDRESS;
    let mut extras = extras(&address, &DiscoveredBackends::default());
    extras.push(readiness::port_mismatch(None));
    let report = StatusUpdate {
        details: details::of_cluster(detail_conditions::allocated_to_cluster(&address)),
        verdicts_changed: false,
        readiness: Readiness::ready(),
        address: if from_pool && present.is_empty() {
            FieldUpdate::Set(Some(address.load_balancer_ip.clone()))
        } else {
            FieldUpdate::Unchanged
        },
        backend_servers: FieldUpdate::Unchanged,
        extras,
        allocated: FieldUpdate::Set(Some(address.allocated)),
    };
    Ok(Applied {
        lb: Cow::Borrowed(lb),
        report,
        extra_records: address.extra_records,
        next: Ok(Requeue::AwaitChange),
    })
}

/// VM type: the address, an EndpointSlice, a Service and health checks. A change of only mask or gateway is one write (ALC-9).
async fn serve_vm<'a>(
    ctx: &Context,
    key: &Key,
    lb: &'a LoadBalancer,
    vm: &VmSpec,
    address: Address,
) -> Result<Applied<'a>, WriteError> {
    let found = find_backends(ctx, key, vm);
    let servers: Vec<String> = found
        .backends
        .iter()
        .map(|b| b.address.to_string())
        .collect();
    let servers = FieldUpdate::Set((!servers.is_empty()).then_some(servers));
    // The status commits the address before the Service has it (IPA-6). The same write carries the other known fields, so
    // that the next write is that of the external address.
    // Mask and gateway commit nothing: if only they change, the last status write carries them (ALC-9).
    let committed = lb
        .status
        .as_ref()
        .and_then(|s| s.allocated_address.as_ref())
        .and_then(|before| before.ip.as_ref());
    let lb = if committed == address.allocated.ip.as_ref() {
        Cow::Borrowed(lb)
    } else {
        let waiting = readiness::waiting_for_external_ip(&address.load_balancer_ip);
        let report = StatusUpdate {
            allocated: FieldUpdate::Set(Some(address.allocated.clone())),
            backend_servers: servers.clone(),
            extras: vec![readiness::port_mismatch(Some(vm))],
            details: detail_conditions::first(ctx, key, vm, &found, &address),
            ..StatusUpdate::only(waiting)
        };
        Cow::Owned(write_status(ctx, key, lb, &report).await?)
    };

    let ip = &address.load_balancer_ip;
    let owned = owned_objects::ensure(ctx, key, &lb, vm, &found, ip).await;
    let (mut details, mut verdicts_changed) = (Vec::new(), false);
    let (readiness, external, next) = match owned {
        // A refused write changes nothing: an existing Service continues to work.
        Err(WriteError::Refused(message)) => {
            let message = format!("Service or EndpointSlice {key}: {message}");
            let readiness = Readiness::not(status::API_ERROR, message);
            (readiness, FieldUpdate::Unchanged, Requeue::Backoff)
        }
        Err(other) => return Err(other),
        Ok(OwnedObjects::Failed(readiness)) => {
            details.push(allocated(&address, None));
            details.extend(details::without_service(readiness.reason));
            (readiness, FieldUpdate::Set(None), Requeue::Backoff)
        }
        Ok(OwnedObjects::Present { service, backends }) => {
            let external = readiness::external_ip(&service);
            detail_conditions::note_announcing_node(ctx, key, &lb, &service);
            let ObservedMove {
                remaining, history, ..
            } = observe_move(ctx, key, &service, &address);
            if remaining == Some(Duration::ZERO) {
                info!(lb = %key, address = address.load_balancer_ip, ?history, "Service still shows the previous address, recreating it");
                release::delete_service(ctx, key).await?;
                ctx.index.moved_service_deleted(key);
            }
            let readiness = readiness::readiness(&ReadinessInput {
                key,
                vm,
                found: &found,
                wanted: &address.load_balancer_ip,
                external: external.as_deref(),
                healthy: backends.healthy(),
                probed: backends.probed(),
                before: status::conditions(&lb),
            });
            let is_other = shows_other_address(&service, &address);
            let of_backends = backends.condition(status::conditions(&lb));
            verdicts_changed = backends.verdicts_changed;
            details.push(allocated(&address, external.as_deref()));
            details.push(details::announced(external.as_deref(), ip, is_other));
            details.extend(of_backends.or_else(|| detail_conditions::no_backends(key, &found)));
            let next = match remaining {
                Some(left) => Requeue::After(left),
                None if readiness.is_ready() => Requeue::AwaitChange,
                None => Requeue::Resync,
            };
            (readiness, FieldUpdate::Set(external), next)
        }
    };
    let mut extras = extras(&address, &found);
    extras.push(readiness::port_mismatch(Some(vm)));
    let report = StatusUpdate {
        readiness,
        allocated: FieldUpdate::Set(Some(address.allocated)),
        address: external,
        backend_servers: servers,
        extras,
        details,
        verdicts_changed,
    };
    Ok(Applied {
        lb,
        report,
        extra_records: address.extra_records,
        next: Ok(next),
    })
}

/// Updates the move of a Service to another address (REL-4).
///
/// kube-vip can miss a change of a Service's address, and some versions ignore each. Recreating the Service helps.
fn observe_move(ctx: &Context, key: &Key, service: &Service, address: &Address) -> ObservedMove {
    let observed = ObservedService {
        uid: service.metadata.uid.as_deref().unwrap_or_default(),
        desired: &address.load_balancer_ip,
        shown: shown(ctx, service, address),
    };
    let limits = ctx.timings.move_limits();
    let observed = ctx.index.observe_move(key, &observed, &limits);
    if let Some(outcome) = observed.outcome {
        let history = observed.history;
        info!(lb = %key, ?outcome, ?history, "kube-vip announces the changed address");
    }
    observed
}

/// The address that a Service shows, compared with the desired one.
fn shown(ctx: &Context, service: &Service, address: &Address) -> Shown {
    let Some(external) = readiness::external_ip(service).and_then(|ip| addr::parse(&ip)) else {
        return Shown::Nothing;
    };
    let is_to_leave = address
        .extra_records
        .iter()
        .any(|r| r.spec.phase == Phase::Bound && r.spec.addr == external);
    // An address announced only after the release of its record may have another owner by now.
    if is_to_leave || shows_other_address(service, address) && ctx.index.record(external).is_some()
    {
        Shown::Previous
    } else if addr::parse(&address.load_balancer_ip) == Some(external) {
        Shown::Desired
    } else {
        Shown::Other
    }
}
