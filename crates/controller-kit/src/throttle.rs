//! Spaces the writes about one key: not during a burst of changes, and not too soon after the previous write. Pure: the
//! time is an argument.
//!
//! A change is debounced, so that a burst is written once, at its end, and not in the middle, where the pause after the
//! write would delay the final state. One that is known to be over is written without the debounce. Each write is followed
//! by a pause. A write that is urgent waits for none of these.
//!
//! A burst that does not end is written at intervals. Such an interim write is out of date as soon as it is done, so all
//! keys together get the share of the time for them that one key may take: after an interim write of any key no other
//! begins for a while. That time is set when the write has ended, from what it took, so it never has to be given back:
//! several workers may therefore each begin one before the first has ended, and then all of them count. A key whose first
//! change has waited for the longest pause is written all the same.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use tokio::time::Instant;

/// Number of keys below which idle ones are not swept.
const MIN_SWEEP: usize = 64;

/// Time after a decision in which its write counts as under way: longer than a request may take. Nobody says that a decision
/// needs no write.
const UNDER_WAY: Duration = Duration::from_mins(2);

/// After the time in which no interim write begins, a key comes by this part of the time that it has left: the one with the
/// oldest change first, 0.1 ms ahead for each second.
const ORDER: u32 = 10_000;

/// The spacing of writes. By default there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Time without a change before a write.
    pub debounce: Duration,
    /// The debounce is this multiple of the last write's duration, if that is longer than `debounce`, but at most
    /// `max_delay`. A slow write delays the changes of all keys, which must not look like the end of their bursts.
    pub debounce_factor: u32,
    /// Time for which the debounce delays a change before an interim write, if no other key has just had one.
    pub max_delay: Duration,
    /// Shortest pause after a write.
    pub min_interval: Duration,
    /// The pause after a write is this multiple of the write's duration, if that is longer than `min_interval`. All interim
    /// writes together take one part in this number of the time.
    pub pause_factor: u32,
    /// Longest pause for that reason, and longest time that interim writes of other keys delay a change.
    pub max_pause: Duration,
}

impl Settings {
    /// The pause of the key after a write that took that long.
    fn pause(&self, took: Duration) -> Duration {
        let pause = took.saturating_mul(self.pause_factor);
        pause.min(self.max_pause).max(self.min_interval)
    }

    /// The time after an interim write that took that long in which no other begins.
    fn gap(&self, took: Duration) -> Duration {
        took.saturating_mul(self.pause_factor.saturating_sub(1))
    }

    /// Age at which the duration of a write says nothing any more. Within a burst the next write comes sooner.
    fn memory(&self) -> Duration {
        self.max_pause.saturating_mul(2)
    }
}

/// The first and the last of several changes.
type Span = (Instant, Instant);

/// State of one key; by default empty.
#[derive(Debug, Default)]
struct State {
    /// Earliest time of the next write, because of the last one.
    next: Option<Instant>,
    /// Duration and end of the last write that was done.
    took: Option<(Duration, Instant)>,
    /// The changes since the last write was decided.
    changed: Option<Span>,
    /// No further change is expected after the last one.
    is_over: bool,
    /// A caller waits for the write.
    is_urgent: bool,
    /// The changes that the last decided write covers, until it is done.
    decided: Option<Span>,
    /// When that write was decided, until it has ended. A decision that no write follows leaves it.
    decided_at: Option<Instant>,
    /// The last decided write is an interim write.
    is_interim: bool,
}

impl State {
    /// The debounce of a change at that time.
    fn debounce(&self, settings: &Settings, at: Instant) -> Duration {
        let known = self.took.filter(|(_, end)| at < *end + settings.memory());
        let took = known.map_or(Duration::ZERO, |(took, _)| took);
        let slow = took.saturating_mul(settings.debounce_factor);
        slow.min(settings.max_delay).max(settings.debounce)
    }

    /// The first change of a burst, and when the burst ends without a further one. `None`: no change waits for that.
    fn burst(&self, settings: &Settings) -> Option<Span> {
        let (first, last) = self.changed.filter(|_| !self.is_over && !self.is_urgent)?;
        Some((first, last + self.debounce(settings, last)))
    }

    /// `free_at`: before that time no interim write begins.
    fn due_in(&self, settings: &Settings, free_at: Option<Instant>, now: Instant) -> Duration {
        if self.is_urgent {
            return Duration::ZERO;
        }
        let quiet = self.burst(settings).map(|(first, end)| {
            let latest = first + settings.max_pause;
            let turn = free_at.map_or(first, |free_at| {
                let left = latest.saturating_duration_since(free_at);
                latest.min(free_at + left / ORDER)
            });
            end.min(turn.max(first + settings.max_delay))
        });
        let due = self.next.max(quiet);
        due.map_or(Duration::ZERO, |due| due.saturating_duration_since(now))
    }

