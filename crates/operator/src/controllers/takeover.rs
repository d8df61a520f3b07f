//! The start of a leadership term (IPA-1): builds the leader's state from the synced stores before the first allocation and
//! imports allocations left by the Go operator or a crash. Existing holders come first, then the waiting, oldest first.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;

use futures::{StreamExt, stream};
use harvester_lb_api::{IPAllocation, IPPool, Ipam, LoadBalancer};
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::cached::{self, Allocation, Lb};
use harvester_lb_core::sharing::{index, told};
use harvester_lb_core::status::{self, EventDraft};
use harvester_lb_core::{spec, time};
use harvester_lb_ipam::{
    Evidence, Owner, OwnerId, Phase, PoolName, Record, RecordSpec, addr, import,
};
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use tokio::sync::OnceCell;
use tracing::{info, warn};

use crate::clock;
use crate::context::Context;
use crate::controllers::{live, records};
use crate::index::leader_state::LeaderState;
use crate::index::queues::{LegacyKind, LegacyObject};
use crate::index::stores::Stores;

/// Number of concurrent creations while the maps of the Go operator are imported.
const IMPORTS_AT_A_TIME: usize = 16;

/// Brings the stores up to the present at the start of a term, each once: a failed attempt goes on with those that are missing.
///
/// An earlier leader may have written what a watch that is behind has yet to bring: by old copies what it has made would be that of
/// nobody, and an address that of somebody else. What changes from now on comes by the watch, in order, and no other process writes it
/// meanwhile (docs/internals/interleavings.md).
#[derive(Debug, Default)]
pub struct CatchUp {
    lbs: OnceCell<()>,
    pools: OnceCell<()>,
    allocations: OnceCell<()>,
    services: OnceCell<()>,
    slices: OnceCell<()>,
}

impl CatchUp {
    async fn run(&self, ctx: &Context) -> Result<(), WriteError> {
        let (lbs, pools, allocations, services, slices) = tokio::join!(
            self.lbs
                .get_or_try_init(|| ctx.client.catch_up::<LoadBalancer>()),
            self.pools
                .get_or_try_init(|| ctx.client.catch_up::<IPPool>()),
            self.allocations
                .get_or_try_init(|| ctx.client.catch_up::<IPAllocation>()),
            self.services
                .get_or_try_init(|| ctx.client.catch_up::<Service>()),
            self.slices
                .get_or_try_init(|| ctx.client.catch_up::<EndpointSlice>()),
        );
        lbs.and(pools).and(allocations).and(services).and(slices)?;
        Ok(())
    }
}

/// Builds the leader's state from the stores, which must be synced, and queues every object. `catch_up`: of this term.
pub async fn run(ctx: &Context, catch_up: &CatchUp) -> Result<(), WriteError> {
    catch_up.run(ctx).await?;
    remove_orphaned_health_checks(ctx);
    let unreleased = release_orphaned_records(ctx).await?;
    let mut plan = None;
    ctx.index.become_leader(|| {
        let (mut leader, planned) = self::plan(&ctx.index.stores);
        leader.await_release(unreleased);
        let records = records_to_create(&ctx.index.stores, &planned);
        leader.ledger.import(records);
        plan = Some(planned);
        leader
    });
    let Some(plan) = plan else { return Ok(()) };
    for skipped in &plan.skipped {
        warn!(?skipped, "entry of a pool status not imported");
    }
    tell_losers(ctx, &plan.losers);
    for pool in ctx.index.unimported_pools() {
        // A refused or failed import delays that pool alone and is retried by its controller (RUN-1).
        match import_pool(ctx, &pool).await {
            Ok(()) => {}
            Err(WriteError::Fenced) => return Err(WriteError::Fenced),
            Err(error) => {
                warn!(%pool, %error, "pool status not imported, will retry; it is not written until then");
                ctx.index.queues.pools.add(pool);
            }
        }
    }
    let claimed: HashSet<Key> = plan
        .claims
        .iter()
        .map(|c| cached::key(&c.owner.id))
        .collect();
    queue_everything(ctx, &claimed);
    info!(
        load_balancers = ctx.index.stores.lbs.len(),
        pools = ctx.index.stores.pools.len(),
        ip_allocations = ctx.index.stores.allocations.len(),
        imported = plan.claims.len() + plan.released.len(),
        "takeover complete"
    );
    Ok(())
}

