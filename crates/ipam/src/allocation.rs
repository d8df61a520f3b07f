//! From what the ledger proposes to what the API server has decided (ALC-8), without I/O.
//!
//! The ledger proposes an address; writing the IPAllocation that is named after it decides. An [`Allocation`] names one
//! request after the other. The caller sends it, lets the ledger observe what the API server holds by then, and asks for
//! the next step; an error that is no answer to the request (no leader, API server unavailable, refused) ends the
//! allocation, and a later one begins anew. It may end so after any step: what was written is found again.
//!
//! The machine owns how often the ledger is asked, what is read live before it is relied on, and what comes before the
//! record. Which address, and whether there is one, is the ledger's.

use std::mem;
use std::net::IpAddr;
use std::vec;

use harvester_lb_object::Version;

use crate::ledger::{
    AddressConflict, AllocationReason, Decision, Grant, Ledger, Request, WaitReason,
};
use crate::select::Explanation;
use crate::types::{Micros, OwnerId, Record, RecordSpec};

/// How often an allocation asks the ledger. Each time the ledger has learned of one more address that is taken; who meets
/// more than this is better off behind the others.
pub const ROUNDS: u32 = 16;

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read the IPAllocation of this address live. Before a load balancer loses the address that its status names, what is
    /// known of that IPAllocation is confirmed (IPA-7).
    ReadRecord(IpAddr),
    /// Read the LoadBalancer live; if it is not the owner in the request, the allocation has failed. What is known of load
    /// balancers may be old: the later one of two of a name must not lose its record to the one that is gone (IPA-3).
    VerifyOwner,
    /// Read the LoadBalancer live; if it is not the owner in the request, or its status does not name this address any more,
    /// the allocation has failed, and [`Ledger::abandon`] is told. The record is about to be written, and no write of the
    /// status is to follow that would find out what has become of it (IPA-6).
    VerifyStatus(IpAddr),
    /// Delete this Released record, which is of no use any more (ALC-2). A refusal is no obstacle: the record is named again
    /// by a later allocation (RUN-1).
    Delete(Record),
    /// Create or replace an IPAllocation. Whether the API server has accepted it, [`Allocation::accepted`] is told.
    Write {
        /// What it is to say.
        spec: RecordSpec,
        /// None: create. Some: replace the record of this version and no other (IPA-5).
        replaces: Option<Version>,
        /// How the address comes to be taken. None: it is that of an earlier load balancer of the name (ALC-1).
        reason: Option<AllocationReason>,
    },
    /// The load balancer has an address, and its record is there. The last step.
    Done {
        /// The address.
        grant: Grant,
        /// Further records of its name, to be released once nothing shows their addresses (IPA-6).
        extra_records: Vec<Record>,
        /// The record was written by this allocation.
        written: bool,
    },
    /// There is no address; the ledger wakes the load balancer (ALC-5). The last step.
    Wait {
        /// Why.
        reason: WaitReason,
        /// The same, pool by pool.
        explanation: Explanation,
        /// The status named an address that the load balancer does not get.
        lost: Option<AddressConflict>,
        /// As above.
        extra_records: Vec<Record>,
        /// What it serves at stays as it is, and `extra_records` too: the address that its status names may be its own
        /// (IPA-1, IPA-9).
        stays: bool,
    },
    /// There is nothing to keep (ALC-10). The last step of [`Allocation::keep`] alone.
    Nothing {
        /// As above.
        extra_records: Vec<Record>,
    },
    /// It comes to nothing for now. The last step.
    GiveUp(GiveUp),
}

/// Why an allocation comes to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GiveUp {
    /// The address that the status names is still recorded for this load balancer, which is gone. The other one does not lose
    /// it for that; it is woken when the record is released (RUN-1).
    Unreleased(OwnerId),
    /// [`ROUNDS`] proposals in a row were refused, as somebody else was faster.
    TooManyRounds,
}

/// What is wanted of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// An address.
    Acquire,
    /// No other address than what the load balancer has.
    Keep,
}

/// A record to be written, and what there is once it is.
#[derive(Debug)]
struct Proposal {
    spec: RecordSpec,
    replaces: Option<Version>,
    reason: Option<AllocationReason>,
    grant: Grant,
    extra_records: Vec<Record>,
}

/// What comes next.
#[derive(Debug)]
enum State {
    /// Whether the load balancer may ask at all.
    Start,
    /// The ledger is asked.
    Ask,
    /// Stale records are deleted, then that of the proposal is written.
    Prepare(vec::IntoIter<Record>, Proposal),
    /// The record is written; the owner, or its status, was verified.
    Write(Proposal),
    /// The record was to be written, and the API server has accepted that or not.
    Sent {
        grant: Grant,
        extra_records: Vec<Record>,
        accepted: bool,
    },
    /// Nothing is kept; the owner was verified.
    Nothing(Vec<Record>),
}

