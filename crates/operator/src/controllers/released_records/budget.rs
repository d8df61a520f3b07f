//! How fast records of the past are deleted, and which of them the API server refuses to delete (POOL-5).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use harvester_lb_controller_kit::token_bucket::TokenBucket;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Records that one pass deletes at most, one after the other.
pub const BATCH: u32 = 16;
/// Time between two deletions in the long run. A deletion takes the API server some milliseconds; the load balancers that
/// come and go meanwhile must not notice.
const INTERVAL: Duration = Duration::from_millis(10);

/// How fast the past is forgotten, and what of it the API server refuses to forget.
#[derive(Debug)]
pub struct Forgetting(Mutex<State>);

#[derive(Debug)]
struct State {
    budget: TokenBucket,
    /// Not to be tried before this.
    refused: BTreeMap<IpAddr, Instant>,
}

impl Default for Forgetting {
    fn default() -> Self {
        Self(Mutex::new(State {
            budget: TokenBucket::new(BATCH, INTERVAL),
            refused: BTreeMap::new(),
        }))
    }
}

impl Forgetting {
    /// Addresses whose records are left alone for now, those whose time has come taken out.
    pub fn refused(&self, now: Instant) -> BTreeMap<IpAddr, Instant> {
        let mut state = self.0.lock();
        state.refused.retain(|_, until| *until > now);
        state.refused.clone()
    }

    /// Leaves the record of an address alone until then.
    pub fn refuse(&self, addr: IpAddr, until: Instant) {
        self.0.lock().refused.insert(addr, until);
    }

    /// Takes a turn if one is due; else answers how long to wait.
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
