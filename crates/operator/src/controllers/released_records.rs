//! Forgets records of the past beyond the limits of 6.5, and those that no pool has any more (POOL-1). It has a queue and
//! a budget of its own, so that no pool's status waits for it, however much there is (POOL-5).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use harvester_lb_controller_kit::throttle::Throttle;
use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::WriteError;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::warn;

use crate::context::Hub;
use crate::controllers::load_balancer::allocate;

/// Records that one pass deletes at most, one after the other.
const BATCH: u32 = 16;
/// Time between two deletions in the long run. A deletion takes the API server some milliseconds; the load balancers that
/// come and go meanwhile must not notice.
const INTERVAL: Duration = Duration::from_millis(10);

/// How fast the past is forgotten, and what of it the API server refuses to forget.
#[derive(Debug)]
pub struct Forgetting(Mutex<State>);

#[derive(Debug)]
struct State {
    budget: Throttle,
    /// Not to be tried before this.
    refused: BTreeMap<IpAddr, Instant>,
}

impl Default for Forgetting {
    fn default() -> Self {
        Self(Mutex::new(State {
            budget: Throttle::new(BATCH, INTERVAL),
            refused: BTreeMap::new(),
        }))
    }
}

impl Forgetting {
    /// Addresses whose records are left alone for now, those whose time has come taken out.
    fn refused(&self, now: Instant) -> BTreeMap<IpAddr, Instant> {
        let mut state = self.0.lock();
        state.refused.retain(|_, until| *until > now);
        state.refused.clone()
    }

    fn refuse(&self, addr: IpAddr, until: Instant) {
        self.0.lock().refused.insert(addr, until);
    }

    /// Takes a turn if one is due; else answers how long to wait.
    fn turn(&self, now: Instant) -> Result<(), Duration> {
        let budget = &mut self.0.lock().budget;
        match budget.due_in(now) {
            Duration::ZERO => {
                budget.take(now);
                Ok(())
            }
            wait => Err(wait),
        }
    }
}

/// Deletes some of the records that are too much.
pub async fn reconcile(hub: &Hub) -> Result<Requeue, WriteError> {
    let refused = hub.forgetting.refused(Instant::now());
    let limit = BATCH as usize + refused.len();
    let mut excess = hub
        .lead(|lead| lead.ledger.history_excess(limit))
        .unwrap_or_default();
    excess.retain(|record| !refused.contains_key(&record.spec.addr));
    if excess.is_empty() {
        let again = refused.into_values().min();
        return Ok(again.map_or(Requeue::AwaitChange, |at| {
            Requeue::After(at.saturating_duration_since(Instant::now()))
        }));
    }
    for record in &excess {
        if let Err(wait) = hub.forgetting.turn(Instant::now()) {
            return Ok(Requeue::After(wait));
        }
        match allocate::remove(hub, record).await {
            Err(WriteError::Refused(why)) => {
                hub.metrics.history_deletions_refused.inc();
                warn!(address = %record.spec.addr, why, "a record of the past cannot be deleted");
                let until = Instant::now() + hub.timings.retry_cap;
                hub.forgetting.refuse(record.spec.addr, until);
            }
            // It is another record by now, which the ledger has learned of.
            Err(error) if error.is_stale() => {}
            other => other?,
        }
    }
    // There may be more.
    Ok(Requeue::After(Duration::ZERO))
}
