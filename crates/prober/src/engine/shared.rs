//! State shared by the prober's handles and tasks: the registry and the probes in flight, behind one mutex, and the
//! notifications between them.

use std::{
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::{sync::Notify, task::AbortHandle, time::Instant};

use crate::{Observer, Settings, registry::Registry, slots::Slots};

pub(super) struct Shared {
    /// The zero of the times in the registry.
    pub(super) origin: Instant,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) state: Mutex<State>,
    /// Probes whose task has not run yet.
    pub(super) queued: AtomicUsize,
    /// Wakes the timer task: an earlier deadline, a free slot, or the shutdown.
    pub(super) timer: Notify,
    /// Wakes the consumer of verdict changes: a group became dirty, or the shutdown.
    pub(super) dirty: Notify,
}

pub(super) struct State {
    pub(super) registry: Registry,
    /// Abort handles of the probes in flight, by ticket number; at most one per target.
    pub(super) flights: FxHashMap<u64, AbortHandle>,
    /// Connects whose socket may be open, including those that were aborted but still run.
    pub(super) slots: Slots,
    /// What the timer task waits for.
    pub(super) pause: Pause,
    pub(super) closed: bool,
}

/// What the timer task waits for between two passes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Pause {
    /// Nothing: it is in a pass, or notified already.
    #[default]
    No,
    /// The earliest deadline when it looked; `None`: any deadline.
    Until(Option<Duration>),
    /// The end of any probe in flight.
    ForRoom,
}

impl State {
    /// Whether the timer task has to be notified because its deadlines changed, or because there is `room` in flight
    /// again. If so, it counts as notified.
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
    /// Without groups and without probes in flight.
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
            queued: AtomicUsize::new(0),
            timer: Notify::new(),
            dirty: Notify::new(),
        }
    }

    /// Time since the origin.
    pub(super) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Waits until `deadline` or until `notify` has a permit; without a deadline only for the latter.
    pub(super) async fn wait(&self, deadline: Option<Duration>, notify: &Notify) {
        match deadline {
            None => notify.notified().await,
            Some(at) => tokio::select! {
                () = tokio::time::sleep_until(self.origin + at) => {}
                () = notify.notified() => {}
            },
        }
    }

    /// Changes the registry, unless the prober was shut down, and aborts the probes that are not needed any more.
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

    /// Stops all probes, removes all groups and ends the tasks.
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
