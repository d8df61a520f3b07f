//! A load balancer that stays as it is: its spec is refused, its IPAllocation cannot be read or written, it cannot be decoded, it
//! is being deleted and has a foreign finalizer, or this version leaves it alone. An existing endpoint whose
//! VirtualMachineInstance is gone, being deleted or at another address is removed, verdicts are written; nothing is created or
//! restored (BE-6). The EndpointSlice of one that has left a group goes (SHR-7).

use crate::desired;
use crate::plan::goal::Keep;
use crate::plan::health::{CheckSource, Health, Paced};
use crate::plan::outline::{OnFailure, Plan};
use crate::plan::report::{self, Report};
use crate::plan::step::{Guard, Guarded, Probes, Step, Write};
use crate::plan::view::View;

/// The plan of a load balancer that stays as it is.
pub(super) fn plan<'a>(view: &View<'_>, keep: &'a Keep) -> Plan<'a> {
    let present = view.objects.slice;
    let present = present.filter(|it| it.metadata.deletion_timestamp.is_none());
    let mut plan = match (present, &keep.left) {
        (Some(present), Some(group)) => {
            let slice = Guarded {
                guards: vec![Guard::LeftGroup(group.clone())],
                step: Step::Slice(Write::Delete(present.metadata.clone())),
            };
            // After the guard: from an old copy of the Service the health checks of a member would end.
            let steps = vec![slice, Step::HealthChecks(Probes::End).into()];
            Plan::new(steps, OnFailure::Report, Report::Kept(keep, None))
        }
        (None, _) => Plan::new(Vec::new(), OnFailure::Report, Report::Kept(keep, None)),
        (Some(present), None) => {
            let health = Health::of(view, keep.check);
            let build =
                |backends: &[_]| desired::with_backends(&view.lb.metadata, present, backends);
            let paced = Paced::of(view, &health, true, build);
            let verdicts = report::verdicts(&health, &paced);
            let checks = Step::HealthChecks(health.probes.clone()).into();
            let served = health.served(paced.backends);
            let is_known = served.is_checked() || !matches!(keep.check, CheckSource::Unchanged);
            let patch = paced.patch.map(|patch| {
                let from = present.metadata.clone();
                Step::Slice(Write::Patch(from, patch)).into()
            });
            let steps = [checks].into_iter().chain(patch).collect();
            let report = Report::Kept(keep, is_known.then_some(served));
            Plan {
                verdicts,
                postponed: paced.postponed,
                ..Plan::new(steps, OnFailure::Report, report)
            }
        }
    };
    plan.extra_records.clone_from(&keep.extra_records);
    plan
}
