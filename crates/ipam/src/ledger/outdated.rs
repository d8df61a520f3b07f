//! Waiting load balancers whose explanation is outdated (SEL-7), because a pool was added, deleted or edited. They are
//! returned in batches, so that the caller can spread the status writes, and only if their explanation really differs.

use std::hash::Hasher;

use rustc_hash::FxHasher;

use super::Ledger;
use crate::select::{Explanation, Verdict};
use crate::types::OwnerId;

/// Digest of an explanation's text.
pub(super) fn digest(explanation: &Explanation) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(explanation.to_string().as_bytes());
    hasher.finish()
}

/// Whether it says that older load balancers wait for the free addresses, which is outdated once these are taken.
pub(super) fn is_behind(explanation: &Explanation) -> bool {
    let mut verdicts = explanation.pools.iter().map(|pool| &pool.verdict);
    verdicts.any(|verdict| *verdict == Verdict::OthersFirst)
}

impl Ledger {
    /// Whether the explanation of any waiting load balancer may be outdated.
    pub fn may_have_outdated(&self) -> bool {
        self.selectors_changed || !self.maybe_outdated.is_empty()
    }

    /// The waiting load balancers whose last explanation is outdated, oldest first: at most `limit`, of at most `look`
    /// that are checked. Each is returned once, and again only after a decision about it.
    pub fn take_outdated_explanations(&mut self, look: usize, limit: usize) -> Vec<OwnerId> {
        self.reselect_waiters();
        let mut found = Vec::new();
        for _ in 0..look {
            if found.len() >= limit {
                break;
            }
            let Some(age) = self.maybe_outdated.pop_first() else {
                break;
            };
            if let Some(asker) = self.askers.get(&age.id) {
                let now = self.explain_requested(&asker.request, asker.addr);
                if asker.explanation_digest != now.as_ref().map(digest) {
                    found.push(age.id);
                }
                continue;
            }
            let known = self.waiting.get(&age.id).filter(|(_, known)| *known == age);
            let Some(place) = known.map(|(place, _)| *place) else {
                continue;
            };
            // One that was woken gets a new explanation anyway.
            let waiter = self.queue(place).get(&age).filter(|it| !it.is_woken);
            let Some((request, known_digest)) =
                waiter.map(|it| (it.request.clone(), it.explanation_digest))
            else {
                continue;
            };
            let now = self.explain_to(&request);
            if known_digest != Some(digest(&now)) {
                self.queue_mut(place).mark_woken(&age);
                found.push(age.id);
            } else if is_behind(&now) {
                self.queue_mut(place).still_behind(&age);
            }
        }
        found
    }
}
