//! The metrics of the DHCP process (OPS-1). All labels have a fixed set of values, but for the interface, of which there are as
//! many as records name. The operator has those of the leases, by load balancer.

use std::time::Duration;

use harvester_lb_controller_kit::cached_client::ConflictObserver;
use harvester_lb_controller_kit::client::RequestObserver;
use harvester_lb_controller_kit::work_queue::ReconcileObserver;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_ipam::dhcp::Event;
use prometheus::core::Collector;
use prometheus::{
    HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

const REQUEST_BUCKETS: [f64; 10] = [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 15.0];

/// Counters and histograms of the DHCP process.
pub struct Metrics {
    registry: Registry,
    sent: IntCounterVec,
    received: IntCounterVec,
    ignored: IntCounterVec,
    lease_events: IntCounterVec,
    socket_errors: IntCounterVec,
    interface_up: IntGaugeVec,
    /// Whether this process leads, and so has the clients.
    pub leader: IntGauge,
    writes: IntCounterVec,
    write_conflicts: IntCounterVec,
    reconcile_duration: HistogramVec,
    reconcile_errors: IntCounterVec,
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
            sent: counters(
                "dhcp_messages_sent_total",
                "Messages of the DHCP clients that were sent, by type.",
                &["type"],
            )?,
            received: counters(
                "dhcp_messages_received_total",
                "Messages of DHCP servers and ARP packets that were received, by type.",
                &["type"],
            )?,
            ignored: counters(
                "dhcp_messages_ignored_total",
                "Received messages that no DHCP client could use, by reason.",
                &["reason"],
            )?,
            lease_events: counters(
                "dhcp_lease_events_total",
                "What happened to leases: bound, renewed, refused by a server, expired, declined, released, or a server did not answer.",
                &["event"],
            )?,
            socket_errors: counters(
                "dhcp_socket_errors_total",
                "Interfaces that could not be opened or read, and messages that were not sent, by reason.",
                &["reason"],
            )?,
            interface_up: IntGaugeVec::new(
                Opts::new(
                    "harvester_lb_dhcp_interface_up",
                    "Whether an interface of DHCP clients can be used.",
                ),
                &["interface"],
            )?,
            leader: IntGauge::new(
                "harvester_lb_dhcp_leader",
                "Whether this process has the DHCP clients.",
            )?,
            writes: counters(
                "dhcp_record_writes_total",
                "Writes of the records of leases, by verb and result.",
                &["verb", "result"],
            )?,
            write_conflicts: counters(
                "write_conflicts_total",
                "Writes refused because the object had changed; they are decided again from the newer copy.",
                &["kind"],
            )?,
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
        let all: [Box<dyn Collector>; 15] = [
            Box::new(self.sent.clone()),
            Box::new(self.received.clone()),
            Box::new(self.ignored.clone()),
            Box::new(self.lease_events.clone()),
            Box::new(self.socket_errors.clone()),
            Box::new(self.interface_up.clone()),
            Box::new(self.leader.clone()),
            Box::new(self.writes.clone()),
            Box::new(self.write_conflicts.clone()),
            Box::new(self.reconcile_duration.clone()),
            Box::new(self.reconcile_errors.clone()),
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

    /// Series that exist before their first event, so that it is a rise.
    fn initialize(&self) {
        for kind in ["discover", "request", "decline", "release", "arp_probe"] {
            self.sent.with_label_values(&[kind]);
        }
        for kind in ["offer", "ack", "nak", "arp"] {
            self.received.with_label_values(&[kind]);
        }
        for event in [
            "bound",
            "renewed",
            "refused",
            "expired",
            "declined",
            "released",
            "unanswered",
        ] {
            self.lease_events.with_label_values(&[event]);
        }
        for reason in ["open", "receive", "send", "interface_down", "not_leader"] {
            self.socket_errors.with_label_values(&[reason]);
        }
    }

    /// The registry that the admin port serves.
    pub fn registry(&self) -> Registry {
        self.registry.clone()
    }

    /// A message was sent.
    pub fn sent(&self, kind: &'static str) {
        self.sent.with_label_values(&[kind]).inc();
    }

    /// A message was received.
    pub fn received(&self, kind: &'static str) {
        self.received.with_label_values(&[kind]).inc();
    }

    /// A received message was of no use.
    pub fn ignored(&self, reason: &'static str) {
        self.ignored.with_label_values(&[reason]).inc();
    }

    /// Something happened to a lease.
    pub fn lease_event(&self, event: &'static str) {
        self.lease_events.with_label_values(&[event]).inc();
    }

    /// An interface could not be used, or a message was not sent.
    pub fn socket_errors(&self, reason: &'static str) {
        self.socket_errors.with_label_values(&[reason]).inc();
    }

    /// Whether an interface can be used.
    pub fn interface(&self, name: &str, is_up: bool) {
        self.interface_up
            .with_label_values(&[name])
            .set(is_up.into());
    }

    /// No record names an interface any more.
    pub fn no_interface(&self, name: &str) {
        // There is none if it was never tried.
        let _ = self.interface_up.remove_label_values(&[name]);
    }

    /// This process has no clients any more: another one may say whether the interfaces can be used.
    pub fn no_interfaces(&self) {
        self.interface_up.reset();
    }

    /// A record was written, or not.
    pub fn wrote(&self, verb: &'static str, error: Option<&WriteError>) {
        let result = match error {
            None => "ok",
            Some(WriteError::Fenced) => "not_leader",
            Some(error) if error.is_stale() => "conflict",
            Some(error) if error.is_refusal() => "refused",
            Some(_) => "unavailable",
        };
        self.writes.with_label_values(&[verb, result]).inc();
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

/// The value of the label that names what has become of a lease.
pub const fn event_kind(event: &Event) -> &'static str {
    match event {
        Event::Unanswered => "unanswered",
        Event::Bound(_) => "bound",
        Event::Renewed(_) => "renewed",
        Event::Refused { .. } => "refused",
        Event::Expired(_) => "expired",
        Event::Declined { .. } => "declined",
        Event::Released(_) => "released",
    }
}
