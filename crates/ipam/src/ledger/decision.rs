//! Types of the ledger's requests and decisions.

use std::fmt;
use std::net::IpAddr;

use harvester_lb_object::Version;

use crate::exclude::ExcludeError;
use crate::range::{PoolRanges, RangeError};
use crate::select::{Explanation, Requirement, Selector, Workload};
use crate::types::{Micros, Owner, OwnerId, PoolName, Record, RecordSpec};

/// Limits of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Released records kept for each pool.
    pub history_per_pool: usize,
    /// Released records kept for all pools together.
    pub history_total: usize,
}

impl Default for Settings {
    /// Per pool about the number of addresses of a /22; in all no more than a list of the kind
    /// returns quickly.
    fn default() -> Self {
        Self {
            history_per_pool: 1024,
            history_total: 16_384,
        }
    }
}

/// Why a pool allocates no new addresses, free or not. Existing allocations stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// The object cannot be decoded, for this reason. Its ranges are unknown.
    Undecodable(String),
    /// EXC-1: its list of excluded addresses is invalid, for this reason. Any of its addresses may be excluded.
    InvalidExclude(ExcludeError),
}

/// A pool object.
#[derive(Clone, Debug)]
pub struct PoolSpec {
    /// Its name.
    pub name: PoolName,
    /// Its creation time, which decides which of two overlapping pools is the older.
    pub created: Micros,
    /// Its ranges, or why they are invalid (POOL-2).
    pub ranges: Result<PoolRanges, RangeError>,
    /// Its selector.
    pub selector: Selector,
    /// Why it allocates no new addresses; none if it does.
    pub withheld: Option<Withheld>,
    /// `status.lastAllocated`, and the time at which it was correct: now, if another writer wrote
    /// the status; [`Micros::MIN`] for our own status write, which may be stale and which every
    /// record overrides. Used only while the ledger has no better value.
    pub last_allocated: Option<(IpAddr, Micros)>,
}

/// The copy of the address in a load balancer's status. Any tenant can write it (ALC-7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusAddress {
    /// `ipPool`
    pub pool: Option<PoolName>,
    /// `ip`
    pub addr: IpAddr,
}

/// A load balancer that wants an address of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The load balancer.
    pub owner: Owner,
    /// Its creation time: the oldest is served first.
    pub created: Micros,
    /// `spec.ipPool`, if not empty.
    pub pool: Option<PoolName>,
    /// The requirement in its annotations.
    pub requirement: Requirement,
    /// Its `spec.workloadType`.
    pub workload: Workload,
    /// `status.allocatedAddress`, if it names an address.
    pub status: Option<StatusAddress>,
    /// REQ-1: the address that it requests.
    pub requested: Option<IpAddr>,
}

impl Request {
    /// BE-7: the endpoints of a VM-type load balancer are IPv4, so its address must be IPv4 too.
    pub(crate) fn takes(&self, addr: IpAddr) -> bool {
        self.workload != Workload::Vm || addr.is_ipv4()
    }

    /// Whether the status names this address.
    pub fn names(&self, addr: IpAddr) -> bool {
        self.status
            .as_ref()
            .is_some_and(|status| status.addr == addr)
    }
}

/// Why a load balancer has a claim on an address without a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Its status names it: valid only in the pool that serves it now (ALC-7).
    Status,
    /// The map of this pool, or a deleted record, names it: it stays in that pool (SEL-8, IPA-7).
    Trusted(PoolName),
}

/// An address that the status of a load balancer names although the load balancer does not have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressConflict {
    /// The address.
    pub addr: IpAddr,
    /// Its holder; none if the pool that serves this load balancer does not have the address.
    pub holder: Option<OwnerId>,
}

/// Whether a pool still has an address in use to allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has, or its ranges are invalid, so that this is not known.
    InPool,
    /// IPA-7: it was deleted, or edited so that the address is in no range any more, or a gateway.
    OutOfPool,
    /// EXC-3: it has the address and excludes it.
    Excluded,
}

/// An address that a load balancer has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The address.
    pub addr: IpAddr,
    /// Its pool.
    pub pool: PoolName,
    /// The mask (ALC-6); none if the pool is deleted, invalid or has no range for the address any
    /// more. The value in the status then stays.
    pub mask: Option<String>,
    /// The gateway; none beside a mask: the range has no gateway.
    pub gateway: Option<IpAddr>,
    /// Whether the pool still has it to allocate.
    pub standing: Standing,
    /// IPA-2, ALC-7: the status named an address that the load balancer does not get.
    pub address_conflict: Option<AddressConflict>,
    /// REQ-4: why the load balancer cannot have the address that it requests now; none: it has it, or requests none.
    pub unserved: Option<Explanation>,
}

