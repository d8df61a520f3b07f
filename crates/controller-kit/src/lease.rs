//! Leader election: one Lease, one holder.
//!
//! [`decide`] is pure. It follows the rules of client-go: whether the holder is alive is judged by the time since its
//! record was last observed to change, on this process's own monotonic clock, never by comparing the clocks of two
//! machines. [`Candidate`] owns the Lease object and a deadline; the deadline is the fence of every write, so a process
//! that was paused past it writes nothing when it resumes.
//!
//! A process may lead, lose the Lease and lead again (RUN-5). Each term has its own [`Leadership`], which is won once
//! and is over for good when lost: a decision of one term is never written in another.

mod candidate;

use std::time::{Duration, Instant};

use parking_lot::RwLock;

use crate::writer::Fence;

pub use candidate::{Candidate, End};

/// Name, identity and times of a candidate.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// The holder identity of this process. Unique to the process, or to the pod: a process with the identity of the
    /// holder is its successor in the same pod and takes over at once.
    pub identity: String,
    /// Time after which a record that was not renewed expires. Whole seconds, because the Lease stores it so.
    pub duration: Duration,
    /// Time after its last renewal until which the holder stays leader; shorter than the duration.
    pub renew_deadline: Duration,
    /// Time between two attempts.
    pub retry: Duration,
}

impl Settings {
    /// Checks that the times fit together and that the Lease can store the duration. The other two times are local to
    /// this process and may be of any resolution.
    pub fn check(&self) -> Result<(), String> {
        if self.duration.subsec_nanos() != 0 || i32::try_from(self.duration.as_secs()).is_err() {
            return Err(format!(
                "the Lease's duration ({:?}) must be whole seconds, at most {}: a Lease stores it so, and others go by what it stores",
                self.duration,
                i32::MAX
            ));
        }
        if self.renew_deadline >= self.duration {
            return Err(format!(
                "the Lease's renew deadline ({:?}) must be shorter than its duration ({:?})",
                self.renew_deadline, self.duration
            ));
        }
        if self.retry.is_zero() || self.retry * 2 > self.renew_deadline {
            return Err(format!(
                "the Lease's retry period ({:?}) must be above zero and at most half of its renew deadline ({:?})",
                self.retry, self.renew_deadline
            ));
        }
        Ok(())
    }
}

/// The Lease as last observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Holder in the record; empty after a release.
    pub holder: String,
    /// Duration in the record.
    pub duration: Duration,
    /// Time since the record was last observed to change.
    pub unchanged_for: Duration,
}

/// The next step of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is no Lease: create it.
    Create,
    /// Renew our own record.
    Renew,
    /// Replace the record of an expired holder.
    TakeOver,
    /// Another process is leader.
    Wait,
    /// This process was leader, and another may have been since: the term is over.
    Lose,
}

/// The next step of a candidate. `leading`: whether it holds the Lease as far as it knows.
///
/// A leader renews only its own record. A record with another holder or none, or a missing Lease, means that another
/// holder wrote it, or may have. Regardless of the time that took, the term ends (RUN-5).
///
/// A record with this identity, while this process is not leader, was written by a dead predecessor in the same pod or
/// in an earlier term of this process, and is taken over at once. Any other holder is given the duration of its own
/// record (a Go holder writes 45 s) from the moment that the record was observed.
pub fn decide(observed: Option<&Observed>, identity: &str, leading: bool) -> Step {
    let is_ours = observed.is_some_and(|lease| lease.holder == identity);
    match observed {
        _ if leading && is_ours => Step::Renew,
        _ if leading => Step::Lose,
        None => Step::Create,
        Some(lease) if is_ours || lease.holder.is_empty() => Step::TakeOver,
        Some(lease) if lease.unchanged_for >= lease.duration => Step::TakeOver,
        Some(_) => Step::Wait,
    }
}

/// State of a term. It only moves forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Term {
    /// The Lease is not held yet.
    #[default]
    Ahead,
    /// The Lease is held until then, unless it is renewed before.
    Until(Instant),
    /// The Lease was lost or released.
    Over,
}

impl Term {
    fn holds(self, now: Instant) -> bool {
        matches!(self, Self::Until(until) if now < until)
    }

    /// The record was written, as is known at `now`, and expires at `until`. A term that expired before `now` is lost:
    /// this process may have been frozen, and what it knows may be of any age (RUN-5).
    fn renewed(self, now: Instant, until: Instant) -> Self {
        match self {
            Self::Ahead if now < until => Self::Until(until),
            Self::Until(_) if self.holds(now) => Self::Until(until),
            // Won, but already expired; the next attempt may be in time.
            Self::Ahead => Self::Ahead,
            Self::Until(_) | Self::Over => Self::Over,
        }
    }
}

/// The right to write during one term.
#[derive(Debug, Default)]
pub struct Leadership(RwLock<Term>);

impl Leadership {
    /// Whether this process is leader now, in this term.
    pub fn is_leader(&self) -> bool {
        self.0.read().holds(Instant::now())
    }

    fn renewed(&self, until: Instant) {
        let mut term = self.0.write();
        *term = term.renewed(Instant::now(), until);
    }

    fn end(&self) {
        *self.0.write() = Term::Over;
    }
}

impl Fence for Leadership {
    fn is_open(&self) -> bool {
        self.is_leader()
    }
}

#[cfg(test)]
mod tests;
