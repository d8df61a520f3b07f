//! When to probe which target (rules, section 8.5): one ordered set of deadlines for all targets.
//!
//! Pure: time is a [`Duration`] since an origin that the caller chooses. Owns one row per key and two ordered sets of
//! waiting keys; all are bounded by the number of targets. About 100 bytes per key.
//!
//! The rules:
//! - The first probe comes one full period after the start, never earlier, plus a part of the spread window (see
//!   [`first_probe`]).
//! - Then one probe per period. The slots of a key stay on their grid, regardless of single probes, so that the spread
//!   never decays.
//! - A key is handed out by [`Timetable::due`] and then waits for [`Timetable::finish`]: never two probes of one key at
//!   a time.
//! - A probe that outlasts its period delays the next, which starts as soon as the slow one has ended; further slots
//!   that it covered are skipped, not made up for.
//! - Keys whose last probe was silent wait in a separate set, so that their number in flight can be bounded; each in
//!   its turn.
//! - A probe that ends after its period because it started late is not followed at once by the next: after a stall each
//!   key is probed once, not twice.

use std::{collections::BTreeSet, time::Duration};

/// First probes per second that need no wider spread: a few percent of a core.
const CALM_RATE: u32 = 500;

/// The time of the first probe of a target (docs/internals/decisions/0004-probe-spread.md).
///
/// `start + period`, plus a share of a window that is `population / 500` seconds long and at most one period. So a
/// backend of a small installation is probed one full period after it was added, as the rules say, while tens of
/// thousands that are added at the same moment are spread evenly over a whole period. `phase` is a hash of the target's
/// identity, `population` the number of targets including this one: no clock and no random number, so that a restart
/// gives the same order.
///
/// The share is `phase / 2^64` of a full window, and its square root while the window still grows with the population:
/// targets added one after the other at the same moment then come at no more than 1000 a second, instead of piling up
/// at the start of all the short windows.
pub(crate) fn first_probe(
    start: Duration,
    period: Duration,
    phase: u64,
    population: usize,
) -> Duration {
    let calm = Duration::from_secs(u64::try_from(population).unwrap_or(u64::MAX)) / CALM_RATE;
    let share = if calm < period {
        phase.isqrt() << 32
    } else {
        phase
    };
    let offset = (calm.min(period).as_nanos() * u128::from(share)) >> 64;
    // Below one period, so far below 2^64 for the periods of a health check.
    let offset = Duration::from_nanos(u64::try_from(offset).unwrap_or(u64::MAX));
    start.saturating_add(period).saturating_add(offset)
}

/// A probe to start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// The target to probe.
    pub(crate) key: u32,
    /// When it was due; never after the time given to [`Timetable::due`].
    pub(crate) scheduled: Duration,
    /// The last probe of this key got no answer.
    pub(crate) silent: bool,
}

/// How many probes may be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// In total.
    pub(crate) all: usize,
    /// Of silent keys, included in the total.
    pub(crate) silent: usize,
}

#[cfg(test)]
impl Room {
    /// No limit.
    pub(crate) const UNBOUNDED: Self = Self {
        all: usize::MAX,
        silent: usize::MAX,
    };
}

/// The deadlines of all targets, by small dense keys (indices of the caller's).
#[derive(Debug, Default)]
pub(crate) struct Timetable {
    rows: Vec<Option<Row>>,
    /// Waiting keys, without the silent ones.
    waiting: BTreeSet<(Duration, u32)>,
    /// Waiting silent keys.
    silent: BTreeSet<(Duration, u32)>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    period: Duration,
    /// The slot on the grid of this key that the next or the current probe belongs to.
    slot: Duration,
    /// Its last probe got no answer.
    silent: bool,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// In its set under this time: the slot itself, or later after a slow probe.
    Waiting(Duration),
    /// Handed out at this time.
    InFlight(Duration),
}

