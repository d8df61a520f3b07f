//! The player: one step after another, each drawn from the seed, until the acts are used up; then everything is delivered and
//! done, and the world must come to rest as it should.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use fastrand::Rng;
use futures::FutureExt;
use harvester_lb_controller_kit::events::Note;
use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_ipam::PoolName;
use harvester_lb_object::Key;
use harvester_load_balancer::controllers::waiting_messages;
use harvester_load_balancer::index::queues::Singleton;
use serde_json::{Value, json};

use super::api::{Answer, By, Call, Event, Kind, Objects, Server, Verb};
use super::at_rest;
use super::failure::Failure;
use super::oracle::Oracle;
use super::plan::{Plan, Style};
use super::process::{Link, Planted, Process, Shared, State, Work};
use super::wire::Wire;

/// Steps after which a world without acts and faults must be at rest. The busiest takes a tenth of it.
const REST_STEPS: usize = 6_000;
/// How often the time is moved on until nothing is written any more.
const REST_ROUNDS: usize = 12;
/// Longer than every back-off and every pace of a pool's status.
const REST_TIME: Duration = Duration::from_secs(61);

/// What kube-vip knows of a Service.
#[derive(Default)]
struct Vip {
    /// Addresses that the Service asked for, one after another.
    asked: Vec<String>,
    /// The one that is announced.
    announced: Option<usize>,
    /// It has missed the last change for good.
    stuck: bool,
}

/// What can happen next.
#[derive(Clone, Debug)]
enum Step {
    Deliver(usize, Kind),
    Ask(usize, Kind),
    List(usize, Kind),
    LookUp(usize, usize),
    Begin,
    TakeLb,
    TakePool,
    TakeHistory,
    Tell,
    Progress(usize, usize),
    User,
    Announce(Key),
    Collect(Kind, Key),
    Finalize(Kind, Key),
    Time,
    Relist(usize, Kind),
    Crash,
    Lose,
    Standby,
    Fence,
    Recheck,
    Land(usize),
}

/// Figures of a schedule.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) steps: usize,
    pub(crate) requests: u64,
    pub(crate) events: u64,
    pub(crate) crashes: u64,
    pub(crate) lost: u64,
    pub(crate) late: u64,
    pub(crate) served: usize,
    pub(crate) waiting: usize,
}

impl Figures {
    pub(crate) fn add(&mut self, more: &Self) {
        self.steps += more.steps;
        self.requests += more.requests;
        self.events += more.events;
        self.crashes += more.crashes;
        self.lost += more.lost;
        self.late += more.late;
        self.served += more.served;
        self.waiting += more.waiting;
    }
}

/// A world, and one order of things in it.
pub(crate) struct World {
    server: Server,
    wire: Wire,
    shared: Shared,
    /// The first one leads; a second one stands by.
    processes: Vec<Process>,
    /// Writes whose senders have given them up, and that may land yet.
    late: Vec<Call>,
    vips: BTreeMap<String, Vip>,
    chores: Vec<Step>,
    chores_of: (u64, bool),
    oracle: Oracle,
    style: Style,
    acts: std::vec::IntoIter<super::plan::Act>,
    rng: Rng,
    /// The API server answers everything, nothing breaks, nobody acts.
    calm: bool,
    planted: Option<Planted>,
    tasks: u64,
    pub(crate) figures: Figures,
    /// The last Event that the operator has made.
    last_event: Option<Note>,
    trace: Option<Vec<String>>,
}

macro_rules! say {
    ($world:expr, $($arg:tt)*) => {
        if let Some(trace) = &mut $world.trace {
            trace.push(format!($($arg)*));
        }
    };
}

/// Plays one schedule.
pub(crate) async fn play(
    plan: &Plan,
    order: u64,
    shared: &Shared,
    wire: &Wire,
    planted: Option<Planted>,
    traced: bool,
) -> (Result<Figures, Failure>, Vec<String>) {
    // Back-off and rechecks draw their jitter from here.
    fastrand::seed(order);
    wire.clear();
    let mut world = World {
        server: Server::new(),
        wire: wire.clone(),
        shared: shared.clone(),
        processes: Vec::new(),
        late: Vec::new(),
        vips: BTreeMap::new(),
        chores: Vec::new(),
        chores_of: (0, false),
        oracle: Oracle::default(),
        style: plan.style,
        acts: plan.acts.clone().into_iter(),
        rng: Rng::with_seed(order),
        calm: false,
        planted,
        tasks: 0,
        figures: Figures::default(),
        last_event: None,
        trace: traced.then(Vec::new),
    };
    world.server.service_finalizers = plan.style.service_finalizers;
    let outcome = world.run().await;
    (
        outcome.map(|()| world.figures),
        world.trace.unwrap_or_default(),
    )
}

