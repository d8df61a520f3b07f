//! LoadBalancers of both types that are created and deleted continuously, not through the proxy. Some of them share the address of
//! another one. Names are reused with new uids; some LoadBalancers stay, and those that stayed before are deleted.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harvester_lb_e2e::World;
use harvester_lb_e2e::lives::{Life, create, delete, sharing};
use harvester_lb_fixtures::{cluster_spec, vm_spec};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// One is created and one deleted in each interval.
const PACE: Duration = Duration::from_millis(100);
/// Number of names; half of them exist at a time.
const NAMES: usize = 24;
/// This many of the first ones stay: nothing happens to them any more, so that only the back-off makes the operator
/// retry what failed at first. A multiple of six, as the other number: nobody shares the address of one from the other side.
const STAY: usize = 18;

/// Some share its address.
pub const GROUP: &str = "group";

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
    let [round, before] = [round, round - 1].map(|n| format!("-of-round{n}"));
    for number in 0.. {
        if may_end_before(number) && stop.load(Ordering::Relaxed) {
            break;
        }
        let (comes, goes) = if number < STAY {
            (life(number, &round), name(number, &before))
        } else {
            let goes = number + NAMES / 2;
            (life(number % NAMES, ""), name(goes % NAMES, ""))
        };
        work.made += usize::from(create(&lbs, &comes).await?);
        work.deleted += usize::from(delete(&lbs, &goes).await?);
        next += PACE;
        sleep_until(next).await;
    }
    Ok(work)
}

/// Not before those that stayed before are all deleted, as some have the ports of these. Not between the deletion of one whose address is
/// shared and that of the one that shares it: if the faults kept the latter from its address until then, it waits for a primary that does
/// not come.
const fn may_end_before(number: usize) -> bool {
    number >= STAY && !matches!(number % 6, 2 | 5)
}

/// A third are of VM type.
const fn is_vm(number: usize) -> bool {
    number.is_multiple_of(3)
}

/// Starts with its type.
fn name(number: usize, suffix: &str) -> String {
    let prefix = if is_vm(number) { "v" } else { "c" };
    format!("{prefix}{number}{suffix}")
}

/// The spec of one of VM type.
fn vm_with_port(port: usize) -> Value {
    let mut spec = vm_spec("web");
    spec["listeners"][0]["port"] = json!(port);
    spec
}

/// Half of those of VM type share the address of a group that exists all the time, each with a port of its own; half of those of
/// cluster type that of their predecessor, which ends before them.
fn life(number: usize, suffix: &str) -> Life {
    let (spec, group) = match number % 6 {
        0 => (vm_spec("web"), None),
        3 => {
            let first = if suffix.is_empty() { 1_000 } else { 2_000 };
            (vm_with_port(first + number), Some(GROUP.to_owned()))
        }
        2 | 5 => (cluster_spec(), Some(name(number - 1, suffix))),
        _ => (cluster_spec(), None),
    };
    Life {
        name: name(number, suffix),
        spec,
        annotations: group.map_or_else(|| json!({}), |group| sharing(&group)),
        steps: Vec::new(),
    }
}
