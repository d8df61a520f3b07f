//! A deleted load balancer: what it leaves behind goes in the order health checks, Service, EndpointSlice, IPAllocations (REL-2,
//! REL-3).

use harvester_lb_ipam::Record;

use crate::plan::outline::{OnFailure, Plan};
use crate::plan::report::Report;
use crate::plan::step::Next;
use crate::plan::take_down;
use crate::plan::view::Objects;

/// A deleted load balancer whose address is not released yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedLb {
    /// Its uid.
    pub uid: String,
    /// Whether it may have had a Service.
    pub had_service: bool,
    /// The deletion was inferred from a list; a live read must confirm it before its address is released (IPA-3).
    pub final_state_unknown: bool,
}

/// The remains of a deleted load balancer (IPA-3).
#[derive(Debug)]
pub struct LeftBehind {
    /// Its deletion; `None` if it is unknown, or everything is released.
    pub deleted: Option<DeletedLb>,
    /// The Bound records of its name.
    pub bound: Vec<Record>,
}

/// The cleanup after a deleted load balancer.
#[derive(Debug)]
pub struct Cleanup {
    /// First a live read must show that no load balancer of the name exists (IPA-3 a): only its absence was observed, or objects
    /// of its name may belong to a later one.
    pub verify_absence: bool,
    /// The steps before the release.
    pub plan: Plan<'static>,
    /// The records to release, each as soon as no Service shows its address.
    pub release: Vec<Record>,
    /// It may have had a Service: unless the stored one of ours shows the addresses, it is read live before their release (IPA-3 b).
    pub verify_service: bool,
}

/// The cleanup after a deleted load balancer; `None` if nothing is left of it. A record that was deleted by hand is not recreated
/// without an owner (IPA-7). `is_awaited`: one that has left the group of the name waits for the end of its Service (SHR-7). Without a
/// record that is all that is left of the group, and the garbage collector leaves it as long as its owners exist.
pub fn cleanup(left: LeftBehind, objects: &Objects<'_>, is_awaited: bool) -> Option<Cleanup> {
    let LeftBehind { deleted, bound } = left;
    let is_shared = is_awaited && objects.deletable_service().is_some();
    if deleted.is_none() && bound.is_empty() && !is_shared {
        return None;
    }
    let are_its = deleted.as_ref().is_some_and(|deleted| {
        let mut all = bound.iter().map(|record| &record.spec.owner.uid);
        all.all(|uid| uid.to_string() == deleted.uid)
    });
    let is_gone = deleted.as_ref().is_some_and(|deleted| {
        !deleted.final_state_unknown && are_its && !objects.are_of_another(&deleted.uid)
    });
    let steps = take_down::deletions(objects, Vec::new());
    // An earlier one of the name may have had a Service although the last one, of cluster type, had none.
    let had_service = !are_its || deleted.is_none_or(|deleted| deleted.had_service);
    Some(Cleanup {
        verify_absence: !is_gone,
        plan: Plan::new(steps, OnFailure::Stop, Report::None(Next::AwaitChange)),
        verify_service: had_service && !bound.is_empty(),
        release: bound,
    })
}
