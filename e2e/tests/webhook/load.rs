//! Requests through the API server that need the webhook, some dozen a second: what is refused, and when.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::ensure;
use harvester_lb_e2e::World;
use harvester_lb_e2e::webhook::alpha;
use kube::api::PostParams;
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::table::api;

/// Workers of each kind. More than one, so that the API server has several connections.
const WORKERS: u32 = 4;
/// Pause of a worker between two requests, where a moment without an answer must not be missed.
pub const DENSE: Duration = Duration::from_millis(100);
/// The same over more than a minute: the machine has other things to do.
pub const SPARSE: Duration = Duration::from_millis(300);

#[derive(Default)]
struct Results {
    requests: AtomicU64,
    failures: Mutex<Vec<(Instant, String)>>,
}

/// Requests that continue until this is dropped.
pub struct Load {
    results: Arc<Results>,
    _tasks: JoinSet<()>,
}

impl Load {
    /// Starts it: validated IPPools, and conversions of this LoadBalancer.
    pub async fn start(
        world: &World,
        namespace: &str,
        lb: &str,
        pause: Duration,
    ) -> anyhow::Result<Self> {
        let results = Arc::new(Results::default());
        let mut tasks = JoinSet::new();
        let pools = api(world, "IPPool", "").await?;
        let alpha = alpha(world, namespace).await?;
        for worker in 0..WORKERS {
            let (pools, of_pools) = (pools.clone(), Arc::clone(&results));
            // One after the other, so that a gap between two requests is short.
            let offset = pause * worker / WORKERS;
            tasks.spawn(async move {
                tokio::time::sleep(offset).await;
                let params = PostParams {
                    dry_run: true,
                    ..PostParams::default()
                };
                let object = json!({
                    "apiVersion": harvester_lb_api::API_VERSION, "kind": "IPPool",
                    "metadata": {"name": format!("load-{worker}")},
                    "spec": {"ranges": [{"subnet": "203.0.113.0/24"}]},
                });
                loop {
                    let object = serde_json::from_value(object.clone());
                    let Ok(object) = object else { return };
                    let answer = pools.create(&params, &object).await;
                    of_pools.count(answer.map(|_| ()));
                    tokio::time::sleep(pause).await;
                }
            });
            let (alpha, lb) = (alpha.clone(), lb.to_owned());
            let of_conversion = Arc::clone(&results);
            tasks.spawn(async move {
                tokio::time::sleep(offset).await;
                loop {
                    of_conversion.count(alpha.get(&lb).await.map(|_| ()));
                    tokio::time::sleep(pause).await;
                }
            });
        }
        Ok(Self {
            results,
            _tasks: tasks,
        })
    }

    /// Number of requests so far.
    pub fn requests(&self) -> u64 {
        self.results.requests.load(Ordering::Relaxed)
    }

    /// Fails if a request failed since then.
    pub fn no_failure_since(&self, since: Instant) -> anyhow::Result<()> {
        let failures = self.results.failures.lock();
        let late: Vec<_> = failures.iter().filter(|(at, _)| *at >= since).collect();
        ensure!(
            late.is_empty(),
            "{} of {} requests failed: {:?}",
            late.len(),
            self.requests(),
            late.first()
        );
        Ok(())
    }
}

impl Results {
    fn count(&self, answer: Result<(), kube::Error>) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = answer {
            self.failures
                .lock()
                .push((Instant::now(), error.to_string()));
        }
    }
}
