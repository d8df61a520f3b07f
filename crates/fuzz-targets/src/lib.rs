//! The fuzz targets, a module each: any bytes are accepted, and none may cause a panic.
//!
//! `tests/targets.rs` drives the targets with their seeds and with mutations of these in each test run; `fuzz/` drives
//! the same functions with libFuzzer (`make fuzz`).
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a panic is how a target says that something is wrong"
)]

pub mod admission;
mod common;
pub mod conversion;
pub mod dhcp;
pub mod ledger;
pub mod loadbalancer;
pub mod pool;
pub mod ranges;
pub mod record;
pub mod vmi;

/// A target: runs an input, and returns whether it got past the decoder.
pub type Target = fn(&[u8]) -> bool;

/// All targets, by the name of their folder in `fuzz/seeds`.
pub const TARGETS: [(&str, Target); 9] = [
    ("ranges", ranges::run),
    ("ledger", ledger::run),
    ("vmi", vmi::run),
    ("pool", pool::run),
    ("loadbalancer", loadbalancer::run),
    ("record", record::run),
    ("admission", admission::run),
    ("conversion", conversion::run),
    ("dhcp", dhcp::run),
];
