//! One allocation, from the ledger's proposal to the API server's decision (ALC-8), as a state machine without I/O.
//!
//! The ledger proposes an address; the write of the IPAllocation named after it decides. An [`Allocation`] returns one
//! request at a time. The caller sends it, passes the stored object to the ledger, and asks for the next step. An error
//! that does not answer the request (not the leader, API server unavailable, refused) ends the allocation. It may end
//! after any step: a later one starts over and finds what was written.
//!
//! The state machine owns the number of rounds, the live reads before a decision, and the writes before that of the
//! IPAllocation. The ledger owns the choice of the address.

use std::mem;
use std::net::IpAddr;
use std::vec;

use harvester_lb_object::Version;

use crate::ledger::{
    AddressConflict, AllocationReason, Decision, Grant, Ledger, Request, WaitReason,
};
use crate::select::Explanation;
use crate::types::{Micros, OwnerId, Record, RecordSpec};

/// Maximum number of proposals per allocation. After each conflict the ledger knows one more taken address; after this
/// many in a row the load balancer is requeued, so that others get their turn.
pub const ROUNDS: u32 = 16;

/// The next step of an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Live read of the IPAllocation of this address. Required before a load balancer loses the address that its status
    /// names, because the cached IPAllocation may be stale (IPA-7).
    ReadRecord(IpAddr),
    /// Live read of the LoadBalancer; if it is not the owner in the request, the allocation fails. The cache may be
    /// stale: a load balancer must not lose its IPAllocation to a deleted one of the same name (IPA-3).
    VerifyOwner,
    /// Live read of the LoadBalancer; if it is not the owner in the request, or its status does not name this address any
    /// more, the allocation fails, and the caller calls [`Ledger::abandon`]. Required before the IPAllocation is written
    /// for an address that the status names already: no status write follows that would detect a conflict (IPA-6).
    VerifyStatus(IpAddr),
    /// Delete this Released record, which cannot be used any more (ALC-2). If the API server refuses, go on: a later
    /// allocation asks for the deletion again (RUN-1).
    Delete(Record),
    /// Create or replace an IPAllocation. If the API server accepts it, call [`Allocation::accepted`].
    Write {
        /// The spec to write.
        spec: RecordSpec,
        /// None: create. Some: replace, with this version as precondition (IPA-5).
        replaces: Option<Version>,
        /// Why this address was allocated. None: it is that of an earlier load balancer of the name (ALC-1).
        reason: Option<AllocationReason>,
    },
    /// The load balancer has an address, and its IPAllocation is stored. The last step.
    Done {
        /// The address.
        grant: Grant,
        /// Further records of its name, to release once no Service shows their addresses (IPA-6).
        extra_records: Vec<Record>,
        /// This allocation wrote the IPAllocation.
        written: bool,
    },
    /// There is no address; the ledger wakes the load balancer (ALC-5). The last step.
    Wait {
        /// Why.
        reason: WaitReason,
        /// The verdict on each pool.
        explanation: Explanation,
        /// The status named an address that the load balancer does not get.
        address_conflict: Option<AddressConflict>,
        /// As above.
        extra_records: Vec<Record>,
        /// The load balancer's Service stays as it is: the address that its status names may be its own (IPA-1, EXC-1).
        keep_service: bool,
    },
    /// The load balancer has no address to keep (ALC-10). The last step, of [`Allocation::keep`] only.
    Nothing {
        /// As above.
        extra_records: Vec<Record>,
    },
    /// No result for now. The last step.
    GiveUp(GiveUp),
}

/// Why an allocation ends without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GiveUp {
    /// The address that the status names is still Bound to this deleted load balancer. The requesting one does not lose
    /// the address; it is woken when the record is released (RUN-1).
    Unreleased(OwnerId),
    /// [`ROUNDS`] proposals in a row ended in a conflict.
    TooManyRounds,
}

/// What the allocation asks of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// An address.
    Acquire,
    /// Only an address that the load balancer already has.
    Keep,
}

/// A record to write, and the result once it is stored.
#[derive(Debug)]
struct Proposal {
    spec: RecordSpec,
    replaces: Option<Version>,
    reason: Option<AllocationReason>,
    grant: Grant,
    extra_records: Vec<Record>,
}

