//! Writes the Service and the EndpointSlice of a load balancer of VM type (sections 8.2, 8.3), with the verdicts of its
//! health checks.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use harvester_lb_api::{LoadBalancer, keys};
use harvester_lb_controller_kit::cached_client::CachedResource;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::backends::{self, Backend, DiscoveredBackends};
use harvester_lb_core::cached::{self, CachedService, VmiState};
use harvester_lb_core::desired::{self, Ownership};
use harvester_lb_core::merge_patch::difference;
use harvester_lb_core::spec::VmSpec;
use harvester_lb_core::status::{self, Readiness};
use harvester_lb_object::Key;
use harvester_lb_prober::{GroupId, HealthCheck, Target};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;
use tokio::time::{Duration, Instant};
use tracing::info;

use crate::context::Context;
use crate::controllers::load_balancer::served_backends::ServedBackends;
use crate::controllers::load_balancer::{live, release};
use crate::index::Index;

/// The source of verdicts on backends.
#[derive(Clone, Copy, Debug)]
pub enum CheckSource {
    /// No health check: every backend is healthy (HC-2).
    None,
    /// This health check.
    HealthCheck(HealthCheck),
    /// The spec is unreadable: a running health check continues, otherwise readiness stays as it is (BE-6, HC-4).
    Unchanged,
}

impl From<Option<HealthCheck>> for CheckSource {
    fn from(check: Option<HealthCheck>) -> Self {
        check.map_or(Self::None, Self::HealthCheck)
    }
}

/// What came of it.
pub enum OwnedObjects {
    /// Both objects are as desired.
    Present {
        /// The Service.
        service: Arc<CachedService>,
        /// The backends in the EndpointSlice.
        backends: ServedBackends,
    },
    /// They cannot be created, for this reason.
    Failed(Readiness),
}

/// Creates or updates both objects, the EndpointSlice first, so that no address is announced without endpoints (REC-3).
pub async fn ensure(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    vm: &VmSpec,
    found: &DiscoveredBackends,
    ip: &str,
) -> Result<OwnedObjects, WriteError> {
    let stored = ctx.index.stores.services.get(key);
    let service = stored.as_deref().map(|stored| &**stored);
    match service.map(|s| desired::ownership(&s.metadata, &key.name)) {
        Some(Ownership::Foreign) => return conflict::<Service>(ctx, key).await,
        Some(Ownership::Shared) => return Err(shared(key)),
        Some(Ownership::Ours) | None => {}
    }
    let slice = ctx.index.stores.slices.get(key);
    let known = desired::known_readiness(slice.as_deref());
    let mut backends = with_readiness(ctx, key, vm.check.into(), found, &known);
    let mut wanted = desired::endpoint_slice(lb, slice.as_deref(), &vm.ports, &backends);
    if let Some(present) = slice.as_deref()
        && vm.check.is_some()
    {
        let unchanged = as_stored(&backends, &known);
        let as_before = desired::endpoint_slice(lb, Some(present), &vm.ports, &unchanged);
        if verdicts_throttled(ctx, key, present, &wanted, &as_before) {
            (backends, wanted) = (unchanged, as_before);
        }
    }
    if !ensure_slice(ctx, key, Some(lb), slice.as_deref(), wanted).await? {
        return conflict::<EndpointSlice>(ctx, key).await;
    }
    for (backend, ready) in &backends {
        if known
            .get(&(backend.uid.clone(), backend.address))
            .is_some_and(|was| was != ready)
        {
            let verdict = if *ready { "up" } else { "down" };
            info!(lb = %key, vmi = %backend.name, address = %backend.address, verdict, "backend verdict changed");
        }
    }
    if let Some(why) = stored
        .as_ref()
        .and_then(|stored| stored.undecodable.as_ref())
    {
        // Its other fields are unknown and must not be overwritten.
        return Err(WriteError::Refused(format!(
            "the Service cannot be decoded, correct it or delete it: {why}"
        )));
    }
    let wanted = desired::service(lb, service, &vm.ports, ip);
    match ensure_service(ctx, key, lb, service, wanted).await? {
        Some(service) => Ok(OwnedObjects::Present {
            service,
            backends: ServedBackends::new(ctx, key, backends, &known),
        }),
        None => conflict::<Service>(ctx, key).await,
    }
}

/// It has just come to belong to several load balancers. The next look finds that at its beginning (IPA-9).
fn shared(key: &Key) -> WriteError {
    WriteError::Conflict(format!("Service {key} belongs to several load balancers"))
}

