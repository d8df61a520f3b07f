//! What is asked of the ledger and what it answers.

use std::fmt;
use std::net::IpAddr;

use harvester_lb_object::Version;

use crate::range::{PoolRanges, RangeError};
use crate::select::{Explanation, Requirement, Selector, Workload};
use crate::types::{Micros, Owner, OwnerId, PoolName, Record, RecordSpec};

/// Limits of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Released records kept for each pool.
    pub history_per_pool: usize,
    /// Released records kept in all.
    pub history_total: usize,
}

impl Default for Settings {
    /// A pool remembers about as many owners as it has addresses in a /22; all pools together stay
    /// within what a list of the kind can return quickly.
    fn default() -> Self {
        Self {
            history_per_pool: 1024,
            history_total: 16_384,
        }
    }
}

/// Why a pool hands out nothing new, whatever is free in its ranges. What is held stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// The object cannot be decoded; why. Its ranges are not known.
    Undecodable(String),
    /// IPA-9: this annotation asks for something that this version cannot apply.
    Unsupported(&'static str),
}

/// A pool object.
#[derive(Clone, Debug)]
pub struct PoolSpec {
    /// Its name.
    pub name: PoolName,
    /// Its creation, which decides which of two overlapping pools is the younger.
    pub created: Micros,
    /// Its ranges, or why they are refused (POOL-2).
    pub ranges: Result<PoolRanges, RangeError>,
    /// Its selector.
    pub selector: Selector,
    /// Why it hands out nothing new, if that is so.
    pub withheld: Option<Withheld>,
    /// `status.lastAllocated`, and the time as of which it is right: the present when somebody else
    /// wrote the status; [`Micros::MIN`] for our own, late projection, which every record
    /// corrects. Read only as long as the ledger has no better value.
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
    /// Its creation: the older is served first.
    pub created: Micros,
    /// `spec.ipPool`, if not empty.
    pub pool: Option<PoolName>,
    /// What its annotations require.
    pub requirement: Requirement,
    /// Its type.
    pub workload: Workload,
    /// `status.allocatedAddress`, if it names an address.
    pub status: Option<StatusAddress>,
}

impl Request {
    /// BE-7: the endpoints of a load balancer of VM type are of IPv4, and so must be its address.
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

/// Why an address counts as one of a load balancer's although it has no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Its status says so: good only in the pool that serves it now (ALC-7).
    Status,
    /// The map of this pool, or a record that is gone, says so: it stays there (SEL-8, IPA-7).
    Trusted(PoolName),
}

/// An address that the status named, but that is not its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressConflict {
    /// The address.
    pub addr: IpAddr,
    /// Who holds it; none when the pool that serves this load balancer does not have it.
    pub holder: Option<OwnerId>,
}

/// An address that a load balancer has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The address.
    pub addr: IpAddr,
    /// Its pool.
    pub pool: PoolName,
    /// The mask (ALC-6); none when the pool cannot tell any more, being gone, invalid or elsewhere.
    /// What the status says then stays.
    pub mask: Option<String>,
    /// The gateway. None with a mask: there is none.
    pub gateway: Option<IpAddr>,
    /// IPA-7: the pool was deleted, or edited so that the address is not one of its own.
    pub out_of_pool: bool,
    /// IPA-2, ALC-7: the status named an address that it does not get.
    pub lost: Option<AddressConflict>,
}

/// How an address comes to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationReason {
    /// The next free one (ALC-3).
    Fresh,
    /// It had it before (ALC-2).
    Sticky,
    /// It has it, but the record is missing (ALC-7, IPA-1, IPA-7).
    Recorded,
    /// The next free one of another pool (REL-4).
    Moved,
}

/// Why a load balancer gets no address now.
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
    /// IPA-9: the pool asks for something that this version cannot apply.
    PoolUnsupported,
    /// IPA-1: the record of the address that it has cannot be read. Another address would take the
    /// service down, so it waits for the record to be repaired or deleted.
    RecordUnreadable,
    /// BE-7: the pool has addresses of IPv6 alone, which no load balancer of VM type gets.
    AddressFamilyMismatch,
}

impl WaitReason {
    /// The reason of the Ready condition.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoMatchedPool => "NoMatchedPool",
            Self::NoAvailableIp => "NoAvailableIP",
            Self::PoolNotFound => "PoolNotFound",
            Self::PoolInvalid => "PoolInvalid",
            Self::PoolUnsupported => "UnsupportedAnnotation",
            Self::RecordUnreadable => "RecordUnreadable",
            Self::AddressFamilyMismatch => "AddressFamilyMismatch",
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
/// `surplus` lists further Bound records of the same id: those of late creates (IPA-6), of a pool
/// that it leaves (REL-4), of an earlier uid. Each is to be released once the status names the
/// grant and no Service shows the old address; [`may_release`](super::Ledger::may_release) checks
/// the latter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It has an address and its record; nothing to write (ALC-1).
    Held {
        /// The address.
        grant: Grant,
        /// See above.
        surplus: Vec<Record>,
    },
    /// The record names an earlier uid: write it as given, with its version (ALC-1, IPA-3).
    Adopt {
        /// The address.
        grant: Grant,
        /// The record with the new uid, and the version to send.
        record: Record,
        /// See above.
        surplus: Vec<Record>,
    },
    /// The address is reserved: write its record, and only then use it.
    Take {
        /// The address.
        grant: Grant,
        /// The record to write.
        spec: RecordSpec,
        /// None: create. Some: replace the Released record of this version.
        over: Option<Version>,
        /// How it comes to be taken.
        why: AllocationReason,
        /// See above.
        surplus: Vec<Record>,
        /// Records of its history that are of no use any more, to be deleted (ALC-2).
        stale: Vec<Record>,
    },
    /// No address now; the ledger will wake it.
    Wait {
        /// Why.
        reason: WaitReason,
        /// The same, pool by pool.
        explanation: Explanation,
        /// The status named an address that it does not get.
        lost: Option<AddressConflict>,
        /// See above; here once its Service is gone (REL-4).
        surplus: Vec<Record>,
        /// What it serves at stays as it is, and `surplus` too: the address that its status names may be its own, which
        /// cannot be told as long as the record cannot be read (IPA-1), or the pool hands out nothing new (IPA-9).
        stays: bool,
    },
}

/// Why an address must not be released.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Blocked {
    /// There is no record.
    #[error("there is no record of the address")]
    NoRecord,
    /// REL-1: it is free already; that is no error.
    #[error("the address is released already")]
    NotBound,
    /// IPA-3: the uid that went does not own it.
    #[error("the address belongs to {owner}, or to a later load balancer of that name")]
    OtherOwner {
        /// Who does.
        owner: OwnerId,
    },
    /// IPA-1: the record cannot be read any more, so what it says now is not known.
    #[error("the record cannot be read; it has to be repaired or deleted first")]
    Unreadable,
    /// IPA-3 b: a Service still shows it.
    #[error("a Service of {owner} still shows the address")]
    Shown {
        /// Whose Service.
        owner: OwnerId,
    },
}
