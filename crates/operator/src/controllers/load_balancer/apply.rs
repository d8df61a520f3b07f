//! Applies the steps of a plan, one by one. A write that is refused because its copy is stale ends the reconcile: the newer copy
//! is in the store by then, and the next plan is decided from it.

use std::sync::Arc;

use harvester_lb_api::{LoadBalancer, keys, meta};
use harvester_lb_controller_kit::cached_client::CachedResource;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::cached::{self, CachedService, Lb};
use harvester_lb_core::desired::{self, Ownership};
use harvester_lb_core::plan::step::Probes;
use harvester_lb_core::plan::{Guard, Kind, OnFailure, Plan, Step, View, Write};
use harvester_lb_object::Key;
use harvester_lb_prober::GroupId;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::json;
use tokio::time::{Duration, Instant};
use tracing::info;

use crate::context::Context;
use crate::controllers::live;
use crate::controllers::load_balancer::offer::Offer;
use crate::controllers::load_balancer::write_status::write_status;
use crate::index::Index;

/// What became of the steps of a plan.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The load balancer as its status was written by one of them.
    pub committed: Option<LoadBalancer>,
    /// An object of the load balancer's name turned out to be another owner's, so the remaining steps were left out. A plan that
    /// knows it is to be made.
    pub taken: Option<Kind>,
    /// The Service as a step has written it; the store may have a newer copy by now.
    pub service: Option<Arc<CachedService>>,
    /// Why a write was refused.
    pub refused: Option<Box<str>>,
    /// The write of a Service that load balancers share was refused, and the load balancer is queued, to write less of it (SHR-3).
    pub is_repeated: bool,
    /// The error of a write that does not prevent the status.
    pub error: Option<WriteError>,
}

/// Applies the steps of a plan in their order, up to the first that fails.
///
/// # Errors
/// That of the step, unless the status is to be written in spite of it, see [`OnFailure`].
pub async fn apply(ctx: &Context, view: &View<'_>, plan: &Plan<'_>) -> Result<Outcome, WriteError> {
    let mut outcome = Outcome::default();
    let mut offers = Vec::new();
    if let Some(wait) = plan.postponed {
        ctx.index
            .queues
            .lbs
            .add_after(view.objects.key.clone(), wait);
    }
    for guarded in &plan.steps {
        let lb = outcome.committed.as_ref().unwrap_or(view.lb);
        let guards = check(ctx, view.objects.key, lb, &guarded.guards, &mut offers).await;
        let may_write = guards.is_ok();
        let applied = match guards {
            Ok(()) => step(ctx, view, plan, &guarded.step, &mut outcome).await,
            failed => failed,
        };
        if let Err(error) = &applied {
            for offer in &offers {
                offer.failed(error);
            }
        }
        match (applied, plan.on_failure) {
            (Ok(()), _) if outcome.taken.is_some() => break,
            (Ok(()), _) => {}
            (Err(WriteError::Refused(why)), _)
                if may_write && is_repeated(ctx, view, plan, &guarded.step, &why) =>
            {
                outcome.is_repeated = true;
                break;
            }
            (Err(WriteError::Refused(why)), OnFailure::ReportRefusal)
                if !matches!(guarded.step, Step::Commit(_)) =>
            {
                outcome.refused = Some(why.into());
                break;
            }
            // A plan whose guard does not hold was decided from an old copy, and its status too.
            (Err(error), OnFailure::Report) if may_write || !error.is_stale() => {
                outcome.error = Some(error);
                break;
            }
            (Err(error), _) => return Err(error),
        }
    }
    if outcome.taken.is_none() && outcome.refused.is_none() && outcome.error.is_none() {
        for offer in offers {
            offer.done();
        }
        let has_step = plan.steps.iter().any(|it| writes_service(&it.step));
        if let Some(pending) = plan.changes.as_ref().filter(|_| !has_step) {
            ctx.index.service_settled(view.objects.key, pending);
        }
    }
    Ok(outcome)
}

