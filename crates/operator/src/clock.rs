//! The wall clock of the operator. Pure code takes the time as an argument.

use harvester_lb_ipam::Micros;
use jiff::Timestamp;

/// The current time.
pub fn now() -> Micros {
    Micros(Timestamp::now().as_microsecond())
}