/// An object of the name has another owner and is not written (SVC-1). Our other object is deleted: an EndpointSlice would
/// send the traffic of a foreign Service to our backends.
async fn conflict<K>(ctx: &Context, key: &Key) -> Result<OwnedObjects, WriteError>
where
    K: CachedResource<Index>,
{
    if release::has_owned(ctx, key) && !release::is_undecodable(ctx, key) {
        let is_others = |now: &K| desired::ownership(now.meta(), &key.name) != Ownership::Ours;
        live::ensure(ctx, key, is_others).await?;
    }
    ctx.prober.remove_group(&key.to_string());
    release::delete_owned(ctx, key).await?;
    let kind = K::kind(&());
    Ok(OwnedObjects::Failed(Readiness::not(
        status::NAME_CONFLICT,
        format!(
            "{kind} {key} exists and is not this load balancer's: rename the load balancer, or delete the {kind}"
        ),
    )))
}

/// The backends with their readiness: the verdict of the prober, else the value in the EndpointSlice (EPS-1), limited by
/// their state (BE-5).
fn with_readiness(
    ctx: &Context,
    key: &Key,
    check: CheckSource,
    found: &DiscoveredBackends,
    known: &BTreeMap<(String, Ipv4Addr), bool>,
) -> Vec<(Backend, bool)> {
    let group = key.to_string();
    let known = |b: &Backend| known.get(&(b.uid.clone(), b.address)).copied();
    let was_ready = |b: &Backend| known(b).unwrap_or(false);
    let check = match check {
        CheckSource::Unchanged => ctx
            .prober
            .check(&group)
            .map_or(check, CheckSource::HealthCheck),
        other => other,
    };
    match check {
        CheckSource::HealthCheck(check) => {
            let probed = found.backends.iter().filter(|b| !b.state.has_terminated());
            let targets = probed
                .map(|b| Target::new(b.uid.as_str(), b.address.into(), was_ready(b)))
                .collect();
            ctx.prober
                .set_group(GroupId::from(group.as_str()), check, targets);
        }
        CheckSource::None => {
            ctx.prober.remove_group(&group);
        }
        CheckSource::Unchanged => {}
    }
    let verdict = |b: &Backend| match check {
        CheckSource::None => true,
        _ => ctx
            .prober
            .verdict(&group, &b.uid, b.address.into())
            .unwrap_or_else(|| was_ready(b)),
    };
    let verdicts: Vec<(VmiState, bool)> = found
        .backends
        .iter()
        .map(|b| (b.state, verdict(b)))
        .collect();
    let backends = found.backends.iter().cloned();
    backends.zip(backends::ready(&verdicts)).collect()
}

/// The backends with the readiness in the EndpointSlice. A new backend, and one whose state decides, has its new readiness,
/// because these are written at once (BE-5).
fn as_stored(
    backends: &[(Backend, bool)],
    known: &BTreeMap<(String, Ipv4Addr), bool>,
) -> Vec<(Backend, bool)> {
    let stored = |(backend, ready): &(Backend, bool)| {
        let stored = known.get(&(backend.uid.clone(), backend.address));
        let is_verdict = backend.state == VmiState::default();
        (
            backend.clone(),
            *stored.filter(|_| is_verdict).unwrap_or(ready),
        )
    };
    backends.iter().map(stored).collect()
}

/// Whether an EndpointSlice write is postponed, because only verdicts have changed and the throttle does not allow it yet.
/// Then the slice stays `as_before`, and the load balancer is queued for when it does. Removals of backends are never
/// postponed.
fn verdicts_throttled(
    ctx: &Context,
    key: &Key,
    present: &EndpointSlice,
    wanted: &EndpointSlice,
    as_before: &EndpointSlice,
) -> bool {
    let wait = ctx.slice_throttle.due_in(key, Instant::now());
    let is_present = |slice| difference(present, slice).is_none();
    if wait.is_zero() || is_present(wanted) || !is_present(as_before) {
        return false;
    }
    ctx.index.queues.lbs.add_after(key.clone(), wait);
    true
}

