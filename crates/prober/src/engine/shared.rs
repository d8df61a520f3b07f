//! What the prober's handles and its tasks share: the registry and what is in flight, behind one mutex, and how they wake each
//! other.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::{sync::Notify, task::AbortHandle, time::Instant};

use crate::{Observer, Settings, registry::Registry, slots::Slots};

pub(super) struct Shared {
    /// The zero of the times in the registry.
    pub(super) origin: Instant,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) state: Mutex<State>,
    /// Wakes the timer task: an earlier deadline, room in flight again, or the end.
    pub(super) timer: Notify,
    /// Wakes the consumer of the edges: a group became dirty, or the end.
    pub(super) dirty: Notify,
}

pub(super) struct State {
    pub(super) registry: Registry,
    /// How to stop a probe in flight, by ticket number; at most one per target.
    pub(super) flights: FxHashMap<u64, AbortHandle>,
    /// Connects whose socket may be open; also those that were stopped but still run.
    pub(super) slots: Slots,
    /// What the timer task waits for.
    pub(super) pause: Pause,
    pub(super) closed: bool,
}

/// What the timer task waits for between two passes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Pause {
    /// Nothing: it is in a pass, or woken already.
    #[default]
    No,
    /// This deadline, the earliest when it looked; without one, for any.
    Until(Option<Duration>),
    /// The end of any probe in flight.
    ForRoom,
}

impl State {
    /// Whether the timer task has to be woken because its deadlines changed, or because there is
    /// `room` in flight again. If so, it counts as woken.
    pub(super) fn wakes_timer(&mut self, room: bool) -> bool {
        let wakes = match self.pause {
            Pause::No => false,
            Pause::Until(planned) => self
                .registry
                .next_deadline(self.slots.room())
                .is_some_and(|next| planned.is_none_or(|planned| next < planned)),
            Pause::ForRoom => room,
        };
        if wakes {
            self.pause = Pause::No;
        }
        wakes
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// Without any group, and nothing in flight.
    pub(super) fn new(settings: Settings, observer: Arc<dyn Observer>) -> Self {
        Self {
            origin: Instant::now(),
            observer,
            state: Mutex::new(State {
                registry: Registry::default(),
                flights: FxHashMap::default(),
                slots: Slots::new(settings.max_in_flight),
                pause: Pause::No,
                closed: false,
            }),
            timer: Notify::new(),
            dirty: Notify::new(),
        }
    }

    /// Time since the origin.
    pub(super) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Waits until `deadline` or until `notify` has a permit; only for the latter without one.
    pub(super) async fn wait(&self, deadline: Option<Duration>, notify: &Notify) {
        match deadline {
            None => notify.notified().await,
            Some(at) => tokio::select! {
                () = tokio::time::sleep_until(self.origin + at) => {}
                () = notify.notified() => {}
            },
        }
    }

    /// Changes the registry, unless the prober was shut down, and takes down the probes that
    /// nobody waits for any more.
    pub(super) fn change(&self, change: impl FnOnce(&mut Registry, &mut Vec<u64>)) {
        let mut cancelled = Vec::new();
        let (flights, wake): (Vec<AbortHandle>, bool) = {
            let mut state = self.state.lock();
            if state.closed {
                return;
            }
            change(&mut state.registry, &mut cancelled);
            let flights = cancelled
                .iter()
                .filter_map(|number| state.flights.remove(number));
            (flights.collect(), state.wakes_timer(false))
        };
        for flight in flights {
            flight.abort();
        }
        if wake {
            self.timer.notify_one();
        }
    }

    /// Stops all probes, forgets all groups and ends the tasks.
    pub(super) fn shutdown(&self) {
        let flights = {
            let mut state = self.state.lock();
            state.closed = true;
            state.registry.clear();
            std::mem::take(&mut state.flights)
        };
        for flight in flights.into_values() {
            flight.abort();
        }
        self.timer.notify_one();
        self.dirty.notify_one();
    }
}
