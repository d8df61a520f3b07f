//! The metrics of the webhook process (OPS-1). All labels have a fixed set of values, whatever clients send.

use std::sync::Arc;
use std::time::Duration;

use harvester_lb_controller_kit::client::RequestObserver;
use prometheus::core::Collector;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry,
};

use crate::webhook::body::Refused;

const ANSWER_BUCKETS: [f64; 10] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0,
];
const REQUEST_BUCKETS: [f64; 8] = [0.002, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 15.0];

/// The kinds of the label `kind`; everything else is `other`.
pub const KINDS: [&str; 3] = ["LoadBalancer", "IPPool", "other"];

/// The result of a review, for the label `result`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The request was allowed, or the objects converted.
    Allowed,
    /// A rule refuses it.
    Refused,
    /// What the decision depends on is not listed yet.
    NotReady,
    /// The body is no review.
    Invalid,
}

impl Outcome {
    /// All results.
    pub const ALL: [Self; 4] = [Self::Allowed, Self::Refused, Self::NotReady, Self::Invalid];

    /// The value of the label.
    pub const fn as_label(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Refused => "refused",
            Self::NotReady => "not_ready",
            Self::Invalid => "invalid",
        }
    }
}

/// Counters, histograms and gauges of the webhook.
pub struct Metrics {
    registry: Registry,
    admissions: IntCounterVec,
    conversions: IntCounterVec,
    rejected: IntCounterVec,
    durations: HistogramVec,
    /// Open connections.
    pub connections: IntGauge,
    /// Connections closed to make room.
    pub evicted: IntGauge,
    expiry: GaugeVec,
    /// Certificates and authorities that were made, by certificate.
    pub issued: IntCounterVec,
    /// Writes of the objects that register the webhook, by object and reason.
    pub registrations: IntCounterVec,
    /// Whether an object registers this webhook as it must.
    pub registered: IntGaugeVec,
    /// Interrupted watches, by kind.
    pub watch_errors: IntCounterVec,
    api_requests: IntCounterVec,
    api_duration: HistogramVec,
}

