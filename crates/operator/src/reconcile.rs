//! The reconcile of one load balancer (section 8.1): its address, its Service and EndpointSlice, its health check, its
//! status. Each step writes only what differs, so a load balancer at rest causes no request at all (REC-5).
//!
//! The order is the contract's: the record reserves the address, the status commits it, the EndpointSlice and then the
//! Service follow (IPA-6, REC-3), so that no address is ever announced that is not recorded, or without its endpoints.

use std::sync::Arc;
use std::time::{Duration, Instant};

use harvester_lb_api::{AllocatedAddress, LoadBalancer, keys};
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_controller_kit::{Key, Version, merge};
use harvester_lb_ipam::{Lost, Record};
use harvester_lb_prober::{GroupId, Target};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::CustomResourceExt;
use serde::Serialize;
use serde_json::{Value, json};
use tracing::{debug, info};

use crate::address::{self, Acquired};
use crate::backends::{self, Backend, Found};
use crate::build::{self, Ownership};
use crate::hub::Hub;
use crate::objects::{self, Lb};
use crate::release;
use crate::spec::{self, Source, VmSpec};
use crate::status::{self, Extra, Field, Readiness, Report};
use crate::{time, undecodable};

/// Time between two looks at a load balancer that waits for something, should an event ever be missed (SEL-7).
const RECHECK: Duration = Duration::from_secs(30);

/// Time that kube-vip is given to leave an address for another one. It takes a second when all goes well.
const MOVE_LIMIT: Duration = Duration::from_secs(8);

/// When to look again, if no event comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing is waited for.
    Event,
    /// Something is waited for.
    Recheck,
    /// Something is given so much time.
    After(Duration),
    /// Something went wrong that may go away by itself.
    Backoff,
}

impl Next {
    /// The delay of a recheck, jittered so that those that began to wait together do not come back together.
    pub fn recheck_delay() -> Duration {
        RECHECK.mul_f64(0.8 + 0.4 * fastrand::f64())
    }
}

/// An address for a load balancer, whatever its source.
struct Address {
    allocated: AllocatedAddress,
    load_balancer_ip: String,
    surplus: Vec<Record>,
    lost: Option<Lost>,
    out_of_pool: bool,
}

/// Reconciles the load balancer of that name, or what one of that name has left behind.
pub async fn reconcile(hub: &Hub, key: &Key) -> Result<Next, WriteError> {
    let Some(lb) = hub.stores.lbs.get(key) else {
        return release::departed(hub, key).await;
    };
    match &*lb {
        Lb::Invalid(meta, error) => {
            undecodable::tell(hub, &LoadBalancer::api_resource(), key, meta, error).await?;
            Ok(Next::Event)
        }
        Lb::Valid(lb) if lb.metadata.deletion_timestamp.is_some() => {
            drop_finalizers(hub, key, lb).await
        }
        Lb::Valid(lb) => reconcile_valid(hub, key, lb).await,
    }
}

async fn reconcile_valid(hub: &Hub, key: &Key, lb: &LoadBalancer) -> Result<Next, WriteError> {
    let checked = match spec::check(lb) {
        Ok(checked) => checked,
        Err(error) => {
            let holds = lb
                .status
                .as_ref()
                .is_some_and(|s| s.allocated_address.is_some());
            if !holds {
                hub.lead(|lead| lead.ledger.withdraw(&objects::id(key)));
            }
            let message = format!("LoadBalancer {key}: {error}");
            let report = Report::only(Readiness::not(error.reason(), message));
            write_status(hub, key, lb, &report).await?;
            return Ok(Next::Event);
        }
    };
    let address = match &checked.source {
        Source::Dhcp => dhcp(hub, key),
        Source::Pool(request) => match address::acquire(hub, request).await {
            Err(WriteError::Refused(message)) => {
                let message = format!("the IPAllocation of {key} cannot be written: {message}");
                let report = Report::only(Readiness::not(status::API_ERROR, message));
                write_status(hub, key, lb, &report).await?;
                return Ok(Next::Backoff);
            }
            Err(other) => return Err(other),
            Ok(Acquired::Granted { grant, surplus }) => Address {
                allocated: address::allocated_address(lb, &grant),
                load_balancer_ip: grant.addr.to_string(),
                surplus,
                lost: grant.lost,
                out_of_pool: grant.out_of_pool,
            },
            Ok(Acquired::Waiting {
                reason,
                message,
                lost,
                surplus,
            }) => {
                return wait(hub, key, lb, Readiness::not(reason, message), lost, surplus).await;
            }
        },
    };
    match &checked.vm {
        None => serve_cluster(hub, key, lb, address).await,
        Some(vm) => serve_vm(hub, key, lb, vm, address).await,
    }
}

