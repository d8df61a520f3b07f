//! The status of a load balancer after the steps of its plan, and when it is planned again.

use harvester_lb_api::{WorkloadType, keys, meta};
use harvester_lb_ipam::addr;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::backends::{self, DiscoveredBackends};
use crate::cached::VmiState;
use crate::details::{self, BackendHealth, DetailCondition};
use crate::plan::applied::{Applied, Conclusion, Verdict};
use crate::plan::goal::{Address, Keep, Origin};
use crate::plan::health::{Health, Paced, Served};
use crate::plan::step::Next;
use crate::plan::view::{Secondary, Sharing, View};
use crate::readiness::{self, ReadinessInput};
use crate::sharing::{self, group};
use crate::spec::VmSpec;
use crate::status::{self, ExtraCondition, FieldUpdate, Readiness, StatusUpdate};

/// How the status follows from what was applied.
#[derive(Debug)]
pub(super) enum Report<'a> {
    /// It does not depend on that.
    Fixed(Box<StatusUpdate>, Next),
    /// The status of a load balancer that stays as it is, with the health of these backends if their write succeeded.
    Kept(&'a Keep, Option<Served>),
    /// A name that another owner has: this status, unless the deletion of our other object is refused.
    Taken {
        vm: &'a VmSpec,
        address: &'a Address,
        status: Box<StatusUpdate>,
    },
    /// A primary that gets none of its ports: its address is announced for those that share it (SHR-2).
    Contested {
        vm: &'a VmSpec,
        address: &'a Address,
        readiness: Readiness,
    },
    /// From the Service and these backends.
    Served {
        vm: &'a VmSpec,
        address: &'a Address,
        served: Served,
        /// Why the API server refuses something of a primary that no step brings.
        refused: Option<String>,
    },
    /// None is written.
    None(Next),
}

impl Report<'_> {
    pub(super) fn fixed(status: StatusUpdate, next: Next) -> Self {
        Self::Fixed(Box::new(status), next)
    }

    pub(super) fn conclude(self, view: &View<'_>, applied: &Applied<'_>) -> Conclusion {
        match self {
            Self::None(next) => Conclusion { status: None, next },
            Self::Fixed(status, next) => Conclusion {
                status: Some(*status),
                next,
            },
            Self::Kept(keep, served) => Conclusion {
                status: kept(
                    view,
                    keep,
                    served.as_ref().filter(|_| !applied.is_incomplete),
                    applied,
                ),
                next: keep.next.clone(),
            },
            Self::Taken {
                vm,
                address,
                status,
            } => Conclusion {
                status: Some(match applied.refused {
                    Some(why) => refused(view, vm, address, why),
                    None => *status,
                }),
                next: Next::Backoff,
            },
            Self::Contested {
                vm,
                address,
                readiness,
            } => contested(view, vm, address, readiness, applied),
            Self::Served {
                vm,
                address,
                served,
                refused,
            } => self::served(view, vm, address, &served, refused.as_deref(), applied),
        }
    }
}

/// The status of a load balancer that stays as it is: everything stays except for its readiness, the health of its endpoints, and what
/// is said of an address that it shares.
fn kept(
    view: &View<'_>,
    keep: &Keep,
    served: Option<&Served>,
    applied: &Applied<'_>,
) -> Option<StatusUpdate> {
    let mut update = keep.status.clone()?;
    if let Some(address) = &keep.shared {
        update.allocated = FieldUpdate::Set(Some(address.allocated.clone()));
        update
            .extras
            .extend(readiness::of_address(Some(address.present())));
        update.details = match view.lb.spec.workload() {
            WorkloadType::Vm => {
                let carries =
                    |service: &&Service| !group::carried(Some(service), applied.slice).is_empty();
                let service = applied.service.filter(carries);
                update.address = FieldUpdate::Set(service.and_then(readiness::external_ip));
                announcement(service, address)
            }
            // The guest writes the others (REC-1).
            WorkloadType::Cluster => vec![allocated(address, None)],
        };
    }
    if let Some(served) = served.filter(|_| keep.tells_health) {
        let before = status::conditions(view.lb);
        // Before others, as they are written in this order.
        let health = served.condition(before);
        let health = health.unwrap_or_else(details::without_endpoints);
        update.details.insert(0, health);
        update.verdicts_changed = served.changed;
    }
    Some(update)
}