/// Whether a step writes the Service, and does not delete it.
const fn writes_service(step: &Step) -> bool {
    matches!(step, Step::Service(Write::Create(_) | Write::Patch(..)))
}

/// Whether the API server has refused the Service of load balancers that share it, and less of it is to be written (SHR-3).
fn is_repeated(ctx: &Context, view: &View<'_>, plan: &Plan<'_>, step: &Step, why: &str) -> bool {
    let Some(changes) = plan.changes.as_ref().filter(|_| writes_service(step)) else {
        return false;
    };
    let pause = |refusals| ctx.timings.backoff().delay(refusals, 1.0);
    let group = view.objects.key;
    ctx.index.service_refused(group, changes, why, pause)
}

/// Checks guards by live reads and by what this process is about to write, in their order. `offers`: what is offered until all steps are done.
///
/// # Errors
/// `Conflict` if one does not hold; the stores have what was read.
async fn check<'a>(
    ctx: &'a Context,
    key: &Key,
    lb: &LoadBalancer,
    guards: &[Guard],
    offers: &mut Vec<Offer<'a>>,
) -> Result<(), WriteError> {
    for guard in guards {
        match guard {
            Guard::Unchanged => live::ensure_unchanged(ctx, key, lb).await?,
            Guard::CaughtUp => live::ensure_caught_up(ctx, key, lb).await?,
            Guard::AllCaughtUp(members) => {
                for member in members {
                    match ctx.index.stores.lbs.get(member).as_deref() {
                        Some(Lb::Valid(lb)) => live::ensure_caught_up(ctx, member, lb).await?,
                        // The answer for one that cannot be decoded could not be decoded either.
                        Some(Lb::Invalid(..)) => {}
                        None => live::ensure_absent(ctx, member).await?,
                    }
                    live::ensure_slice_caught_up(ctx, member).await?;
                }
            }
            Guard::LeftGroup(group) => live::ensure_left_group(ctx, group, lb).await?,
            Guard::Unoffered(group, ports) => offers.push(Offer::of(ctx, group, key, ports).await?),
            Guard::Exists(owner) => live::ensure_uid(ctx, owner).await?,
            Guard::PoolUnchanged(pool) => live::ensure_pool_unchanged(ctx, pool).await?,
            Guard::LeaseUnchanged(lease) => live::ensure_lease_unchanged(ctx, lease).await?,
            Guard::Foreign(Kind::Service) => ensure_foreign::<Service>(ctx, key).await?,
            Guard::Foreign(Kind::EndpointSlice) => {
                ensure_foreign::<EndpointSlice>(ctx, key).await?;
            }
        }
    }
    Ok(())
}

async fn ensure_foreign<K>(ctx: &Context, key: &Key) -> Result<(), WriteError>
where
    K: CachedResource<Index>,
{
    let is_others = |now: &K| desired::ownership(now.meta(), &key.name) != Ownership::Ours;
    live::ensure(ctx, key, is_others).await
}

async fn step(
    ctx: &Context,
    view: &View<'_>,
    plan: &Plan<'_>,
    step: &Step,
    outcome: &mut Outcome,
) -> Result<(), WriteError> {
    let key = view.objects.key;
    match step {
        Step::HealthChecks(probes) => probe(ctx, key, probes),
        Step::Commit(update) => {
            let lb = outcome.committed.as_ref().unwrap_or(view.lb);
            outcome.committed = Some(write_status(ctx, key, lb, update).await?);
        }
        Step::Slice(write) => {
            if !is_due(ctx, key, write)? {
                return Ok(());
            }
            if !write_slice(ctx, key, write).await? {
                outcome.taken = Some(Kind::EndpointSlice);
                return Ok(());
            }
            let is_patch = matches!(write, Write::Patch(..));
            for verdict in plan.verdicts.iter().filter(|_| is_patch) {
                let (name, address) = (&verdict.name, verdict.address);
                let to = if verdict.is_ready { "up" } else { "down" };
                info!(lb = %key, vmi = %name, %address, verdict = to, "backend verdict changed");
            }
        }
        Step::Service(write) if !is_due(ctx, key, write)? => {}
        Step::Service(Write::Delete(from)) => {
            info!(service = %key, "deleting Service");
            ctx.client.delete::<Service>(key, from).await?;
        }
        Step::Service(Write::Create(service)) => {
            let created = ctx.client.create(key, &**service).await;
            keep_written(ctx, key, plan, created, outcome)?;
        }
        Step::Service(Write::Patch(from, patch)) => {
            let patched = ctx.client.patch(key, from, patch.clone()).await;
            keep_written(ctx, key, plan, patched, outcome)?;
        }
    }
    Ok(())
}