/// How one load balancer comes to its address (ALC-1 to ALC-8), or keeps it (ALC-10). See the module.
#[derive(Debug)]
pub struct Allocation<'a> {
    request: &'a Request,
    purpose: Purpose,
    /// The address that the status names, as long as a live read has not confirmed that it is lost.
    unconfirmed: Option<IpAddr>,
    rounds: u32,
    conflicts: u64,
    state: State,
}

impl<'a> Allocation<'a> {
    /// For a load balancer that wants an address (ALC-1 to ALC-8).
    pub fn acquire(request: &'a Request) -> Self {
        Self::new(request, Purpose::Acquire)
    }

    /// For a load balancer that cannot be served: what it has stays recorded, and it gets no new address (ALC-10).
    pub fn keep(request: &'a Request) -> Self {
        Self::new(request, Purpose::Keep)
    }

    fn new(request: &'a Request, purpose: Purpose) -> Self {
        Self {
            request,
            purpose,
            unconfirmed: request.status.as_ref().map(|status| status.addr),
            rounds: 0,
            conflicts: 0,
            state: State::Start,
        }
    }

    /// How many proposals came to nothing since the last call, because somebody else has the address.
    pub fn take_conflicts(&mut self) -> u64 {
        mem::take(&mut self.conflicts)
    }

    /// The API server has accepted the last [`Step::Write`]. Only who sent it can tell: a record that says the same could
    /// be that of an earlier attempt whose answer was lost, and `written` must not be said of that.
    pub fn accepted(&mut self) {
        if let State::Sent { accepted, .. } = &mut self.state {
            *accepted = true;
        }
    }

    /// The next step. The ledger has observed all that came of the steps before.
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
                State::Prepare(mut stale, proposal) => {
                    if let Some(record) = stale.next() {
                        self.state = State::Prepare(stale, proposal);
                        return Step::Delete(record);
                    }
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
                    accepted: written @ true,
                } => {
                    return Step::Done {
                        grant,
                        extra_records,
                        written,
                    };
                }
                // Somebody else was faster. The ledger has learned who, and knows better now.
                State::Sent { .. } => self.conflicts += 1,
                State::Nothing(extra_records) => return Step::Nothing { extra_records },
            }
        }
    }

    /// Asks the ledger. None: what it proposes is the state.
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
                // They are to be released as those of an earlier load balancer of the name.
                return (!is_own).then_some(Step::VerifyOwner);
            }
        };
        match decision {
            Decision::Held { grant, surplus } => Some(Step::Done {
                grant,
                extra_records: surplus,
                written: false,
            }),
            Decision::Adopt {
                grant,
                record,
                surplus,
            } => {
                self.state = State::Write(Proposal {
                    spec: record.spec,
                    replaces: Some(record.version),
                    reason: None,
                    grant,
                    extra_records: surplus,
                });
                Some(Step::VerifyOwner)
            }
            Decision::Take {
                grant,
                spec,
                over,
                why,
                surplus,
                stale,
            } => {
                let proposal = Proposal {
                    spec,
                    replaces: over,
                    reason: Some(why),
                    grant,
                    extra_records: surplus,
                };
                self.state = State::Prepare(stale.into_iter(), proposal);
                None
            }
            Decision::Wait {
                reason,
                explanation,
                lost,
                surplus,
                stays,
            } => Some(Step::Wait {
                reason,
                explanation,
                lost,
                extra_records: surplus,
                stays,
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

/// Whether a decision takes the address that the status names from a load balancer without a record of its own that says so.
/// One of an earlier load balancer of the name may be an old copy of what is this one's by now.
fn abandons_status_address(request: &Request, decision: &Decision, named: IpAddr) -> bool {
    let (granted, extra_records) = match decision {
        // Nothing is taken away, and a read would not tell more.
        Decision::Wait { stays: true, .. } => return false,
        Decision::Held { grant, surplus }
        | Decision::Adopt { grant, surplus, .. }
        | Decision::Take { grant, surplus, .. } => (Some(grant.addr), surplus),
        Decision::Wait { surplus, .. } => (None, surplus),
    };
    let says_so = |record: &Record| record.spec.addr == named && record.spec.owner == request.owner;
    granted != Some(named) && !extra_records.iter().any(says_so)
}

#[cfg(test)]
pub(crate) mod tests;
