//! One reconcile of a load balancer's lease: observes, takes the step that `core: dhcp/upkeep` decides, and repeats that until
//! nothing is left to do. Owns the order of RELEASE and write; the live reads before a step are in `guards`.

mod guards;

use harvester_lb_api::IPAllocation;
use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::cached;
use harvester_lb_core::dhcp::claim::{Claim, LbView};
use harvester_lb_core::dhcp::events;
use harvester_lb_core::dhcp::record::{LeasePhase, LeaseRecord, LeaseSpec};
use harvester_lb_core::dhcp::upkeep::{Situation, Step, decide, first};
use harvester_lb_core::event_draft::EventDraft;
use harvester_lb_ipam::{Owner, Uid};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use crate::clock;
use crate::dhcp::context::Context;
use crate::dhcp::index::{RecordView, record_key};
use crate::dhcp::order::{Notify, Order, PortError};
use crate::dhcp::socket::OpenError;
use crate::dhcp::upkeep::guards::{is_confirmed, is_current, live_service, may_be_served};

/// Most steps of one reconcile: from a lost load balancer to its deleted record it takes four. More means that something
/// changes all the time; others are due meanwhile.
const STEPS: usize = 8;

/// Brings the lease of a load balancer up to date.
pub async fn reconcile(ctx: &Context, owner: &Owner) -> Result<Requeue, WriteError> {
    for _ in 0..STEPS {
        let lb = ctx.index.lb(owner);
        let stored = ctx.index.record(&owner.uid);
        let record = match stored.as_deref() {
            Some(RecordView::UnreadableLease(why)) => {
                warn!(lease = %owner.uid, why, "record of a lease cannot be read, left alone");
                return Ok(Requeue::AwaitChange);
            }
            Some(RecordView::Lease(record)) => {
                if let Err(why) = is_of(ctx, owner, lb.as_deref(), &record.spec) {
                    warn!(lease = %owner.uid, why, "record of a lease was edited, left alone");
                    return Ok(Requeue::AwaitChange);
                }
                Some(record)
            }
            Some(RecordView::HeldByPool) | None => None,
        };
        let client = ctx.index.views.get(&owner.uid);
        let leased = client.as_ref().and_then(|client| client.lease);
        let leased = leased.or_else(|| record?.spec.phase.lease().copied());
        let holder = leased.and_then(|lease| ctx.index.holder(&owner.uid, lease.address));
        let service = ctx.index.stores.services.get(&cached::key(&owner.id));
        let is_served = record.is_some_and(|record| match record.spec.phase {
            LeasePhase::Releasing(lease) => may_be_served(ctx, service.as_deref(), lease.address),
            _ => false,
        });
        let starts = record.filter(|it| it.spec.phase == LeasePhase::Pending && client.is_none());
        let ending_twin = starts.and_then(|record| ctx.index.ending_twin(&record.spec));
        let situation = Situation {
            mode: ctx.settings.mode,
            interfaces: &ctx.settings.interfaces,
            lb: lb.as_deref(),
            record: record.map(|record| &record.spec),
            client: client.as_ref(),
            is_kube_vips: service.as_ref().is_some_and(|service| service.is_kube_vips),
            is_served,
            holder: holder.as_ref(),
            ending_twin: ending_twin.as_ref(),
        };
        report_annotation(ctx, &situation);
        let step = decide(&situation, clock::now());
        if step == Step::Rest && lb.is_none() && record.is_none() {
            ctx.index
                .due
                .forget(&crate::dhcp::index::LeaseKey(owner.clone()));
            ctx.notices.forget(&owner.uid);
        }
        if step != Step::Rest {
            debug!(lease = %owner.uid, ?step, "lease");
        }
        let next = take(ctx, owner, &situation, record, step).await?;
        if let Next::Requeue(requeue) = next {
            return Ok(requeue);
        }
    }
    Ok(Requeue::After(ctx.settings.timings.retry))
}

/// Whether the record is that of this load balancer. One that names another one than that of its uid was edited.
fn is_of(
    ctx: &Context,
    owner: &Owner,
    lb: Option<&LbView>,
    record: &LeaseSpec,
) -> Result<(), String> {
    record.check_owner(owner)?;
    match lb {
        Some(_) => Ok(()),
        None => ctx
            .index
            .lb_of_uid(&owner.uid)
            .map_or(Ok(()), |lb| record.check_owner(&lb)),
    }
}

/// What follows a step.
enum Next {
    /// Observe and decide again.
    Again,
    /// The reconcile ends.
    Requeue(Requeue),
}

/// Nothing, until something that is watched changes. The resync is for a change that was missed.
const WAIT: Next = Next::Requeue(Requeue::Resync);

