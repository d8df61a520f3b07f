//! Rate limit for deletions of Released IPAllocations, and those that the API server refuses to delete (POOL-5).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use harvester_lb_controller_kit::token_bucket::TokenBucket;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Maximum number of sequential deletions in one pass.
pub const BATCH: u32 = 16;
/// Time between two deletions beyond the burst. A deletion takes the API server some milliseconds; reconciles of load
/// balancers must not be slowed down.
const INTERVAL: Duration = Duration::from_millis(10);

/// The token bucket of the deletions, and the refused ones.
#[derive(Debug)]
pub struct HistoryDeletionBudget(Mutex<State>);

#[derive(Debug)]
struct State {
    budget: TokenBucket,
    /// Time of the next attempt for each refused address.
    refused: BTreeMap<IpAddr, Instant>,
}

impl Default for HistoryDeletionBudget {
    fn default() -> Self {
        Self(Mutex::new(State {
            budget: TokenBucket::new(BATCH, INTERVAL),
            refused: BTreeMap::new(),
        }))
    }
}

impl HistoryDeletionBudget {
    /// The refused addresses with the time of their next attempt. Expired entries are removed.
    pub fn refused(&self, now: Instant) -> BTreeMap<IpAddr, Instant> {
        let mut state = self.0.lock();
        state.refused.retain(|_, until| *until > now);
        state.refused.clone()
    }

    /// Suspends deletions of an address until then.
    pub fn refuse(&self, addr: IpAddr, until: Instant) {
        self.0.lock().refused.insert(addr, until);
    }

    /// Takes a token.
    ///
    /// # Errors
    /// No token is available; the time until the next one.
    pub fn turn(&self, now: Instant) -> Result<(), Duration> {
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