/// State of an allocation: the next thing to do.
#[derive(Debug)]
enum State {
    /// Check for an unreleased record of the address that the status names.
    Start,
    /// Ask the ledger.
    Ask,
    /// Delete the unusable records; then the pool may be another one, and the ledger is asked once more (EXC-2).
    Tidy(vec::IntoIter<Record>),
    /// Write the record of the proposal, unless a live read must come first.
    Prepare(Proposal),
    /// Write the record; the owner, or its status, is verified.
    Write(Proposal),
    /// The write was sent; `accepted`: the API server accepted it.
    Sent {
        grant: Grant,
        extra_records: Vec<Record>,
        accepted: bool,
    },
    /// There is nothing to keep; the owner is verified.
    Nothing(Vec<Record>),
}

/// The allocation of an address to one load balancer (ALC-1 to ALC-8), or to keep the one it has (ALC-10). See the
/// module.
#[derive(Debug)]
pub struct Allocation<'a> {
    request: &'a Request,
    purpose: Purpose,
    /// The address that the status names, until a live read confirms that it is lost.
    unconfirmed: Option<IpAddr>,
    /// The address whose record this allocation has written.
    written: Option<IpAddr>,
    /// The deletion of unusable records was asked for; a refusal must not repeat it.
    is_tidy: bool,
    rounds: u32,
    conflicts: u64,
    state: State,
}

impl<'a> Allocation<'a> {
    /// For a load balancer that wants an address (ALC-1 to ALC-8).
    pub fn acquire(request: &'a Request) -> Self {
        Self::new(request, Purpose::Acquire)
    }

    /// For a load balancer with an invalid spec: it keeps the address it has, and gets no new one (ALC-10).
    pub fn keep(request: &'a Request) -> Self {
        Self::new(request, Purpose::Keep)
    }

    fn new(request: &'a Request, purpose: Purpose) -> Self {
        Self {
            request,
            purpose,
            unconfirmed: request.status.as_ref().map(|status| status.addr),
            written: None,
            is_tidy: false,
            rounds: 0,
            conflicts: 0,
            state: State::Start,
        }
    }

    /// Number of proposals since the last call that ended in a conflict, because another owner has the address.
    pub fn take_conflicts(&mut self) -> u64 {
        mem::take(&mut self.conflicts)
    }

    /// Reports that the API server accepted the last [`Step::Write`]. Only the sender can know: an equal record in the
    /// ledger may come from an earlier attempt whose answer was lost, for which `written` must be false.
    pub fn accepted(&mut self) {
        if let State::Sent { accepted, .. } = &mut self.state {
            *accepted = true;
        }
    }

    /// The next step. The ledger must have observed the results of the previous ones.
    pub fn next(&mut self, ledger: &mut Ledger, now: Micros) -> Step {
        loop {
            match mem::replace(&mut self.state, State::Ask) {
                State::Start => {
                    if let Some(gone) = ledger.waits_for_release(self.request) {
                        return Step::GiveUp(GiveUp::Unreleased(gone));
                    }
                }
                State::Ask => {
                    if self.rounds == ROUNDS {
                        return Step::GiveUp(GiveUp::TooManyRounds);
                    }
                    self.rounds += 1;
                    if let Some(step) = self.ask(ledger, now) {
                        return step;
                    }
                }
                State::Tidy(mut stale) => {
                    if let Some(record) = stale.next() {
                        self.state = State::Tidy(stale);
                        return Step::Delete(record);
                    }
                }
                State::Prepare(proposal) => {
                    let addr = proposal.spec.addr;
                    if ledger.claim_unimported(addr, &self.request.owner) {
                        self.conflicts += 1;
                    } else if self.request.names(addr) {
                        self.state = State::Write(proposal);
                        return Step::VerifyStatus(addr);
                    } else {
                        return self.write(proposal);
                    }
                }
                State::Write(proposal) => return self.write(proposal),
                State::Sent {
                    grant,
                    extra_records,
                    accepted: true,
                } => {
                    self.written = Some(grant.addr);
                    // REQ-4: it is recorded now. Whether it can have what it requests instead is asked next.
                    let is_requested = |addr| {
                        let mut named = self.request.pool.iter();
                        addr == grant.addr && named.all(|pool| *pool == grant.pool)
                    };
                    if self.request.requested.is_none_or(is_requested) {
                        return Step::Done {
                            grant,
                            extra_records,
                            written: true,
                        };
                    }
                }
                // Conflict: another owner has the address. The ledger has observed its record, so ask again.
                State::Sent { .. } => self.conflicts += 1,
                State::Nothing(extra_records) => return Step::Nothing { extra_records },
            }
        }
    }

