//! Updates the messages of waiting load balancers after a pool change has altered their reason (SEL-7): within two seconds
//! for up to 200 of them, more at 100 a second. Those that can be served now are queued elsewhere and at once.
//!
//! The ledger finds waiters with an outdated message, in batches. Each is reconciled, which writes its message and nothing
//! else.

use std::time::Duration;

use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_core::cached;
use tokio::time::Instant;

use crate::context::Context;

/// Number of waiters that are checked at a time under the leader's lock.
const LOOK: usize = 64;
/// Maximum number of them that are queued at a time, so that the lock is released in between.
const PIECE: usize = 16;

/// Queues some of the waiting load balancers with an outdated message.
pub fn reconcile(ctx: &Context) -> Requeue {
    pass(ctx).map_or(Requeue::AwaitChange, Requeue::After)
}

/// Returns the delay of the next pass; `None` if no waiter is left to check.
fn pass(ctx: &Context) -> Option<Duration> {
    let mut bucket = ctx.waiting_message_budget.0.lock();
    let now = Instant::now();
    let wait = bucket.due_in(now);
    if !wait.is_zero() {
        return Some(wait);
    }
    let piece = (0..PIECE)
        .scan(*bucket, |ahead, _| {
            let is_due = ahead.due_in(now).is_zero();
            ahead.take(now);
            is_due.then_some(())
        })
        .count();
    let (outdated, more) = ctx.index.take_outdated_explanations(LOOK, piece)?;
    for id in outdated {
        bucket.take(now);
        ctx.index.queues.lbs.add(cached::key(&id));
    }
    more.then_some(Duration::ZERO)
}

#[cfg(test)]
mod tests;
