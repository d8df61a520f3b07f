//! The possible next steps of a simulation, and their execution.

use std::time::Duration;

use futures::FutureExt;
use harvester_lb_object::Key;
use harvester_load_balancer::controllers::waiting_messages;
use harvester_load_balancer::index::queues::Singleton;
use serde_json::json;
use tokio::time::Instant;

use super::acts::Act;
use super::api::By;
use super::failure::Failure;
use super::kind::Kind;
use super::leases;
use super::process::{Link, Process, State, Work};
use super::simulation::{Simulation, say};
use super::step::Step;

/// How long a user waits: longer than a first join, or a move that kube-vip ignores, takes.
const WAIT: Duration = Duration::from_secs(15);

impl Simulation {
    /// The pending work of kube-vip, the garbage collector and other controllers.
    pub(crate) fn list_chores(&mut self) {
        if self.chores_of == (self.server.revision, self.calm) {
            return;
        }
        self.chores_of = (self.server.revision, self.calm);
        let announced = self.server.all(Kind::Service).iter();
        let (revision, calm) = self.chores_of;
        let news = |service| self.kube_vip.announcement(service, revision, calm);
        let announced = announced.filter(|(_, service)| news(service).is_some());
        let announced = announced.map(|(key, _)| Step::Announce(key.clone()));
        let collected = self.server.garbage().into_iter();
        let collected = collected.map(|(kind, key)| Step::Collect(kind, key));
        let left = leases::left(&self.server).into_iter();
        let left = left.map(|key| Step::Collect(Kind::Record, key));
        let held_up = self.server.held_up().into_iter();
        let held_up = held_up.map(|(kind, key)| Step::Finalize(kind, key));
        self.chores = announced
            .chain(collected)
            .chain(left)
            .chain(held_up)
            .collect();
    }

    /// All possible next steps, with weights.
    pub(crate) fn possible(&self, steps: &mut Vec<(u32, Step)>) {
        let style = &self.style;
        for (at, process) in self.processes.iter().enumerate() {
            for kind in Kind::ALL {
                let link = process.link(kind);
                if link == Link::Down {
                    steps.push((60, Step::Ask(at, kind)));
                } else if link == Link::Asked {
                    steps.push((60, Step::List(at, kind)));
                } else if process.pending(kind) > 0 {
                    steps.push((style.watch[kind as usize], Step::Deliver(at, kind)));
                }
            }
            for nth in 0..process.unconfirmed.len() {
                steps.push((style.progress, Step::LookUp(at, nth)));
            }
            for (nth, task) in process.tasks.iter().enumerate() {
                debug_assert!(self.wire.waiting(task.number) > 0);
                steps.push((style.progress, Step::Progress(at, nth)));
            }
        }
        if let Some(leader) = self.processes.first() {
            let queues = &leader.ctx.index.queues;
            match leader.state {
                State::Standby if leader.ctx.index.stores.unsynced().is_empty() => {
                    steps.push((60, Step::Begin));
                }
                State::Working => {
                    let busy = |lb: bool| {
                        let kind = |w: &Work| matches!(w, Work::Lb(_)) == lb;
                        let tasks = leader.tasks.iter().filter(|t| t.work != Work::History);
                        tasks.filter(|t| kind(&t.work)).count()
                    };
                    let forgets = leader.tasks.iter().any(|t| t.work == Work::History);
                    if queues.lbs.depth() > 0 && busy(true) < style.workers {
                        steps.push((style.take, Step::TakeLb));
                    }
                    if queues.pools.depth() > 0 && busy(false) < 2 {
                        steps.push((style.take, Step::TakePool));
                    }
                    if queues.history.depth() > 0 && !forgets {
                        steps.push((style.take, Step::TakeHistory));
                    }
                    if queues.waiting_messages.depth() > 0 {
                        steps.push((style.take, Step::Tell));
                    }
                }
                _ => {}
            }
        }
        let chores = self.chores.iter();
        steps.extend(chores.map(|chore| (style.cluster, chore.clone())));
        if self.calm {
            return;
        }
        for nth in 0..self.late.len() {
            steps.push((style.late, Step::Land(nth)));
        }
        let waits = Instant::now() < self.waits_until;
        if self.acts.len() > 0 && !waits {
            steps.push((style.user, Step::User));
        }
        if waits {
            steps.push((style.time.max(2), Step::Time));
        } else if steps.len() > 1 {
            steps.push((style.time, Step::Time));
        }
        for (at, process) in self.processes.iter().enumerate() {
            if style.relist > 0 {
                let kind = Kind::ALL[self.statistics.steps % 5];
                if process.link(kind) == Link::Up {
                    steps.push((style.relist, Step::Relist(at, kind)));
                }
            }
        }
        if self
            .processes
            .first()
            .is_some_and(|p| matches!(p.state, State::Beginning | State::Working))
        {
            steps.push((style.crash, Step::Crash));
            steps.push((style.lose, Step::Lose));
            steps.push((style.fence, Step::Fence));
            steps.push((style.recheck, Step::Recheck));
        }
        if self.processes.len() == 1 {
            steps.push((style.standby, Step::Standby));
        }
    }

