//! Whose explanation is true no longer (SEL-7): those that wait for a pool that has appeared, gone or been edited. They are found
//! in pieces, so that whoever asks can go slowly about telling them, and nobody is named whose explanation is the same.

use std::hash::Hasher;

use rustc_hash::FxHasher;

use super::Ledger;
use crate::select::{Explanation, Verdict};
use crate::types::OwnerId;

/// What two explanations of the same words have in common.
pub(super) fn digest(explanation: &Explanation) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(explanation.to_string().as_bytes());
    hasher.finish()
}

/// Whether it says that older ones wait for what is free, which is over as soon as they have it.
pub(super) fn is_behind(explanation: &Explanation) -> bool {
    let mut verdicts = explanation.pools.iter().map(|pool| &pool.verdict);
    verdicts.any(|verdict| *verdict == Verdict::OthersFirst)
}

impl Ledger {
    /// Whether the explanation of somebody who waits may be true no longer.
    pub fn has_suspects(&self) -> bool {
        self.unsettled || !self.suspects.is_empty()
    }

    /// Those that wait and were told something else than is true now, oldest first: at most `limit`, after a look at no more
    /// than `look`. Each is named once; it is named again only after it asked.
    pub fn take_misinformed(&mut self, look: usize, limit: usize) -> Vec<OwnerId> {
        self.settle();
        let mut found = Vec::new();
        for _ in 0..look {
            if found.len() >= limit {
                break;
            }
            let Some(age) = self.suspects.pop_first() else {
                break;
            };
            let known = self.waiting.get(&age.id).filter(|(_, known)| *known == age);
            let Some(place) = known.map(|(place, _)| *place) else {
                continue;
            };
            // One that is about to ask is told then.
            let waiter = self.queue(place).get(&age).filter(|it| !it.named);
            let Some((request, told)) = waiter.map(|it| (it.request.clone(), it.told)) else {
                continue;
            };
            if told != Some(digest(&self.explain_to(&request))) {
                self.queue_mut(place).name(&age);
                found.push(age.id);
            }
        }
        found
    }
}