/// Updates the existing endpoints of a load balancer that cannot be reconciled: its spec is refused, its IPAllocation cannot
/// be read or written, or it is being deleted and has a foreign finalizer (BE-6). An endpoint whose VirtualMachineInstance is
/// gone, being deleted or at another address is removed, verdicts are written; nothing is created or restored. Returns the
/// backends that remain; `None` if there is no EndpointSlice, or if it is not known whether they have a health check.
pub async fn update_endpoints(
    ctx: &Context,
    key: &Key,
    lb: &ObjectMeta,
    check: CheckSource,
) -> Result<Option<ServedBackends>, WriteError> {
    // Before the stores are read, so that no change is missed.
    ctx.index.track_endpoints(key);
    let Some(present) = ctx.index.stores.slices.get(key) else {
        return Ok(None);
    };
    if present.metadata.deletion_timestamp.is_some() {
        return Ok(None);
    }
    let mut found = DiscoveredBackends::default();
    for endpoint in desired::backends(&present) {
        let vmi = ctx
            .index
            .stores
            .vmis
            .get(&Key::new(&key.namespace, &endpoint.name));
        found.retain_endpoint(endpoint, vmi.as_deref());
    }
    found.apply_address_rules(|address| ctx.index.address_verdict(address));
    let known = desired::known_readiness(Some(&present));
    let mut backends = with_readiness(ctx, key, check, &found, &known);
    let mut wanted = desired::with_backends(lb, &present, &backends);
    let unchanged = as_stored(&backends, &known);
    let as_before = desired::with_backends(lb, &present, &unchanged);
    if verdicts_throttled(ctx, key, &present, &wanted, &as_before) {
        (backends, wanted) = (unchanged, as_before);
    }
    ensure_slice(ctx, key, None, Some(&*present), wanted).await?;
    let is_checked = ctx.prober.check(&key.to_string()).is_some();
    let is_known = is_checked || !matches!(check, CheckSource::Unchanged);
    Ok(is_known.then(|| ServedBackends::new(ctx, key, backends, &known)))
}

/// Creates or patches the EndpointSlice. Returns whether it is ours. `lb`: the copy of the load balancer that it is made
/// from, if it is.
async fn ensure_slice(
    ctx: &Context,
    key: &Key,
    lb: Option<&LoadBalancer>,
    present: Option<&EndpointSlice>,
    wanted: EndpointSlice,
) -> Result<bool, WriteError> {
    let patch = match present {
        Some(present) => match difference(present, &wanted) {
            Some(patch) => patch,
            None => return Ok(true),
        },
        None => serde_json::Value::Null,
    };
    if let Some(lb) = lb {
        live::ensure_caught_up(ctx, key, lb).await?;
    }
    let Some(present) = present else {
        return match ctx.client.create(key, &wanted).await {
            Ok(_) => Ok(true),
            Err(WriteError::AlreadyExists(why)) => adopt_slice(ctx, key, why).await,
            Err(other) => Err(other),
        };
    };
    if present.address_type != wanted.address_type {
        // The field is immutable. The deletion event queues this load balancer again.
        ctx.client
            .delete::<EndpointSlice>(key, &present.metadata)
            .await?;
        return Err(WriteError::Conflict(format!(
            "EndpointSlice {key} had a wrong address type"
        )));
    }
    let mark = || {
        ctx.slice_throttle
            .wrote(key, Duration::ZERO, Instant::now());
    };
    mark();
    let written = ctx
        .client
        .patch::<EndpointSlice>(key, &present.metadata, patch)
        .await;
    mark();
    written?;
    Ok(true)
}

/// Handles an existing EndpointSlice that the store does not have, because the watch selects by our label. Returns false if
/// it has another owner. If it is ours, the label is added and the error requeues the load balancer.
async fn adopt_slice(ctx: &Context, key: &Key, why: String) -> Result<bool, WriteError> {
    if let Some(found) = ctx.client.get_live::<EndpointSlice>(key).await? {
        if desired::ownership(&found.metadata, &key.name) != Ownership::Ours {
            return Ok(false);
        }
        if !cached::is_labelled(&found.metadata) {
            let label = json!({"metadata": {"labels": { keys::LABEL_SERVICELB: "true" }}});
            ctx.client
                .patch::<EndpointSlice>(key, &found.metadata, label)
                .await?;
        }
    }
    Err(WriteError::AlreadyExists(why))
}

/// Creates or patches the Service and returns it; `None` if it has another owner.
async fn ensure_service(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    present: Option<&Service>,
    wanted: Service,
) -> Result<Option<Arc<CachedService>>, WriteError> {
    let written = match present {
        None => {
            live::ensure_caught_up(ctx, key, lb).await?;
            ctx.client.create(key, &wanted).await
        }
        Some(present) => match difference(present, &wanted) {
            None => return Ok(ctx.index.stores.services.get(key)),
            Some(patch) => {
                live::ensure_caught_up(ctx, key, lb).await?;
                ctx.client.patch(key, &present.metadata, patch).await
            }
        },
    };
    match written {
        Ok(object) => {
            let stored = ctx.index.stores.services.get(key);
            Ok(stored.or_else(|| cached::service(Ok(object)).map(Arc::new)))
        }
        Err(error) if error.is_stale() => {
            let now = ctx.index.stores.services.get(key);
            let foreign = now.is_some_and(|service| {
                desired::ownership(&service.metadata, &key.name) == Ownership::Foreign
            });
            if foreign { Ok(None) } else { Err(error) }
        }
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests;
