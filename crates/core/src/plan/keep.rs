//! A load balancer that stays as it is: its spec is refused, its IPAllocation cannot be read or written, it cannot be decoded, it
//! is being deleted and has a foreign finalizer, or this version leaves it alone. An existing endpoint whose
//! VirtualMachineInstance is gone, being deleted or at another address is removed, verdicts are written; nothing is created or
//! restored (BE-6).

use crate::desired;
use crate::plan::goal::Keep;
use crate::plan::health::{CheckSource, Health, Paced};
use crate::plan::outline::{OnFailure, Plan};
use crate::plan::report::{self, Report};
use crate::plan::step::{Guard, Guarded, Step, Write};
use crate::plan::view::View;

/// The plan of a load balancer that stays as it is.
pub(super) fn plan<'a>(view: &View<'_>, keep: &'a Keep) -> Plan<'a> {
    let mut plan = match view
        .objects
        .slice
        .filter(|it| it.metadata.deletion_timestamp.is_none())
    {
        None => Plan::new(Vec::new(), OnFailure::Report, Report::Kept(keep, None)),
        Some(present) => {
            let health = Health::of(view, keep.check);
            let build = |backends: &[_]| {
                let slice = desired::with_backends(&view.lb.metadata, present, backends);
                match keep.left {
                    Some(_) => desired::of_service(slice, &view.objects.key.name),
                    None => slice,
                }
            };
            let paced = Paced::of(view, &health, true, build);
            let verdicts = report::verdicts(&health, &paced);
            let checks = Step::HealthChecks(health.probes.clone()).into();
            let served = health.served(paced.backends);
            let is_known = served.is_checked() || !matches!(keep.check, CheckSource::Unchanged);
            let patch = paced.patch.map(|patch| {
                let left = keep.left.clone();
                Guarded {
                    guards: left.map(Guard::LeftGroup).into_iter().collect(),
                    step: Step::Slice(Write::Patch(present.metadata.clone(), patch)),
                }
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
