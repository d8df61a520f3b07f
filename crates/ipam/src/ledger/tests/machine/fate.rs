//! What becomes of the writes of an allocation, and what the allocation must do then.

use std::net::IpAddr;

use harvester_lb_object::Version;

use crate::ledger::{AllocationReason, WaitReason};
use crate::types::{Record, RecordSpec};

/// What becomes of a write.
#[derive(Clone, Copy, Debug)]
pub(in crate::ledger::tests) enum Fate {
    Accepted,
    Refused,
    /// There is no answer; it lands later, if at all.
    Late,
    /// Somebody takes the address first, or releases it if it is to be adopted.
    Faster(usize),
    /// An earlier one to the same address lands first.
    Overtaken,
}

/// What an allocation must do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expected {
    Read(IpAddr),
    Verify,
    VerifyStatus(IpAddr),
    Write(RecordSpec, Option<Version>, Option<AllocationReason>),
    Done(IpAddr, bool, Vec<IpAddr>),
    Wait(WaitReason, Vec<IpAddr>, bool),
    GiveUp,
}

/// One step: what it must be, and what comes of it.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) now: i64,
    pub(super) expected: Expected,
    pub(super) learned: Option<Record>,
    pub(super) accepted: bool,
    /// What the API server holds after it.
    pub(super) records: Vec<Record>,
}

/// A write under way: what, and over which version.
pub(super) type InFlight = (RecordSpec, Option<Version>);
