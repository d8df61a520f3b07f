//! Groups with changed verdicts, gathered until they are delivered (HC-5).
//!
//! Pure. Owns at most one entry per dirty group, so its bound is the number of groups: a consumer that is slow, or
//! gone, costs no more memory and never stops a probe.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use crate::GroupId;

/// Time for which the changes of a group are gathered before its delivery, counted from the first. Long enough to turn
/// a host failure that hits many backends of a LoadBalancer into one write, short against the period of five seconds.
pub const GATHER: Duration = Duration::from_millis(200);

/// Dirty groups by the time of their delivery.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    ready_at: HashMap<GroupId, Duration>,
    order: BTreeSet<(Duration, GroupId)>,
}

impl Gather {
    /// A verdict in `group` changed at `now`. A group that is dirty already keeps its time.
    pub(crate) fn mark(&mut self, group: &GroupId, now: Duration) {
        if !self.ready_at.contains_key(group) {
            let at = now.saturating_add(GATHER);
            self.ready_at.insert(group.clone(), at);
            self.order.insert((at, group.clone()));
        }
    }

    /// `group` was removed and will not be delivered.
    pub(crate) fn forget(&mut self, group: &str) {
        if let Some((group, at)) = self.ready_at.remove_entry(group) {
            self.order.remove(&(at, group));
        }
    }

    /// Takes the groups that are due.
    pub(crate) fn take(&mut self, now: Duration) -> Vec<GroupId> {
        let mut out = Vec::new();
        while let Some((at, _)) = self.order.first()
            && *at <= now
        {
            if let Some((_, group)) = self.order.pop_first() {
                self.ready_at.remove(&group);
                out.push(group);
            }
        }
        out
    }

    /// When [`Gather::take`] has a group next.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.order.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests;
