//! One leadership term (RUN-5): takeover, work, orderly end. When it is over, none of its tasks runs.
//!
//! A request that got no response within the drain limit was cancelled, and the API server may still execute it. It carries
//! the preconditions of the old term, so it does no more harm than the late write of a leader that was killed.

use std::sync::Arc;

use anyhow::{anyhow, bail};
use harvester_lb_controller_kit::lease::{Candidate, End};
use harvester_lb_prober::VerdictChanges;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::context::Context;
use crate::controllers::takeover::{self, CatchUp};
use crate::controllers::{ip_pool, kube_vip_migration};
use crate::runtime::workers;

/// Runs one term, until the Lease is lost or `stop` is cancelled.
///
/// # Errors
/// A task of this process ended unexpectedly.
pub async fn lead(
    ctx: &Arc<Context>,
    workers: usize,
    verdicts: &mut VerdictChanges,
    candidate: &mut Candidate,
    stop: &CancellationToken,
) -> anyhow::Result<End> {
    let mut at_work = JoinSet::new();
    at_work.spawn(begin(Arc::clone(ctx)));
    let work = async {
        // The takeover is a task of its own, so that a lost Lease drains it like a worker instead of dropping it.
        match at_work.join_next().await {
            Some(Ok(())) => workers::spawn(ctx, workers, &mut at_work),
            ended => return anyhow!("the takeover task ended: {ended:?}"),
        }
        tokio::select! {
            ended = at_work.join_next() => anyhow!("a worker ended: {ended:?}"),
            () = workers::queue_changed_verdicts(ctx, verdicts) => anyhow!("the health checks ended"),
        }
    };
    let end = tokio::select! {
        end = candidate.hold(stop) => end?,
        error = work => return Err(error),
    };
    match end {
        End::Stopped => finish(ctx, candidate, &mut at_work).await,
        End::Lost => drain(ctx, &mut at_work).await?,
    }
    Ok(end)
}

/// Ends the work of a leader that is stopping: reconciles in progress finish, then outdated pool statuses and queued Events
/// are written, within time limits.
async fn finish(ctx: &Context, candidate: &mut Candidate, at_work: &mut JoinSet<()>) {
    info!("stopping");
    ctx.index.queues.close();
    let finish = async {
        let work = async {
            while at_work.join_next().await.is_some() {}
            ip_pool::flush(ctx).await;
        };
        if tokio::time::timeout(ctx.timings.flush_limit, work)
            .await
            .is_err()
        {
            warn!("flush timed out; the next leader writes the rest");
        }
        if tokio::time::timeout(ctx.timings.events_limit, ctx.events.written())
            .await
            .is_err()
        {
            warn!("Event flush timed out; the conditions say the same");
        }
    };
    // The Lease is renewed meanwhile, so that all of this is written as the leader.
    let never = CancellationToken::new();
    tokio::select! {
        () = finish => {}
        _ = candidate.hold(&never) => warn!("leadership lost while stopping"),
    }
}

/// Ends the work of a leader that has lost the Lease: requests in flight end, or are cancelled after a time limit.
async fn drain(ctx: &Context, at_work: &mut JoinSet<()>) -> anyhow::Result<()> {
    ctx.index.end_term();
    let deadline = tokio::time::sleep(ctx.timings.drain_limit);
    tokio::pin!(deadline);
    loop {
        tokio::select! {
            ended = at_work.join_next() => match ended {
                None => break,
                Some(Ok(())) => {}
                Some(Err(error)) => bail!("a worker ended: {error}"),
            },
            () = &mut deadline => {
                warn!(requests = at_work.len(), "API server does not answer, cancelling requests in flight");
                at_work.shutdown().await;
                break;
            }
        }
    }
    info!("term ended, standing by");
    Ok(())
}

/// Runs the migration from kube-vip and the takeover, with retries until they succeed or the term ends.
async fn begin(ctx: Arc<Context>) {
    let catch_up = CatchUp::default();
    let begin = async || {
        kube_vip_migration::run(&ctx).await?;
        takeover::run(&ctx, &catch_up).await
    };
    let mut failures = 0;
    while let Err(error) = begin().await {
        failures += 1;
        warn!(%error, "takeover failed, will retry");
        let delay = ctx
            .timings
            .backoff_unavailable()
            .delay(failures, fastrand::f64());
        tokio::select! {
            () = ctx.index.queues.lbs.closed() => return,
            () = tokio::time::sleep(delay) => {}
        }
    }
}

#[cfg(test)]
mod tests;
