//! A rule, as held by a test.

use std::fmt;
use std::sync::{Arc, Weak};

use super::fault::Frequency;
use super::request::Match;
use super::rules::Effect;
use super::shared::Shared;

/// A rule that holds until it is dropped.
#[must_use = "a rule ends when it is dropped"]
pub struct Rule {
    shared: Weak<Shared>,
    id: u64,
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Rule {
    pub(super) fn set(
        shared: &Arc<Shared>,
        matching: Match,
        frequency: Frequency,
        effect: Effect,
    ) -> Self {
        let id = shared.rules.lock().add(matching, frequency, effect);
        Self {
            shared: Arc::downgrade(shared),
            id,
        }
    }

    /// Number of requests to which it was applied.
    pub fn hits(&self) -> u64 {
        let Some(shared) = self.shared.upgrade() else {
            return 0;
        };
        shared.rules.lock().hits(self.id)
    }
}

impl Drop for Rule {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.rules.lock().remove(self.id);
            shared.changed.notify_waiters();
        }
    }
}