/// Tells load balancers that another one keeps the address of their status (IPA-2).
fn tell_losers(ctx: &Context, losers: &[import::Loser]) {
    for loser in losers {
        // One whose spec is refused gets no other address, and keeps its status: it would be told at each start. Its condition comes
        // with the correction.
        let is_served = |lb: &Lb| matches!(lb, Lb::Valid(lb) if spec::check(lb).is_ok());
        let lb = ctx.index.stores.lbs.get(&cached::key(&loser.owner.id));
        let Some(lb) = lb.filter(|lb| is_served(lb)) else {
            continue;
        };
        if ctx.index.stores.unsupported(lb.meta()).is_some() {
            continue;
        }
        let text = format!(
            "{} belongs to LoadBalancer {}, whose claim is older; another address is allocated",
            loser.addr, loser.keeper
        );
        let reason = status::ADDRESS_LOST.to_owned();
        let draft = EventDraft {
            warning: true,
            reason,
            text,
        };
        ctx.notify_lb(lb.meta(), &draft);
    }
}

/// Stops health checks, left by an earlier term of this process (RUN-5), of load balancers that no longer exist, because no
/// watch event will. The others are updated by the reconcile of each load balancer.
fn remove_orphaned_health_checks(ctx: &Context) {
    for group in ctx.prober.groups() {
        let key = group.split_once('/').map(|(ns, name)| Key::new(ns, name));
        if key.is_none_or(|key| ctx.index.stores.lbs.get(&key).is_none()) {
            ctx.prober.remove_group(&group);
        }
    }
}

/// Releases IPAllocations of deleted owners whose address an existing load balancer names: the Go operator has allocated it
/// again, and a deleted owner has no claim (IPA-1). Returns the addresses that could not be released; they delay only the
/// load balancers that name them (RUN-1).
async fn release_orphaned_records(ctx: &Context) -> Result<BTreeSet<IpAddr>, WriteError> {
    let named = addresses_of_existing_lbs(&ctx.index.stores);
    let sharing = ctx.index.stores.sharing();
    let mut unreleased = BTreeSet::new();
    for (key, allocation) in ctx.index.stores.allocations.all() {
        let Allocation::Valid { record, .. } = &*allocation else {
            continue;
        };
        let owner = cached::key(&record.spec.address_of());
        let holder = cached::key(&record.spec.owner.id);
        if record.spec.phase != Phase::Bound
            || !named.contains(&record.spec.addr)
            || ctx.index.stores.lbs.get(&owner).is_some()
            || ctx.index.stores.lbs.get(&holder).is_some()
            || sharing.shares_record(record)
        {
            continue;
        }
        match release_if_orphaned(ctx, &owner, record).await {
            Ok(()) => {}
            Err(WriteError::Fenced) => return Err(WriteError::Fenced),
            Err(error) => {
                warn!(ip_allocation = %key, %owner, %error, "orphaned IPAllocation not released, will retry");
                unreleased.insert(record.spec.addr);
            }
        }
    }
    Ok(unreleased)
}

/// Releases an IPAllocation after live reads of owner and Service, because absence was only inferred from a list (IPA-3).
async fn release_if_orphaned(
    ctx: &Context,
    owner: &Key,
    record: &Record,
) -> Result<(), WriteError> {
    if ctx.client.get_live::<LoadBalancer>(owner).await?.is_some() {
        return Ok(());
    }
    let shown = live::shown_addresses(ctx, owner).await?;
    if shown.contains(&record.spec.addr) {
        return Ok(());
    }
    info!(address = %record.spec.addr, %owner, "releasing orphaned IPAllocation, another load balancer names its address");
    live::ensure_left(ctx, record, None).await?;
    let released = RecordSpec {
        phase: Phase::Released,
        released_at: Some(clock::now()),
        group: None,
        ..record.spec.clone()
    };
    records::write(ctx, &released, Some(record.version)).await?;
    Ok(())
}