    /// Asks the ledger. None: the proposal is the new state.
    fn ask(&mut self, ledger: &mut Ledger, now: Micros) -> Option<Step> {
        let decision = match self.purpose {
            Purpose::Acquire => Ok(ledger.decide(self.request, now)),
            Purpose::Keep => ledger.keep(self.request, now),
        };
        let loses = |named: IpAddr| match &decision {
            Ok(decision) => abandons_status_address(self.request, decision, named),
            Err(_) => true,
        };
        let is_doubtful = |named: &mut IpAddr| loses(*named) && !ledger.is_unreadable(*named);
        if let Some(named) = self.unconfirmed.take_if(is_doubtful) {
            if let (Purpose::Acquire, Ok(Decision::Take { spec, .. })) = (self.purpose, &decision) {
                ledger.abandon(&spec.owner.id, spec.addr);
            }
            return Some(Step::ReadRecord(named));
        }
        let decision = match decision {
            Ok(decision) => decision,
            Err(extra_records) => {
                let own = |record: &Record| record.spec.owner == self.request.owner;
                let is_own = extra_records.iter().all(own);
                self.state = State::Nothing(extra_records);
                // The caller releases them as those of an earlier load balancer of the name.
                return (!is_own).then_some(Step::VerifyOwner);
            }
        };
        match decision {
            Decision::Held {
                grant,
                extra_records,
            } => Some(Step::Done {
                written: self.written == Some(grant.addr),
                grant,
                extra_records,
            }),
            Decision::Adopt {
                grant,
                record,
                extra_records,
            } => {
                self.state = State::Write(Proposal {
                    spec: record.spec,
                    replaces: Some(record.version),
                    reason: None,
                    grant,
                    extra_records,
                });
                Some(Step::VerifyOwner)
            }
            Decision::Take {
                grant,
                spec,
                replaces,
                reason,
                extra_records,
                stale,
            } => {
                self.state = if self.is_tidy || stale.is_empty() {
                    State::Prepare(Proposal {
                        spec,
                        replaces,
                        reason: Some(reason),
                        grant,
                        extra_records,
                    })
                } else {
                    self.is_tidy = true;
                    State::Tidy(stale.into_iter())
                };
                None
            }
            Decision::Wait {
                reason,
                explanation,
                address_conflict,
                extra_records,
                keep_service,
            } => Some(Step::Wait {
                reason,
                explanation,
                address_conflict,
                extra_records,
                keep_service,
            }),
        }
    }

    fn write(&mut self, proposal: Proposal) -> Step {
        let Proposal {
            spec,
            replaces,
            reason,
            grant,
            extra_records,
        } = proposal;
        self.state = State::Sent {
            grant,
            extra_records,
            accepted: false,
        };
        Step::Write {
            spec,
            replaces,
            reason,
        }
    }
}

/// Whether a decision takes the address that the status names away from a load balancer that has no record of it. A
/// record of an earlier load balancer of the name does not count: it may be stale, and belong to this one by now. Nor does one
/// of another pool than the status names: the status is written after the record, so that copy is older.
fn abandons_status_address(request: &Request, decision: &Decision, named: IpAddr) -> bool {
    let (granted, extra_records) = match decision {
        // The load balancer keeps it, and a live read would add nothing.
        Decision::Wait {
            keep_service: true, ..
        } => return false,
        Decision::Held {
            grant,
            extra_records,
        }
        | Decision::Adopt {
            grant,
            extra_records,
            ..
        }
        | Decision::Take {
            grant,
            extra_records,
            ..
        } => (Some(grant.addr), extra_records),
        Decision::Wait { extra_records, .. } => (None, extra_records),
    };
    let pool = request.status.as_ref().and_then(|it| it.pool.as_ref());
    let says_so = |record: &Record| {
        record.spec.addr == named
            && record.spec.owner == request.owner
            && pool.is_none_or(|pool| *pool == record.spec.pool)
    };
    granted != Some(named) && !extra_records.iter().any(says_so)
}

#[cfg(test)]
pub(crate) mod tests;
