//! LoadBalancers of both types that are created and deleted continuously, not through the proxy. Names are reused with
//! new uids; some LoadBalancers stay, and those that stayed before are deleted.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harvester_lb_e2e::World;
use harvester_lb_e2e::lives::{create, delete};
use harvester_lb_fixtures::{cluster_spec, vm_spec};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// One is created and one deleted in each interval.
const PACE: Duration = Duration::from_millis(100);
/// Number of names; half of them exist at a time.
const NAMES: usize = 24;
/// This many of the first ones stay: nothing happens to them any more, so that only the back-off makes the operator
/// retry what failed at first.
const STAY: usize = 20;

/// The work that was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    made: usize,
    deleted: usize,
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} load balancers made, {} deleted",
            self.made, self.deleted
        )
    }
}

/// Runs until it is ended.
pub struct Churn {
    stop: Arc<AtomicBool>,
    task: JoinHandle<anyhow::Result<Work>>,
}

impl Churn {
    /// Starts the churn of a round; rounds are counted from 1.
    pub fn start(world: &Arc<World>, ns: &'static str, round: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(run(Arc::clone(world), ns, round, Arc::clone(&stop)));
        Self { stop, task }
    }

    pub async fn end(self) -> anyhow::Result<Work> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await?
    }
}

async fn run(
    world: Arc<World>,
    ns: &'static str,
    round: usize,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<Work> {
    let (lbs, mut work) = (world.lbs(ns), Work::default());
    let mut next = Instant::now();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let (comes, goes) = if number < STAY {
            (stays(round, number), stays(round - 1, number))
        } else {
            let goes = number + NAMES / 2;
            (name(number % NAMES), name(goes % NAMES))
        };
        work.made += usize::from(create(&lbs, &comes, &spec(&comes)).await?);
        work.deleted += usize::from(delete(&lbs, &goes).await?);
        next += PACE;
        sleep_until(next).await;
    }
    Ok(work)
}

/// Starts with its type; a third are of VM type.
fn name(number: usize) -> String {
    let prefix = if number.is_multiple_of(3) { "v" } else { "c" };
    format!("{prefix}{number}")
}

fn stays(round: usize, number: usize) -> String {
    format!("{}-of-round{round}", name(number))
}

fn spec(name: &str) -> Value {
    if name.starts_with('v') {
        vm_spec("web")
    } else {
        cluster_spec()
    }
}