impl Timetable {
    /// Keys in the table, waiting or in flight.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Starts `key` at `now`, every `period` (0 counts as 1 s), with the offset of its `phase`. A key that is in the
    /// table already restarts (HC-2). O(log n).
    pub(crate) fn add(&mut self, key: u32, now: Duration, period: Duration, phase: u64) {
        self.remove(key);
        let period = if period.is_zero() {
            Duration::from_secs(1)
        } else {
            period
        };
        let slot = first_probe(now, period, phase, self.len + 1);
        let at = key as usize;
        if at >= self.rows.len() {
            self.rows.resize(at + 1, None);
        }
        self.rows[at] = Some(Row {
            period,
            slot,
            silent: false,
            state: State::Waiting(slot),
        });
        self.waiting.insert((slot, key));
        self.len += 1;
    }

    /// Removes `key`; a probe of it that is in flight is ignored. O(log n).
    pub(crate) fn remove(&mut self, key: u32) {
        let Some(row) = self.rows.get_mut(key as usize).and_then(Option::take) else {
            return;
        };
        if let State::Waiting(due) = row.state {
            self.set(row.silent).remove(&(due, key));
        }
        self.len -= 1;
    }

    fn set(&mut self, silent: bool) -> &mut BTreeSet<(Duration, u32)> {
        if silent {
            &mut self.silent
        } else {
            &mut self.waiting
        }
    }

    /// The longest waiting key for which there is room.
    fn first(&self, room: Room) -> Option<Due> {
        if room.all == 0 {
            return None;
        }
        let of = |set: &BTreeSet<(Duration, u32)>, silent| {
            set.first().map(|(scheduled, key)| Due {
                key: *key,
                scheduled: *scheduled,
                silent,
            })
        };
        let answering = of(&self.waiting, false);
        let silent = of(&self.silent, true).filter(|_| room.silent > 0);
        answering
            .into_iter()
            .chain(silent)
            .min_by_key(|due| (due.scheduled, due.key))
    }

    /// When [`Timetable::due`] has a key next, with that much room. `None` while no key waits for which there is room.
    pub(crate) fn next_deadline(&self, room: Room) -> Option<Duration> {
        self.first(room).map(|due| due.scheduled)
    }

    /// Hands out the keys that are due at `now`, the longest waiting first, as far as there is room. Each is in flight
    /// until [`Timetable::finish`].
    pub(crate) fn due(&mut self, now: Duration, mut room: Room, out: &mut Vec<Due>) {
        while let Some(due) = self.first(room).filter(|due| due.scheduled <= now) {
            self.set(due.silent).remove(&(due.scheduled, due.key));
            room.all -= 1;
            room.silent -= usize::from(due.silent);
            if let Some(row) = self.rows.get_mut(due.key as usize).and_then(Option::as_mut) {
                row.state = State::InFlight(now);
                out.push(due);
            }
        }
    }

    /// The probe of `key` ended at `now`, `silent` if it got no answer: the key waits again. Does nothing if it is not
    /// in flight.
    pub(crate) fn finish(&mut self, key: u32, now: Duration, silent: bool) {
        let Some(row) = self.rows.get_mut(key as usize).and_then(Option::as_mut) else {
            return;
        };
        let State::InFlight(started) = row.state else {
            return;
        };
        row.slot += row.period;
        let mut due = row.slot;
        if let Some(late) = now.checked_sub(row.slot).filter(|late| !late.is_zero()) {
            let missed = late.as_nanos() / row.period.as_nanos();
            row.slot += row.period * u32::try_from(missed).unwrap_or(u32::MAX);
            let slow = now.saturating_sub(started) >= row.period;
            if slow {
                due = now;
            } else {
                row.slot += row.period;
                due = row.slot;
            }
        }
        row.state = State::Waiting(due);
        row.silent = silent;
        self.set(silent).insert((due, key));
    }
}

#[cfg(test)]
mod tests;
