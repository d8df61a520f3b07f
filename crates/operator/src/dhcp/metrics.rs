//! The metrics of the DHCP process (OPS-1). All labels have a fixed set of values, but for the interface, of which there are as
//! many as records name. The operator has those of the leases, by load balancer.

use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_ipam::dhcp::Event;
use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Registry};

use crate::process_metrics::{self, ClientMetrics, ReconcileMetrics, Register};

/// Counters and histograms of the DHCP process.
pub struct Metrics {
    registry: Registry,
    /// Of the client of the API server.
    pub client: ClientMetrics,
    /// Of the reconciles of leases.
    pub reconciles: ReconcileMetrics,
    sent: IntCounterVec,
    received: IntCounterVec,
    ignored: IntCounterVec,
    lease_events: IntCounterVec,
    socket_errors: IntCounterVec,
    interface_up: IntGaugeVec,
    /// Whether this process leads, and so has the clients.
    pub leader: IntGauge,
    writes: IntCounterVec,
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
            reconciles: ReconcileMetrics::new(&families)?,
            sent: families.counters(
                "dhcp_messages_sent_total",
                "Messages of the DHCP clients that were sent, by type.",
                &["type"],
            )?,
            received: families.counters(
                "dhcp_messages_received_total",
                "Messages of DHCP servers and ARP packets that were received, by type.",
                &["type"],
            )?,
            ignored: families.counters(
                "dhcp_messages_ignored_total",
                "Received messages that no DHCP client could use, by reason.",
                &["reason"],
            )?,
            lease_events: families.counters(
                "dhcp_lease_events_total",
                "What happened to leases: bound, renewed, refused by a server, expired, declined, released, a server did not answer, or a renewal was not answered.",
                &["event"],
            )?,
            socket_errors: families.counters(
                "dhcp_socket_errors_total",
                "Interfaces that could not be opened or read, and messages that were not sent, by reason.",
                &["reason"],
            )?,
            interface_up: families.gauges(
                "dhcp_interface_up",
                "Whether an interface of DHCP clients can be used.",
                &["interface"],
            )?,
            leader: families.gauge(
                "dhcp_leader",
                "Whether this process has the DHCP clients.",
            )?,
            writes: families.counters(
                "dhcp_record_writes_total",
                "Writes of the records of leases, by verb and result.",
                &["verb", "result"],
            )?,
            registry,
        };
        metrics.initialize();
        Ok(metrics)
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
            "renewal_unanswered",
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

/// The value of the label that names what has become of a lease.
pub const fn event_kind(event: &Event) -> &'static str {
    match event {
        Event::Unanswered => "unanswered",
        Event::RenewalUnanswered => "renewal_unanswered",
        Event::Bound(_) => "bound",
        Event::Renewed(_) => "renewed",
        Event::Refused { .. } => "refused",
        Event::Expired(_) => "expired",
        Event::Declined { .. } => "declined",
        Event::Released(_) => "released",
    }
}