/// DHCP is done by kube-vip (OPS-3); a pool's address that the load balancer may have had is given back.
fn dhcp(hub: &Hub, key: &Key) -> Address {
    let id = objects::id(key);
    let surplus = hub
        .lead(|lead| {
            lead.ledger.withdraw(&id);
            lead.ledger.records_of(&id)
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
    hub: &Hub,
    key: &Key,
    lb: &LoadBalancer,
    readiness: Readiness,
    lost: Option<Lost>,
    surplus: Vec<Record>,
) -> Result<Next, WriteError> {
    hub.prober.remove_group(&key.to_string());
    release::take_down(hub, key).await?;
    let is_vm = lb.spec.workload() == harvester_lb_api::WorkloadType::Vm;
    let report = Report {
        readiness,
        allocated: Field::Set(None),
        // A guest keeps its own address in there (REC-1).
        address: if is_vm { Field::Set(None) } else { Field::Keep },
        backend_servers: if is_vm { Field::Set(None) } else { Field::Keep },
        extras: extras(lost.as_ref(), None, false, 0),
    };
    write_status(hub, key, lb, &report).await?;
    release::surplus(hub, key, surplus).await?;
    Ok(Next::Recheck)
}

/// Cluster type: the address and nothing else (REC-1).
async fn serve_cluster(
    hub: &Hub,
    key: &Key,
    lb: &LoadBalancer,
    address: Address,
) -> Result<Next, WriteError> {
    let present = lb
        .status
        .as_ref()
        .and_then(|s| s.address.as_deref())
        .unwrap_or_default();
    let from_pool = address.load_balancer_ip != keys::DHCP_ADDRESS;
    let report = Report {
        readiness: Readiness::ready(),
        address: if from_pool && present.is_empty() {
            Field::Set(Some(address.load_balancer_ip.clone()))
        } else {
            Field::Keep
        },
        backend_servers: Field::Keep,
        extras: extras(
            address.lost.as_ref(),
            Some(&address.load_balancer_ip),
            address.out_of_pool,
            0,
        ),
        allocated: Field::Set(Some(address.allocated)),
    };
    write_status(hub, key, lb, &report).await?;
    release::surplus(hub, key, address.surplus).await?;
    Ok(Next::Event)
}

/// VM type: the address, an EndpointSlice, a Service, and the probes.
async fn serve_vm(
    hub: &Hub,
    key: &Key,
    lb: &LoadBalancer,
    vm: &VmSpec,
    address: Address,
) -> Result<Next, WriteError> {
    let found = backends::find(&vm.selector, &hub.stores.vmis.in_namespace(&key.namespace));
    let servers: Vec<String> = found
        .backends
        .iter()
        .map(|b| b.address.to_string())
        .collect();
    let servers = Field::Set((!servers.is_empty()).then_some(servers));
    // The status commits the address before anything serves it (IPA-6). What else is known goes along, so that the
    // next write is that of the external address.
    let committed = lb
        .status
        .as_ref()
        .and_then(|s| s.allocated_address.as_ref());
    let committed = committed == Some(&address.allocated);
    let lb = if committed {
        lb.clone()
    } else {
        let waiting = waiting_for_external_ip(key, &address.load_balancer_ip);
        let report = Report {
            allocated: Field::Set(Some(address.allocated.clone())),
            backend_servers: servers.clone(),
            ..Report::only(waiting)
        };
        write_status(hub, key, lb, &report).await?
    };

    let children = match ensure_children(hub, key, &lb, vm, &found, &address.load_balancer_ip).await
    {
        Err(WriteError::Refused(message)) => Children::Failed(Readiness::not(
            status::API_ERROR,
            format!("Service or EndpointSlice {key}: {message}"),
        )),
        other => other?,
    };
    let (readiness, external, next) = match children {
        Children::Failed(readiness) => (readiness, None, Next::Backoff),
        Children::Present { service, healthy } => {
            let external = external_ip(&service);
            let stuck = move_is_stuck(hub, key, external.as_deref(), &address.surplus);
            if stuck == Some(Duration::ZERO) {
                info!(lb = %key, address = address.load_balancer_ip, "the Service still shows the address before, making it anew");
                release::take_down(hub, key).await?;
            }
            let readiness = judge(key, vm, &found, external.as_deref(), healthy, &address);
            let next = match stuck {
                Some(left) => Next::After(left),
                None if readiness.is_ready() => Next::Event,
                None => Next::Recheck,
            };
            (readiness, external, next)
        }
    };
    let report = Report {
        readiness,
        allocated: Field::Keep,
        address: Field::Set(external),
        backend_servers: servers,
        extras: extras(
            address.lost.as_ref(),
            Some(&address.load_balancer_ip),
            address.out_of_pool,
            found.left_out,
        ),
    };
    write_status(hub, key, &lb, &report).await?;
    release::surplus(hub, key, address.surplus).await?;
    Ok(next)
}

/// How long the move to another address may still take (REL-4); `None` if none is under way.
///
/// kube-vip can miss that a Service's address was changed: its election for the Service is restarted with the copy from
/// before, and the old address is announced again and for good. A Service that is made anew it takes as it is.
fn move_is_stuck(
    hub: &Hub,
    key: &Key,
    external: Option<&str>,
    surplus: &[Record],
) -> Option<Duration> {
    let moving = external.is_some_and(|ip| surplus.iter().any(|r| r.spec.addr.to_string() == ip));
    hub.lead(|lead| {
        if !moving {
            lead.moving.remove(key);
            return None;
        }
        let since = *lead.moving.entry(key.clone()).or_insert_with(Instant::now);
        let left = MOVE_LIMIT.saturating_sub(since.elapsed());
        if left.is_zero() {
            lead.moving.remove(key);
        }
        Some(left)
    })
    .flatten()
}

fn waiting_for_external_ip(key: &Key, ip: &str) -> Readiness {
    Readiness::not(
        status::WAITING_FOR_EXTERNAL_IP,
        format!("Service {key} has no external address yet; kube-vip is to announce {ip}"),
    )
}

/// Readiness of a load balancer whose Service exists, in the order of section 9.
fn judge(
    key: &Key,
    vm: &VmSpec,
    found: &Found,
    external: Option<&str>,
    healthy: usize,
    address: &Address,
) -> Readiness {
    if external.is_none() {
        return waiting_for_external_ip(key, &address.load_balancer_ip);
    }
    if found.matched == 0 {
        return Readiness::not(
            status::NO_BACKEND,
            format!(
                "no running virtual machine in namespace {} matches spec.backendServerSelector",
                key.namespace
            ),
        );
    }
    if found.backends.is_empty() {
        return Readiness::not(
            status::BACKENDS_WITHOUT_IP,
            format!(
                "none of the {} virtual machines that match reports an IPv4 address; the QEMU guest agent may be missing",
                found.matched
            ),
        );
    }
    if let Some(check) = vm.check
        && healthy == 0
    {
        return Readiness::not(
            status::BACKENDS_UNHEALTHY,
            format!(
                "all {} backends fail the health check on port {}",
                found.backends.len(),
                check.port()
            ),
        );
    }
    Readiness::ready()
}

fn extras(
    lost: Option<&Lost>,
    instead: Option<&str>,
    out_of_pool: bool,
    left_out: usize,
) -> Vec<Extra> {
    let mut extras = vec![
        Extra {
            type_: status::ADDRESS_OUT_OF_POOL,
            message: out_of_pool.then(|| {
                format!(
                    "{} is no longer an address of its pool; it is kept until the load balancer goes",
                    instead.unwrap_or_default()
                )
            }),
        },
        Extra {
            type_: status::BACKENDS_LEFT_OUT,
            message: (left_out > 0).then(|| {
                format!("{left_out} more backends match than the {} that are served", backends::MAX_BACKENDS)
            }),
        },
    ];
    // Stays once it is set: it tells why the address is another than it was.
    if let Some(lost) = lost {
        let holder = match &lost.holder {
            Some(holder) => format!("belongs to LoadBalancer {holder}"),
            None => "is not an address that this load balancer may have".to_owned(),
        };
        let now = instead.map_or_else(String::new, |i| format!("; {i} was given instead"));
        extras.push(Extra {
            type_: status::ADDRESS_LOST,
            message: Some(format!("{} {holder}{now}", lost.addr)),
        });
    }
    extras
}

fn external_ip(service: &Service) -> Option<String> {
    let ingress = service
        .status
        .as_ref()?
        .load_balancer
        .as_ref()?
        .ingress
        .as_ref()?;
    ingress.first()?.ip.clone().filter(|ip| !ip.is_empty())
}

enum Children {
    Present {
        service: Arc<Service>,
        healthy: usize,
    },
    Failed(Readiness),
}

async fn ensure_children(
    hub: &Hub,
    key: &Key,
    lb: &LoadBalancer,
    vm: &VmSpec,
    found: &Found,
    ip: &str,
) -> Result<Children, WriteError> {
    let service = hub.stores.services.get(key);
    if service
        .as_ref()
        .is_some_and(|s| build::ownership(&s.metadata, &key.name) == Ownership::Foreign)
    {
        return conflict(hub, key, "Service").await;
    }
    let slice = hub.stores.slices.get(key);
    let backends = with_readiness(hub, key, vm, found, slice.as_deref());
    let healthy = backends.iter().filter(|(_, ready)| *ready).count();
    let wanted = build::endpoint_slice(lb, slice.as_deref(), &vm.ports, &backends);
    if !ensure_slice(hub, key, slice.as_deref(), wanted).await? {
        return conflict(hub, key, "EndpointSlice").await;
    }
    let wanted = build::service(lb, service.as_deref(), &vm.ports, ip);
    match ensure_service(hub, key, service.as_deref(), wanted).await? {
        Some(service) => Ok(Children::Present { service, healthy }),
        None => conflict(hub, key, "Service").await,
    }
}

/// An object of the name is somebody else's and is not touched (SVC-1). Nothing of ours must stand beside it: an
/// EndpointSlice would send the traffic of a foreign Service to our backends.
async fn conflict(hub: &Hub, key: &Key, kind: &str) -> Result<Children, WriteError> {
    hub.prober.remove_group(&key.to_string());
    release::take_down(hub, key).await?;
    Ok(Children::Failed(Readiness::not(
        status::NAME_CONFLICT,
        format!(
            "{kind} {key} exists and is not this load balancer's: rename the load balancer, or delete the {kind}"
        ),
    )))
}

/// The backends with what the probes, or else the EndpointSlice, know of them (EPS-1).
fn with_readiness(
    hub: &Hub,
    key: &Key,
    vm: &VmSpec,
    found: &Found,
    slice: Option<&EndpointSlice>,
) -> Vec<(Backend, bool)> {
    let group = key.to_string();
    let Some(check) = vm.check else {
        hub.prober.remove_group(&group);
        return found.backends.iter().map(|b| (b.clone(), true)).collect();
    };
    let known = build::known_readiness(slice);
    let targets = found
        .backends
        .iter()
        .map(|b| {
            let ready = known
                .get(&(b.uid.clone(), b.address))
                .copied()
                .unwrap_or(false);
            Target::new(b.uid.as_str(), b.address.into(), ready)
        })
        .collect();
    hub.prober
        .set_group(GroupId::from(group.as_str()), check, targets);
    found
        .backends
        .iter()
        .map(|b| {
            let ready = hub
                .prober
                .verdict(&group, &b.uid, b.address.into())
                .unwrap_or(false);
            (b.clone(), ready)
        })
        .collect()
}

/// Creates or alters the EndpointSlice. Answers whether it is ours.
async fn ensure_slice(
    hub: &Hub,
    key: &Key,
    present: Option<&EndpointSlice>,
    wanted: EndpointSlice,
) -> Result<bool, WriteError> {
    let api = hub.slice_api(&key.namespace);
    let Some(present) = present else {
        return match hub.writer.create(&api, &wanted).await {
            Ok(object) => {
                hub.learn_slice(key, Some(object), Version::default());
                Ok(true)
            }
            Err(WriteError::AlreadyExists(_)) => {
                let mut object = hub.writer.get(&api, &key.name).await?;
                if let Some(found) = &object {
                    if build::ownership(&found.metadata, &key.name) == Ownership::Foreign {
                        return Ok(false);
                    }
                    if !objects::is_labelled(&found.metadata) {
                        // The watch does not see it, and the store takes in nothing that is older than what the watch
                        // has seen; the answer to this write is newer.
                        let label =
                            json!({"metadata": {"labels": { keys::LABEL_SERVICELB: "true" }}});
                        let version = version(&found.metadata);
                        object = Some(hub.writer.patch(&api, &key.name, version, label).await?);
                    }
                }
                hub.learn_slice(key, object, Version(u64::MAX));
                Err(WriteError::Conflict(format!(
                    "EndpointSlice {key} has just appeared"
                )))
            }
            Err(other) => Err(other),
        };
    };
    if present.address_type != wanted.address_type {
        // The field cannot be changed; the deletion queues this load balancer again.
        hub.writer
            .delete(&api, &key.name, version(&present.metadata))
            .await?;
        return Err(WriteError::Conflict(format!(
            "EndpointSlice {key} had a wrong address type"
        )));
    }
    let Some(patch) = difference(present, &wanted) else {
        return Ok(true);
    };
    match hub
        .writer
        .patch(&api, &key.name, version(&present.metadata), patch)
        .await
    {
        Ok(object) => hub.learn_slice(key, Some(object), Version::default()),
        Err(error) => {
            if is_stale(&error) {
                let object = hub.writer.get(&api, &key.name).await?;
                hub.learn_slice(key, object, Version::of(&present.metadata));
            }
            return Err(error);
        }
    }
    Ok(true)
}

/// Creates or alters the Service. Answers it, or nothing if it is not ours.
async fn ensure_service(
    hub: &Hub,
    key: &Key,
    present: Option<&Service>,
    wanted: Service,
) -> Result<Option<Arc<Service>>, WriteError> {
    let api = hub.service_api(&key.namespace);
    let written = match present {
        None => hub.writer.create(&api, &wanted).await,
        Some(present) => match difference(present, &wanted) {
            None => return Ok(hub.stores.services.get(key)),
            Some(patch) => {
                hub.writer
                    .patch(&api, &key.name, version(&present.metadata), patch)
                    .await
            }
        },
    };
    match written {
        Ok(object) => {
            let written = Arc::new(object.clone());
            hub.learn_service(key, Some(object), Version::default());
            Ok(Some(hub.stores.services.get(key).unwrap_or(written)))
        }
        Err(error) if is_stale(&error) => {
            let object = hub.writer.get(&api, &key.name).await?;
            let known = present.map_or(Version(u64::MAX), |p| Version::of(&p.metadata));
            let ours = object
                .as_ref()
                .is_none_or(|o| build::ownership(&o.metadata, &key.name) == Ownership::Ours);
            hub.learn_service(key, object, known);
            if ours {
                Err(WriteError::Conflict(format!(
                    "Service {key} has just changed"
                )))
            } else {
                Ok(None)
            }
        }
        Err(other) => Err(other),
    }
}

/// Whether a write failed because the copy that it was decided from is old.
pub fn is_stale(error: &WriteError) -> bool {
    matches!(
        error,
        WriteError::Conflict(_) | WriteError::AlreadyExists(_) | WriteError::NotFound(_)
    )
}

/// The merge patch from one object to another.
pub fn difference<T: Serialize>(from: &T, to: &T) -> Option<Value> {
    let value = |of: &T| serde_json::to_value(of).unwrap_or(Value::Null);
    merge::diff(&value(from), &value(to))
}

/// The resource version of a copy.
pub fn version(meta: &ObjectMeta) -> &str {
    meta.resource_version.as_deref().unwrap_or_default()
}

/// Writes a load balancer's status if it says something else than before, and the Events that this calls for.
async fn write_status(
    hub: &Hub,
    key: &Key,
    lb: &LoadBalancer,
    report: &Report,
) -> Result<LoadBalancer, WriteError> {
    let wanted = status::apply(lb, report, &time::rfc3339(time::now()));
    let Some(patch) = difference(lb, &wanted) else {
        return Ok(wanted);
    };
    let written = patch_lb(hub, key, &lb.metadata, patch).await?;
    let before = lb.status.as_ref().and_then(|s| s.conditions.as_deref());
    let after = wanted
        .status
        .as_ref()
        .and_then(|s| s.conditions.as_deref())
        .unwrap_or_default();
    for notice in status::notices(before, after) {
        hub.notify_lb(&lb.metadata, &notice);
    }
    Ok(written)
}

async fn patch_lb(
    hub: &Hub,
    key: &Key,
    meta: &ObjectMeta,
    patch: Value,
) -> Result<LoadBalancer, WriteError> {
    let api = hub.lb_api(&key.namespace);
    match hub
        .writer
        .patch(&api, &key.name, version(meta), patch)
        .await
    {
        Ok(object) => {
            hub.absorb_lb(key, object.clone());
            Ok(object)
        }
        Err(error) => {
            if is_stale(&error) {
                debug!(lb = %key, %error, "reading it again");
                hub.metrics
                    .write_conflicts
                    .with_label_values(&["LoadBalancer"])
                    .inc();
                let object = hub.writer.get(&api, &key.name).await?;
                hub.learn_lb(key, object, Version::of(meta));
            }
            Err(error)
        }
    }
}

/// Being deleted: only finalizers of old are in our power (FIN-2); the address follows when the object is gone (6.3).
async fn drop_finalizers(hub: &Hub, key: &Key, lb: &LoadBalancer) -> Result<Next, WriteError> {
    hub.lead(|lead| lead.ledger.withdraw(&objects::id(key)));
    let mut wanted = lb.clone();
    if let Some(kept) = objects::without_legacy(&lb.metadata, &keys::LEGACY_FINALIZERS) {
        wanted.metadata.finalizers = (!kept.is_empty()).then_some(kept);
    }
    if let Some(patch) = difference(lb, &wanted) {
        match patch_lb(hub, key, &lb.metadata, patch).await {
            // The last finalizer: the answer is the object as it was when it went.
            Ok(_) | Err(WriteError::NotFound(_)) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(Next::Event)
}