async fn take(
    ctx: &Context,
    owner: &Owner,
    situation: &Situation<'_>,
    record: Option<&LeaseRecord>,
    step: Step,
) -> Result<Next, WriteError> {
    match (step, record) {
        (Step::Rest, _) => return Ok(Next::Requeue(Requeue::AwaitChange)),
        (Step::AwaitTwin, _) => {
            if let Some(twin) = situation.ending_twin {
                ctx.notices.problem(owner, &events::waits_for_twin(twin));
            }
            return Ok(WAIT);
        }
        (Step::Create(guard), _) => {
            if !is_confirmed(ctx, owner, situation, guard).await? {
                return Ok(WAIT);
            }
            return match situation.lb {
                Some(lb) => create(ctx, lb).await,
                None => Ok(Next::Again),
            };
        }
        (Step::Run(guard), Some(record)) => {
            if !is_confirmed(ctx, owner, situation, guard).await? {
                return Ok(WAIT);
            }
            if !is_current(ctx, record).await? {
                return Ok(Next::Again);
            }
            let order = Order::Start(record.spec.clone());
            let started = ctx.ports.order(&record.spec.interface, order).await;
            return Ok(after_order(ctx, owner, started));
        }
        (Step::Stop, _) => {
            if let Some(client) = situation.client {
                let order = Order::Stop(owner.uid.clone(), client.clone());
                let stopped = ctx.ports.order(&client.interface, order).await;
                return Ok(after_order(ctx, owner, stopped));
            }
        }
        (Step::Decline(guard, address, conflict), _) => {
            if !is_confirmed(ctx, owner, situation, guard).await? {
                return Ok(WAIT);
            }
            if let Some(client) = situation.client {
                let order = Order::Decline(owner.uid.clone(), address, conflict);
                let declined = ctx.ports.order(&client.interface, order).await;
                return Ok(after_order(ctx, owner, declined));
            }
        }
        (Step::Write(guard, spec), Some(record)) => {
            if !is_confirmed(ctx, owner, situation, guard).await? {
                return Ok(WAIT);
            }
            write(ctx, record, &spec).await?;
        }
        (Step::Release(guard, next), Some(record)) => {
            if !is_confirmed(ctx, owner, situation, guard).await? {
                return Ok(WAIT);
            }
            // An earlier leader may have asked for the address again: a RELEASE would end that lease.
            if !is_current(ctx, record).await? {
                return Ok(Next::Again);
            }
            return release(ctx, record, next).await;
        }
        (Step::Delete(guard), Some(record)) => {
            if !is_confirmed(ctx, owner, situation, guard).await? {
                return Ok(WAIT);
            }
            delete(ctx, record).await?;
        }
        (Step::Run(_) | Step::Write(..) | Step::Release(..) | Step::Delete(_), None) => {}
    }
    Ok(Next::Again)
}

/// An invalid annotation `dhcp-hardware-address` (DHC-1).
fn report_annotation(ctx: &Context, situation: &Situation<'_>) {
    let Some(lb) = situation.lb else { return };
    let uid = &lb.owner.uid;
    match &lb.claim {
        Claim::Lease {
            hardware: Err(error),
            ..
        } => {
            let draft = events::invalid_hardware_address(error, situation.record.is_some());
            ctx.notices.problem(&lb.owner, &draft);
        }
        _ => ctx.notices.solved(uid, &[events::INVALID_HARDWARE_ADDRESS]),
    }
}

/// What follows an order to a port.
fn after_order(ctx: &Context, owner: &Owner, result: Result<(), PortError>) -> Next {
    match result {
        Ok(()) => {
            let over = [
                events::LEASE_INTERFACE_DOWN,
                events::LEASE_LIMIT_REACHED,
                events::LEASE_WAITS,
            ];
            ctx.notices.solved(&owner.uid, &over);
            Next::Again
        }
        // At the end of a term nobody repeats it.
        Err(PortError::Changed | PortError::Over | PortError::Ended) => Next::Again,
        Err(PortError::Full(interface, limit)) => {
            wait_for_interface(ctx, owner, &events::limit_reached(&interface, limit))
        }
        Err(PortError::Down(interface, why)) => {
            wait_for_interface(ctx, owner, &events::interface_down(&interface, &why))
        }
        Err(PortError::Missing(interface)) => {
            let why = OpenError::Missing.to_string();
            wait_for_interface(ctx, owner, &events::interface_down(&interface, &why))
        }
        Err(error @ PortError::Unsent(_)) => {
            warn!(lease = %owner.uid, lb = %owner.id, %error, "lease is given back later");
            Next::Requeue(Requeue::Backoff)
        }
    }
}

fn wait_for_interface(ctx: &Context, owner: &Owner, problem: &EventDraft) -> Next {
    // The port, or who opens the ports, warns once, when it begins. The Event is for the owner.
    debug!(lease = %owner.uid, lb = %owner.id, why = problem.text, "lease waits for its interface");
    ctx.notices.lasting(owner, problem);
    Next::Requeue(Requeue::Backoff)
}

