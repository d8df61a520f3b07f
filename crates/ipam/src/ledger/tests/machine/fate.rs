//! Outcomes of the writes of an allocation, and the expected steps.

use std::net::IpAddr;

use harvester_lb_object::Version;

use crate::ledger::{AllocationReason, WaitReason};
use crate::types::{Record, RecordSpec};

/// Outcome of a write.
#[derive(Clone, Copy, Debug)]
pub(in crate::ledger::tests) enum Fate {
    Accepted,
    Refused,
    /// There is no response; it is stored later, if at all.
    Late,
    /// Another writer takes the address first, or releases it if it is to be adopted.
    Faster(usize),
    /// An earlier pending write to the same address is stored first.
    Overtaken,
}

/// The expected step of an allocation.
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

/// An expected step, and its result.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) now: i64,
    pub(super) expected: Expected,
    pub(super) learned: Option<Record>,
    pub(super) accepted: bool,
    /// The stored records after it.
    pub(super) records: Vec<Record>,
}

/// A pending write: the spec, and the version that is its precondition.
pub(super) type InFlight = (RecordSpec, Option<Version>);
