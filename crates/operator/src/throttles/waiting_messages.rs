//! Rate limit for updates of the messages of waiting load balancers (SEL-7).

use std::time::Duration;

use harvester_lb_controller_kit::token_bucket::TokenBucket;
use parking_lot::Mutex;

/// Load balancers that are queued at once. The workers write their messages within two seconds.
const BURST: u32 = 200;
/// Time between two of them beyond the burst: 100 writes a second leave the API server most of its time.
const INTERVAL: Duration = Duration::from_millis(10);
/// The token bucket of the message updates.
#[derive(Debug)]
pub struct WaitingMessageBudget(pub(crate) Mutex<TokenBucket>);

impl Default for WaitingMessageBudget {
    fn default() -> Self {
        Self(Mutex::new(TokenBucket::new(BURST, INTERVAL)))
    }
}