    /// Executes a step.
    pub(crate) async fn perform(&mut self, step: Step) -> Result<(), Failure> {
        match step {
            Step::Deliver(at, kind) => {
                let text = self.processes[at].deliver(kind);
                say!(self, "  [{at}] watch of {kind:?}: {text}");
            }
            Step::Ask(at, kind) | Step::Relist(at, kind) => {
                say!(self, "  [{at}] watch of {kind:?} asks for a list");
                self.processes[at].ask(kind);
            }
            Step::List(at, kind) => {
                say!(self, "  [{at}] watch of {kind:?} is given a list");
                self.processes[at].list(kind, &self.server);
            }
            Step::LookUp(at, nth) => {
                say!(
                    self,
                    "  [{at}] looks up {:?}",
                    self.processes[at].unconfirmed[nth]
                );
                self.processes[at].look_up(nth, &self.server);
            }
            Step::Begin => {
                say!(self, "[0] begins to lead");
                // What the earlier term had under way was written in that.
                self.oracle.end_term();
                self.processes[0].state = State::Beginning;
                self.start(Work::Begin).await?;
            }
            Step::TakeLb => {
                let next = self.processes[0].ctx.index.queues.lbs.next().now_or_never();
                if let Some(Some(key)) = next {
                    say!(self, "[0] takes up {key}");
                    self.start(Work::Lb(key)).await?;
                }
            }
            Step::TakePool => {
                let next = self.processes[0]
                    .ctx
                    .index
                    .queues
                    .pools
                    .next()
                    .now_or_never();
                if let Some(Some(name)) = next {
                    say!(self, "[0] takes up pool {name}");
                    self.start(Work::Pool(name)).await?;
                }
            }
            Step::TakeHistory => {
                let next = self.processes[0]
                    .ctx
                    .index
                    .queues
                    .history
                    .next()
                    .now_or_never();
                if next.flatten().is_some() {
                    say!(self, "[0] takes up the history");
                    self.start(Work::History).await?;
                }
            }
            Step::Tell => {
                let ctx = &self.processes[0].ctx;
                if ctx
                    .index
                    .queues
                    .waiting_messages
                    .next()
                    .now_or_never()
                    .flatten()
                    .is_some()
                {
                    say!(self, "[0] tells those who wait");
                    let outcome = Ok(waiting_messages::reconcile(ctx));
                    ctx.index.queues.waiting_messages.done(&Singleton, &outcome);
                }
            }
            Step::Progress(at, nth) => self.progress(at, nth).await?,
            Step::User => {
                if let Some(act) = self.acts.next() {
                    say!(self, "USER {act:?}");
                    if act == Act::Wait {
                        self.waits_until = Instant::now() + WAIT;
                    }
                    act.apply(&mut self.server);
                    self.spread()?;
                }
            }
            Step::Announce(key) => {
                let service = self.server.get(Kind::Service, &key).unwrap();
                let revision = self.server.revision;
                if let Some(address) = self.kube_vip.announcement(service, revision, self.calm) {
                    say!(self, "KUBE-VIP announces {address} for {key}");
                    self.kube_vip.announces(service, &address);
                    self.server
                        .alter(Kind::Service, &key, By::Cluster, |object| {
                            object["status"] =
                                json!({"loadBalancer": {"ingress": [{"ip": address}]}});
                        });
                    self.spread()?;
                }
            }
            Step::Collect(kind, key) => {
                say!(self, "GARBAGE {kind:?} {key}");
                self.server.delete(kind, &key, By::Cluster);
                self.spread()?;
            }
            Step::Finalize(kind, key) => {
                say!(self, "FINALIZER off {kind:?} {key}");
                self.server.alter(kind, &key, By::Cluster, |object| {
                    object["metadata"]["finalizers"] = json!([]);
                });
                self.spread()?;
            }
            Step::Time => {
                let millis = [300, 1_100, 2_500][self.rng.usize(..3)];
                say!(self, "{millis} ms pass");
                tokio::time::advance(Duration::from_millis(millis)).await;
                self.server.clock += i64::from(millis > 1_000);
                self.expire();
            }
            Step::Crash => self.crash(),
            Step::Lose => self.lose(),
            Step::Standby => {
                say!(self, "a second process stands by");
                self.processes.push(Process::new(
                    &self.shared,
                    self.defect,
                    self.style.builtin_dhcp,
                ));
            }
            Step::Fence => {
                let open = self.rng.bool();
                say!(self, "[0] the Lease holds: {open}");
                self.processes[0].gate.set(open);
            }
            Step::Recheck => {
                let keys: Vec<Key> = self.server.all(Kind::Lb).keys().cloned().collect();
                if let Some(key) = self.rng.choice(keys) {
                    self.processes[0].ctx.index.queues.lbs.add(key);
                }
            }
            Step::Land(nth) => {
                let call = self.late.swap_remove(nth);
                self.land(&call)?;
            }
        }
        Ok(())
    }
}