/// The addresses of existing load balancers according to their status, or to a pool's map by another writer. Pure.
pub fn addresses_of_existing_lbs(stores: &Stores) -> HashSet<IpAddr> {
    let mut named = HashSet::new();
    for (_, lb) in stores.lbs.all() {
        if let Lb::Valid(lb) = &*lb
            && !told::is_of_another(lb)
        {
            named.extend(spec::request(lb).status.map(|status| status.addr));
        }
    }
    for (_, pool) in stores.pools.all() {
        for (address, id) in pool.foreign_maps.iter().flat_map(|maps| &maps.allocated) {
            let lives =
                OwnerId::parse(id).is_some_and(|id| stores.lbs.get(&cached::key(&id)).is_some());
            named.extend(addr::parse(address).filter(|_| lives));
        }
    }
    named
}

/// The leader's state with the claims from the maps of the Go operator, and the plan of their import (IPA-1, IPA-2).
/// Pure; `check` shows the same plan.
pub fn plan(stores: &Stores) -> (LeaderState, import::Plan) {
    let mut leader = LeaderState::from_stores(stores);
    let mut maps = Vec::new();
    for (key, pool) in stores.pools.all() {
        if let Some(foreign) = &pool.foreign_maps {
            maps.push(import::PoolMaps {
                name: PoolName::from(&*key.name),
                created: time::created(&pool.meta),
                allocated: foreign.allocated.clone().into_iter().collect(),
                history: foreign.history.clone().into_iter().collect(),
            });
        }
    }
    let lbs = stores.lbs.all();
    let existing: Vec<import::ExistingLb> = lbs.iter().map(|(_, lb)| existing_lb(lb)).collect();
    let plan = import::plan(&leader.ledger, &maps, &existing, clock::now());
    for claim in &plan.claims {
        leader
            .ledger
            .claim(claim.addr, claim.owner.clone(), claim.evidence.clone());
    }
    (leader, plan)
}

/// The import's view of an existing load balancer. The status of a secondary has the primary's address and claims nothing
/// (SHR-8).
fn existing_lb(lb: &Lb) -> import::ExistingLb {
    match lb {
        Lb::Valid(lb) => {
            let request = spec::request(lb);
            import::ExistingLb {
                owner: request.owner,
                created: request.created,
                status: request.status.filter(|_| !told::is_of_another(lb)),
                // Also while it is being deleted: its address is not reallocated before the object is gone.
                wants: lb.spec.address_source() == Ipam::Pool,
            }
        }
        Lb::Invalid(meta, _) => import::ExistingLb {
            owner: spec::owner(meta),
            created: time::created(meta),
            status: None,
            // It exists with an unknown spec: an address that a map gives it stays its own.
            wants: true,
        },
    }
}

/// The records of addresses that are remembered or allocated only in the maps of pools. They are created before anything else
/// is written: the next write of a pool's status replaces its maps, which are the only evidence until then.
pub fn records_to_create(stores: &Stores, plan: &import::Plan) -> Vec<RecordSpec> {
    let held = plan.claims.iter().filter_map(|claim| held(stores, claim));
    plan.released.iter().cloned().chain(held).collect()
}

/// The record of an address that is allocated only in the map of a pool.
fn held(stores: &Stores, claim: &import::NewClaim) -> Option<RecordSpec> {
    let Evidence::Trusted(pool) = &claim.evidence else {
        return None;
    };
    let lb = stores.lbs.get(&cached::key(&claim.owner.id))?;
    Some(RecordSpec {
        addr: claim.addr,
        pool: pool.clone(),
        owner: claim.owner.clone(),
        phase: Phase::Bound,
        // The time of the allocation is unknown; the load balancer's creation time approximates it.
        bound_at: time::created(lb.meta()),
        released_at: None,
        group: None,
    })
}