/// Whether a planned write is still to be sent. The store may have learned more while the steps before it were applied.
///
/// # Errors
/// `Conflict` if the object has changed since, so that the API server would refuse the write.
fn is_due<K>(ctx: &Context, key: &Key, write: &Write<K>) -> Result<bool, WriteError>
where
    K: CachedResource<Index>,
{
    let now = K::store(&ctx.index).entry(key).map(|it| it.stamp.version);
    let from = match write {
        Write::Create(_) => None,
        Write::Patch(from, _) | Write::Delete(from) => Some(meta::version(from)),
    };
    match (write, now) {
        (Write::Delete(_), None) => Ok(false),
        _ if now == from => Ok(true),
        _ => Err(WriteError::Conflict(format!(
            "{} {key} has changed since the write was decided",
            K::kind(&())
        ))),
    }
}

/// Changes which targets are probed.
pub(super) fn probe(ctx: &Context, key: &Key, probes: &Probes) {
    match probes {
        Probes::Unchanged => {}
        Probes::End => {
            ctx.prober.remove_group(&key.to_string());
        }
        Probes::Run(check, targets) => {
            let group = GroupId::from(&*key.to_string());
            ctx.prober.set_group(group, *check, targets.clone());
        }
    }
}

/// Writes the EndpointSlice. Returns whether it is ours.
async fn write_slice(
    ctx: &Context,
    key: &Key,
    write: &Write<EndpointSlice>,
) -> Result<bool, WriteError> {
    match write {
        Write::Create(slice) => match ctx.client.create(key, &**slice).await {
            Ok(_) => Ok(true),
            Err(WriteError::AlreadyExists(why)) => adopt_slice(ctx, key, why).await,
            Err(other) => Err(other),
        },
        Write::Patch(from, patch) => {
            // The API server may apply a write at its start or just before its end.
            let mark = || {
                ctx.slice_throttle
                    .wrote(key, Duration::ZERO, Instant::now());
            };
            mark();
            let written = ctx.client.patch::<EndpointSlice>(key, from, patch.clone());
            let written = written.await;
            mark();
            written.map(|_| true)
        }
        Write::Delete(from) => {
            let deleted = ctx.client.delete::<EndpointSlice>(key, from).await;
            deleted.map(|_| true)
        }
    }
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

/// Handles the answer to a write of the Service: keeps what was written, or learns that it has another owner.
fn keep_written(
    ctx: &Context,
    key: &Key,
    plan: &Plan<'_>,
    answer: Result<Service, WriteError>,
    outcome: &mut Outcome,
) -> Result<(), WriteError> {
    match answer {
        Ok(object) => {
            outcome.service = cached::service(Ok(object)).map(Arc::new);
            if let Some(changes) = &plan.changes {
                ctx.index.service_written(key, changes);
            }
            Ok(())
        }
        Err(error) if error.is_stale() => {
            let stored = ctx.index.stores.services.get(key);
            let owner = |service: &CachedService| desired::ownership(&service.metadata, &key.name);
            if stored.is_some_and(|service| owner(&service) == Ownership::Foreign) {
                outcome.taken = Some(Kind::Service);
                return Ok(());
            }
            Err(error)
        }
        Err(other) => Err(other),
    }
}
