//! When the next write about something may be made: not amid a burst of changes, and not too soon after the write before.
//! Pure: the time is an argument.
//!
//! A change waits for a moment without another one, so that a burst is told of at its end and not somewhere in it, with the
//! pause after that write before its end can be told. A burst that does not end is told of in between. One that is known to be
//! over is told of without waiting to see it. After each write there is a pause, and whoever waits for an answer waits for
//! nothing.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use tokio::time::Instant;

/// Keys that are kept at least before what is over is looked for.
const FEW: usize = 64;

/// How writes are spaced. By default they are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// So long nothing must have changed before a write.
    pub debounce: Duration,
    /// Longest time that a change waits for that.
    pub max_delay: Duration,
    /// Shortest pause after a write.
    pub min_interval: Duration,
    /// A write is followed by a pause of so many times its own duration, if that is longer than `min_interval`.
    pub pause_factor: u32,
    /// Longest pause for that reason.
    pub max_pause: Duration,
}

/// What is known of one key; by default nothing.
#[derive(Debug, Default)]
struct State {
    /// Not before this, by the last write.
    next: Option<Instant>,
    /// The first and the last change since the last write was decided.
    changed: Option<(Instant, Instant)>,
    /// No further change is to be expected after the last one.
    is_over: bool,
    /// Somebody waits for an answer.
    is_urgent: bool,
}

impl State {
    fn due_in(&self, settings: &Settings, now: Instant) -> Duration {
        if self.is_urgent {
            return Duration::ZERO;
        }
        let quiet = self
            .changed
            .filter(|_| !self.is_over)
            .map(|(first, last)| (last + settings.debounce).min(first + settings.max_delay));
        let due = self.next.max(quiet);
        due.map_or(Duration::ZERO, |due| due.saturating_duration_since(now))
    }

    /// Whether it says no more than nothing.
    fn is_idle(&self, now: Instant) -> bool {
        !self.is_urgent && self.changed.is_none() && self.next.is_none_or(|next| next <= now)
    }
}

#[derive(Debug)]
struct States<K> {
    by_key: HashMap<K, State, FxBuildHasher>,
    /// At this size it is looked for what is over.
    sweep_at: usize,
}

/// When the next write about each key may be made. Keys of which nothing has to be waited for are forgotten.
#[derive(Debug)]
pub struct Throttle<K> {
    settings: Settings,
    states: Mutex<States<K>>,
}

impl<K: Clone + Eq + Hash> Throttle<K> {
    /// Nothing is known of any key.
    pub fn new(settings: Settings) -> Self {
        let states = States {
            by_key: HashMap::default(),
            sweep_at: FEW,
        };
        Self {
            settings,
            states: Mutex::new(states),
        }
    }

    /// Something has changed that the next write tells of; `is_over`: the burst that it belongs to ends with it. Answers how
    /// long to wait with the write, as far as can be said now.
    pub fn changed(&self, key: &K, is_over: bool, now: Instant) -> Duration {
        self.with(key, |state| {
            let first = state.changed.map_or(now, |(first, _)| first);
            state.changed = Some((first, now));
            state.is_over = is_over;
            state.due_in(&self.settings, now)
        })
    }

    /// Somebody waits for an answer: the next write is due at once.
    pub fn urgent(&self, key: &K) {
        self.with(key, |state| state.is_urgent = true);
    }

    /// Time until the next write may be made; zero if it may be now.
    pub fn due_in(&self, key: &K, now: Instant) -> Duration {
        let states = self.states.lock();
        let state = states.by_key.get(key);
        state.map_or(Duration::ZERO, |state| state.due_in(&self.settings, now))
    }

    /// What to write is about to be decided: it tells of all changes until now.
    pub fn deciding(&self, key: &K) {
        if let Some(state) = self.states.lock().by_key.get_mut(key) {
            state.changed = None;
            state.is_urgent = false;
        }
    }

    /// A write has ended that took so long, whatever its outcome: one that was not answered may have been done. Zero: how long
    /// it took says nothing, because it failed or has only begun.
    pub fn wrote(&self, key: &K, took: Duration, now: Instant) {
        let settings = &self.settings;
        let pause = took.saturating_mul(settings.pause_factor);
        let pause = pause.min(settings.max_pause).max(settings.min_interval);
        self.sweep(now);
        // One that failed does not shorten the pause after one that did not.
        self.with(key, |state| state.next = state.next.max(Some(now + pause)));
    }

    /// There is nothing to write about any more.
    pub fn forget(&self, key: &K) {
        self.states.lock().by_key.remove(key);
    }

    /// Forgets what is over, once there are twice as many keys as the last time left.
    fn sweep(&self, now: Instant) {
        let mut states = self.states.lock();
        if states.by_key.len() >= states.sweep_at {
            states.by_key.retain(|_, state| !state.is_idle(now));
            states.sweep_at = FEW.max(2 * states.by_key.len());
        }
    }

    fn with<T>(&self, key: &K, work: impl FnOnce(&mut State) -> T) -> T {
        let mut states = self.states.lock();
        work(states.by_key.entry(key.clone()).or_default())
    }
}

#[cfg(test)]
mod tests;