/// Creates IPAllocations for the entries that only the map of a pool has, several concurrently. A failure does not affect
/// the others; one of the errors is returned (RUN-1).
pub async fn import_pool(ctx: &Context, pool: &PoolName) -> Result<(), WriteError> {
    let outcomes = stream::iter(ctx.index.unimported(pool))
        .map(|spec| async move { import_one(ctx, spec).await })
        .buffer_unordered(IMPORTS_AT_A_TIME);
    outcomes
        .fold(Ok(()), |all, one| async { one.and(all) })
        .await
}

/// Creates one IPAllocation, unless the address has one by now, readable or not.
async fn import_one(ctx: &Context, spec: RecordSpec) -> Result<(), WriteError> {
    let addr = spec.addr;
    if ctx.index.lacks_record(addr) {
        let lives = |owner: &Owner| {
            let lb = ctx.index.stores.lbs.get(&cached::key(&owner.id));
            lb.is_some_and(|lb| spec::owner(lb.meta()) == *owner)
        };
        // On a retry the owner may have been deleted meanwhile.
        let spec = match spec.phase {
            Phase::Bound if !lives(&spec.owner) => RecordSpec {
                phase: Phase::Released,
                released_at: Some(clock::now()),
                ..spec
            },
            _ => spec,
        };
        records::write(ctx, &spec, None).await?;
        // It may have got another address since the first attempt, and then releases this one (IPA-6).
        ctx.index.queues.lbs.add(cached::key(&spec.owner.id));
    }
    ctx.index.imported(addr);
    Ok(())
}

/// Queues every object once: load balancers with an address, then the waiting ones by age, then deleted ones.
fn queue_everything(ctx: &Context, claimed: &HashSet<Key>) {
    let mut lbs = ctx.index.stores.lbs.all();
    lbs.sort_by_cached_key(|(key, lb)| (time::created(lb.meta()), key.clone()));
    let mut waiting = Vec::new();
    for (key, lb) in &lbs {
        let Lb::Valid(lb) = &**lb else {
            ctx.index.queues.lbs.add(key.clone());
            continue;
        };
        ctx.index.queue_cluster_of(lb);
        let needs_pool = lb.spec.address_source() == Ipam::Pool
            && lb.metadata.deletion_timestamp.is_none()
            && spec::check(lb).is_ok();
        // One that shares an address waits for no pool.
        let waits_for_none = ctx.index.stores.unsupported(&lb.metadata).is_some()
            || index::named_group(key, &lb.metadata).is_some();
        let holds = claimed.contains(key) || ctx.index.holds_address(key);
        if needs_pool && !holds && !waits_for_none {
            waiting.push(spec::request(lb));
        } else {
            ctx.index.queues.lbs.add(key.clone());
        }
    }
    ctx.index.enqueue_waiters(waiting);
    // Waiters without a pool are not woken by the ledger, but still need their condition.
    for (key, _) in lbs {
        ctx.index.queues.lbs.add(key);
    }
    for key in ctx
        .index
        .deleted_lbs()
        .into_iter()
        .chain(ctx.index.groups())
    {
        ctx.index.queues.lbs.add(key);
    }
    for (key, vmi) in ctx.index.stores.vmis.all() {
        if vmi.finalizers_to_keep.is_some() {
            ctx.index.queues.legacy.add(LegacyObject {
                kind: LegacyKind::Vmi,
                key,
            });
        }
    }
    for (key, vm) in ctx.index.stores.vms.all() {
        if vm.finalizers_to_keep.is_some() {
            ctx.index.queues.legacy.add(LegacyObject {
                kind: LegacyKind::Vm,
                key: key.clone(),
            });
        }
        ctx.index.queue_cluster_of_node(&key, &vm);
    }
}
