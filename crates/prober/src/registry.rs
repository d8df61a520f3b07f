//! Groups and targets with their verdicts: the whole state of the prober, without I/O.
//!
//! Pure: the time is an argument, as in [`crate::timetable`]. Owns the slab of targets (an index identifies a target
//! while it lives), the groups, the timetable and the gathered verdict changes. Everything is bounded by the number of
//! targets and groups that were set.
//!
//! A probe in flight carries a [`Ticket`], whose number is never reused. The entry stores the number it waits for;
//! removal and restart clear it, so that the end of an old probe can never change anything.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use crate::{
    GroupId, HealthCheck, ProbeResult, Snapshot, Target, TargetView,
    gather::Gather,
    phase::phase,
    threshold::Threshold,
    timetable::{Due, Room, Timetable},
};

/// A probe in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    index: u32,
    /// Unique during the life of the registry.
    pub(crate) number: u64,
    /// The previous probe of the target got no answer.
    pub(crate) silent: bool,
}

/// A probe to start now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch {
    pub(crate) ticket: Ticket,
    pub(crate) addr: SocketAddr,
    pub(crate) timeout: Duration,
    /// When it was due.
    pub(crate) scheduled: Duration,
}

/// The effect of the end of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finished {
    /// The probe is not needed any more.
    Stale,
    /// Counted; the verdict is unchanged.
    Same,
    /// Counted; this is the new verdict.
    Changed(bool),
}

#[derive(Debug)]
struct Entry {
    group: GroupId,
    id: Arc<str>,
    addr: IpAddr,
    state: Threshold,
    /// The last result that is not an own fault.
    last: Option<ProbeResult>,
    /// See [`TargetView::failure`].
    failure: Option<ProbeResult>,
    /// Only own faults for as many probes as make a failure (HC-6).
    unknown: bool,
    /// Number of the ticket it waits for; `None` while no probe is in flight.
    waits_for: Option<u64>,
}

impl Entry {
    fn order(&self) -> (IpAddr, &str) {
        (self.addr, &self.id)
    }
}

#[derive(Debug)]
struct Group {
    check: HealthCheck,
    /// Indices of its entries, ordered by address and id.
    members: Vec<u32>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    groups: HashMap<GroupId, Group>,
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    timetable: Timetable,
    pub(crate) changes: Gather,
    due: Vec<Due>,
    up: usize,
    unknown: usize,
    last_ticket: u64,
}

/// Orders targets as the members of a group are ordered, and removes duplicates; the first one counts.
pub(crate) fn in_order(targets: &mut Vec<Target>) {
    targets.sort_by(|a, b| (a.addr, &a.id).cmp(&(b.addr, &b.id)));
    targets.dedup_by(|b, a| a.addr == b.addr && a.id == b.id);
}

impl Registry {
    /// Replaces the targets of `group` with `targets`, which [`in_order`] has ordered, probed by `check`.
    ///
    /// A target that stays keeps its verdict; also its counters and its place in the timetable, unless the check
    /// changed (HC-2). Numbers of tickets that are not needed any more are added to `cancelled`.
    pub(crate) fn set_group(
        &mut self,
        now: Duration,
        group: &GroupId,
        check: HealthCheck,
        targets: Vec<Target>,
        cancelled: &mut Vec<u64>,
    ) {
        let (group, old) = match self.groups.remove_entry(group.as_str()) {
            Some((group, old)) => (group, Some(old)),
            None => (group.clone(), None),
        };
        let restart = old.as_ref().is_some_and(|old| old.check != check);
        let mut old = old
            .map(|old| old.members)
            .unwrap_or_default()
            .into_iter()
            .peekable();
        let mut members = Vec::with_capacity(targets.len());
        for target in targets {
            let place = (target.addr, &*target.id);
            while let Some(index) = old.next_if(|index| self.order(*index) < Some(place)) {
                self.remove(index, cancelled);
            }
            if let Some(index) = old.next_if(|index| self.order(*index) == Some(place)) {
                if restart {
                    self.restart(index, now, check, cancelled);
                }
                members.push(index);
            } else {
                members.push(self.add(&group, target, now, check));
            }
        }
        for index in old {
            self.remove(index, cancelled);
        }
        self.groups.insert(group, Group { check, members });
    }

