//! All rules of a proxy, and their evaluation for a request.

use std::time::Duration;

use tokio::sync::mpsc;

use super::fault::{Fault, Frequency};
use super::held::{Held, Moment};
use super::request::{Match, Seen};

/// The effect of a rule.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    Fault(Fault),
    Hold(Moment, mpsc::Sender<Held>),
}

struct Entry {
    id: u64,
    matching: Match,
    frequency: Frequency,
    effect: Effect,
    hits: u64,
}

/// All rules of a proxy, in the order in which they were set.
#[derive(Default)]
pub(crate) struct Rules {
    entries: Vec<Entry>,
    next: u64,
}

/// What to do with one request.
#[derive(Default)]
pub(crate) struct Plan {
    /// In order, each with its rule's number.
    pub(crate) delays: Vec<(u64, Duration)>,
    pub(crate) pages: Option<u32>,
    /// With the rule's number.
    pub(crate) last: Option<(u64, Effect)>,
}

impl Rules {
    /// Appends a rule and returns its number.
    pub(super) fn add(&mut self, matching: Match, frequency: Frequency, effect: Effect) -> u64 {
        let id = self.next;
        self.next += 1;
        self.entries.push(Entry {
            id,
            matching,
            frequency,
            effect,
            hits: 0,
        });
        id
    }

    pub(super) fn remove(&mut self, id: u64) {
        self.entries.retain(|e| e.id != id);
    }

    /// Number of requests to which a rule was applied.
    pub(super) fn hits(&self, id: u64) -> u64 {
        let entry = self.entries.iter().find(|e| e.id == id);
        entry.map_or(0, |e| e.hits)
    }

    pub(crate) fn plan(&mut self, seen: &Seen) -> Plan {
        let mut plan = Plan::default();
        for entry in &mut self.entries {
            if !entry.matching.takes(seen) || !entry.frequency.take() {
                continue;
            }
            entry.hits += 1;
            match &entry.effect {
                Effect::Fault(Fault::Delay(delay)) => plan.delays.push((entry.id, *delay)),
                Effect::Fault(Fault::Pages(size)) => plan.pages = Some(*size),
                effect => {
                    plan.last = Some((entry.id, effect.clone()));
                    return plan;
                }
            }
        }
        plan
    }

    pub(crate) fn holds(&self, id: u64) -> bool {
        self.entries.iter().any(|e| e.id == id)
    }
}
