//! The leader's tasks: start, run until the next request, completion, and abortion by a crash or the loss of the Lease.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_load_balancer::index::queues::Singleton;

use super::call::Seen;
use super::failure::Failure;
use super::process::{Process, State, Work};
use super::simulation::{Simulation, say};

impl Simulation {
    /// Starts a task of the leader.
    pub(crate) async fn start(&mut self, work: Work) -> Result<(), Failure> {
        self.tasks += 1;
        let number = self.tasks;
        self.processes[0].begin(number, work);
        let nth = self.processes[0].tasks.len() - 1;
        self.drive(0, nth).await
    }

    /// Runs a task until it waits for a response or is done.
    pub(crate) async fn drive(&mut self, at: usize, nth: usize) -> Result<(), Failure> {
        let number = self.processes[at].tasks[nth].number;
        let process = &self.processes[at];
        let seen = Seen {
            at_begin: process.tasks[nth].seen,
            at_sending: process.seen,
        };
        self.wire.sender(number, seen);
        for _ in 0..8 {
            let future = &mut self.processes[at].tasks[nth].future;
            let polled = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
            if let Poll::Ready(outcome) = polled {
                let task = self.processes[at].tasks.swap_remove(nth);
                self.done(at, task.work, &outcome);
                return Ok(());
            }
            // The client passes requests on through a task of its own.
            tokio::task::yield_now().await;
            if self.wire.waiting(number) > 0 {
                return Ok(());
            }
        }
        let work = &self.processes[at].tasks[nth].work;
        Err(Failure::new(
            "stuck",
            format!("{work:?} waits for something that is no request"),
        ))
    }

    /// Moves delayed keys that are due now into the queues, so that
    /// [`WorkQueue::depth`](harvester_lb_controller_kit::work_queue::WorkQueue::depth) counts them.
    pub(crate) fn expire(&self) {
        for process in &self.processes {
            let queues = &process.ctx.index.queues;
            let due = Ok(Requeue::After(Duration::ZERO));
            if let Some(Some(key)) = queues.lbs.next().now_or_never() {
                queues.lbs.done(&key, &due);
            }
            if let Some(Some(name)) = queues.pools.next().now_or_never() {
                queues.pools.done(&name, &due);
            }
            if queues.history.next().now_or_never().flatten().is_some() {
                queues.history.done(&Singleton, &due);
            }
            if queues
                .waiting_messages
                .next()
                .now_or_never()
                .flatten()
                .is_some()
            {
                queues.waiting_messages.done(&Singleton, &due);
            }
        }
    }

    /// Crashes the leader. Its requests in flight are applied now, late, or never.
    pub(crate) fn crash(&mut self) {
        say!(self, "[0] CRASHES");
        self.oracle.end_term();
        self.statistics.crashes += 1;
        let dead = self.processes.remove(0);
        for task in &dead.tasks {
            while let Some(open) = self.wire.take(task.number, 0) {
                self.unanswered = true;
                if self.rng.u8(..3) > 0 {
                    say!(self, "  under way: {}", open.call.describe());
                    self.lag(open.lose());
                }
            }
        }
        drop(dead);
        if self.processes.is_empty() {
            self.processes.push(Process::new(
                &self.shared,
                self.defect,
                self.style.builtin_dhcp,
            ));
        }
    }

    /// The leader loses the Lease and keeps running; the standby is leader next, else the same process again. Requests in
    /// flight are answered, or cancelled: then they are applied now, late, or never.
    pub(crate) fn lose(&mut self) {
        say!(self, "[0] LOSES THE LEASE");
        self.oracle.end_term();
        self.statistics.lost += 1;
        let mut loser = self.processes.remove(0);
        loser.lose();
        for task in std::mem::take(&mut loser.tasks) {
            if self.rng.bool() {
                loser.tasks.push(task);
                continue;
            }
            while let Some(open) = self.wire.take(task.number, 0) {
                self.unanswered = true;
                if self.rng.u8(..3) > 0 {
                    say!(self, "  cut off: {}", open.call.describe());
                    self.lag(open.lose());
                }
            }
        }
        loser.stand_by();
        self.processes.push(loser);
    }

    fn done(&mut self, at: usize, work: Work, outcome: &Result<Requeue, WriteError>) {
        say!(self, "[{at}] {work:?} is done: {outcome:?}");
        let process = &mut self.processes[at];
        if process.state == State::Draining {
            process.stand_by();
            return;
        }
        let ctx = &process.ctx;
        match work {
            Work::Begin => {
                process.state = match outcome {
                    Ok(_) => State::Working,
                    Err(_) => State::Standby,
                }
            }
            // A resync repairs missed events; here it must not be needed.
            Work::Lb(key) => match outcome {
                Ok(Requeue::Resync) => ctx.index.queues.lbs.done(&key, &Ok(Requeue::AwaitChange)),
                outcome => ctx.index.queues.lbs.done(&key, outcome),
            },
            Work::Pool(name) => ctx.index.queues.pools.done(&name, outcome),
            Work::History => ctx.index.queues.history.done(&Singleton, outcome),
        }
    }
}
