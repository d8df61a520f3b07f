//! The result of a check.

use std::collections::BTreeSet;

use harvester_lb_audit::{Finding, Leader, Report, Severity, State, kinds};

use super::preview::Preview;

/// Exit code: a finding of severity error.
const FOUND: u8 = 1;
/// Exit code: something could not be read.
pub const NOT_READ: u8 = 2;

/// The result of one read.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Whether the IPAllocations are the truth.
    pub(super) state: State,
    /// The holder of the Lease; `None` if it was not read.
    pub(super) leader: Option<Leader>,
    /// Number of IPPools.
    pub(super) pools: usize,
    /// Numbers of objects, waiting load balancers, and the findings about objects.
    pub(super) report: Report,
    /// What the import would do; `None` if everything is imported.
    pub(super) preview: Option<Preview>,
    /// All findings with their severity.
    pub(super) findings: Vec<(Severity, Finding)>,
    /// What was not read, and why.
    pub(super) not_read: Vec<String>,
    /// Whether the objects themselves were read.
    pub(super) is_read: bool,
    /// Number of findings that were gone in a later read.
    pub(super) passing: usize,
}

impl Outcome {
    /// The exit code: 0 without findings of severity error, 1 with some, 2 if something could not be read and the rest
    /// has none.
    pub(super) fn code(&self) -> u8 {
        if self.has_errors() {
            FOUND
        } else if self.not_read.is_empty() {
            0
        } else {
            NOT_READ
        }
    }

    /// Whether the objects were read and something is wrong.
    pub(super) fn has_errors(&self) -> bool {
        self.is_read && self.errors().next().is_some()
    }

    /// The findings of severity error.
    pub(super) fn errors(&self) -> impl Iterator<Item = &Finding> {
        let errors = self.findings.iter();
        let errors = errors.filter(|(severity, _)| *severity == Severity::Error);
        errors.map(|(_, finding)| finding)
    }

    /// Keeps only those errors that an earlier read found too: what is in progress is gone or another.
    pub(super) fn confirmed_by(&mut self, earlier: &Self) {
        let number = self.findings.len();
        let before: BTreeSet<_> = earlier.errors().map(Finding::identity).collect();
        self.findings.retain(|(severity, finding)| {
            *severity != Severity::Error || before.contains(&finding.identity())
        });
        let now: BTreeSet<_> = self.errors().map(Finding::identity).collect();
        let gone = earlier.errors();
        let gone = gone.filter(|finding| !now.contains(&finding.identity()));
        self.passing = earlier.passing + gone.count() + number - self.findings.len();
    }

    /// Whether a process of this operator is leader.
    pub(super) fn is_led(&self) -> bool {
        matches!(self.leader, Some(Leader::This(_)))
    }

    /// Whether all that is wrong is that the status of pools is behind, which the leader is about to write.
    pub(super) fn is_behind(&self) -> bool {
        let mut errors = self.errors();
        self.is_led() && errors.all(|finding| *finding.kind == kinds::POOL_STATUS_OUTDATED)
    }
}
