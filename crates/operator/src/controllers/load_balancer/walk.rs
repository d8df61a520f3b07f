//! The second half of a reconcile: from the goal of a load balancer to its last write.

use std::borrow::Cow;
use std::sync::Arc;

use harvester_lb_api::LoadBalancer;
use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::cached::CachedService;
use harvester_lb_core::desired::{self, Ownership};
use harvester_lb_core::plan::{
    self, Applied, Goal, Keep, Kind, Next, Objects, Plan, ServiceOf, Sharing, View,
};
use harvester_lb_core::sharing::group::is_owner;
use harvester_lb_core::sharing::service;
use harvester_lb_core::sharing::snapshot::Snapshot;
use harvester_lb_core::sharing::telling;
use harvester_lb_core::spec::VmSpec;
use harvester_lb_object::Key;
use tokio::time::Duration;

use crate::context::Context;
use crate::controllers::load_balancer::apply::Outcome;
use crate::controllers::load_balancer::group::{self, Group};
use crate::controllers::load_balancer::join::Join;
use crate::controllers::load_balancer::observe::{self, Stored};
use crate::controllers::load_balancer::{announcement, apply, release, write_status};

/// Plans the way to a goal, applies it, and writes the status. `of`: the name of the group whose address it is; its own, unless it
/// shares that of another one.
pub async fn walk(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    goal: &Goal,
    of: &Key,
) -> Result<Requeue, WriteError> {
    let walk = Walk { ctx, key, goal, of };
    let mut lb = Cow::Borrowed(lb);
    let mut taken = None;
    loop {
        if let Goal::Keep(_) = goal {
            // Before the stores are read, so that no change is missed.
            ctx.index.track_endpoints(key);
        }
        let stored = Stored::of(ctx, key);
        let objects = stored.objects(key);
        let group = walk.vm().and_then(|_| Group::of(ctx, of));
        let snapshot = group.as_ref().map(Group::snapshot);
        let view = View {
            has_foreign_slice: taken == Some(Kind::EndpointSlice),
            sharing: walk.sharing(&objects, group.as_ref().zip(snapshot.as_ref()))?,
            ..observe::view(ctx, &lb, objects, goal)
        };
        let plan = plan::plan(&view, goal);
        let join = Join::of(ctx, key, &lb, goal, of).await?;
        let outcome = walk.apply(&view, &plan, join.as_ref()).await?;
        let Some(kind) = outcome.taken else {
            return walk.conclude(view, plan, outcome, join.as_ref()).await;
        };
        if taken.replace(kind).is_some() {
            return Err(WriteError::Conflict(format!("{kind} {key} changes owners")));
        }
        if let Some(committed) = outcome.committed {
            lb = Cow::Owned(committed);
        }
    }
}

/// What does not change from one plan to the next.
struct Walk<'a> {
    ctx: &'a Context,
    key: &'a Key,
    goal: &'a Goal,
    of: &'a Key,
}