impl Metrics {
    /// All metrics, registered in a new registry.
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
            admissions: counters(
                "admission_requests_total",
                "Admission reviews by kind, type of admission and result.",
                &["kind", "admission", "result"],
            )?,
            conversions: counters(
                "conversion_requests_total",
                "Conversion reviews by result.",
                &["result"],
            )?,
            rejected: counters(
                "webhook_rejected_requests_total",
                "Requests to the webhook that were rejected before their content was looked at, by reason.",
                &["reason"],
            )?,
            durations: HistogramVec::new(
                histogram(
                    "webhook_request_duration_seconds",
                    "Time from the complete body of a request to its response.",
                    &ANSWER_BUCKETS,
                ),
                &["path"],
            )?,
            connections: IntGauge::new(
                "harvester_lb_webhook_connections",
                "Open connections to the webhook.",
            )?,
            evicted: IntGauge::new(
                "harvester_lb_webhook_connections_evicted",
                "Idle connections to the webhook that this process has closed to make room for others.",
            )?,
            expiry: GaugeVec::new(
                Opts::new(
                    "harvester_lb_webhook_certificate_expiry_timestamp_seconds",
                    "When the certificate of the webhook or of its authority expires, in seconds since 1970.",
                ),
                &["certificate"],
            )?,
            issued: counters(
                "webhook_certificates_issued_total",
                "Certificates that this process has made, by certificate.",
                &["certificate"],
            )?,
            registrations: counters(
                "webhook_registration_writes_total",
                "Writes of the objects that register the webhook, by object and reason.",
                &["object", "reason"],
            )?,
            registered: IntGaugeVec::new(
                Opts::new(
                    "harvester_lb_webhook_registered",
                    "Whether an object registers this webhook as it must.",
                ),
                &["object"],
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
        };
        metrics.register()?;
        metrics.initialize();
        Ok(metrics)
    }

    fn register(&self) -> prometheus::Result<()> {
        let build = IntGaugeVec::new(
            Opts::new(
                "harvester_lb_build_info",
                "Always 1; the version is a label.",
            ),
            &["version"],
        )?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let all: [Box<dyn Collector>; 14] = [
            Box::new(self.admissions.clone()),
            Box::new(self.conversions.clone()),
            Box::new(self.rejected.clone()),
            Box::new(self.durations.clone()),
            Box::new(self.connections.clone()),
            Box::new(self.evicted.clone()),
            Box::new(self.expiry.clone()),
            Box::new(self.issued.clone()),
            Box::new(self.registrations.clone()),
            Box::new(self.registered.clone()),
            Box::new(self.watch_errors.clone()),
            Box::new(self.api_requests.clone()),
            Box::new(self.api_duration.clone()),
            Box::new(build),
        ];
        for collector in all {
            self.registry.register(collector)?;
        }
        Ok(())
    }

    /// Series that exist before their first event.
    fn initialize(&self) {
        for outcome in Outcome::ALL {
            let result = outcome.as_label();
            for kind in KINDS {
                for admission in ["validating", "mutating"] {
                    self.admissions
                        .with_label_values(&[kind, admission, result]);
                }
            }
            self.conversions.with_label_values(&[result]);
        }
        for reason in Refused::ALL {
            self.rejected.with_label_values(&[reason.as_label()]);
        }
        for certificate in ["authority", "serving"] {
            self.issued.with_label_values(&[certificate]);
        }
        // 0 from the start: a replica that never becomes ready registers nothing, and an alert on no series is silent.
        for object in ["conversion", "validating", "mutating"] {
            self.registered.with_label_values(&[object]);
            // So that the first restoration is a rise, too.
            self.registrations
                .with_label_values(&[object, "changed_by_others"]);
        }
    }

    /// The registry that the admin port serves.
    pub fn registry(&self) -> Registry {
        self.registry.clone()
    }

    /// Counts an admission review. `kind` is one of [`KINDS`].
    pub fn admission(&self, kind: &'static str, is_mutating: bool, outcome: Outcome) {
        let admission = if is_mutating {
            "mutating"
        } else {
            "validating"
        };
        self.admissions
            .with_label_values(&[kind, admission, outcome.as_label()])
            .inc();
    }

    /// Counts a conversion review.
    pub fn conversion(&self, outcome: Outcome) {
        self.conversions
            .with_label_values(&[outcome.as_label()])
            .inc();
    }

    /// Counts a request whose content was not looked at.
    pub fn rejected(&self, reason: Refused) {
        self.rejected.with_label_values(&[reason.as_label()]).inc();
    }

    /// Records the duration of an answer. `path` is `validation`, `mutation` or `conversion`.
    pub fn answered(&self, path: &'static str) -> Histogram {
        self.durations.with_label_values(&[path])
    }

    /// Sets when a certificate expires, in seconds since 1970; `None` ends the series.
    pub fn expires(&self, certificate: &'static str, at: Option<i64>) {
        match at {
            Some(at) => {
                let gauge: Gauge = self.expiry.with_label_values(&[certificate]);
                #[allow(clippy::cast_precision_loss, reason = "seconds are below 2^53")]
                gauge.set(at as f64);
            }
            None => {
                // An error means that there is no series, which is what is wanted.
                let _ = self.expiry.remove_label_values(&[certificate]);
            }
        }
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

/// The metrics as an observer of requests to the API server.
pub fn observer(metrics: &Arc<Metrics>) -> Arc<dyn RequestObserver> {
    Arc::clone(metrics) as _
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ops_1_a_webhook_that_has_registered_nothing_says_so() {
        let metrics = Metrics::new().unwrap();
        let families = metrics.registry().gather();
        let name = "harvester_lb_webhook_registered";
        let family = families.iter().find(|family| family.name() == name);
        let series = family.unwrap().get_metric();
        let mut objects: Vec<&str> = series
            .iter()
            .map(|series| series.get_label()[0].value())
            .collect();
        objects.sort_unstable();
        assert_eq!(objects, ["conversion", "mutating", "validating"]);
        assert!(
            series
                .iter()
                .all(|s| s.get_gauge().get_value().abs() < f64::EPSILON)
        );
    }
}
