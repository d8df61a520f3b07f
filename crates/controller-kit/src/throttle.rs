//! Spaces the writes about one key: not during a burst of changes, and not too soon after the previous write. Pure: the
//! time is an argument.
//!
//! A change is debounced, so that a burst is written once, at its end, and not in the middle, where the pause after the
//! write would delay the final state. One that is known to be over is written without the debounce. Each write is followed
//! by a pause. A write that is urgent waits for none of these.
//!
//! A burst that does not end is written at intervals. Such an interim write is out of date as soon as it is done, so the
//! keys take turns, with the pause between them: together they take the share of the time that one key may take, as long as
//! their pauses fit into the longest pause. Beyond that, each key in a burst is written once in that time.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use tokio::time::Instant;

/// Number of keys below which idle ones are not swept.
const MIN_SWEEP: usize = 64;

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
    /// The pause after a write is this multiple of the write's duration, if that is longer than `min_interval`. After an
    /// interim write the next key waits for the same pause.
    pub pause_factor: u32,
    /// Longest pause for that reason, and longest time that interim writes of other keys delay a change.
    pub max_pause: Duration,
}

impl Settings {
    /// The debounce of a key whose last write took that long.
    fn debounce(&self, took: Duration) -> Duration {
        let slow = took.saturating_mul(self.debounce_factor);
        slow.min(self.max_delay).max(self.debounce)
    }

    /// The pause after a write that took that long.
    fn pause(&self, took: Duration) -> Duration {
        let pause = took.saturating_mul(self.pause_factor);
        pause.min(self.max_pause).max(self.min_interval)
    }
}

/// State of one key; by default empty.
#[derive(Debug, Default)]
struct State {
    /// Earliest time of the next write, because of the last one.
    next: Option<Instant>,
    /// Duration of the last write whose duration says something.
    took: Duration,
    /// The first and the last change since the last write was decided.
    changed: Option<(Instant, Instant)>,
    /// No further change is expected after the last one.
    is_over: bool,
    /// A caller waits for the write.
    is_urgent: bool,
    /// Time of the interim write, once it has been reserved.
    slot: Option<Instant>,
    /// The pause for which the last interim write reserved time, until the write has ended.
    reserved: Option<Duration>,
}

impl State {
    /// `free`: earliest time that no interim write has reserved.
    fn due_in(
        &mut self,
        settings: &Settings,
        free: &mut Option<Instant>,
        now: Instant,
    ) -> Duration {
        if self.is_urgent {
            return Duration::ZERO;
        }
        let changed = self.changed.filter(|_| !self.is_over);
        let quiet = changed.map(|(first, last)| {
            let end = last + settings.debounce(self.took);
            end.min(self.interim(settings, first, end, free, now))
        });
        let due = self.next.max(quiet);
        due.map_or(Duration::ZERO, |due| due.saturating_duration_since(now))
    }

    /// The time of the interim write. It is reserved when a burst has lasted for [`Settings::max_delay`], so that keys get
    /// their turns in that order.
    fn interim(
        &mut self,
        settings: &Settings,
        first: Instant,
        end: Instant,
        free: &mut Option<Instant>,
        now: Instant,
    ) -> Instant {
        let earliest = (first + settings.max_delay).max(self.next.unwrap_or(first));
        if now < earliest || end <= now {
            return earliest;
        }
        *self.slot.get_or_insert_with(|| {
            let latest = (first + settings.max_pause).max(now);
            let slot = free.map_or(now, |free| free.max(now)).min(latest);
            *free = (*free).max(Some(slot + settings.pause(self.took)));
            slot
        })
    }

    /// Whether the state equals the default, the last write's duration left out.
    fn is_idle(&self, now: Instant) -> bool {
        let is_waiting = self.is_urgent || self.changed.is_some() || self.reserved.is_some();
        !is_waiting && self.next.is_none_or(|next| next <= now)
    }
}

#[derive(Debug)]
struct States<K> {
    by_key: HashMap<K, State, FxBuildHasher>,
    /// Earliest time that no interim write of any key has reserved.
    free: Option<Instant>,
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
            free: None,
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
        let mut guard = self.states.lock();
        let states = &mut *guard;
        let state = states.by_key.entry(key.clone()).or_default();
        let first = state.changed.map_or(now, |(first, _)| first);
        state.changed = Some((first, now));
        state.is_over = is_over;
        state.due_in(&self.settings, &mut states.free, now)
    }

    /// A caller waits for the write: it is due at once.
    pub fn urgent(&self, key: &K) {
        let mut states = self.states.lock();
        states.by_key.entry(key.clone()).or_default().is_urgent = true;
    }

    /// Time until the next write may be made; zero if it may be now.
    pub fn due_in(&self, key: &K, now: Instant) -> Duration {
        let mut guard = self.states.lock();
        let states = &mut *guard;
        states.by_key.get_mut(key).map_or(Duration::ZERO, |state| {
            state.due_in(&self.settings, &mut states.free, now)
        })
    }

    /// The content of the write is about to be decided: it covers all changes until now.
    pub fn deciding(&self, key: &K) {
        if let Some(state) = self.states.lock().by_key.get_mut(key) {
            state.changed = None;
            state.is_urgent = false;
            let pause = self.settings.pause(state.took);
            state.reserved = state.slot.take().map(|_| pause);
        }
    }

    /// A write ended that took `took`, regardless of its outcome: one without an answer may have been done. Zero: the
    /// duration says nothing, because the write failed or has only begun.
    pub fn wrote(&self, key: &K, took: Duration, now: Instant) {
        let settings = &self.settings;
        let pause = settings.pause(took);
        self.sweep(now);
        let mut guard = self.states.lock();
        let states = &mut *guard;
        let state = states.by_key.entry(key.clone()).or_default();
        // A failed write does not shorten the pause after a successful one.
        state.next = state.next.max(Some(now + pause));
        let reserved = state.reserved.take();
        if took.is_zero() {
            // Its changes have waited for their turn, and take no second one.
            let kept = reserved.map(|_| now + settings.max_delay);
            state.slot = state.slot.or(kept);
            return;
        }
        state.took = took;
        if let Some(reserved) = reserved {
            // It took longer than expected: those that have no turn yet wait for longer, and for no other reason.
            let more = pause.saturating_sub(reserved);
            let longest = now + settings.max_pause;
            states.free = states.free.map(|free| free.max((free + more).min(longest)));
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
            states.by_key.retain(|_, state| !state.is_idle(now));
            states.sweep_at = MIN_SWEEP.max(2 * states.by_key.len());
        }
    }
}

#[cfg(test)]
mod tests;
