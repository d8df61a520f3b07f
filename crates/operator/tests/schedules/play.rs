//! Runs a schedule: steps drawn from the seed until all acts are done; then all pending work is completed, and the cluster
//! must reach a correct steady state.

use std::collections::BTreeMap;
use std::time::Duration;

use harvester_lb_ipam::PoolName;
use harvester_lb_object::Key;
use serde_json::Value;

use super::api::Objects;
use super::at_rest;
use super::defects::InjectedDefect;
use super::failure::Failure;
use super::kind::Kind;
use super::plan::Plan;
use super::process::{Process, Shared, State};
use super::simulation::{Simulation, say};
use super::statistics::Statistics;
use super::wire::Wire;

/// Number of steps within which a cluster without acts and faults must reach the steady state. The busiest takes a tenth.
const REST_STEPS: usize = 6_000;
/// Maximum number of time advances until no write occurs.
const REST_ROUNDS: usize = 12;
/// Time within which the steady state is reached if the outcome of every request is known, in seconds. Legitimate waits add up: a move
/// that kube-vip ignores takes 8 s, the one behind it as long, and detail conditions are written 10 s after that. It is less than the
/// time in which a write that was not answered may be done. Only statuses of pools may follow later.
const PROMPT_SECONDS: u32 = 40;
/// Number of refused requests up to which no back-off is longer than that.
const PROMPT_REFUSALS: u32 = 3;
/// One time advance: longer than every back-off, every throttle of a pool's status, and the time in which a write that was not answered
/// may be done.
const REST_TIME: Duration = Duration::from_secs(80);

/// Runs one schedule.
pub(crate) async fn play(
    plan: &Plan,
    order: u64,
    shared: &Shared,
    wire: &Wire,
    defect: Option<InjectedDefect>,
    traced: bool,
) -> (Result<Statistics, Failure>, Vec<String>) {
    // Back-off and rechecks draw their jitter from here.
    fastrand::seed(order);
    wire.clear();
    let mut simulation = Simulation::new(plan, order, shared, wire, defect, traced);
    let outcome = simulation.run().await;
    (
        outcome.map(|()| simulation.statistics),
        simulation.trace.unwrap_or_default(),
    )
}

impl Simulation {
    async fn run(&mut self) -> Result<(), Failure> {
        self.processes.push(Process::new(
            &self.shared,
            self.defect,
            self.style.builtin_dhcp,
        ));
        let mut after = 12;
        while self.acts.len() > 0 || after > 0 {
            if self.acts.len() == 0 {
                after -= 1;
            }
            self.step().await?;
        }
        self.calm = true;
        self.server.denied = None;
        say!(self, "--- no more acts, no more faults ---");
        if self.processes[0].state != State::Draining {
            self.processes[0].gate.set(true);
        }
        for call in std::mem::take(&mut self.late) {
            if self.rng.bool() {
                self.land(&call)?;
            }
        }
        let soon = self.soon().await?;
        self.rest().await?;
        soon.map_or(Ok(()), |soon| self.nothing_followed(&soon))?;
        self.statistics.served = self.oracle.served();
        self.statistics.waiting = self.oracle.waiting();
        at_rest::judge(&self.server, self.oracle.released_by_hand())?;
        self.writes_nothing("a further look at everything", true)
            .await?;
        if self.rng.u8(..4) > 0 {
            return Ok(());
        }
        self.processes.clear();
        self.processes.push(Process::new(
            &self.shared,
            self.defect,
            self.style.builtin_dhcp,
        ));
        self.oracle.end_term();
        self.writes_nothing("a new start", false).await
    }

    /// The objects after [`PROMPT_SECONDS`]. None if the outcome of a request is not known, since what it may still do is waited for, or
    /// if many were refused.
    async fn soon(&mut self) -> Result<Option<Objects>, Failure> {
        if self.unanswered || self.refused > PROMPT_REFUSALS {
            return Ok(None);
        }
        for _ in 0..PROMPT_SECONDS {
            self.work_off().await?;
            say!(self, "a second passes");
            tokio::time::advance(Duration::from_secs(1)).await;
            self.expire();
        }
        self.work_off().await?;
        Ok(Some(self.server.copy()))
    }

    /// Nobody has waited for the time after which a write that was not answered counts as lost.
    fn nothing_followed(&self, soon: &Objects) -> Result<(), Failure> {
        let before = without_words(soon, true);
        let after = without_words(&self.server.copy(), true);
        // A released IPAllocation is deleted at leisure, and the address may be that of a backend from then on (BE-8).
        let is_forgotten = |(key, it): (&(Kind, Key), &Value)| {
            it["spec"]["phase"] == "Released" && !after.contains_key(key)
        };
        if before.iter().any(is_forgotten) {
            return Ok(());
        }
        first_difference(&before, &after, |key| key.0 != Kind::Pool).map_or(Ok(()), |text| {
            Err(Failure::new("prompt", format!("changes late: {text}")))
        })
    }

    /// In the steady state no reconcile writes anything (REC-5).
    async fn writes_nothing(&mut self, what: &str, look: bool) -> Result<(), Failure> {
        say!(self, "--- {what} ---");
        let (revision, before) = (self.server.revision, self.server.copy());
        let events = self.statistics.events;
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
        if self.statistics.events > events {
            let text = format!("{what} makes an Event: {:?}", self.last_event);
            return Err(Failure::new("REC-5", text));
        }
        if self.server.revision == revision {
            return Ok(());
        }
        let before = without_words(&before, look);
        let after = without_words(&self.server.copy(), look);
        first_difference(&before, &after, |_| true).map_or(Ok(()), |text| {
            Err(Failure::new("REC-5", format!("{what} writes {text}")))
        })
    }

    /// Completes all pending work and advances the time, until no write occurs. Resyncs never happen: a load balancer that
    /// needs one has missed an event.
    async fn rest(&mut self) -> Result<(), Failure> {
        for round in 0..REST_ROUNDS {
            let before = self.server.revision;
            self.work_off().await?;
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

    /// Executes steps until none is pending.
    async fn work_off(&mut self) -> Result<(), Failure> {
        for _ in 0..REST_STEPS {
            if !self.step().await? {
                return Ok(());
            }
        }
        Err(Failure::new("no rest", "work goes on and on".to_owned()))
    }

    /// Executes one pending step. False if there is none.
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
        self.statistics.steps += 1;
        self.perform(step).await?;
        self.read_events();
        Ok(true)
    }
}

/// The first object that matters and differs.
fn first_difference(
    before: &Contents,
    after: &Contents,
    matters: impl Fn(&(Kind, Key)) -> bool,
) -> Option<String> {
    let mut keys = before.keys().chain(after.keys());
    let key = keys.find(|key| matters(key) && before.get(*key) != after.get(*key))?;
    Some(format!(
        "{key:?}: {:?} {:?}",
        before.get(key),
        after.get(key)
    ))
}

/// Objects by kind and key.
type Contents = BTreeMap<(Kind, Key), Value>;

/// Objects without messages and times; if another process wrote them, also without `status.lastAllocated`, which that process
/// derives from the IPAllocations.
fn without_words(objects: &Objects, same_process: bool) -> Contents {
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
