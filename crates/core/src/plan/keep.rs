//! A load balancer that stays as it is: its spec is refused, its IPAllocation cannot be read or written, it cannot be decoded, it
//! is being deleted and has a foreign finalizer, or this version leaves it alone. An existing endpoint whose
//! VirtualMachineInstance is gone, being deleted or at another address is removed, verdicts are written; nothing is created or
//! restored (BE-6). The EndpointSlice of one that has left a group goes (SHR-7).

use std::time::Duration;

use harvester_lb_object::Key;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::desired;
use crate::plan::applied::Verdict;
use crate::plan::goal::Keep;
use crate::plan::health::{CheckSource, Health, Paced, Served};
use crate::plan::outline::{OnFailure, Plan, ServiceOf};
use crate::plan::report::{self, Report};
use crate::plan::step::{Guard, Guarded, Next, Probes, Step, Write};
use crate::plan::view::View;
use crate::spec::VmSpec;

/// The plan of a load balancer that stays as it is.
pub(super) fn plan<'a>(view: &View<'_>, keep: &'a Keep) -> Plan<'a> {
    let mut plan = if let (Some(present), Some(group)) = (view.objects.slice, &keep.left) {
        let steps = leave(present, group);
        Plan::new(steps, OnFailure::Report, Report::Kept(keep, None))
    } else {
        let endpoints = Endpoints::of(view, keep.check, Vec::new());
        let served = &endpoints.served;
        let is_unchanged = matches!(keep.check, CheckSource::Unchanged);
        let is_known = !is_unchanged || served.is_checked() || served.backends.is_empty();
        let report = Report::Kept(keep, is_known.then(|| served.clone()));
        endpoints.plan(OnFailure::Report, report)
    };
    plan.extra_records.clone_from(&keep.extra_records);
    if keep.shared.is_some() {
        plan.service = ServiceOf::Group;
    }
    plan
}

/// Takes down the EndpointSlice of a group that the load balancer has left.
fn leave(present: &EndpointSlice, group: &Key) -> Vec<Guarded> {
    let is_in_deletion = present.metadata.deletion_timestamp.is_some();
    let delete = Step::Slice(Write::Delete(present.metadata.clone()));
    let end = Step::HealthChecks(Probes::End);
    // After the guard: from an old copy of the Service the health checks of a member would end.
    let delete = (!is_in_deletion).then_some(delete);
    let mut steps: Vec<Guarded> = delete.into_iter().chain([end]).map(Guarded::from).collect();
    if let Some(first) = steps.first_mut() {
        first.guards.push(Guard::LeftGroup(group.clone()));
    }
    steps
}

/// The plan of a load balancer whose Service is in deletion and has to be gone before anything else is done: its backends follow, and
/// the ports of its EndpointSlice stay.
pub(super) fn while_service_goes<'a>(view: &View<'_>, vm: &VmSpec) -> Plan<'a> {
    // A stale copy has another selector.
    let guards = vec![Guard::CaughtUp];
    let endpoints = Endpoints::of(view, CheckSource::from(vm.check), guards);
    endpoints.plan(OnFailure::Stop, Report::None(Next::Resync))
}

/// The backends of a view in the existing EndpointSlice, of which nothing else changes (BE-6). Also of one that a finalizer holds in
/// deletion: kube-proxy uses it until it is gone.
struct Endpoints {
    served: Served,
    steps: Vec<Guarded>,
    verdicts: Vec<Verdict>,
    postponed: Option<Duration>,
}

impl Endpoints {
    /// With verdicts from there. `guards`: of the write.
    fn of(view: &View<'_>, source: CheckSource, guards: Vec<Guard>) -> Self {
        let health = Health::of(view, source);
        let Some(present) = view.objects.slice else {
            // Nothing is served, so nothing is probed. A health check that cannot be read could not be begun again.
            let probes = match source {
                CheckSource::Unchanged => health.probes.clone(),
                CheckSource::None | CheckSource::HealthCheck(_) => Probes::End,
            };
            return Self {
                served: health.served(Vec::new()),
                steps: vec![Step::HealthChecks(probes).into()],
                verdicts: Vec::new(),
                postponed: None,
            };
        };
        let build = |backends: &[_]| desired::with_backends(&view.lb.metadata, present, backends);
        let paced = Paced::of(view, &health, true, build);
        let checks = Step::HealthChecks(health.probes.clone()).into();
        let patch = paced.patch.as_ref().map(|patch| {
            let from = present.metadata.clone();
            let step = Step::Slice(Write::Patch(from, patch.clone()));
            Guarded { guards, step }
        });
        Self {
            steps: [checks].into_iter().chain(patch).collect(),
            verdicts: report::verdicts(&health, &paced),
            postponed: paced.postponed,
            served: health.served(paced.backends),
        }
    }

    /// A plan for them alone.
    fn plan(self, on_failure: OnFailure, report: Report<'_>) -> Plan<'_> {
        Plan {
            verdicts: self.verdicts,
            postponed: self.postponed,
            ..Plan::new(self.steps, on_failure, report)
        }
    }
}
