//! What the metrics of the operator, the webhook and the DHCP process have in common (OPS-1): how families are made, and the
//! families of requests to the API server, of watches, of reconciles and of the version.

use std::time::Duration;

use harvester_lb_controller_kit::cached_client::ConflictObserver;
use harvester_lb_controller_kit::client::RequestObserver;
use harvester_lb_controller_kit::watch_health::{WatchHealth, Watches};
use harvester_lb_controller_kit::work_queue::ReconcileObserver;
use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

/// Bounds of one request to the API server and of a reconcile, which is mostly requests; in seconds.
const REQUEST_BUCKETS: [f64; 10] = [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 15.0];

/// A registry with the version of the program.
///
/// # Errors
/// None that depends on anything at run time.
pub fn registry() -> prometheus::Result<Registry> {
    let registry = Registry::new();
    let build = Register(&registry).gauges(
        "build_info",
        "Always 1; the version is a label.",
        &["version"],
    )?;
    build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
    Ok(registry)
}

/// Makes metric families and registers them. Their names are given without the prefix `harvester_lb_`.
///
/// # Errors
/// Each of its functions: an invalid definition, or a name that is registered already.
pub struct Register<'a>(pub &'a Registry);

impl Register<'_> {
    /// A counter.
    pub fn counter(&self, name: &str, help: &str) -> prometheus::Result<IntCounter> {
        self.add(IntCounter::with_opts(opts(name, help))?)
    }

    /// Counters by labels.
    pub fn counters(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> prometheus::Result<IntCounterVec> {
        self.add(IntCounterVec::new(opts(name, help), labels)?)
    }

    /// A gauge.
    pub fn gauge(&self, name: &str, help: &str) -> prometheus::Result<IntGauge> {
        self.add(IntGauge::with_opts(opts(name, help))?)
    }

    /// Gauges by labels.
    pub fn gauges(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> prometheus::Result<IntGaugeVec> {
        self.add(IntGaugeVec::new(opts(name, help), labels)?)
    }

    /// A histogram of seconds with these bounds.
    pub fn histogram(
        &self,
        name: &str,
        help: &str,
        bounds: &[f64],
    ) -> prometheus::Result<Histogram> {
        self.add(Histogram::with_opts(bounded(name, help, bounds))?)
    }

    /// Histograms of seconds by labels.
    pub fn histograms(
        &self,
        name: &str,
        help: &str,
        bounds: &[f64],
        labels: &[&str],
    ) -> prometheus::Result<HistogramVec> {
        self.add(HistogramVec::new(bounded(name, help, bounds), labels)?)
    }

    fn add<C: Collector + Clone + 'static>(&self, family: C) -> prometheus::Result<C> {
        self.0.register(Box::new(family.clone()))?;
        Ok(family)
    }
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(format!("harvester_lb_{name}"), help)
}

fn bounded(name: &str, help: &str, bounds: &[f64]) -> HistogramOpts {
    HistogramOpts::from(opts(name, help)).buckets(bounds.to_vec())
}

/// The metrics of a client of the API server.
#[derive(Clone)]
pub struct ClientMetrics {
    /// The watches of the process.
    pub watches: Watches,
    watch_errors: IntCounterVec,
    watches_failing: IntGaugeVec,
    requests: IntCounterVec,
    duration: HistogramVec,
}

impl ClientMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// They are registered already.
    pub fn new(families: &Register<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            watches: Watches::default(),
            watch_errors: families.counters(
                "watch_errors_total",
                "Interruptions of the watch of a kind.",
                &["kind"],
            )?,
            watches_failing: families.gauges(
                "watches_failing",
                "Watches of a kind that were interrupted and are not established again.",
                &["kind"],
            )?,
            requests: families.counters(
                "api_requests_total",
                "Requests to the API server by verb, resource and status code; code 0 is no answer.",
                &["verb", "resource", "code"],
            )?,
            duration: families.histograms(
                "api_request_duration_seconds",
                "Time until the API server began to answer.",
                &REQUEST_BUCKETS,
                &["verb"],
            )?,
        })
    }
}

impl ClientMetrics {
    /// Adds a watch of this kind; if it is about one object alone, of this name.
    pub fn watch(&self, kind: &str, object: Option<&str>) -> WatchHealth {
        let what = object.map_or_else(|| kind.to_owned(), |name| format!("{kind} {name}"));
        let errors = self.watch_errors.with_label_values(&[kind]);
        let failing = self.watches_failing.with_label_values(&[kind]);
        self.watches.add(what, errors, failing)
    }
}

impl RequestObserver for ClientMetrics {
    fn request(&self, verb: &'static str, resource: &str, code: u16, duration: Duration) {
        self.requests
            .with_label_values(&[verb, resource, &code.to_string()])
            .inc();
        self.duration
            .with_label_values(&[verb])
            .observe(duration.as_secs_f64());
    }
}

/// The metrics of reconciles and of their writes.
#[derive(Clone)]
pub struct ReconcileMetrics {
    duration: HistogramVec,
    errors: IntCounterVec,
    conflicts: IntCounterVec,
}

impl ReconcileMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// They are registered already.
    pub fn new(families: &Register<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            duration: families.histograms(
                "reconcile_duration_seconds",
                "Time that one reconcile took, its requests included.",
                &REQUEST_BUCKETS,
                &["kind"],
            )?,
            errors: families.counters(
                "reconcile_errors_total",
                "Reconciles that failed and are retried.",
                &["kind"],
            )?,
            conflicts: families.counters(
                "write_conflicts_total",
                "Writes refused because the object had changed; they are decided again from the newer copy.",
                &["kind"],
            )?,
        })
    }
}

impl ReconcileObserver for ReconcileMetrics {
    fn reconciled(&self, kind: &'static str, took: Duration, failed: bool) {
        self.duration
            .with_label_values(&[kind])
            .observe(took.as_secs_f64());
        if failed {
            self.errors.with_label_values(&[kind]).inc();
        }
    }
}

impl ConflictObserver for ReconcileMetrics {
    fn conflict(&self, kind: &str) {
        self.conflicts.with_label_values(&[kind]).inc();
    }
}
