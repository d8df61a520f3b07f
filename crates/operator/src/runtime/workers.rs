//! The workers of the controllers, and the task that queues load balancers with changed verdicts.

use std::sync::Arc;

use harvester_lb_object::Key;
use harvester_lb_prober::VerdictChanges;
use tokio::task::JoinSet;

use crate::context::Context;
use crate::controllers::guest_cluster;
use crate::controllers::ip_pool;
use crate::controllers::legacy_finalizers;
use crate::controllers::load_balancer;
use crate::controllers::released_records;
use crate::controllers::waiting_messages;
use crate::index::queues::Singleton;

/// Workers for pools. More than one, because the write of a large map is slow.
const POOL_WORKERS: usize = 2;
/// Workers that remove legacy finalizers: after a swap every virtual machine has one, and KubeVirt's webhook may admit the
/// change slowly.
const LEGACY_WORKERS: usize = 4;

/// Starts all workers; they end when the queues are closed.
pub fn spawn(ctx: &Arc<Context>, workers: usize, set: &mut JoinSet<()>) {
    macro_rules! spawn {
        ($workers:expr, $queue:ident, |$ctx:ident, $key:pat_param| $reconcile:expr) => {
            for _ in 0..$workers {
                let ctx = Arc::clone(ctx);
                set.spawn(async move {
                    let $ctx = &*ctx;
                    let reconcile = |$key| async move { $reconcile.await };
                    $ctx.index
                        .queues
                        .$queue
                        .work(&$ctx.metrics.reconciles, reconcile)
                        .await;
                });
            }
        };
    }
    spawn!(workers, lbs, |ctx, key| load_balancer::reconcile(ctx, &key));
    spawn!(POOL_WORKERS, pools, |ctx, name| ip_pool::reconcile(
        ctx, &name
    ));
    spawn!(1, guest_clusters, |ctx, cluster| guest_cluster::reconcile(
        ctx, &cluster
    ));
    spawn!(1, history, |ctx, Singleton| released_records::reconcile(
        ctx
    ));
    spawn!(1, waiting_messages, |ctx, Singleton| async {
        Ok(waiting_messages::reconcile(ctx))
    });
    spawn!(LEGACY_WORKERS, legacy, |ctx, object| {
        legacy_finalizers::reconcile(ctx, &object)
    });
}

/// Queues load balancers whose verdicts have changed, until the prober stops. Changes between two terms are delivered in the
/// next one.
pub async fn queue_changed_verdicts(ctx: &Context, verdicts: &mut VerdictChanges) {
    while let Some(groups) = verdicts.next().await {
        for group in groups {
            if let Some((namespace, name)) = group.split_once('/') {
                ctx.index.queues.lbs.add(Key::new(namespace, name));
            }
        }
    }
}
