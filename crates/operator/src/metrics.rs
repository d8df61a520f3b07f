//! The metrics of the operator (OPS-1).
//!
//! Counters and histograms are updated where things happen. Gauges are computed from the stores at each scrape, so that
//! they cannot drift, and series of deleted objects disappear ([`crate::runtime::gauges`]).

use std::sync::Arc;
use std::time::Duration;

use harvester_lb_prober::{Observer, ProbeResult};
use prometheus::{Histogram, IntCounter, IntCounterVec, Registry};

use crate::process_metrics::{self, ClientMetrics, ReconcileMetrics, Register};

const PROBE_BUCKETS: [f64; 11] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 3.0, 10.0,
];
const LAG_BUCKETS: [f64; 9] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// Counters and histograms.
pub struct Metrics {
    registry: Registry,
    /// Of the client of the API server.
    pub client: ClientMetrics,
    /// Of all reconciles.
    pub reconciles: ReconcileMetrics,
    /// Addresses that another process allocated first.
    pub allocation_conflicts: IntCounter,
    /// Refused deletions of Released IPAllocations (POOL-5).
    pub history_deletions_refused: IntCounter,
    /// Changes of the announcing node, by whether an Event was sent.
    pub announcing_node_changes: IntCounterVec,
    probes: IntCounterVec,
    probe_duration: Histogram,
    probe_lag: Histogram,
    /// Changed verdicts, by the new verdict.
    pub verdict_changes: IntCounterVec,
}

impl Metrics {
    /// All counters and histograms, registered in a new registry.
    ///
    /// # Errors
    /// An invalid or duplicate metric definition.
    pub fn new() -> prometheus::Result<Self> {
        let registry = process_metrics::registry()?;
        let families = Register(&registry);
        let metrics = Self {
            client: ClientMetrics::new(&families)?,
            reconciles: ReconcileMetrics::new(&families)?,
            allocation_conflicts: families.counter(
                "allocation_conflicts_total",
                "Allocations whose address another load balancer had taken first.",
            )?,
            history_deletions_refused: families.counter(
                "history_deletions_refused_total",
                "Deletions of Released IPAllocations that the API server refused or a finalizer holds up.",
            )?,
            announcing_node_changes: families.counters(
                "announcing_node_changes_total",
                "Changes of the node that announces an address, by whether an Event was sent.",
                &["event"],
            )?,
            probes: families.counters(
                "probes_total",
                "Health checks by result; results that begin with own_ are faults of this host and count against no backend.",
                &["result"],
            )?,
            probe_duration: families.histogram(
                "probe_duration_seconds",
                "Time that one health check took.",
                &PROBE_BUCKETS,
            )?,
            probe_lag: families.histogram(
                "probe_lag_seconds",
                "Time by which a health check began later than scheduled.",
                &LAG_BUCKETS,
            )?,
            verdict_changes: families.counters(
                "probe_verdict_changes_total",
                "Backends whose health check changed its verdict, by the new verdict.",
                &["verdict"],
            )?,
            registry,
        };
        for result in ProbeResult::ALL {
            metrics.probes.with_label_values(&[result.as_label()]);
        }
        for event in ["sent", "suppressed"] {
            metrics.announcing_node_changes.with_label_values(&[event]);
        }
        for verdict in ["up", "down"] {
            metrics.verdict_changes.with_label_values(&[verdict]);
        }
        Ok(metrics)
    }

    /// The registry that the admin port serves.
    pub fn registry(&self) -> Registry {
        self.registry.clone()
    }
}

/// Records the prober's observations as metrics.
pub struct ProbeMetrics {
    results: [IntCounter; ProbeResult::ALL.len()],
    metrics: Arc<Metrics>,
}

impl ProbeMetrics {
    /// An observer for the prober.
    pub fn new(metrics: &Arc<Metrics>) -> Self {
        Self {
            results: ProbeResult::ALL.map(|r| metrics.probes.with_label_values(&[r.as_label()])),
            metrics: Arc::clone(metrics),
        }
    }
}

impl Observer for ProbeMetrics {
    fn probe(&self, result: ProbeResult, duration: Duration) {
        if let Some(index) = ProbeResult::ALL.iter().position(|r| *r == result) {
            self.results[index].inc();
        }
        self.metrics.probe_duration.observe(duration.as_secs_f64());
    }

    fn lag(&self, lag: Duration) {
        self.metrics.probe_lag.observe(lag.as_secs_f64());
    }

    fn verdict_changed(&self, ready: bool) {
        let verdict = if ready { "up" } else { "down" };
        self.metrics
            .verdict_changes
            .with_label_values(&[verdict])
            .inc();
    }
}
