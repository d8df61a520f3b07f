//! Tells load balancers that wait what a change of a pool has made of the reason (SEL-7): within two seconds if they are a few
//! hundred, else so many a second. Who can be served is woken elsewhere and at once.
//!
//! Who was told something else than is true now is found by the ledger, in pieces; such a load balancer is reconciled,
//! which writes its message and nothing else.

pub mod budget;

use std::time::Duration;

use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_core::cached;
use tokio::time::Instant;

use crate::context::Context;

/// How many are looked at under the leader's lock at a time.
const LOOK: usize = 64;
/// How many of them are told at most, so that the lock is given up between.
const PIECE: usize = 16;

/// Queues some of those who were told what is true no longer.
pub fn reconcile(ctx: &Context) -> Requeue {
    pass(ctx).map_or(Requeue::AwaitChange, Requeue::After)
}

/// Answers when to go on, if there may be more.
fn pass(ctx: &Context) -> Option<Duration> {
    let mut bucket = ctx.telling.0.lock();
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
    let (misinformed, more) = ctx.index.take_misinformed(LOOK, piece)?;
    for id in misinformed {
        bucket.take(now);
        ctx.index.queues.lbs.add(cached::key(&id));
    }
    more.then_some(Duration::ZERO)
}
