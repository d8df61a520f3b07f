//! The plan of a load balancer: which steps lead from its objects, as they were observed, to its [`Goal`], and what its status
//! says afterwards. Pure.
//!
//! A [`View`] holds the copies and verdicts that a plan is decided from. [`plan`] turns it into ordered [`Step`]s; each write
//! carries the copy that it was decided from (IPA-5), and where that proves nothing of the load balancer, a [`Guard`] that is
//! checked by a live read; of several deletions the first has it. The caller applies the steps in their order, and stops at the
//! first that fails. [`Plan::conclude`] derives the status from what was applied. The cleanup after a deleted load balancer, which
//! has no status, is a [`Cleanup`]: it says what must be read live before its steps and before the release.
//!
//! A plan is safe to interrupt: applied up to any step, the next plan, made from what the API server holds then, has the
//! remaining steps.
//!
//! | module | owns |
//! |---|---|
//! | [`goal`] | what a load balancer is to have: an address and its objects, the address alone, nothing, or what it has |
//! | [`view`] | what a plan is made from |
//! | [`health`] | the readiness of backends, from health checks, states and the EndpointSlice |
//! | [`step`] | steps, guards and requeues |
//! | [`applied`] | what became of the steps, and what follows them |
//! | [`outline`] | [`Plan`]: steps, and what to do when one fails |
//! | [`serve`] | VM type with an address: EndpointSlice, then Service (REC-3) |
//! | [`share`] | VM type with a shared address: the ports of several load balancers (SHR-3 to SHR-7) |
//! | [`take_down`] | deletion of Service and EndpointSlice that are no longer wanted (REL-4, SVC-1) |
//! | [`keep`] | updates of existing endpoints only (BE-6) |
//! | [`gone`] | the cleanup after a deleted load balancer (REL-3) |
//! | [`report`] | the status after the steps |

pub mod applied;
pub mod goal;
pub mod gone;
pub mod health;
pub mod keep;
pub mod outline;
pub mod report;
pub mod serve;
pub mod share;
pub mod step;
pub mod take_down;
pub mod view;

pub use applied::{Applied, Conclusion, Verdict};
pub use goal::{Address, Goal, Keep, Origin, Waiting};
pub use gone::{Cleanup, DeletedLb, LeftBehind, cleanup};
pub use health::CheckSource;
pub use outline::{OnFailure, Plan, ServiceOf};
pub use report::shows_other_address;
pub use step::{Guard, Guarded, Kind, Next, SeenLease, SeenPool, Step, Write};
pub use view::{Checks, Objects, Primary, Secondary, Sharing, View};

/// The plan from a view to a goal.
pub fn plan<'a>(view: &View<'_>, goal: &'a Goal) -> Plan<'a> {
    match goal {
        Goal::Serve(vm, address) => serve::plan(view, vm, address),
        Goal::AddressOnly(address) => take_down::address_only(view, address),
        Goal::Wait(vm, waiting) => take_down::waiting(view, vm.as_deref(), waiting),
        Goal::Keep(keep) => keep::plan(view, keep),
    }
}

#[cfg(test)]
mod tests;
