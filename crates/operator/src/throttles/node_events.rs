//! Rate limit for Events about the node that announces an address: with one kube-vip Lease for all Services, a failover moves
//! every address at once.

use std::time::Duration;

use harvester_lb_controller_kit::token_bucket::TokenBucket;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Events that are sent at once.
const BURST: u32 = 5;
/// Time between two of them beyond the burst. With the burst, at most ten in any second.
const INTERVAL: Duration = Duration::from_millis(200);

/// The token bucket of these Events.
#[derive(Debug)]
pub struct NodeEventBudget(Mutex<TokenBucket>);

impl Default for NodeEventBudget {
    fn default() -> Self {
        Self(Mutex::new(TokenBucket::new(BURST, INTERVAL)))
    }
}

impl NodeEventBudget {
    /// Whether an Event may be sent now. If so, it counts as sent.
    pub fn take(&self, now: Instant) -> bool {
        let mut bucket = self.0.lock();
        let is_due = bucket.due_in(now).is_zero();
        if is_due {
            bucket.take(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_ten_in_any_second() {
        let budget = NodeEventBudget::default();
        let start = Instant::now();
        // A change each millisecond, for five seconds.
        let at = |ms| start + Duration::from_millis(ms);
        let sent: Vec<Instant> = (0..5_000).map(at).filter(|now| budget.take(*now)).collect();
        for first in &sent {
            let second = sent
                .iter()
                .filter(|at| **at >= *first && **at < *first + Duration::from_secs(1));
            assert!(second.count() <= 10);
        }
        assert_eq!(sent.len(), 29, "five at once, then five a second");
    }
}
