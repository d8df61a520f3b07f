//! The metrics of the operator (OPS-1).
//!
//! Counters and histograms are updated where things happen. Gauges are computed from the stores at each scrape, so that
//! they cannot drift, and series of deleted objects disappear ([`crate::runtime::gauges`]).

use std::sync::Arc;
use std::time::Duration;

use harvester_lb_controller_kit::cached_client::ConflictObserver;
use harvester_lb_controller_kit::client::RequestObserver;
use harvester_lb_controller_kit::work_queue::ReconcileObserver;
use harvester_lb_prober::{Observer, ProbeResult};
use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry,
};

const PROBE_BUCKETS: [f64; 11] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 3.0, 10.0,
];
const LAG_BUCKETS: [f64; 9] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];
const REQUEST_BUCKETS: [f64; 10] = [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 15.0];

/// Counters and histograms.
pub struct Metrics {
    registry: Registry,
    /// Duration of reconciles, by kind.
    pub reconcile_duration: HistogramVec,
    /// Failed reconciles, by kind.
    pub reconcile_errors: IntCounterVec,
    /// Addresses that another process allocated first.
    pub allocation_conflicts: IntCounter,
    /// Refused deletions of Released IPAllocations (POOL-5).
    pub history_deletions_refused: IntCounter,
    /// Changes of the announcing node, by whether an Event was sent.
    pub announcing_node_changes: IntCounterVec,
    /// Writes that ended in a conflict, by kind.
    pub write_conflicts: IntCounterVec,
    /// Interrupted watches, by kind.
    pub watch_errors: IntCounterVec,
    api_requests: IntCounterVec,
    api_duration: HistogramVec,
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
        let counters = |name: &str, help: &str, labels: &[&str]| {
            IntCounterVec::new(Opts::new(format!("harvester_lb_{name}"), help), labels)
        };
        let histogram = |name: &str, help: &str, buckets: &[f64]| {
            HistogramOpts::new(format!("harvester_lb_{name}"), help).buckets(buckets.to_vec())
        };
        let metrics = Self {
            registry: Registry::new(),
            reconcile_duration: HistogramVec::new(
                histogram(
                    "reconcile_duration_seconds",
                    "Time that one reconcile took, its requests included.",
                    &REQUEST_BUCKETS,
                ),
                &["kind"],
            )?,
            reconcile_errors: counters(
                "reconcile_errors_total",
                "Reconciles that failed and are retried.",
                &["kind"],
            )?,
            allocation_conflicts: IntCounter::new(
                "harvester_lb_allocation_conflicts_total",
                "Allocations whose address another load balancer had taken first.",
            )?,
            history_deletions_refused: IntCounter::new(
                "harvester_lb_history_deletions_refused_total",
                "Deletions of Released IPAllocations that the API server refused.",
            )?,
            announcing_node_changes: counters(
                "announcing_node_changes_total",
                "Changes of the node that announces an address, by whether an Event was sent.",
                &["event"],
            )?,
            write_conflicts: counters(
                "write_conflicts_total",
                "Writes refused because the object had changed; they are decided again from the newer copy.",
                &["kind"],
            )?,
            watch_errors: counters(
                "watch_errors_total",
                "Interruptions of the watch of a kind.",
                &["kind"],
            )?,
            api_requests: counters(
                "api_requests_total",
                "Requests to the API server by verb, resource and status code; code 0 is no answer.",
                &["verb", "resource", "code"],
            )?,
            api_duration: HistogramVec::new(
                histogram(
                    "api_request_duration_seconds",
                    "Time until the API server began to answer.",
                    &REQUEST_BUCKETS,
                ),
                &["verb"],
            )?,
            probes: counters(
                "probes_total",
                "Health checks by result; results that begin with own_ are faults of this host and count against no backend.",
                &["result"],
            )?,
            probe_duration: Histogram::with_opts(histogram(
                "probe_duration_seconds",
                "Time that one health check took.",
                &PROBE_BUCKETS,
            ))?,
            probe_lag: Histogram::with_opts(histogram(
                "probe_lag_seconds",
                "Time by which a health check began later than scheduled.",
                &LAG_BUCKETS,
            ))?,
            verdict_changes: counters(
                "probe_verdict_changes_total",
                "Backends whose health check changed its verdict, by the new verdict.",
                &["verdict"],
            )?,
        };
        let build = IntGaugeVec::new(
            Opts::new(
                "harvester_lb_build_info",
                "Always 1; the version is a label.",
            ),
            &["version"],
        )?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        for result in ProbeResult::ALL {
            metrics.probes.with_label_values(&[result.as_label()]);
        }
        for event in ["sent", "suppressed"] {
            metrics.announcing_node_changes.with_label_values(&[event]);
        }
        for verdict in ["up", "down"] {
            metrics.verdict_changes.with_label_values(&[verdict]);
        }
        let all: [Box<dyn Collector>; 14] = [
            Box::new(metrics.reconcile_duration.clone()),
            Box::new(metrics.reconcile_errors.clone()),
            Box::new(metrics.allocation_conflicts.clone()),
            Box::new(metrics.history_deletions_refused.clone()),
            Box::new(metrics.announcing_node_changes.clone()),
            Box::new(metrics.write_conflicts.clone()),
            Box::new(metrics.watch_errors.clone()),
            Box::new(metrics.api_requests.clone()),
            Box::new(metrics.api_duration.clone()),
            Box::new(metrics.probes.clone()),
            Box::new(metrics.probe_duration.clone()),
            Box::new(metrics.probe_lag.clone()),
            Box::new(metrics.verdict_changes.clone()),
            Box::new(build),
        ];
        for collector in all {
            metrics.registry.register(collector)?;
        }
        Ok(metrics)
    }

    /// The registry that the admin port serves.
    pub fn registry(&self) -> Registry {
        self.registry.clone()
    }
}

impl ReconcileObserver for Metrics {
    fn reconciled(&self, kind: &'static str, took: Duration, failed: bool) {
        self.reconcile_duration
            .with_label_values(&[kind])
            .observe(took.as_secs_f64());
        if failed {
            self.reconcile_errors.with_label_values(&[kind]).inc();
        }
    }
}

impl ConflictObserver for Metrics {
    fn conflict(&self, kind: &str) {
        self.write_conflicts.with_label_values(&[kind]).inc();
    }
}

impl RequestObserver for Metrics {
    fn request(&self, verb: &'static str, resource: &str, code: u16, duration: Duration) {
        self.api_requests
            .with_label_values(&[verb, resource, &code.to_string()])
            .inc();
        self.api_duration
            .with_label_values(&[verb])
            .observe(duration.as_secs_f64());
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