/// DHC-1: the record comes before the first DISCOVER.
async fn create(ctx: &Context, lb: &LbView) -> Result<Next, WriteError> {
    let service = match live_service(ctx, &lb.owner).await {
        // What kube-vip's client has, if it has one, cannot be told. The watch tells when it can.
        Err(WriteError::Undecodable(_)) => return Ok(WAIT),
        read => read?,
    };
    let Some(spec) = first(lb, &ctx.settings.interfaces, service.as_ref()) else {
        return Ok(Next::Again);
    };
    let key = record_key(lb.uid());
    let object = IPAllocation {
        metadata: ObjectMeta {
            name: Some(key.name.to_string()),
            ..ObjectMeta::default()
        },
        spec: spec.to_api(),
    };
    let created = ctx.client.create(&key, &object).await;
    ctx.metrics.wrote("create", created.as_ref().err());
    created?;
    info!(lease = %lb.uid(), lb = %lb.owner.id, interface = spec.interface, "lease wanted");
    Ok(Next::Again)
}

async fn write(ctx: &Context, record: &LeaseRecord, spec: &LeaseSpec) -> Result<(), WriteError> {
    let key = record_key(&record.spec.owner.uid);
    let from = metadata(record);
    let written = ctx
        .client
        .patch::<IPAllocation>(&key, &from, patch(spec))
        .await;
    ctx.metrics.wrote("update", written.as_ref().err());
    written?;
    let before = record.spec.phase.lease().map(|lease| lease.address);
    if let LeasePhase::Bound(lease) = &spec.phase
        && before != Some(lease.address)
    {
        info!(lease = %spec.owner.uid, lb = %spec.owner.id, address = %lease.address, server = %lease.server, "leased");
        ctx.notices
            .solved(&spec.owner.uid, &[events::LEASE_DECLINED]);
        ctx.notices.publish(&spec.owner, &events::bound(lease));
    }
    Ok(())
}

/// DHC-4, DHC-6: RELEASE before the record is changed or deleted. A process that is killed in between sends it once more.
///
/// Of an expired lease nothing is left to give back. A load balancer that is to have a lease on another interface does not wait until
/// the earlier one, if that is gone, is there again.
async fn release(
    ctx: &Context,
    record: &LeaseRecord,
    next: Option<LeaseSpec>,
) -> Result<Next, WriteError> {
    let spec = &record.spec;
    let Some(lease) = spec.phase.lease() else {
        return Ok(Next::Again);
    };
    let has_client = ctx.index.views.get(&spec.owner.uid).is_some();
    let mut is_sent = false;
    if has_client || !lease.is_expired(clock::now()) {
        let order = Order::Release(spec.clone());
        let moves = |next: &LeaseSpec| next.interface != spec.interface;
        match ctx.ports.order(&spec.interface, order).await {
            Ok(()) => is_sent = true,
            Err(PortError::Missing(_)) if next.as_ref().is_some_and(moves) => {}
            Err(PortError::Over) => {}
            released => return Ok(after_order(ctx, &spec.owner, released)),
        }
    }
    match next {
        Some(next) => write(ctx, record, &next).await?,
        None => delete(ctx, record).await?,
    }
    info!(lease = %spec.owner.uid, lb = %spec.owner.id, address = %lease.address, is_sent, "released");
    if is_sent {
        ctx.notices.publish(&spec.owner, &events::released(lease));
    }
    Ok(Next::Again)
}

async fn delete(ctx: &Context, record: &LeaseRecord) -> Result<(), WriteError> {
    let key = record_key(&record.spec.owner.uid);
    let deleted = ctx
        .client
        .delete::<IPAllocation>(&key, &metadata(record))
        .await;
    ctx.metrics.wrote("delete", deleted.as_ref().err());
    // The next decision is made now, and the watch does not say it again.
    let store = &ctx.index.stores.records;
    let change = if deleted? {
        store.absent(&key, record.version)
    } else {
        store.forget(&key, record.version)
    };
    if let Some(change) = change {
        ctx.index.record_written(&key, &change);
    }
    let uid = &record.spec.owner.uid;
    ctx.notices.solved(uid, &[events::LEASE_WAITS]);
    Ok(())
}

/// IPA-5: what every write and deletion is conditional on.
fn metadata(record: &LeaseRecord) -> ObjectMeta {
    let uid = |uid: &Uid| (!uid.is_empty()).then(|| uid.to_string());
    ObjectMeta {
        uid: uid(&record.uid),
        resource_version: Some(record.version.0.to_string()),
        ..ObjectMeta::default()
    }
}

/// All fields of a record, absent ones as `null`, so that the merge patch removes the old values.
fn patch(spec: &LeaseSpec) -> Value {
    let api = spec.to_api();
    let lease = api.lease.unwrap_or_default();
    json!({ "spec": {
        "address": api.address,
        "pool": api.pool,
        "owner": api.owner,
        "phase": api.phase,
        "boundAt": api.bound_at,
        "releasedAt": api.released_at,
        "lease": {
            "interface": lease.interface,
            "interfaceChosen": lease.interface_chosen,
            "hardwareAddress": lease.hardware_address,
            "clientId": lease.client_id,
            "requestedAddress": lease.requested_address,
            "server": lease.server,
            "serverHardwareAddress": lease.server_hardware_address,
            "subnetMask": lease.subnet_mask,
            "router": lease.router,
            "renewAt": lease.renew_at,
            "rebindAt": lease.rebind_at,
            "expiresAt": lease.expires_at,
        },
    }})
}

#[cfg(test)]
mod tests;
