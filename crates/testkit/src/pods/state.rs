//! Owns what the runner knows of a Pod: the state of each container, and how the events of its life change it. Pure.

use k8s_openapi::jiff::Timestamp;

/// Reason of a container that waits for its volumes or its turn.
const CREATING: &str = "ContainerCreating";
/// Reason of a container that waits until it is started again.
const BACK_OFF: &str = "CrashLoopBackOff";

/// State of a Pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodState {
    /// When the runner first saw it.
    pub(crate) since: Option<Timestamp>,
    pub(crate) address: Option<std::net::Ipv4Addr>,
    /// All init containers have succeeded.
    pub(crate) initialized: bool,
    pub(crate) init: Vec<ContainerState>,
    pub(crate) containers: Vec<ContainerState>,
}

/// State of one container.
#[derive(Clone, Debug)]
pub(crate) struct ContainerState {
    pub(crate) now: Now,
    /// The end before the present run.
    pub(crate) last: Option<Ended>,
    pub(crate) restarts: i32,
    /// Its startup probe has succeeded, or it has none.
    pub(crate) started: bool,
    /// Its readiness probe succeeds, or it has none and has started.
    pub(crate) ready: bool,
    runs: i32,
}

/// What a container does.
#[derive(Clone, Debug)]
pub(crate) enum Now {
    Waiting { reason: String, message: String },
    Running { since: Timestamp },
    Ended(Ended),
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// 128 and the signal's number, if a signal ended it.
    pub(crate) code: i32,
    pub(crate) reason: String,
    /// The termination message.
    pub(crate) message: String,
    pub(crate) started: Option<Timestamp>,
    pub(crate) finished: Timestamp,
}

impl Default for ContainerState {
    fn default() -> Self {
        Self {
            now: Now::waiting(CREATING, String::new()),
            last: None,
            restarts: 0,
            started: false,
            ready: false,
            runs: 0,
        }
    }
}

impl Now {
    fn waiting(reason: &str, message: String) -> Self {
        Self::Waiting {
            reason: reason.to_owned(),
            message,
        }
    }
}

impl PodState {
    /// A Pod that was just seen.
    pub(crate) fn new(init: usize, containers: usize, now: Timestamp) -> Self {
        Self {
            since: Some(now),
            init: vec![ContainerState::default(); init],
            containers: vec![ContainerState::default(); containers],
            ..Self::default()
        }
    }

    /// A container by its place: init containers first.
    pub(crate) fn container(&mut self, index: usize) -> Option<&mut ContainerState> {
        self.init.iter_mut().chain(&mut self.containers).nth(index)
    }

    /// Nothing can run yet, because of this.
    pub(crate) fn blocked(&mut self, message: &str) {
        for container in self.init.iter_mut().chain(&mut self.containers) {
            if matches!(container.now, Now::Waiting { .. }) {
                container.now = Now::waiting(CREATING, message.to_owned());
            }
        }
    }

    /// The machine was switched off: what ran has ended, and will be started `again` or not.
    pub(crate) fn power_lost(&mut self, again: bool, now: Timestamp) {
        self.initialized = false;
        for container in self.init.iter_mut().chain(&mut self.containers) {
            if matches!(container.now, Now::Running { .. }) {
                container.ended(137, "Error", String::new(), now);
                if again {
                    container.waits();
                }
            }
        }
    }
}

impl ContainerState {
    /// Its program cannot be started now.
    pub(crate) fn cannot_start(&mut self, reason: &str, message: String) {
        self.now = Now::waiting(reason, message);
    }

    /// Its program runs.
    pub(crate) fn runs(&mut self, now: Timestamp) {
        self.restarts = self.runs;
        self.runs += 1;
        self.now = Now::Running { since: now };
        (self.started, self.ready) = (false, false);
    }

    /// Its program has ended.
    pub(crate) fn ended(&mut self, code: i32, reason: &str, message: String, now: Timestamp) {
        let started = match &self.now {
            Now::Running { since } => Some(*since),
            _ => None,
        };
        (self.started, self.ready) = (false, false);
        self.now = Now::Ended(Ended {
            code,
            reason: reason.to_owned(),
            message,
            started,
            finished: now,
        });
    }

    /// It will be started again.
    pub(crate) fn waits(&mut self) {
        if let Now::Ended(ended) = &self.now {
            self.last = Some(ended.clone());
            self.now = Now::waiting(BACK_OFF, "restarting".into());
        }
    }

    /// Exit code of a container that has ended for good.
    pub(crate) const fn code(&self) -> Option<i32> {
        match &self.now {
            Now::Ended(ended) => Some(ended.code),
            _ => None,
        }
    }

    /// True once it has run.
    pub(crate) const fn has_run(&self) -> bool {
        self.runs > 0
    }
}
