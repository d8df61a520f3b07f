//! The metrics of the webhook process (OPS-1). All labels have a fixed set of values, whatever clients send.

use prometheus::{Histogram, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use crate::process_metrics::{self, ClientMetrics, Register};
use crate::webhook::body::Refused;

const ANSWER_BUCKETS: [f64; 10] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0,
];

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
    /// Of the client of the API server.
    pub client: ClientMetrics,
    admissions: IntCounterVec,
    conversions: IntCounterVec,
    rejected: IntCounterVec,
    durations: HistogramVec,
    /// Open connections.
    pub connections: IntGauge,
    /// Connections closed to make room.
    pub evicted: IntGauge,
    expiry: IntGaugeVec,
    /// Certificates and authorities that were made, by certificate.
    pub issued: IntCounterVec,
    /// Writes of the objects that register the webhook, by object and reason.
    pub registrations: IntCounterVec,
    /// Whether an object registers this webhook as it must.
    pub registered: IntGaugeVec,
}

impl Metrics {
    /// All metrics, registered in a new registry.
    ///
    /// # Errors
    /// An invalid or duplicate metric definition.
    pub fn new() -> prometheus::Result<Self> {
        let registry = process_metrics::registry()?;
        let families = Register(&registry);
        let metrics = Self {
            client: ClientMetrics::new(&families)?,
            admissions: families.counters(
                "admission_requests_total",
                "Admission reviews by kind, type of admission and result.",
                &["kind", "admission", "result"],
            )?,
            conversions: families.counters(
                "conversion_requests_total",
                "Conversion reviews by result.",
                &["result"],
            )?,
            rejected: families.counters(
                "webhook_rejected_requests_total",
                "Requests to the webhook that were rejected before their content was looked at, by reason.",
                &["reason"],
            )?,
            durations: families.histograms(
                "webhook_request_duration_seconds",
                "Time from the complete body of a request to its response.",
                &ANSWER_BUCKETS,
                &["path"],
            )?,
            connections: families.gauge(
                "webhook_connections",
                "Open connections to the webhook.",
            )?,
            evicted: families.gauge(
                "webhook_connections_evicted",
                "Idle connections to the webhook that this process has closed to make room for others.",
            )?,
            expiry: families.gauges(
                "webhook_certificate_expiry_timestamp_seconds",
                "When the certificate of the webhook or of its authority expires, in seconds since 1970.",
                &["certificate"],
            )?,
            issued: families.counters(
                "webhook_certificates_issued_total",
                "Certificates that this process has made, by certificate.",
                &["certificate"],
            )?,
            registrations: families.counters(
                "webhook_registration_writes_total",
                "Writes of the objects that register the webhook, by object and reason.",
                &["object", "reason"],
            )?,
            registered: families.gauges(
                "webhook_registered",
                "Whether an object registers this webhook as it must.",
                &["object"],
            )?,
            registry,
        };
        metrics.initialize();
        Ok(metrics)
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
            Some(at) => self.expiry.with_label_values(&[certificate]).set(at),
            None => {
                // An error means that there is no series, which is what is wanted.
                let _ = self.expiry.remove_label_values(&[certificate]);
            }
        }
    }
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