/// Why an address was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationReason {
    /// The next free one (ALC-3).
    Fresh,
    /// The load balancer had it before (ALC-2).
    Sticky,
    /// The load balancer has it, but the record is missing (ALC-7, IPA-1, IPA-7).
    Recorded,
    /// The next free one of another pool (REL-4).
    Moved,
}

/// Why a load balancer gets no address now; the reason of its Ready condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitReason {
    /// SEL-7.
    NoMatchedPool,
    /// ALC-5.
    NoAvailableIp,
    /// ALC-5.
    PoolNotFound,
    /// POOL-2.
    PoolInvalid,
    /// EXC-1: the pool's list of excluded addresses is invalid.
    InvalidExclude,
    /// IPA-1: the record of its address cannot be read. A change of the address would interrupt the
    /// service, so the load balancer waits for the record to be repaired or deleted.
    RecordUnreadable,
    /// BE-7: the pool has only IPv6 addresses, which no VM-type load balancer gets.
    AddressFamilyMismatch,
    /// REQ-2, REQ-3: the address that it requests cannot be had now.
    RequestedAddressUnavailable,
}

impl WaitReason {
    /// The reason of the Ready condition.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoMatchedPool => "NoMatchedPool",
            Self::NoAvailableIp => "NoAvailableIP",
            Self::PoolNotFound => "PoolNotFound",
            Self::PoolInvalid => "PoolInvalid",
            Self::InvalidExclude => "InvalidExclude",
            Self::RecordUnreadable => "RecordUnreadable",
            Self::AddressFamilyMismatch => "AddressFamilyMismatch",
            Self::RequestedAddressUnavailable => "RequestedAddressUnavailable",
        }
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What to do about a load balancer's address.
///
/// `extra_records` lists further Bound records of the same id: of late creates (IPA-6), of a pool that it
/// leaves (REL-4), of an earlier uid. Release each once the status names the grant and no Service
/// shows the old address; [`may_release`](super::Ledger::may_release) checks the latter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It has an address and a record of it; nothing to write (ALC-1).
    Held {
        /// The address.
        grant: Grant,
        /// See above.
        extra_records: Vec<Record>,
    },
    /// The record names an earlier uid: write the given record, with its version as precondition
    /// (ALC-1, IPA-3).
    Adopt {
        /// The address.
        grant: Grant,
        /// The record with the new uid, and the version to send.
        record: Record,
        /// See above.
        extra_records: Vec<Record>,
    },
    /// An address is reserved: write its record, and only then use the address.
    Take {
        /// The address.
        grant: Grant,
        /// The record to write.
        spec: RecordSpec,
        /// None: create. Some: replace the Released record of this version.
        replaces: Option<Version>,
        /// Why this address.
        reason: AllocationReason,
        /// See above.
        extra_records: Vec<Record>,
        /// Released records of this id that cannot be used any more, to delete (ALC-2).
        stale: Vec<Record>,
    },
    /// No address now; the ledger wakes the load balancer.
    Wait {
        /// Why.
        reason: WaitReason,
        /// The verdict on each pool.
        explanation: Explanation,
        /// The status named an address that the load balancer does not get.
        address_conflict: Option<AddressConflict>,
        /// See above; here release them once its Service is gone, or shows them no longer (REL-4).
        extra_records: Vec<Record>,
        /// Leave its Service and the address that its status names as they are: that may be its own, which is unknown
        /// while the record cannot be read (IPA-1) or the pool allocates no new addresses (EXC-1, POOL-2).
        keep_service: bool,
    },
}

/// Why an address must not be released.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Blocked {
    /// There is no record.
    #[error("the address has no IPAllocation")]
    NoRecord,
    /// REL-1: it is already released, which is no error.
    #[error("the address is released already")]
    NotBound,
    /// IPA-3: the uid that is gone does not own it.
    #[error("the address belongs to {owner}, or to a later load balancer of that name")]
    OtherOwner {
        /// The owner.
        owner: OwnerId,
    },
    /// IPA-1: the record cannot be read any more, so its present content is unknown.
    #[error(
        "IPAllocation unreadable; its address stays blocked until the object is repaired or deleted"
    )]
    Unreadable,
    /// IPA-3 b: a Service still shows it.
    #[error("a Service of {owner} still shows the address")]
    Shown {
        /// Namespace and name of the Service's load balancer.
        owner: OwnerId,
    },
}