impl Walk<'_> {
    /// The spec that is to be served.
    fn vm(&self) -> Option<&VmSpec> {
        match self.goal {
            Goal::Serve(vm, _) => Some(vm),
            Goal::AddressOnly(_) | Goal::Wait(..) | Goal::Keep(_) => None,
        }
    }

    /// With whom it shares its address.
    ///
    /// # Errors
    /// `Conflict` if it is no longer a member of the group.
    fn sharing<'a>(
        &self,
        objects: &Objects<'_>,
        group: Option<(&Group, &'a Snapshot<'a>)>,
    ) -> Result<Sharing<'a>, WriteError> {
        let Some(vm) = self.vm() else {
            return Ok(Sharing::Alone);
        };
        group::sharing(self.ctx, objects, vm, self.of, group).ok_or_else(|| {
            let Self { key, of, .. } = self;
            WriteError::Conflict(format!("{key} does not share the address of {of} any more"))
        })
    }

    /// Applies the plan, and notes what others must know of that.
    async fn apply(
        &self,
        view: &View<'_>,
        plan: &Plan<'_>,
        join: Option<&Join<'_>>,
    ) -> Result<Outcome, WriteError> {
        let Self { ctx, key, .. } = *self;
        let outcome = apply::apply(ctx, view, plan).await;
        if let (Some(join), Err(error)) = (join, &outcome) {
            join.failed(key, view.lb, error);
        }
        if let (Sharing::Primary(_), Some(vm)) = (&view.sharing, self.vm()) {
            group::names_written(ctx, &Stored::of(ctx, key).objects(key), vm);
        }
        outcome
    }

    /// Writes the status that follows from what was applied, then releases extra records.
    async fn conclude(
        &self,
        view: View<'_>,
        mut plan: Plan<'_>,
        outcome: Outcome,
        join: Option<&Join<'_>>,
    ) -> Result<Requeue, WriteError> {
        let Self { ctx, key, .. } = *self;
        let newest = outcome.committed.as_ref().unwrap_or(view.lb);
        let view = View { lb: newest, ..view };
        if outcome.is_repeated {
            // The next plan says what is refused.
            return Ok(Requeue::AwaitChange);
        }
        let refused = outcome.refused.as_deref();
        let is_refused = refused.is_some();
        let (service, recreate_in) = self
            .service(newest, plan.service, &outcome, is_refused)
            .await?;
        let slice = ctx.index.stores.slices.get(key);
        let applied = Applied {
            service: service.as_deref().map(|service| &**service),
            slice: slice.as_deref(),
            refused,
            is_incomplete: outcome.error.is_some(),
            recreate_in,
        };
        let extra_records = std::mem::take(&mut plan.extra_records);
        let conclusion = plan.conclude(&view, &applied);
        let next = match conclusion.next {
            Next::Again(why) => return Err(WriteError::Conflict(why)),
            Next::AwaitChange => Requeue::AwaitChange,
            Next::Resync => Requeue::Resync,
            Next::After(time) => Requeue::After(time),
            Next::Backoff => Requeue::Backoff,
        };
        let written = match &conclusion.status {
            Some(update) => {
                let written = write_status::write_status(ctx, key, newest, update).await;
                if let (Some(join), Err(error)) = (join, &written) {
                    join.failed(key, newest, error);
                }
                &written?
            }
            None => newest,
        };
        if conclusion.status.is_some() && self.is_outdated(&view.sharing, written) {
            ctx.index.queues.lbs.add(key.clone());
        }
        release::release_extra_records(ctx, key, written, extra_records).await?;
        outcome.error.map_or(Ok(next), Err)
    }

    /// The Service that the status speaks of, and when it is to be recreated because kube-vip ignores its changed address.
    async fn service(
        &self,
        newest: &LoadBalancer,
        which: ServiceOf,
        outcome: &Outcome,
        is_refused: bool,
    ) -> Result<(Option<Arc<CachedService>>, Option<Duration>), WriteError> {
        let Self { ctx, key, of, .. } = *self;
        let address = match self.goal {
            Goal::Serve(_, address) if !is_refused => address,
            Goal::Keep(Keep {
                shared: Some(address),
                ..
            }) => address,
            _ => return Ok((None, None)),
        };
        match which {
            ServiceOf::None => Ok((None, None)),
            ServiceOf::Own => {
                let Some(service) = own_service(ctx, key, outcome)? else {
                    return Ok((None, None));
                };
                announcement::note_node(ctx, key, newest, &service);
                // kube-vip may have announced a changed address before the answer to the change was read.
                if let Some(written) = &outcome.service {
                    announcement::observe_move(ctx, key, written, address);
                }
                let recreate_in = announcement::move_on(ctx, key, &service, address).await?;
                Ok((Some(service), recreate_in))
            }
            ServiceOf::Group => {
                let uid = newest.metadata.uid.as_deref().unwrap_or_default();
                let is_ours = |it: &Arc<CachedService>| {
                    desired::ownership(&it.metadata, &of.name) == Ownership::Ours
                        || is_owner(Some(it), uid)
                };
                Ok((ctx.index.stores.services.get(of).filter(is_ours), None))
            }
        }
    }

    /// Whether what the status of a secondary says of its ports on the Service of the group is outdated: who wrote that Service, or was
    /// refused to, may have looked at the status before it said so (SHR-3).
    fn is_outdated(&self, sharing: &Sharing<'_>, written: &LoadBalancer) -> bool {
        let Self { ctx, key, of, .. } = *self;
        let (Sharing::Secondary(with), Some(vm)) = (sharing, self.vm()) else {
            return false;
        };
        let waits = telling::may_wait_for_ports(written, &of.name);
        if !waits && !ctx.index.has_refusals(of) {
            return false;
        }
        let group = Group::of(ctx, of);
        let Some(snapshot) = group.as_ref().map(Group::snapshot) else {
            return false;
        };
        let refused = snapshot.refusal(&key.name);
        let slice = ctx.index.stores.slices.get(key);
        let is_carried = || service::carries(snapshot.service, slice.as_deref(), &vm.ports);
        refused != with.refused.as_deref() || (refused.is_none() && waits && is_carried())
    }
}

/// The newest copy of the Service of a load balancer that has one. kube-vip may have announced it since the view was taken.
///
/// # Errors
/// `Conflict` if it has another owner by now.
fn own_service(
    ctx: &Context,
    key: &Key,
    outcome: &Outcome,
) -> Result<Option<Arc<CachedService>>, WriteError> {
    let newest = ctx.index.stores.services.get(key);
    let service = newest.or_else(|| outcome.service.clone());
    let owner = service
        .as_ref()
        .map(|service| desired::ownership(&service.metadata, &key.name));
    match owner {
        Some(Ownership::Ours) | None => Ok(service),
        Some(Ownership::Foreign) => Err(WriteError::Conflict(format!(
            "Service {key} has another owner"
        ))),
    }
}