    /// Removes `group` with its targets and its undelivered verdict change. Returns whether it was there.
    pub(crate) fn remove_group(&mut self, group: &str, cancelled: &mut Vec<u64>) -> bool {
        let Some(old) = self.groups.remove(group) else {
            return false;
        };
        for index in old.members {
            self.remove(index, cancelled);
        }
        self.changes.forget(group);
        true
    }

    /// The groups, unordered.
    pub(crate) fn groups(&self) -> Vec<GroupId> {
        self.groups.keys().cloned().collect()
    }

    /// Clears everything except the ticket counter.
    pub(crate) fn clear(&mut self) {
        *self = Self {
            last_ticket: self.last_ticket,
            ..Self::default()
        };
    }

    /// When [`Registry::launch`] has a probe next, with that much room.
    pub(crate) fn next_deadline(&self, room: Room) -> Option<Duration> {
        self.timetable.next_deadline(room)
    }

    /// Takes the probes that are due at `now`, the longest waiting first, as far as there is room.
    pub(crate) fn launch(&mut self, now: Duration, room: Room, out: &mut Vec<Launch>) {
        let mut due = std::mem::take(&mut self.due);
        self.timetable.due(now, room, &mut due);
        for Due {
            key,
            scheduled,
            silent,
        } in due.drain(..)
        {
            let Some(entry) = self.entries.get_mut(key as usize).and_then(Option::as_mut) else {
                continue;
            };
            let Some(group) = self.groups.get(&entry.group) else {
                continue;
            };
            self.last_ticket += 1;
            entry.waits_for = Some(self.last_ticket);
            out.push(Launch {
                ticket: Ticket {
                    index: key,
                    number: self.last_ticket,
                    silent,
                },
                addr: SocketAddr::new(entry.addr, group.check.port()),
                timeout: group.check.timeout(),
                scheduled,
            });
        }
        self.due = due;
    }

    /// Whether the probe of `ticket` is still needed.
    pub(crate) fn waits_for(&self, ticket: Ticket) -> bool {
        self.entry(ticket.index)
            .is_some_and(|entry| entry.waits_for == Some(ticket.number))
    }

    /// The probe of `ticket` ended at `now`. Counts its result; an own fault only advances the timetable and its own
    /// counter (HC-6). Marks the group when the verdict changes, becomes stale or fresh, or is confirmed for the first
    /// time: that of a new target is not ready before it has failed.
    pub(crate) fn finish(
        &mut self,
        now: Duration,
        ticket: Ticket,
        result: ProbeResult,
    ) -> Finished {
        let entry = self
            .entries
            .get_mut(ticket.index as usize)
            .and_then(Option::as_mut);
        let Some(entry) = entry.filter(|entry| entry.waits_for == Some(ticket.number)) else {
            return Finished::Stale;
        };
        entry.waits_for = None;
        self.timetable
            .finish(ticket.index, now, result.is_silence());
        let Some(group) = self.groups.get(&entry.group) else {
            return Finished::Same;
        };
        let (success_threshold, failure_threshold) = (
            group.check.success_threshold(),
            group.check.failure_threshold(),
        );
        let was_unknown = entry.unknown;
        entry.unknown = result.verdict().is_none() && entry.state.own_fault(failure_threshold);
        self.unknown = self.unknown + usize::from(entry.unknown) - usize::from(was_unknown);
        if entry.unknown != was_unknown {
            self.changes.mark(&entry.group, now);
        }
        let Some(success) = result.verdict() else {
            return Finished::Same;
        };
        entry.last = Some(result);
        let changed = entry
            .state
            .step(success, success_threshold, failure_threshold);
        if entry.state.is_judged() {
            let before = entry.failure.take();
            if !success {
                entry.failure = before.or(Some(result));
            }
            if entry.failure.is_some() && before.is_none() {
                self.changes.mark(&entry.group, now);
            }
        }
        let Some(ready) = changed else {
            return Finished::Same;
        };
        if ready {
            self.up += 1;
        } else {
            self.up -= 1;
        }
        self.changes.mark(&entry.group, now);
        Finished::Changed(ready)
    }

