//! The readiness of a load balancer's backends: from the verdicts of its health checks, else from its EndpointSlice (EPS-1),
//! limited by the states of the virtual machines (BE-5).

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use harvester_lb_api::Condition;
use harvester_lb_prober::{HealthCheck, Target};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::Value;

use crate::backends::{self, Backend};
use crate::cached::VmiState;
use crate::desired;
use crate::details::{self, BackendHealth, DetailCondition};
use crate::merge_patch::difference;
use crate::plan::step::Probes;
use crate::plan::view::{Checks, View};
use crate::validation::Violation;

/// The source of verdicts on backends.
#[derive(Clone, Copy, Debug)]
pub enum CheckSource {
    /// No health check: every backend is healthy (HC-2).
    None,
    /// This health check.
    HealthCheck(HealthCheck),
    /// The spec is unreadable: a running health check continues, otherwise readiness stays as it is (BE-6, HC-4).
    Unchanged,
}

impl CheckSource {
    /// The health check of a spec, or what is left if it is invalid.
    pub fn of(check: Result<Option<HealthCheck>, Violation>) -> Self {
        check.map_or(Self::Unchanged, Self::from)
    }
}

impl From<Option<HealthCheck>> for CheckSource {
    fn from(check: Option<HealthCheck>) -> Self {
        check.map_or(Self::None, Self::HealthCheck)
    }
}

/// Backends with the `ready` of their endpoints.
pub type Readied = Vec<(Backend, bool)>;

/// `ready` of the endpoints in an EndpointSlice, by uid and address.
type Known = BTreeMap<(String, Ipv4Addr), bool>;

/// The readiness of the backends of a view.
#[derive(Clone, Debug)]
pub struct Health {
    /// The backends as they should be served.
    pub wanted: Readied,
    /// Which targets are to be probed.
    pub probes: Probes,
    /// The health checks once they are.
    checks: Checks,
    known: Known,
}

impl Health {
    /// The readiness of the backends of a view.
    pub fn of(view: &View<'_>, source: CheckSource) -> Self {
        let known = desired::known_readiness(view.objects.slice);
        let stored = |b: &Backend| known.get(&(b.uid.clone(), b.address)).copied();
        let was_ready = |b: &Backend| stored(b).unwrap_or(false);
        let source = match source {
            CheckSource::Unchanged => view.checks.check.map_or(source, CheckSource::HealthCheck),
            other => other,
        };
        let found = &view.found.backends;
        let probes = match source {
            CheckSource::HealthCheck(check) => {
                let probed = found.iter().filter(|b| !b.state.has_terminated());
                let target = |b: &Backend| Target::new(&*b.uid, b.address.into(), was_ready(b));
                Probes::Run(check, probed.map(target).collect())
            }
            CheckSource::None => Probes::End,
            CheckSource::Unchanged => Probes::Unchanged,
        };
        let checks = view.checks.clone().after(&probes);
        let verdict = |b: &Backend| match source {
            CheckSource::None => true,
            _ => checks
                .target(&b.uid, b.address.into())
                .map_or_else(|| was_ready(b), |target| target.ready),
        };
        let verdicts: Vec<(VmiState, bool)> = found.iter().map(|b| (b.state, verdict(b))).collect();
        let ready = backends::ready(&verdicts);
        let wanted: Readied = found.iter().cloned().zip(ready).collect();
        Self {
            wanted,
            probes,
            checks,
            known,
        }
    }

    /// The backends with the verdicts that the EndpointSlice has: what is served as long as a write has to wait. A new backend,
    /// and one whose state decides, has its new readiness, because these are written at once (BE-5).
    fn as_stored(&self) -> Readied {
        let as_stored = |(backend, ready): &(Backend, bool)| {
            let stored = self.known.get(&(backend.uid.clone(), backend.address));
            let is_verdict = backend.state == VmiState::default();
            let ready = *stored.filter(|_| is_verdict).unwrap_or(ready);
            (backend.clone(), ready)
        };
        self.wanted.iter().map(as_stored).collect()
    }

    /// What the status says of backends that the EndpointSlice has with this readiness.
    pub fn served(self, backends: Readied) -> Served {
        Served {
            changed: self.changed(&backends).count() > 0,
            backends,
            checks: self.checks,
        }
    }

    /// The backends whose readiness in the EndpointSlice changes to this.
    pub fn changed<'a>(
        &'a self,
        backends: &'a [(Backend, bool)],
    ) -> impl Iterator<Item = &'a (Backend, bool)> {
        backends.iter().filter(|(backend, ready)| {
            let before = self.known.get(&(backend.uid.clone(), backend.address));
            before.is_some_and(|before| before != ready)
        })
    }
}

/// The EndpointSlice to write: with all verdicts, or, if only verdicts have changed and a write of them has to wait, with those
/// that it has. Removals of backends never wait.
#[derive(Clone, Debug)]
pub struct Paced {
    /// The desired EndpointSlice.
    pub slice: EndpointSlice,
    /// The difference from the present one; `None` if there is none, or no present one.
    pub patch: Option<Value>,
    /// The backends in it.
    pub backends: Readied,
    /// It has all verdicts only after this time.
    pub postponed: Option<Duration>,
}

impl Paced {
    /// Decides between the two. `build`: the EndpointSlice of these backends. `may_wait`: changed verdicts may wait.
    pub fn of(
        view: &View<'_>,
        health: &Health,
        may_wait: bool,
        build: impl Fn(&[(Backend, bool)]) -> EndpointSlice,
    ) -> Self {
        let slice = build(&health.wanted);
        let patch = view
            .objects
            .slice
            .and_then(|present| difference(present, &slice));
        if let Some(present) = view.objects.slice
            && patch.is_some()
            && may_wait
            && !view.verdict_pause.is_zero()
        {
            let as_stored = health.as_stored();
            let as_before = build(&as_stored);
            if difference(present, &as_before).is_none() {
                return Self {
                    slice: as_before,
                    patch: None,
                    backends: as_stored,
                    postponed: Some(view.verdict_pause),
                };
            }
        }
        Self {
            slice,
            patch,
            backends: health.wanted.clone(),
            postponed: None,
        }
    }
}

/// The backends in an EndpointSlice, and what the status says of them.
#[derive(Clone, Debug)]
pub struct Served {
    /// The backends with their `ready`.
    pub backends: Readied,
    /// Whether the readiness of one of them has just changed.
    pub changed: bool,
    checks: Checks,
}

impl Served {
    /// Whether the backends have a health check.
    pub const fn is_checked(&self) -> bool {
        self.checks.check.is_some()
    }

    /// Number of ready backends.
    pub fn healthy(&self) -> usize {
        self.backends.iter().filter(|(_, ready)| *ready).count()
    }

    /// Number of backends with at least one health check result.
    pub fn probed(&self) -> usize {
        let has_result = |target: &&harvester_lb_prober::TargetView| target.last.is_some();
        self.checks.targets.iter().filter(has_result).count()
    }

    /// The condition `BackendsHealthy`; `None` if there are no backends. `before`: the stored conditions.
    pub fn condition(&self, before: &[Condition]) -> Option<DetailCondition> {
        if self.backends.is_empty() {
            return None;
        }
        let health = self.backends.iter().map(|(backend, ready)| {
            let target = self.checks.target(&backend.uid, backend.address.into());
            BackendHealth::new(backend, *ready, target)
        });
        let all: Vec<BackendHealth<'_>> = health.collect();
        Some(details::backends_healthy(&all, self.is_checked(), before))
    }
}
