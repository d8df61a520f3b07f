//! The figures of the operator (OPS-1).
//!
//! Events are counted where they happen. Sizes are read from the stores when they are asked for, so that they can
//! neither drift nor outlive what they speak of.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use harvester_lb_api::condition::{self, READY};
use harvester_lb_controller_kit::client::RequestObserver;
use harvester_lb_prober::{Observer, ProbeResult};
use parking_lot::RwLock;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{
    GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry,
};

use crate::build;
use crate::hub::Hub;
use crate::objects::Lb;

const PROBE_BUCKETS: [f64; 11] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 3.0, 10.0,
];
const LAG_BUCKETS: [f64; 9] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];
const REQUEST_BUCKETS: [f64; 10] = [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 15.0];

/// Counters and histograms.
pub struct Metrics {
    registry: Registry,
    /// Reconciles by kind.
    pub reconcile_duration: HistogramVec,
    /// Failed reconciles by kind.
    pub reconcile_errors: IntCounterVec,
    /// Addresses that somebody else took first.
    pub allocation_conflicts: IntCounter,
    /// Writes that met another copy, by kind.
    pub write_conflicts: IntCounterVec,
    /// Interrupted watches by kind.
    pub watch_errors: IntCounterVec,
    api_requests: IntCounterVec,
    api_duration: HistogramVec,
    probes: IntCounterVec,
    probe_duration: Histogram,
    probe_lag: Histogram,
    verdict_changes: IntCounterVec,
}

