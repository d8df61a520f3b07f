//! The second half of a reconcile: from the goal of a load balancer to its last write.

use std::borrow::Cow;

use harvester_lb_api::LoadBalancer;
use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::plan::{self, Goal, Kind, Next, View};
use harvester_lb_object::Key;

use crate::context::Context;
use crate::controllers::load_balancer::observe::{self, Stored};
use crate::controllers::load_balancer::{announcement, apply, release, write_status};

/// Plans the way to a goal, applies it, and writes the status.
pub async fn walk(
    ctx: &Context,
    key: &Key,
    lb: &LoadBalancer,
    goal: &Goal,
) -> Result<Requeue, WriteError> {
    let mut lb = Cow::Borrowed(lb);
    let mut taken = None;
    loop {
        if let Goal::Keep(_) = goal {
            // Before the stores are read, so that no change is missed.
            ctx.index.track_endpoints(key);
        }
        let stored = Stored::of(ctx, key);
        let view = View {
            has_foreign_slice: taken == Some(Kind::EndpointSlice),
            ..observe::view(ctx, &lb, stored.objects(key), goal)
        };
        let plan = plan::plan(&view, goal);
        let outcome = apply::apply(ctx, &view, stored.service.as_ref(), &plan).await?;
        if let Some(kind) = outcome.taken {
            if taken.replace(kind).is_some() {
                return Err(WriteError::Conflict(format!("{kind} {key} changes owners")));
            }
            if let Some(committed) = outcome.committed {
                lb = Cow::Owned(committed);
            }
            continue;
        }
        let newest = outcome.committed.as_ref().unwrap_or(&lb);
        let view = View { lb: newest, ..view };
        let conclusion = plan.conclude(&view, &outcome.applied());
        if let (Goal::Serve(..), Some(service)) = (goal, outcome.service()) {
            announcement::note_node(ctx, key, newest, service);
        }
        let written = match &conclusion.status {
            Some(update) => &write_status::write_status(ctx, key, newest, update).await?,
            None => newest,
        };
        release::release_extra_records(ctx, key, written, plan.extra_records).await?;
        return match (outcome.error, conclusion.next) {
            (Some(error), _) => Err(error),
            (None, Next::Again(why)) => Err(WriteError::Conflict(why)),
            (None, Next::AwaitChange) => Ok(Requeue::AwaitChange),
            (None, Next::Resync) => Ok(Requeue::Resync),
            (None, Next::After(time)) => Ok(Requeue::After(time)),
            (None, Next::Backoff) => Ok(Requeue::Backoff),
        };
    }
}
