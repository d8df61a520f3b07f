//! The move of a Service to another address (REL-4): how long kube-vip may take to announce the new address before the Service
//! is recreated. Pure.
//!
//! kube-vip follows a changed `spec.loadBalancerIP` or ignores it, depending on its version; one that follows can still miss a
//! change. A recreated Service is announced by every version. What kube-vip did before decides how long to wait
//! (docs/internals/decisions/0015-a-changed-address-that-is-ignored.md).
//!
//! Times are those of a monotonic clock, since the start of the term.

use std::time::Duration;

/// Longest time from the deletion of a Service to the announcement of the recreated one that proves that kube-vip was running
/// all the time, and so had ignored the changed address. 3 s: normally it takes one to two; a kube-vip that was down comes back
/// later.
const PROOF: Duration = Duration::from_secs(3);

/// How long kube-vip may take to announce a changed address, by what it did before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveLimits {
    /// Nothing is known, or both were seen.
    pub unknown: Duration,
    /// It has followed a change.
    pub followed: Duration,
    /// It has ignored a change.
    pub ignored: Duration,
}

/// What kube-vip did with changed addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MoveHistory {
    /// Nothing is known, or both were seen.
    #[default]
    Unknown,
    /// It has followed a change.
    Followed,
    /// It has ignored a change.
    Ignored,
}

/// The end of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveOutcome {
    /// kube-vip announced the new address of the same Service.
    Followed,
    /// The Service was recreated, and kube-vip announced the new one at once.
    Ignored,
}

impl MoveHistory {
    /// How long kube-vip may take for a move (REL-4).
    #[must_use]
    pub const fn limit(self, limits: &MoveLimits) -> Duration {
        match self {
            Self::Unknown => limits.unknown,
            Self::Followed => limits.followed,
            Self::Ignored => limits.ignored,
        }
    }

    /// The history after one more move. A single change that was ignored after others were followed is no proof: kube-vip can
    /// miss one.
    #[must_use]
    pub const fn after(self, outcome: MoveOutcome) -> Self {
        match (self, outcome) {
            (_, MoveOutcome::Followed) => Self::Followed,
            (Self::Followed, MoveOutcome::Ignored) => Self::Unknown,
            (Self::Unknown | Self::Ignored, MoveOutcome::Ignored) => Self::Ignored,
        }
    }
}

/// The address in the ingress of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// None.
    Nothing,
    /// The desired one.
    Desired,
    /// The one that the Service had before.
    Previous,
    /// One that is not ours to judge: requested by a user, or leased.
    Other,
}

/// A Service that has its desired `spec.loadBalancerIP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedService<'a> {
    /// Its uid.
    pub uid: &'a str,
    /// The desired address.
    pub desired: &'a str,
    /// The address that kube-vip announces.
    pub shown: Shown,
}

/// A move in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressMove {
    uid: String,
    desired: String,
    since: Duration,
    deleted: bool,
}

/// The result of an observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The move in progress after it.
    pub next: Option<AddressMove>,
    /// What it shows about kube-vip.
    pub outcome: Option<MoveOutcome>,
}

impl AddressMove {
    /// The state of a move after an observation of the Service at the time `now`. `before`: the state before it.
    #[must_use]
    pub fn observe(before: Option<Self>, service: &ObservedService<'_>, now: Duration) -> Progress {
        let none = |outcome| Progress {
            next: None,
            outcome,
        };
        let in_progress = |next| Progress {
            next: Some(next),
            outcome: None,
        };
        let is_same = before
            .as_ref()
            .is_some_and(|before| before.desired == service.desired && before.uid == service.uid);
        match (service.shown, before) {
            (Shown::Previous, Some(before)) if is_same => in_progress(before),
            (Shown::Previous, _) => in_progress(Self {
                uid: service.uid.to_owned(),
                desired: service.desired.to_owned(),
                since: now,
                deleted: false,
            }),
            // kube-vip may withdraw the previous address before it announces the new one.
            (Shown::Nothing, Some(before)) if is_same || before.is_recreated_as(service) => {
                in_progress(before)
            }
            (Shown::Desired, Some(before)) if before.is_recreated_as(service) => {
                let is_proof = now.saturating_sub(before.since) <= PROOF;
                none(is_proof.then_some(MoveOutcome::Ignored))
            }
            (Shown::Desired, Some(before)) if is_same && !before.deleted => {
                none(Some(MoveOutcome::Followed))
            }
            _ => none(None),
        }
    }

    /// Whether this is the move of a deleted Service whose successor is this one.
    fn is_recreated_as(&self, service: &ObservedService<'_>) -> bool {
        self.deleted && self.uid != service.uid && self.desired == service.desired
    }

    /// The remaining time until the Service is to be recreated, for this limit; zero if it is due. `None` if it need not be: it
    /// does not show the previous address, or it is deleted already and a finalizer holds it.
    #[must_use]
    pub fn remaining(&self, shown: Shown, limit: Duration, now: Duration) -> Option<Duration> {
        let elapsed = now.saturating_sub(self.since);
        let is_due = shown == Shown::Previous && !self.deleted;
        is_due.then(|| limit.saturating_sub(elapsed))
    }

    /// The Service was deleted at the time `now`, to be recreated.
    pub fn deleted(&mut self, now: Duration) {
        self.deleted = true;
        self.since = now;
    }
}

#[cfg(test)]
mod tests;