impl Metrics {
    /// All figures, in a registry of their own.
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
                "Reconciles that failed and are tried again.",
                &["kind"],
            )?,
            allocation_conflicts: IntCounter::new(
                "harvester_lb_allocation_conflicts_total",
                "Addresses that somebody else had taken when they were to be recorded.",
            )?,
            write_conflicts: counters(
                "write_conflicts_total",
                "Writes that met a newer copy of the object and were decided anew.",
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
        let all: [Box<dyn Collector>; 12] = [
            Box::new(metrics.reconcile_duration.clone()),
            Box::new(metrics.reconcile_errors.clone()),
            Box::new(metrics.allocation_conflicts.clone()),
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

    /// Adds the sizes that are read from the stores.
    pub fn watch_sizes(&self, hub: &Arc<Hub>, backend_limit: usize) -> prometheus::Result<()> {
        self.registry
            .register(Box::new(Sizes::new(hub, backend_limit)?))
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

/// Hands the prober's observations to the figures.
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

/// Sizes, read when they are asked for.
struct Sizes {
    hub: Weak<Hub>,
    backend_limit: usize,
    /// Without values: they say which families there are.
    families: Families,
    /// One scrape at a time.
    scrape: RwLock<()>,
}

struct Families {
    pool_addresses: GaugeVec,
    load_balancers: IntGaugeVec,
    backends: IntGaugeVec,
    backend_up: IntGaugeVec,
    records: IntGaugeVec,
    waiting: IntGauge,
    queue_depth: IntGaugeVec,
    failing: IntGaugeVec,
    probe_targets: IntGaugeVec,
    probes_in_flight: IntGauge,
    leader: IntGauge,
    events_dropped: IntCounter,
}

impl Families {
    fn new() -> prometheus::Result<Self> {
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            IntGaugeVec::new(Opts::new(format!("harvester_lb_{name}"), help), labels)
        };
        let gauge = |name: &str, help: &str| IntGauge::new(format!("harvester_lb_{name}"), help);
        Ok(Self {
            pool_addresses: GaugeVec::new(
                Opts::new(
                    "harvester_lb_ippool_addresses",
                    "Addresses of a pool: all that it has, those held, those free.",
                ),
                &["pool", "state"],
            )?,
            load_balancers: gauges(
                "load_balancers",
                "Load balancers by the status and the reason of their condition Ready.",
                &["ready", "reason"],
            )?,
            backends: gauges(
                "backends",
                "Backends of a load balancer by state.",
                &["namespace", "loadbalancer", "state"],
            )?,
            backend_up: gauges(
                "backend_up",
                "Whether a backend takes traffic; for a limited number of backends.",
                &["namespace", "loadbalancer", "backend"],
            )?,
            records: gauges(
                "ipallocations",
                "Records of addresses by phase.",
                &["phase"],
            )?,
            waiting: gauge(
                "load_balancers_waiting",
                "Load balancers that wait for an address.",
            )?,
            queue_depth: gauges(
                "queue_depth",
                "Objects that are due and wait for a worker.",
                &["kind"],
            )?,
            failing: gauges("failing", "Objects whose last reconcile failed.", &["kind"])?,
            probe_targets: gauges(
                "probe_targets",
                "Targets of health checks by verdict.",
                &["verdict"],
            )?,
            probes_in_flight: gauge("probes_in_flight", "Health checks that wait for an answer.")?,
            leader: gauge("leader", "Whether this process leads.")?,
            events_dropped: IntCounter::new(
                "harvester_lb_events_dropped_total",
                "Kubernetes Events that could not be written.",
            )?,
        })
    }

    fn collectors(&self) -> [&dyn Collector; 12] {
        [
            &self.pool_addresses,
            &self.load_balancers,
            &self.backends,
            &self.backend_up,
            &self.records,
            &self.waiting,
            &self.queue_depth,
            &self.failing,
            &self.probe_targets,
            &self.probes_in_flight,
            &self.leader,
            &self.events_dropped,
        ]
    }
}

impl Sizes {
    fn new(hub: &Arc<Hub>, backend_limit: usize) -> prometheus::Result<Self> {
        Ok(Self {
            hub: Arc::downgrade(hub),
            backend_limit,
            families: Families::new()?,
            scrape: RwLock::new(()),
        })
    }

    #[allow(clippy::cast_precision_loss)] // A pool of more than 2^53 addresses may be off by a few.
    fn fill_pools(hub: &Hub, to: &Families) {
        // A copy of the list: the leader's lock is never taken under a store's.
        for (key, pool) in hub.stores.pools.all() {
            let live = hub
                .lead(|lead| {
                    lead.ledger
                        .projection(&key.name)
                        .map(|v| (v.total, v.available))
                })
                .flatten();
            let stored = pool
                .counters
                .as_ref()
                .map(|(total, available, _)| (*total, *available));
            if let Some((total, available)) = live.or(stored) {
                let set = |state: &str, value: i64| {
                    to.pool_addresses
                        .with_label_values(&[&*key.name, state])
                        .set(value as f64);
                };
                set("total", total);
                set("available", available);
                set("allocated", total.saturating_sub(available));
            }
        }
        if let Some(counts) = hub.lead(|lead| lead.ledger.counts()) {
            to.records
                .with_label_values(&["Bound"])
                .set(size(counts.bound));
            to.records
                .with_label_values(&["Released"])
                .set(size(counts.released));
            to.waiting.set(size(counts.waiting));
        }
    }

    fn fill_load_balancers(hub: &Hub, to: &Families) {
        let mut by_reason: BTreeMap<(String, String), i64> = BTreeMap::new();
        hub.stores.lbs.for_each(|_, lb| {
            let ready = match lb {
                Lb::Valid(lb) => lb
                    .status
                    .as_ref()
                    .and_then(|s| s.conditions.as_deref())
                    .and_then(|c| condition::find(c, READY)),
                Lb::Invalid(..) => None,
            };
            let labels = match (ready, lb) {
                (Some(c), _) => (c.status.clone(), c.reason.clone().unwrap_or_default()),
                (None, Lb::Invalid(..)) => {
                    ("False".to_owned(), crate::status::INVALID_OBJECT.to_owned())
                }
                (None, Lb::Valid(_)) => ("Unknown".to_owned(), String::new()),
            };
            *by_reason.entry(labels).or_default() += 1;
        });
        for ((ready, reason), count) in by_reason {
            to.load_balancers
                .with_label_values(&[&ready, &reason])
                .set(count);
        }
    }

    fn fill_backends(&self, hub: &Hub, to: &Families) {
        let mut named = 0;
        for (key, slice) in hub.stores.slices.all() {
            if hub.stores.lbs.get(&key).is_none() {
                continue;
            }
            let (mut ready, mut not_ready) = (0, 0);
            for endpoint in build::real_endpoints(&slice) {
                let up = endpoint
                    .conditions
                    .as_ref()
                    .and_then(|c| c.ready)
                    .unwrap_or(true);
                *(if up { &mut ready } else { &mut not_ready }) += 1;
                if named < self.backend_limit
                    && let Some(name) = endpoint.target_ref.as_ref().and_then(|t| t.name.as_deref())
                {
                    named += 1;
                    to.backend_up
                        .with_label_values(&[&*key.namespace, &*key.name, name])
                        .set(i64::from(up));
                }
            }
            for (state, count) in [("ready", ready), ("not_ready", not_ready)] {
                to.backends
                    .with_label_values(&[&*key.namespace, &*key.name, state])
                    .set(count);
            }
        }
    }

    fn fill_process(hub: &Hub, to: &Families) {
        for (kind, depth, failing) in [
            (
                "LoadBalancer",
                hub.queues.lbs.depth(),
                Some(hub.lb_failures.len()),
            ),
            (
                "IPPool",
                hub.queues.pools.depth(),
                Some(hub.pool_failures.len()),
            ),
            ("GuestCluster", hub.queues.guests.depth(), None),
            ("LegacyFinalizer", hub.queues.legacy.depth(), None),
        ] {
            to.queue_depth.with_label_values(&[kind]).set(size(depth));
            if let Some(failing) = failing {
                to.failing.with_label_values(&[kind]).set(size(failing));
            }
        }
        let probes = hub.prober.snapshot();
        to.probe_targets
            .with_label_values(&["up"])
            .set(size(probes.up));
        to.probe_targets
            .with_label_values(&["down"])
            .set(size(probes.targets - probes.up));
        to.probes_in_flight.set(size(probes.in_flight));
        to.leader.set(i64::from(hub.leadership.is_leader()));
        to.events_dropped.inc_by(hub.events.dropped());
    }
}

fn size(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Collector for Sizes {
    fn desc(&self) -> Vec<&Desc> {
        self.families
            .collectors()
            .into_iter()
            .flat_map(Collector::desc)
            .collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let _one_at_a_time = self.scrape.write();
        let Some(hub) = self.hub.upgrade() else {
            return Vec::new();
        };
        // Made anew for each scrape: the series of what is gone go with it.
        let Ok(families) = Families::new() else {
            return Vec::new();
        };
        Self::fill_pools(&hub, &families);
        Self::fill_load_balancers(&hub, &families);
        self.fill_backends(&hub, &families);
        Self::fill_process(&hub, &families);
        families
            .collectors()
            .into_iter()
            .flat_map(Collector::collect)
            .collect()
    }
}

#[cfg(test)]
mod tests;
