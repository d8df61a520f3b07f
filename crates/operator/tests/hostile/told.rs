//! Checks of what is told: the message about an undecodable object, the status of a load balancer, and which reasons occur at all.

use std::collections::BTreeMap;

use harvester_lb_api::LoadBalancer;
use harvester_lb_core::details;
use harvester_lb_core::merge_patch::difference;
use harvester_lb_core::status::{self, StatusUpdate, StatusWrite};
use harvester_lb_object::Key;
use harvester_load_balancer::controllers::invalid_object;

pub(crate) const NOW: &str = "2026-06-01T00:00:00Z";

/// How many objects were told each reason.
#[derive(Default)]
pub(crate) struct Reasons(BTreeMap<&'static str, usize>);

impl Reasons {
    /// Counts an object that was told this.
    pub(crate) fn add(&mut self, reason: &'static str) {
        *self.0.entry(reason).or_default() += 1;
    }

    /// Checks that the objects have reached what says each of these: one in a thousand of them at least.
    pub(crate) fn include(&self, all: &[&str], objects: usize) {
        eprintln!("{:?}", self.0);
        for reason in all {
            let count = self.0.get(reason).copied().unwrap_or_default();
            assert!(count >= objects / 1_000, "{reason}: {count} of {objects}");
        }
    }
}

/// Checks the message about an undecodable object: it names the object, the field and the error.
pub(crate) fn is_named(kind: &str, key: &Key, error: &str) {
    let message = invalid_object::message(kind, key, error);
    assert!(message.contains(&key.to_string()) && message.contains(kind));
    let (field, problem) = error.split_once(": ").unwrap_or((error, ""));
    let known = ["spec", "status", "metadata", "."];
    let of_spec = known.iter().any(|k| field.starts_with(k)) && !problem.is_empty();
    // At the top level only a missing or duplicate field can be named.
    let itself = ["missing field", "duplicate field"];
    assert!(
        of_spec || itself.iter().any(|e| error.contains(e)),
        "{message}"
    );
}

/// Checks the status after an update: it is short, and the same update changes nothing.
pub(crate) fn is_told(lb: &LoadBalancer, report: &StatusUpdate) {
    let after = status::apply(lb, report, NOW);
    let conditions = after
        .status
        .as_ref()
        .unwrap()
        .conditions
        .as_deref()
        .unwrap();
    let ready = conditions.iter().find(|c| c.type_ == "Ready").unwrap();
    assert!(ready.message.as_deref().unwrap_or_default().len() <= 1_024);
    assert_eq!(ready.reason.as_deref(), Some(report.readiness.reason));
    let again = status::apply(&after, report, "2026-06-02T00:00:00Z");
    assert_eq!(difference(&after, &again), None, "never at rest");
    let written = match status::decide(lb, report, NOW) {
        StatusWrite::Now(lb) | StatusWrite::Paced(lb) => *lb,
        StatusWrite::None => lb.clone(),
    };
    for condition in status::conditions(&written) {
        let message = condition.message.as_deref().unwrap_or_default();
        let is_ours = details::is_detail(&condition.type_);
        assert!(!is_ours || message.len() <= 1_024, "{condition:?}");
    }
    let again = status::decide(&written, report, "2026-06-02T00:00:00Z");
    assert_eq!(again, StatusWrite::None, "never at rest");
    let before = lb.status.as_ref().and_then(|s| s.conditions.as_deref());
    status::event_drafts(before, conditions);
}