fn served(
    view: &View<'_>,
    vm: &VmSpec,
    address: &Address,
    served: &Served,
    refused: Option<&str>,
    applied: &Applied<'_>,
) -> Conclusion {
    let undecodable = view.objects.service.and_then(|it| it.undecodable.as_ref());
    let undecodable = undecodable
        .map(|why| format!("the Service cannot be decoded, correct it or delete it: {why}"));
    if let Some(why) = applied.refused.or(undecodable.as_deref()) {
        return Conclusion {
            status: Some(self::refused(view, vm, address, why)),
            next: Next::Backoff,
        };
    }
    let service = applied
        .service
        .filter(|service| is_carried(view, vm, service, applied.slice));
    if let (None, Sharing::Secondary(with)) = (service, &view.sharing) {
        return Conclusion {
            status: Some(joining(view, vm, address, with)),
            next: Next::Resync,
        };
    }
    let external = service.and_then(readiness::external_ip);
    let before = status::conditions(view.lb);
    let readiness = || {
        readiness::readiness(&ReadinessInput {
            key: view.objects.key,
            vm,
            found: &view.found,
            wanted: &address.load_balancer_ip,
            external: external.as_deref(),
            healthy: served.healthy(),
            probed: served.probed(),
            before,
        })
    };
    let readiness = refusal(view, refused).unwrap_or_else(readiness);
    let next = match applied.recreate_in {
        Some(left) => Next::After(left),
        None if readiness.is_ready() => Next::AwaitChange,
        None => Next::Resync,
    };
    let mut details = announcement(service, address);
    let health = served.condition(before);
    details.extend(health.or_else(|| no_backends(view)));
    let status = StatusUpdate {
        address: FieldUpdate::Set(external),
        details,
        verdicts_changed: served.changed,
        ..of_vm(view, vm, address, readiness)
    };
    Conclusion {
        status: Some(status),
        next,
    }
}

fn contested(
    view: &View<'_>,
    vm: &VmSpec,
    address: &Address,
    readiness: Readiness,
    applied: &Applied<'_>,
) -> Conclusion {
    if let Some(why) = applied.refused {
        return Conclusion {
            status: Some(refused(view, vm, address, why)),
            next: Next::Backoff,
        };
    }
    let mut details = announcement(applied.service, address);
    details.push(details::without_endpoints());
    let status = StatusUpdate {
        address: FieldUpdate::Set(applied.service.and_then(readiness::external_ip)),
        details,
        ..of_vm(view, vm, address, readiness)
    };
    Conclusion {
        status: Some(status),
        next: applied.recreate_in.map_or(Next::AwaitChange, Next::After),
    }
}

/// What the conditions say of the address and its announcement.
fn announcement(service: Option<&Service>, address: &Address) -> Vec<DetailCondition> {
    let external = service.and_then(readiness::external_ip);
    let is_other = service.is_some_and(|service| shows_other_address(service, address));
    let ip = &address.load_balancer_ip;
    vec![
        allocated(address, external.as_deref()),
        details::announced(external.as_deref(), ip, is_other),
    ]
}

/// Whether a Service has a port of the load balancer with this EndpointSlice: one that is shared gets those of a secondary under
/// another key.
fn is_carried(
    view: &View<'_>,
    vm: &VmSpec,
    service: &Service,
    slice: Option<&EndpointSlice>,
) -> bool {
    match view.sharing {
        Sharing::Alone | Sharing::Primary(_) => true,
        Sharing::Secondary(_) => sharing::service::carries(Some(service), slice, &vm.ports),
    }
}

/// What one that shares a Service is told if the API server refuses something of it (SHR-3). `of_primary`: of the primary.
fn refusal(view: &View<'_>, of_primary: Option<&str>) -> Option<Readiness> {
    let (reason, message) = match &view.sharing {
        Sharing::Alone => return None,
        Sharing::Primary(_) => (status::API_ERROR, service_refused(view, of_primary?)),
        Sharing::Secondary(with) => {
            let why = with.refused.as_deref()?;
            sharing::telling::ports_to_come(with.group, Some(why))
        }
    };
    Some(Readiness::not(reason, message))
}

/// The status of a secondary of which the Service has no port yet.
fn joining(view: &View<'_>, vm: &VmSpec, address: &Address, with: &Secondary<'_>) -> StatusUpdate {
    let (reason, message) = sharing::telling::ports_to_come(with.group, with.refused.as_deref());
    StatusUpdate {
        address: FieldUpdate::Set(None),
        details: first_details(view, vm, address),
        ..of_vm(view, vm, address, Readiness::not(reason, message))
    }
}

/// The status after a refused write. That changes nothing: an existing Service continues to work.
fn refused(view: &View<'_>, vm: &VmSpec, address: &Address, why: &str) -> StatusUpdate {
    let message = service_refused(view, why);
    of_vm(
        view,
        vm,
        address,
        Readiness::not(status::API_ERROR, message),
    )
}

fn service_refused(view: &View<'_>, why: &str) -> String {
    format!("Service or EndpointSlice {}: {why}", view.objects.key)
}

/// What the status of a load balancer of VM type with an address says in any case.
pub(super) fn of_vm(
    view: &View<'_>,
    vm: &VmSpec,
    address: &Address,
    readiness: Readiness,
) -> StatusUpdate {
    let mut extras = extras(address, &view.found);
    extras.push(readiness::port_mismatch(Some(vm)));
    extras.push(view.annotations.condition());
    StatusUpdate {
        allocated: FieldUpdate::Set(Some(address.allocated.clone())),
        backend_servers: servers(view),
        extras,
        ..StatusUpdate::only(readiness)
    }
}

