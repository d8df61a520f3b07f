//! Who leads: one Lease, one holder.
//!
//! [`decide`] is pure. It follows the rules of client-go: whether the holder is alive is judged by the time since its
//! record was last seen to change, on this process's own monotonic clock, never by comparing the clocks of two
//! machines. The loop around it owns the Lease object and a deadline; the deadline is the fence of every write, so a
//! process that was paused past it writes nothing when it wakes up.
//!
//! A process may lead, lose the Lease and lead again (RUN-5). Each term has a [`Leadership`] of its own, which is won once
//! and over for good when it is lost: what was decided in one term is never written in another.

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
    /// Who this process is. Unique to the process, or to the pod: a process with the identity of the holder is its
    /// successor in the same pod and takes over at once.
    pub identity: String,
    /// How long a record stands without renewal. Whole seconds, for that is how a Lease stores it.
    pub duration: Duration,
    /// For how long the holder works on after its last renewal; shorter than the duration.
    pub renew_deadline: Duration,
    /// Time between two tries.
    pub retry: Duration,
}

impl Settings {
    /// Checks that the times fit each other, and that the Lease can hold its duration. The other two times are this
    /// process's own and may be of any fineness.
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

/// What is known of the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Holder in the record; empty once it was given up.
    pub holder: String,
    /// Duration in the record.
    pub duration: Duration,
    /// Time since the record was last seen to change.
    pub unchanged_for: Duration,
}

/// What a candidate does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is no Lease: make it.
    Create,
    /// Write our own record again.
    Renew,
    /// Replace the record of a holder that is gone.
    TakeOver,
    /// Somebody else leads.
    Wait,
    /// It led, and another may have led meanwhile: its term is over.
    Lose,
}

/// The next step of a candidate. `leading` says whether it holds the Lease by its own knowledge.
///
/// A leader renews its own record and nothing else: one that names another or nobody, or that is gone, was so made by
/// another holder, or may have been. However long that took, the term does not go on (RUN-5).
///
/// A record that names this identity although this process does not lead was written by a dead predecessor in the same
/// pod, or in a term of its own that is over, and is taken over at once. Any other holder is given the duration of its own
/// record (a Go holder writes 45 s) from the moment that the record was seen.
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

/// How far a term has come. It goes forward only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Term {
    /// The Lease is not held yet.
    #[default]
    Ahead,
    /// It is held until then, if it is not renewed before.
    Until(Instant),
    /// It was lost or given up.
    Over,
}

impl Term {
    fn holds(self, now: Instant) -> bool {
        matches!(self, Self::Until(until) if now < until)
    }

    /// The record was written, which is known now, and stands until then. What ran out before that was known is lost: this
    /// process may have been frozen, and what it knows may be of any age (RUN-5).
    fn renewed(self, now: Instant, until: Instant) -> Self {
        match self {
            Self::Ahead if now < until => Self::Until(until),
            Self::Until(_) if self.holds(now) => Self::Until(until),
            // Won too late to begin; the next try may be in time.
            Self::Ahead => Self::Ahead,
            Self::Until(_) | Self::Over => Self::Over,
        }
    }
}

/// The right to write for one term, as long as it lasts.
#[derive(Debug, Default)]
pub struct Leadership(RwLock<Term>);

impl Leadership {
    /// Whether this process leads at this moment, in this term.
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
