//! How fast messages of load balancers that wait are brought up to date (SEL-7).

use std::time::Duration;

use harvester_lb_controller_kit::token_bucket::TokenBucket;
use parking_lot::Mutex;

/// Load balancers that are told at once. Their messages are written by all workers, in less than two seconds.
const BURST: u32 = 200;
/// Time between two of them in the long run: a hundred writes a second leave the API server most of its time.
const INTERVAL: Duration = Duration::from_millis(10);
/// How fast those who wait are told.
#[derive(Debug)]
pub struct Telling(pub(super) Mutex<TokenBucket>);

impl Default for Telling {
    fn default() -> Self {
        Self(Mutex::new(TokenBucket::new(BURST, INTERVAL)))
    }
}