/// The status of one that cannot have a Service (SVC-1).
pub(super) fn without_service(
    view: &View<'_>,
    vm: &VmSpec,
    address: &Address,
    readiness: Readiness,
) -> StatusUpdate {
    let mut details = vec![allocated(address, None)];
    details.extend(details::without_service(readiness.reason));
    StatusUpdate {
        address: FieldUpdate::Set(None),
        details,
        ..of_vm(view, vm, address, readiness)
    }
}

/// The status that commits an address before the Service has it (IPA-6). The same write says whose address it is (SHR-3), and carries
/// the other known fields, so that the next write is that of the external address.
pub(super) fn commitment(view: &View<'_>, vm: &VmSpec, address: &Address) -> StatusUpdate {
    if let Sharing::Secondary(with) = &view.sharing
        && !with
            .service
            .is_some_and(|service| is_carried(view, vm, service, view.objects.slice))
    {
        return joining(view, vm, address, with);
    }
    let waiting = || readiness::waiting_for_external_ip(&address.load_balancer_ip);
    let readiness = refusal(view, None).unwrap_or_else(waiting);
    StatusUpdate {
        details: first_details(view, vm, address),
        ..of_vm(view, vm, address, readiness)
    }
}

/// The detail conditions in the write that commits an address. Those of a new load balancer are still right after both objects
/// are created, and so cause no write.
fn first_details(view: &View<'_>, vm: &VmSpec, address: &Address) -> Vec<DetailCondition> {
    let mut all = vec![
        allocated(address, None),
        details::announced(None, &address.load_balancer_ip, false),
    ];
    // The readiness of existing endpoints is known only after the EndpointSlice is written.
    if view.objects.slice.is_none() {
        let is_checked = vm.check.is_some();
        let found = &view.found.backends;
        let states = found.iter().map(|b| (b.state, !is_checked));
        let ready = backends::ready(&states.collect::<Vec<(VmiState, bool)>>());
        let health = found.iter().zip(ready);
        let health: Vec<BackendHealth<'_>> = health
            .map(|(backend, ready)| BackendHealth::new(backend, ready, None))
            .collect();
        let healthy = || details::backends_healthy(&health, is_checked, &[]);
        all.push(no_backends(view).unwrap_or_else(healthy));
    }
    all
}

/// `status.backendServers`.
fn servers(view: &View<'_>) -> FieldUpdate<Vec<String>> {
    let all = view.found.backends.iter();
    let all: Vec<String> = all.map(|b| b.address.to_string()).collect();
    FieldUpdate::Set((!all.is_empty()).then_some(all))
}

/// The conditions besides `Ready` of a load balancer with an address.
pub(super) fn extras(address: &Address, found: &DiscoveredBackends) -> Vec<ExtraCondition> {
    readiness::extras(
        address.address_conflict.as_ref(),
        Some(address.present()),
        found,
    )
}

/// `AddressAllocated` of a load balancer with an address. `leased`: the ingress address of its Service, for DHCP.
pub(super) fn allocated(address: &Address, leased: Option<&str>) -> DetailCondition {
    match address.origin {
        Origin::KubeVip { .. } => return details::allocated_by_dhcp(leased),
        Origin::Lease(_) => return details::allocated_by_dhcp(Some(&address.load_balancer_ip)),
        Origin::Pool => {}
    }
    let pool = address.allocated.ip_pool.as_deref().unwrap_or_default();
    details::allocated_from_pool(&address.load_balancer_ip, pool)
}

/// `BackendsHealthy` of a load balancer without a backend; `None` if it has one.
fn no_backends(view: &View<'_>) -> Option<DetailCondition> {
    let none = readiness::no_backends(view.objects.key, &view.found)?;
    Some(details::no_backends(none.reason, &none.message))
}

/// Whether kube-vip announces another address than the allocated one, or none, without a request for it.
pub fn shows_other_address(service: &Service, address: &Address) -> bool {
    // A user may request another address from kube-vip by annotation, and a DHCP server chooses its own.
    let may_differ = address.is_by_dhcp()
        || meta::annotation(&service.metadata, keys::ANNOTATION_KUBE_VIP_ADDRESSES).is_some();
    let external = readiness::external_ip(service).and_then(|ip| addr::parse(&ip));
    !may_differ && external != addr::parse(&address.load_balancer_ip)
}

/// The verdicts that a write of the EndpointSlice brings.
pub(super) fn verdicts(health: &Health, paced: &Paced) -> Vec<Verdict> {
    let changed = health.changed(&paced.backends);
    let verdict = |(backend, ready): &(backends::Backend, bool)| Verdict {
        name: backend.name.clone(),
        address: backend.address,
        is_ready: *ready,
    };
    changed.map(verdict).collect()
}