impl World {
    async fn run(&mut self) -> Result<(), Failure> {
        self.processes
            .push(Process::new(&self.shared, self.planted));
        let mut after = 12;
        while self.acts.len() > 0 || after > 0 {
            if self.acts.len() == 0 {
                after -= 1;
            }
            self.step().await?;
        }
        self.calm = true;
        say!(self, "--- no more acts, no more faults ---");
        if self.processes[0].state != State::Draining {
            self.processes[0].gate.set(true);
        }
        for call in std::mem::take(&mut self.late) {
            if self.rng.bool() {
                self.land(&call)?;
            }
        }
        self.rest().await?;
        self.figures.served = self.oracle.served();
        self.figures.waiting = self.oracle.waiting();
        at_rest::judge(&self.server)?;
        self.writes_nothing("a further look at everything", true)
            .await?;
        if self.rng.u8(..4) > 0 {
            return Ok(());
        }
        self.processes.clear();
        self.processes
            .push(Process::new(&self.shared, self.planted));
        self.writes_nothing("a new start", false).await
    }

    /// At rest nothing is written (REC-5), whoever looks again.
    async fn writes_nothing(&mut self, what: &str, look: bool) -> Result<(), Failure> {
        say!(self, "--- {what} ---");
        let (revision, before) = (self.server.revision, self.server.copy());
        let events = self.figures.events;
        if look {
            let ctx = &self.processes[0].ctx;
            for key in self.server.all(Kind::Lb).keys() {
                ctx.index.queues.lbs.add(key.clone());
            }
            for key in self.server.all(Kind::Pool).keys() {
                ctx.index.queues.pools.add(PoolName::from(&*key.name));
            }
        }
        self.rest().await?;
        if self.figures.events > events {
            let text = format!("{what} makes an Event: {:?}", self.last_event);
            return Err(Failure::new("REC-5", text));
        }
        if self.server.revision == revision {
            return Ok(());
        }
        let before = without_words(&before, look);
        let after = without_words(&self.server.copy(), look);
        let changed = |key: &&(Kind, Key)| before.get(*key) != after.get(*key);
        match before.keys().chain(after.keys()).find(changed) {
            None => Ok(()),
            Some(key) => {
                let (before, after) = (before.get(key), after.get(key));
                Err(Failure::new(
                    "REC-5",
                    format!("{what} writes {key:?}: {before:?} {after:?}"),
                ))
            }
        }
    }

    /// Does everything that is to be done, moves the time on, until nothing is written any more. Rechecks never come:
    /// whoever needs one to be served has missed an event.
    async fn rest(&mut self) -> Result<(), Failure> {
        for round in 0..REST_ROUNDS {
            let before = self.server.revision;
            for step in 0.. {
                if step == REST_STEPS {
                    return Err(Failure::new("no rest", "work goes on and on".to_owned()));
                }
                if !self.step().await? {
                    break;
                }
            }
            if round > 0 && self.server.revision == before {
                return Ok(());
            }
            say!(self, "time passes");
            tokio::time::advance(REST_TIME).await;
            self.expire();
        }
        Err(Failure::new(
            "no rest",
            "something is written again and again".to_owned(),
        ))
    }

    /// Does one thing of those that can be done. False if there is nothing.
    async fn step(&mut self) -> Result<bool, Failure> {
        let mut steps = Vec::with_capacity(32);
        self.list_chores();
        self.possible(&mut steps);
        let total: u32 = steps.iter().map(|(weight, _)| weight).sum();
        if total == 0 {
            return Ok(false);
        }
        let mut at = self.rng.u32(..total);
        let step = steps
            .into_iter()
            .find(|(weight, _)| {
                let here = at < *weight;
                at = at.saturating_sub(*weight);
                here
            })
            .map(|(_, step)| step)
            .unwrap();
        self.figures.steps += 1;
        self.perform(step).await?;
        self.read_events();
        Ok(true)
    }