    /// Whether the state says no more than the default: nothing waits, no write is under way, and nothing of the last one
    /// counts any more.
    fn is_idle(&self, settings: &Settings, now: Instant) -> bool {
        let is_waiting = self.is_urgent || self.changed.is_some();
        let is_writing = self.decided_at.is_some_and(|at| now < at + UNDER_WAY);
        let is_paused = self.next.is_some_and(|next| next > now);
        !is_waiting
            && !is_writing
            && !is_paused
            && self.debounce(settings, now) == settings.debounce
    }
}

#[derive(Debug)]
struct States<K> {
    by_key: HashMap<K, State, FxBuildHasher>,
    /// Before that time no interim write of any key begins.
    free_at: Option<Instant>,
    /// Number of keys at which idle ones are swept.
    sweep_at: usize,
}

/// The time of the next write for each key. Idle keys are dropped.
#[derive(Debug)]
pub struct Throttle<K> {
    settings: Settings,
    states: Mutex<States<K>>,
}

impl<K: Clone + Eq + Hash> Throttle<K> {
    /// A throttle without keys.
    pub fn new(settings: Settings) -> Self {
        let states = States {
            by_key: HashMap::default(),
            free_at: None,
            sweep_at: MIN_SWEEP,
        };
        Self {
            settings,
            states: Mutex::new(states),
        }
    }

    /// Records a change that the next write covers; `is_over`: the change ends its burst. Returns the delay until the
    /// write, as far as is known now.
    pub fn changed(&self, key: &K, is_over: bool, now: Instant) -> Duration {
        let mut states = self.states.lock();
        let free_at = states.free_at;
        let state = states.by_key.entry(key.clone()).or_default();
        let first = state.changed.map_or(now, |(first, _)| first);
        state.changed = Some((first, now));
        state.is_over = is_over;
        state.due_in(&self.settings, free_at, now)
    }

    /// A caller waits for the write: it is due at once.
    pub fn urgent(&self, key: &K) {
        let mut states = self.states.lock();
        states.by_key.entry(key.clone()).or_default().is_urgent = true;
    }

    /// Time until the next write may be made; zero if it may be now.
    pub fn due_in(&self, key: &K, now: Instant) -> Duration {
        let states = self.states.lock();
        let state = states.by_key.get(key);
        state.map_or(Duration::ZERO, |state| {
            state.due_in(&self.settings, states.free_at, now)
        })
    }

    /// The content of the write is about to be decided: it covers all changes until now. Whether a write follows does not
    /// matter to other keys.
    pub fn deciding(&self, key: &K, now: Instant) {
        if let Some(state) = self.states.lock().by_key.get_mut(key) {
            let burst = state.burst(&self.settings);
            state.is_interim = burst.is_some_and(|(_, end)| now < end);
            state.decided = state.changed.take();
            state.decided_at = Some(now);
            state.is_urgent = false;
        }
    }

    /// A write was done, and took `took`; or, where only `min_interval` is set, it has begun or ended in any way.
    pub fn wrote(&self, key: &K, took: Duration, now: Instant) {
        self.sweep(now);
        let pause = self.settings.pause(took);
        self.ended(key, took, now, |state| {
            state.next = state.next.max(Some(now + pause));
            state.took = Some((took, now));
            state.decided = None;
        });
    }

    /// A write failed after `took`, which says nothing about the size of what is written. Without an answer it may have been
    /// done. Its changes wait on.
    pub fn failed(&self, key: &K, took: Duration, now: Instant) {
        let pause = self.settings.min_interval;
        self.ended(key, took, now, |state| {
            // Not sooner than after the write before.
            state.next = state.next.max(Some(now + pause));
            if let Some((first, last)) = state.decided.take() {
                let last = state.changed.map_or(last, |(_, last)| last);
                state.changed = Some((first, last));
            }
        });
    }

    /// A write has ended: notes it in the state of the key. If it was an interim write, others wait for what it took,
    /// whatever its outcome: it has cost the API server that time.
    fn ended(&self, key: &K, took: Duration, now: Instant, note: impl FnOnce(&mut State)) {
        let settings = &self.settings;
        let mut guard = self.states.lock();
        let states = &mut *guard;
        let state = states.by_key.entry(key.clone()).or_default();
        state.decided_at = None;
        note(state);
        let gap = settings.gap(took);
        if std::mem::take(&mut state.is_interim) && !gap.is_zero() {
            // Two that ran at the same time count both.
            let free_at = states.free_at.map_or(now, |free_at| free_at.max(now));
            let latest = now + settings.max_pause;
            states.free_at = Some(latest.min(free_at + gap));
        }
    }

    /// The object of the key is gone.
    pub fn forget(&self, key: &K) {
        self.states.lock().by_key.remove(key);
    }

    /// Drops idle keys once there are twice as many keys as were left by the last sweep.
    fn sweep(&self, now: Instant) {
        let mut states = self.states.lock();
        if states.by_key.len() >= states.sweep_at {
            states
                .by_key
                .retain(|_, state| !state.is_idle(&self.settings, now));
            states.sweep_at = MIN_SWEEP.max(2 * states.by_key.len());
        }
    }
}

#[cfg(test)]
mod tests;
