//! The tasks of the engine: the timer task and the probes it starts.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::{task::AbortHandle, time::Instant};

use super::shared::{Pause, Shared, State};
use crate::{
    Connector, OwnFault, ProbeResult,
    registry::{Finished, Launch, Ticket},
};

/// Shortest time between two passes of the timer task. A pass starts the probes that became due meanwhile (200 probes
/// at 20,000 a second); the added lag is negligible.
const TICK: Duration = Duration::from_millis(10);

/// Most probes started by one pass, and most whose task has not run yet. With [`TICK`] it paces overdue probes after a stall
/// of the machine: 60,000 probes a second, three times what 100,000 targets need at 5 s, instead of all at once. A core that
/// is slower than that gets no more tasks than it runs: thousands of waiting ones would push each other out of its caches,
/// and slow it down further. At most half of them are probes of silent targets: these time out in waves, as they were started
/// in waves, and the others must not wait until a wave is over (HC-5).
const BATCH: usize = 600;

/// The timer task: starts due probes, until the shutdown.
pub(super) async fn timer<C: Connector>(shared: Arc<Shared>, connector: Arc<C>) {
    let mut launches = Vec::with_capacity(BATCH);
    let mut started = Vec::with_capacity(BATCH);
    loop {
        let pass = Instant::now();
        // A probe that ends before the wait below leaves a permit, which ends the wait at once.
        let Ok(deadline) = shared.take_due(&mut launches) else {
            return;
        };
        for launch in launches.drain(..) {
            // Created before the task: its drop frees the slot in any case.
            let flight = Flight {
                shared: Arc::clone(&shared),
                ticket: launch.ticket,
                queued: true,
                ended: false,
            };
            let task = tokio::spawn(probe(flight, Arc::clone(&connector), launch));
            started.push((launch.ticket, task.abort_handle()));
        }
        shared.keep(&mut started);
        shared.wait(deadline, &shared.timer).await;
        tokio::time::sleep_until(pass + TICK).await;
    }
}

/// One probe.
async fn probe<C: Connector>(mut flight: Flight, connector: Arc<C>, launch: Launch) {
    flight.begin();
    let started = Instant::now();
    let since_origin = started.saturating_duration_since(flight.shared.origin);
    flight
        .shared
        .observer
        .lag(since_origin.saturating_sub(launch.scheduled));
    let connect = connector.connect(launch.addr);
    let result = match tokio::time::timeout(launch.timeout, connect).await {
        Ok(outcome) => ProbeResult::of_connect(&outcome),
        Err(_) => ProbeResult::Timeout,
    };
    flight.end(result, started.elapsed());
}

/// The prober was shut down.
pub(super) struct Closed;

/// A slot in flight; freed when dropped.
struct Flight {
    shared: Arc<Shared>,
    ticket: Ticket,
    /// Its task has not run yet.
    queued: bool,
    ended: bool,
}

impl Flight {
    /// Its task runs, or was aborted before it did.
    fn begin(&mut self) {
        if std::mem::take(&mut self.queued) {
            self.shared.queued.fetch_sub(1, Relaxed);
        }
    }

    /// The probe has a result.
    fn end(mut self, result: ProbeResult, duration: Duration) {
        self.ended = true;
        let finished = self.shared.finish(self.ticket, result);
        if finished != Finished::Stale {
            self.shared.observer.probe(result, duration);
        }
        if let Finished::Changed(ready) = finished {
            self.shared.observer.verdict_changed(ready);
        }
    }
}

impl Drop for Flight {
    /// The task ended without a result: it was aborted (then its result is not needed), or the connector panicked (then
    /// the target continues with the next period).
    fn drop(&mut self) {
        self.begin();
        if !self.ended {
            self.shared
                .finish(self.ticket, ProbeResult::OwnFault(OwnFault::Other));
        }
    }
}

impl Shared {
    /// Takes the due probes for which there is a slot, and the deadline to wait for next: `None` when no probe waits,
    /// or when they wait for a slot. `Err` after the shutdown.
    pub(super) fn take_due(&self, launches: &mut Vec<Launch>) -> Result<Option<Duration>, Closed> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Closed);
        }
        let mut room = state.slots.room();
        let queued = self.queued.load(Relaxed);
        room.all = room.all.min(BATCH.saturating_sub(queued));
        room.silent = room.silent.min(room.all.div_ceil(2));
        state.registry.launch(self.now(), room, launches);
        for launch in &*launches {
            state.slots.take(launch.ticket.silent);
        }
        self.queued.fetch_add(launches.len(), Relaxed);
        let room = state.slots.room();
        if room.all == 0 {
            state.pause = Pause::ForRoom;
            return Ok(None);
        }
        let deadline = state.registry.next_deadline(room);
        state.pause = Pause::Until(deadline);
        Ok(deadline)
    }

    /// Stores the abort handles of the probes just started, and aborts those that are not needed any more: ended
    /// already, or their target was removed meanwhile.
    fn keep(&self, started: &mut Vec<(Ticket, AbortHandle)>) {
        {
            let mut state = self.state.lock();
            let State {
                registry, flights, ..
            } = &mut *state;
            started.retain(|(ticket, task)| {
                let keep = registry.waits_for(*ticket);
                if keep {
                    flights.insert(ticket.number, task.clone());
                }
                !keep
            });
        }
        for (_, task) in started.drain(..) {
            task.abort();
        }
    }

    /// A probe has ended, with or without a result.
    fn finish(&self, ticket: Ticket, result: ProbeResult) -> Finished {
        let (finished, wake, is_first_dirty) = {
            let mut state = self.state.lock();
            state.slots.give_back(ticket.silent);
            state.flights.remove(&ticket.number);
            let before = state.registry.changes.next_deadline();
            let finished = state.registry.finish(self.now(), ticket, result);
            // Groups are marked without a changed verdict too. If others are dirty already, the consumer wakes for those.
            let is_first_dirty = state.registry.changes.next_deadline() != before;
            (finished, state.wakes_timer(true), is_first_dirty)
        };
        if wake {
            self.timer.notify_one();
        }
        if is_first_dirty {
            self.dirty.notify_one();
        }
        finished
    }
}
