//! A plan: its steps, what to do when one fails, and what follows them.

use std::time::Duration;

use harvester_lb_ipam::Record;

use crate::plan::applied::{Applied, Conclusion, Verdict};
use crate::plan::report::Report;
use crate::plan::step::Guarded;
use crate::plan::view::View;
use crate::sharing::refusals::Change;

/// The steps to a goal, and what follows them.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The steps, in their order.
    pub steps: Vec<Guarded>,
    /// What to do if a write of a Service or EndpointSlice fails.
    pub on_failure: OnFailure,
    /// The Service that the status speaks of.
    pub service: ServiceOf,
    /// Further records of the load balancer's name, to be released after its status is written (IPA-6).
    pub extra_records: Vec<Record>,
    /// The changed verdicts in the EndpointSlice, for the log.
    pub verdicts: Vec<Verdict>,
    /// Plan again after this time: verdicts are not written yet, because the last write was too short ago, or names of ports have
    /// not been there for long enough (SHR-4).
    pub postponed: Option<Duration>,
    /// Of a shared Service: what its write changes for load balancers; without a step that writes it, the changes that are refused, and it
    /// has everything else. `None`: nobody shares it, or it is not written now although more is to change.
    pub changes: Option<Vec<Change>>,
    pub(super) report: Report<'a>,
}

/// The Service that the status of a load balancer speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceOf {
    /// None.
    None,
    /// That of its name: after the steps it is the load balancer's own. It has the desired address unless the API server refuses that
    /// (SHR-3).
    Own,
    /// That of its group; no step writes it.
    Group,
}

/// What follows a write of a Service or EndpointSlice that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// The status is not written, and the error is that of the reconcile.
    Stop,
    /// As [`Stop`](Self::Stop), unless the API server refuses the content of the write: then the status says why.
    ReportRefusal,
    /// The status is written first; the error is still that of the reconcile (BE-6, ALC-10).
    Report,
}

impl<'a> Plan<'a> {
    /// A plan of these steps.
    pub(super) fn new(steps: Vec<Guarded>, on_failure: OnFailure, report: Report<'a>) -> Self {
        Self {
            steps,
            on_failure,
            service: ServiceOf::None,
            extra_records: Vec::new(),
            verdicts: Vec::new(),
            postponed: None,
            changes: None,
            report,
        }
    }

    /// The status and the requeue, from what was applied. `view`: the view of the plan, with the load balancer's newest copy.
    pub fn conclude(self, view: &View<'_>, applied: &Applied<'_>) -> Conclusion {
        self.report.conclude(view, applied)
    }
}
