//! The clock of the operator. Everything pure takes the time as an argument; it comes from here.

use harvester_lb_ipam::Micros;
use jiff::Timestamp;

/// The time now.
pub fn now() -> Micros {
    Micros(Timestamp::now().as_microsecond())
}
