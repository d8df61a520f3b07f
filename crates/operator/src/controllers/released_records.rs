//! Deletes Released IPAllocations beyond the limits of 6.5, and those outside the ranges of every pool (POOL-1). It has its
//! own queue and rate limit, so that no pool status waits for it (POOL-5).

use std::time::Duration;

use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::WriteError;
use tokio::time::Instant;
use tracing::warn;

use crate::context::Context;
use crate::controllers::records;
use crate::throttles::history_deletions::BATCH;

/// Deletes one batch of excess Released IPAllocations.
pub async fn reconcile(ctx: &Context) -> Result<Requeue, WriteError> {
    let refused = ctx.history_deletion_budget.refused(Instant::now());
    let limit = BATCH as usize + refused.len();
    let mut excess = ctx.index.excess_history(limit);
    excess.retain(|record| !refused.contains_key(&record.spec.addr));
    if excess.is_empty() {
        let again = refused.into_values().min();
        return Ok(again.map_or(Requeue::AwaitChange, |at| {
            Requeue::After(at.saturating_duration_since(Instant::now()))
        }));
    }
    for record in &excess {
        if let Err(wait) = ctx.history_deletion_budget.turn(Instant::now()) {
            return Ok(Requeue::After(wait));
        }
        let why = match records::remove(ctx, record).await {
            Ok(true) => continue,
            Ok(false) => "a finalizer holds it".to_owned(),
            Err(WriteError::Refused(why)) => why,
            // The IPAllocation has changed, and the ledger has the new version.
            Err(error) if error.is_stale() => continue,
            Err(error) => return Err(error),
        };
        ctx.metrics.history_deletions_refused.inc();
        warn!(address = %record.spec.addr, why, "Released IPAllocation not deleted, will retry");
        let until = Instant::now() + ctx.timings.retry_cap;
        ctx.history_deletion_budget.refuse(record.spec.addr, until);
    }
    // There may be more.
    Ok(Requeue::After(Duration::ZERO))
}

#[cfg(test)]
mod tests;