    /// The verdict on a target.
    pub(crate) fn verdict(&self, group: &str, id: &str, addr: IpAddr) -> Option<bool> {
        let members = &self.groups.get(group)?.members;
        let at = members
            .binary_search_by(|index| self.order(*index).cmp(&Some((addr, id))))
            .ok()?;
        Some(self.entry(members[at])?.state.ready())
    }

    /// The targets of a group, ordered by address and id.
    pub(crate) fn group(&self, group: &str) -> Option<Vec<TargetView>> {
        let members = &self.groups.get(group)?.members;
        let view = |entry: &Entry| TargetView {
            id: Arc::clone(&entry.id),
            addr: entry.addr,
            ready: entry.state.ready(),
            last: entry.last,
            failure: entry.failure,
            stale: entry.unknown,
        };
        Some(
            members
                .iter()
                .filter_map(|index| self.entry(*index).map(view))
                .collect(),
        )
    }

    /// The check of a group.
    pub(crate) fn check(&self, group: &str) -> Option<HealthCheck> {
        self.groups.get(group).map(|group| group.check)
    }

    /// Statistics; the caller provides the number of probes in flight.
    pub(crate) fn snapshot(&self, in_flight: usize) -> Snapshot {
        Snapshot {
            groups: self.groups.len(),
            targets: self.timetable.len(),
            up: self.up,
            unknown: self.unknown,
            in_flight,
        }
    }

    fn entry(&self, index: u32) -> Option<&Entry> {
        self.entries.get(index as usize).and_then(Option::as_ref)
    }

    fn order(&self, index: u32) -> Option<(IpAddr, &str)> {
        self.entry(index).map(Entry::order)
    }

    fn add(&mut self, group: &GroupId, target: Target, now: Duration, check: HealthCheck) -> u32 {
        let Target { id, addr, ready } = target;
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            // 2^32 targets would need a terabyte.
            u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
        });
        self.timetable
            .add(index, now, check.period(), phase(group, &id, addr));
        self.up += usize::from(ready);
        self.entries[index as usize] = Some(Entry {
            group: group.clone(),
            id,
            addr,
            state: Threshold::new(ready),
            last: None,
            failure: None,
            unknown: false,
            waits_for: None,
        });
        index
    }

    /// Fresh counters and a full period until the next probe; the verdict stays (HC-2).
    fn restart(&mut self, index: u32, now: Duration, check: HealthCheck, cancelled: &mut Vec<u64>) {
        let Some(entry) = self
            .entries
            .get_mut(index as usize)
            .and_then(Option::as_mut)
        else {
            return;
        };
        cancelled.extend(entry.waits_for.take());
        entry.state = Threshold::new(entry.state.ready());
        entry.last = None;
        entry.failure = None;
        self.unknown -= usize::from(std::mem::take(&mut entry.unknown));
        let phase = phase(&entry.group, &entry.id, entry.addr);
        self.timetable.add(index, now, check.period(), phase);
    }

    fn remove(&mut self, index: u32, cancelled: &mut Vec<u64>) {
        let Some(entry) = self.entries.get_mut(index as usize).and_then(Option::take) else {
            return;
        };
        cancelled.extend(entry.waits_for);
        self.up -= usize::from(entry.state.ready());
        self.unknown -= usize::from(entry.unknown);
        self.timetable.remove(index);
        self.free.push(index);
    }
}

#[cfg(test)]
mod tests;