    /// Takes out the Events that the step has brought.
    fn read_events(&mut self) {
        for (at, process) in self.processes.iter_mut().enumerate() {
            while let Some(note) = process.notes.try_next() {
                say!(self, "  [{at}] EVENT {}: {}", note.reason, note.text);
                self.wire.event(&note);
                self.figures.events += 1;
                self.last_event = Some(note);
            }
        }
    }

    /// What kube-vip, the garbage collector and others have to do in the world as it is.
    fn list_chores(&mut self) {
        if self.chores_of == (self.server.revision, self.calm) {
            return;
        }
        self.chores_of = (self.server.revision, self.calm);
        let announced = self.server.all(Kind::Service).iter();
        let announced = announced.filter(|(_, service)| self.announcement(service).is_some());
        let announced = announced.map(|(key, _)| Step::Announce(key.clone()));
        let collected = self.server.garbage().into_iter();
        let collected = collected.map(|(kind, key)| Step::Collect(kind, key));
        let held_up = self.server.held_up().into_iter();
        let held_up = held_up.map(|(kind, key)| Step::Finalize(kind, key));
        self.chores = announced.chain(collected).chain(held_up).collect();
    }

    fn possible(&self, steps: &mut Vec<(u32, Step)>) {
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
            for nth in 0..process.in_doubt.len() {
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
                    if queues.tell.depth() > 0 {
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
        if self.acts.len() > 0 {
            steps.push((style.user, Step::User));
        }
        if steps.len() > 1 {
            steps.push((style.time, Step::Time));
        }
        for (at, process) in self.processes.iter().enumerate() {
            if style.relist > 0 {
                let kind = Kind::ALL[self.figures.steps % 5];
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

    async fn perform(&mut self, step: Step) -> Result<(), Failure> {
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
                    self.processes[at].in_doubt[nth]
                );
                self.processes[at].look_up(nth, &self.server);
            }
            Step::Begin => {
                say!(self, "[0] begins to lead");
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
                    .tell
                    .next()
                    .now_or_never()
                    .flatten()
                    .is_some()
                {
                    say!(self, "[0] tells those who wait");
                    let outcome = Ok(waiting_messages::reconcile(ctx));
                    ctx.index.queues.tell.done(&Singleton, &outcome);
                }
            }
            Step::Progress(at, nth) => self.progress(at, nth).await?,
            Step::User => {
                if let Some(act) = self.acts.next() {
                    say!(self, "USER {act:?}");
                    act.apply(&mut self.server);
                    self.spread()?;
                }
            }
            Step::Announce(key) => {
                let service = self.server.get(Kind::Service, &key).unwrap();
                if let Some(address) = self.announcement(service) {
                    say!(self, "KUBE-VIP announces {address} for {key}");
                    let uid = service["metadata"]["uid"].as_str().unwrap().to_owned();
                    let vip = self.vips.get_mut(&uid).unwrap();
                    vip.announced = vip.asked.iter().rposition(|a| leased(a) == address);
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
                self.processes
                    .push(Process::new(&self.shared, self.planted));
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

    /// What was due later and is due now becomes visible to [`Queue::depth`](harvester_lb_controller_kit::queue::Queue).
    fn expire(&self) {
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
            if queues.tell.next().now_or_never().flatten().is_some() {
                queues.tell.done(&Singleton, &due);
            }
        }
    }

    /// The leader begins a piece of work.
    async fn start(&mut self, work: Work) -> Result<(), Failure> {
        self.tasks += 1;
        let number = self.tasks;
        self.processes[0].begin(number, work);
        let nth = self.processes[0].tasks.len() - 1;
        self.drive(0, nth).await
    }

    /// Runs a task until it waits for an answer or is done.
    async fn drive(&mut self, at: usize, nth: usize) -> Result<(), Failure> {
        let number = self.processes[at].tasks[nth].number;
        self.wire.sender(number);
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

    fn done(
        &mut self,
        at: usize,
        work: Work,
        outcome: &Result<Requeue, harvester_lb_controller_kit::writer::WriteError>,
    ) {
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
            // A resync helps those who missed a change; here it must not be needed.
            Work::Lb(key) => match outcome {
                Ok(Requeue::Resync) => ctx.index.queues.lbs.done(&key, &Ok(Requeue::AwaitChange)),
                outcome => ctx.index.queues.lbs.done(&key, outcome),
            },
            Work::Pool(name) => ctx.index.queues.pools.done(&name, outcome),
            Work::History => ctx.index.queues.history.done(&Singleton, outcome),
        }
    }

    /// One request of a task is answered, in one way or another, and the task goes on.
    async fn progress(&mut self, at: usize, nth: usize) -> Result<(), Failure> {
        let number = self.processes[at].tasks[nth].number;
        let waiting = self.wire.waiting(number);
        let open = self.wire.take(number, self.rng.usize(..waiting)).unwrap();
        self.figures.requests += 1;
        // What is still under way of one that has lost the Lease lands late where another leads by then.
        let by = match self.processes[at].state {
            State::Draining if at > 0 => By::Late,
            _ => By::Operator,
        };
        let chance = if self.calm {
            1_000
        } else {
            self.rng.u32(..1_000)
        };
        if chance < self.style.lost_answers {
            match self.rng.u8(..3) {
                0 => {
                    let call = open.lose();
                    say!(self, "  [{at}] {} -> lost on the way", call.describe());
                }
                1 => {
                    let call = open.lose();
                    let code = self.server.apply(&call, by).code;
                    say!(
                        self,
                        "  [{at}] {} -> {code}, the answer is lost",
                        call.describe()
                    );
                    self.spread()?;
                }
                _ => {
                    let call = open.lose();
                    say!(self, "  [{at}] {} -> no answer yet", call.describe());
                    self.lag(call);
                }
            }
        } else if chance < self.style.lost_answers + self.style.refusals {
            let (code, reason) = [
                (500, "InternalError"),
                (409, "Conflict"),
                (429, "TooManyRequests"),
                (403, "Forbidden"),
            ][self.rng.usize(..4)];
            say!(self, "  [{at}] {} -> refused, {code}", open.call.describe());
            open.answer(&Answer::failure(code, reason, "not now"));
        } else {
            let answer = match self.planted {
                Some(planted) => self.apply_twisted(&open.call, planted),
                None => self.server.apply(&open.call, by),
            };
            say!(self, "  [{at}] {} -> {}", open.call.describe(), answer.code);
            open.answer(&answer);
            self.spread()?;
        }
        self.drive(at, nth).await
    }

    /// Does what a request would be if the operator had the planted wrong.
    fn apply_twisted(&mut self, call: &Call, planted: Planted) -> Answer {
        let mut call = call.clone();
        let not_found = || Answer::failure(404, "NotFound", "not found");
        match (planted, call.kind, &mut call.verb) {
            (Planted::NoVersions, _, Verb::Merge(patch)) => {
                patch["metadata"]["resourceVersion"] = Value::Null;
            }
            (Planted::NoVersions, _, Verb::Delete(options)) => *options = json!({}),
            (Planted::Overwrites, Kind::Record, Verb::Create(object))
                if self.server.get(Kind::Record, &call.key).is_some() =>
            {
                call.verb = Verb::Merge(json!({"spec": object["spec"]}));
            }
            (Planted::Hasty, Kind::Lb, Verb::Get) => return not_found(),
            (Planted::Blind, Kind::Service, Verb::Delete(_)) => {
                let done = Call {
                    verb: Verb::Get,
                    ..call
                };
                return self.server.apply(&done, By::Operator);
            }
            (Planted::Forgetful, Kind::Pool, Verb::Json(_)) => call.verb = Verb::Get,
            _ => {}
        }
        self.server.apply(&call, By::Operator)
    }

    fn lag(&mut self, call: Call) {
        if call.is_write() {
            self.late.push(call);
        }
    }

    fn land(&mut self, call: &Call) -> Result<(), Failure> {
        self.figures.late += 1;
        let code = self.server.apply(call, By::Late).code;
        say!(self, "LATE {} -> {code}", call.describe());
        self.spread()
    }

    /// The leader is gone. What it had under way may be done, or not, or be done late.
    fn crash(&mut self) {
        say!(self, "[0] CRASHES");
        self.figures.crashes += 1;
        let dead = self.processes.remove(0);
        for task in &dead.tasks {
            while let Some(open) = self.wire.take(task.number, 0) {
                if self.rng.u8(..3) > 0 {
                    say!(self, "  under way: {}", open.call.describe());
                    self.lag(open.lose());
                }
            }
        }
        drop(dead);
        if self.processes.is_empty() {
            self.processes
                .push(Process::new(&self.shared, self.planted));
        }
    }

    /// The leader loses the Lease and lives on; the one that stands by leads next, or else it itself. What it has under way
    /// is answered yet, or cut off: then it may be done, or not, or be done late.
    fn lose(&mut self) {
        say!(self, "[0] LOSES THE LEASE");
        self.figures.lost += 1;
        let mut loser = self.processes.remove(0);
        loser.lose();
        for task in std::mem::take(&mut loser.tasks) {
            if self.rng.bool() {
                loser.tasks.push(task);
                continue;
            }
            while let Some(open) = self.wire.take(task.number, 0) {
                if self.rng.u8(..3) > 0 {
                    say!(self, "  cut off: {}", open.call.describe());
                    self.lag(open.lose());
                }
            }
        }
        loser.stand_by();
        self.processes.push(loser);
    }

    /// Tells the watches and the oracle what has changed.
    fn spread(&mut self) -> Result<(), Failure> {
        for event in std::mem::take(&mut self.server.events) {
            for process in &mut self.processes {
                process.note(&event);
            }
            self.note_service(&event);
            self.oracle.event(&event)?;
        }
        Ok(())
    }

    fn note_service(&mut self, event: &Event) {
        let Some(service) = event.after.as_ref().filter(|_| event.kind == Kind::Service) else {
            return;
        };
        let Some(address) = service["spec"]["loadBalancerIP"].as_str() else {
            return;
        };
        let uid = service["metadata"]["uid"].as_str().unwrap();
        let vip = self.vips.entry(uid.to_owned()).or_default();
        if vip.asked.last().is_none_or(|last| last != address) {
            // A lease is none of the operator's records: it cannot know that it is to be left.
            let leased = vip.asked.last().is_some_and(|last| last == "0.0.0.0");
            let moved = vip.announced.is_some() && event.by == By::Operator && !leased;
            vip.stuck = moved && self.rng.u32(..1_000) < self.style.stuck_moves;
            vip.asked.push(address.to_owned());
        }
    }

    /// What kube-vip would write into a Service, if that is news: the address that it asks for, for a while the one
    /// before, and in rare cases never another.
    fn announcement(&self, service: &Value) -> Option<String> {
        if service["spec"]["type"] != "LoadBalancer"
            || !service["metadata"]["deletionTimestamp"].is_null()
        {
            return None;
        }
        let vip = self.vips.get(service["metadata"]["uid"].as_str()?)?;
        let latest = vip.asked.len() - 1;
        let at = match vip.announced {
            Some(announced) if vip.stuck => announced,
            // Which one is drawn as well: from the revision that it looks at. What it has never announced it leaves for good.
            Some(announced) if !self.calm => {
                let revision = usize::try_from(self.server.revision).unwrap();
                announced + revision % (latest + 1 - announced)
            }
            _ => latest,
        };
        let address = leased(&vip.asked[at]);
        (service["status"]["loadBalancer"]["ingress"][0]["ip"] != *address).then_some(address)
    }
}

/// Objects without the words and times that they say a thing in; and, if they were written by another process, without the
/// address that a pool has given out last, which that makes up anew from the records.
fn without_words(objects: &Objects, same_process: bool) -> BTreeMap<(Kind, Key), Value> {
    const WORDS: [&str; 4] = [
        "message",
        "lastUpdateTime",
        "resourceVersion",
        "lastAllocated",
    ];
    fn strip(value: &mut Value, words: &[&str]) {
        match value {
            Value::Object(fields) => {
                fields.retain(|field, _| !words.contains(&field.as_str()));
                fields.values_mut().for_each(|field| strip(field, words));
            }
            Value::Array(items) => items.iter_mut().for_each(|item| strip(item, words)),
            _ => {}
        }
    }
    let words = &WORDS[..if same_process { 3 } else { 4 }];
    let mut all = BTreeMap::new();
    for (kind, objects) in Kind::ALL.into_iter().zip(objects) {
        for (key, object) in objects {
            let mut object = (**object).clone();
            strip(&mut object, words);
            all.insert((kind, key.clone()), object);
        }
    }
    all
}

/// The address that is announced for what a Service asks for: DHCP gives one.
fn leased(asked: &str) -> String {
    if asked == "0.0.0.0" {
        "10.99.0.7".to_owned()
    } else {
        asked.to_owned()
    }
}
