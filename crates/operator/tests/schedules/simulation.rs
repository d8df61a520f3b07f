//! A simulated cluster: an API server, processes of the operator, kube-vip, and an order of steps drawn from a seed. The steps
//! are in [`super::moves`], [`super::leader`], [`super::answers`].

use std::collections::HashMap;

use fastrand::Rng;
use harvester_lb_controller_kit::events::QueuedEvent;
use harvester_lb_object::Key;
use tokio::time::Instant;

use super::acts::Act;
use super::api::Server;
use super::call::Call;
use super::defects::InjectedDefect;
use super::failure::Failure;
use super::kube_vip::KubeVip;
use super::oracle::Oracle;
use super::plan::{Plan, Style};
use super::process::{Process, Shared};
use super::statistics::Statistics;
use super::step::Step;
use super::wire::Wire;

/// A simulated cluster with one order of steps.
pub(crate) struct Simulation {
    pub(crate) server: Server,
    pub(crate) wire: Wire,
    pub(crate) shared: Shared,
    /// The first is the leader, a second is a standby.
    pub(crate) processes: Vec<Process>,
    /// Writes that their senders have abandoned and that may still be applied.
    pub(crate) late: Vec<Call>,
    /// A request was sent whose sender does not know the outcome: there was no answer, or one that does not say it.
    pub(crate) unanswered: bool,
    /// Number of refused requests.
    pub(crate) refused: u32,
    /// How often a policy has denied a Service while no time has passed since.
    pub(crate) denials: HashMap<Key, (Instant, u32)>,
    pub(crate) kube_vip: KubeVip,
    pub(crate) chores: Vec<Step>,
    pub(crate) chores_of: (u64, bool),
    pub(crate) oracle: Oracle,
    pub(crate) style: Style,
    pub(crate) acts: std::vec::IntoIter<Act>,
    /// Until then there is no act.
    pub(crate) waits_until: Instant,
    pub(crate) rng: Rng,
    /// No faults and no acts: the API server answers every request.
    pub(crate) calm: bool,
    pub(crate) defect: Option<InjectedDefect>,
    pub(crate) tasks: u64,
    pub(crate) statistics: Statistics,
    /// The last Event that the operator has published.
    pub(crate) last_event: Option<QueuedEvent>,
    pub(crate) trace: Option<Vec<String>>,
}

macro_rules! say {
    ($simulation:expr, $($arg:tt)*) => {
        if let Some(trace) = &mut $simulation.trace {
            trace.push(format!($($arg)*));
        }
    };
}
pub(crate) use say;

impl Simulation {
    /// An empty cluster with the order of a seed.
    pub(crate) fn new(
        plan: &Plan,
        order: u64,
        shared: &Shared,
        wire: &Wire,
        defect: Option<InjectedDefect>,
        traced: bool,
    ) -> Self {
        let mut simulation = Self {
            server: Server::new(),
            wire: wire.clone(),
            shared: shared.clone(),
            processes: Vec::new(),
            late: Vec::new(),
            unanswered: false,
            refused: 0,
            denials: HashMap::new(),
            kube_vip: KubeVip::default(),
            chores: Vec::new(),
            chores_of: (0, false),
            oracle: Oracle::default(),
            style: plan.style,
            acts: plan.acts.clone().into_iter(),
            waits_until: Instant::now(),
            rng: Rng::with_seed(order),
            calm: false,
            defect,
            tasks: 0,
            statistics: Statistics::default(),
            last_event: None,
            trace: traced.then(Vec::new),
        };
        simulation.server.service_finalizers = plan.style.service_finalizers;
        simulation
    }

    /// Passes the changes to the watches and the oracle.
    pub(crate) fn spread(&mut self) -> Result<(), Failure> {
        for event in std::mem::take(&mut self.server.events) {
            for process in &mut self.processes {
                process.note(&event);
            }
            let stuck_moves = self.style.stuck_moves;
            self.kube_vip.note(&event, stuck_moves, &mut self.rng);
            self.oracle.event(&event)?;
        }
        Ok(())
    }

    /// Takes the Events of the step.
    pub(crate) fn read_events(&mut self) {
        for (at, process) in self.processes.iter_mut().enumerate() {
            while let Some(note) = process.event_receiver.try_next() {
                say!(self, "  [{at}] EVENT {}: {}", note.reason, note.text);
                self.wire.event(&note);
                self.statistics.events += 1;
                self.last_event = Some(note);
            }
        }
    }
}
