//! Address ranges, pool selection, the allocation ledger and the DHCP client: pure logic without I/O, clock or log.
//!
//! | module | owns |
//! |---|---|
//! | [`addr`] | names and arithmetic of addresses |
//! | [`interval`] | a set of addresses, stored as coalesced intervals |
//! | [`range`] | the ranges of a pool (RNG-1 to RNG-10, overlap, ALC-6) |
//! | [`exclude`] | the addresses that a pool must not allocate (EXC-1) |
//! | [`select`] | which pool serves a load balancer, and why the others do not (SEL-1 to SEL-8) |
//! | [`ledger`] | address ownership, the queue of waiting load balancers, the next write (ALC-*, REL-*, IPA-*) |
//! | [`allocation`] | the requests of one allocation, until the API server has decided (ALC-8) |
//! | [`import`] | the first start: IPAllocations from the pools' maps and the statuses (IPA-1, IPA-2) |
//! | [`manual_release`] | the verdict on a pool's release annotation |
//! | [`dhcp`] | leases of load balancers from DHCP servers (DHC-1 to DHC-6) |
//!
//! The ledger proposes and the API server decides: an address belongs to the owner in the
//! IPAllocation named after it. So no address is allocated twice, however stale the state that a
//! proposal is based on; at worst the write is a conflict and the ledger proposes again.

pub mod addr;
pub mod allocation;
pub mod dhcp;
pub mod exclude;
pub mod import;
pub mod interval;
pub mod ledger;
pub mod manual_release;
pub mod range;
pub mod select;
mod types;

pub use exclude::{ExcludeError, Exclusions};
pub use interval::IntervalSet;
pub use ledger::{
    AddressConflict, AllocationReason, Blocked, Counts, Decision, Evidence, Grant, Ledger,
    PoolSpec, PoolView, Request, Settings, Standing, StatusAddress, WaitReason, Withheld,
};
pub use range::{PoolRanges, Range, RangeError, RangeField, RangeProblem, RangeSpec};
pub use select::{Explanation, PoolVerdict, Requirement, Selector, Tuple, Verdict, Workload};
pub use types::{Micros, Owner, OwnerId, Phase, PoolName, Record, RecordSpec, Uid};
