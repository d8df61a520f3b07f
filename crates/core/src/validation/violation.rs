//! The violations of a LoadBalancer spec (VAL-1): their texts, fields, values and rules, and their severity for each consumer. Which of
//! them a spec has is decided by the module above. Pure.

use std::collections::BTreeSet;

use harvester_lb_api::keys;
use harvester_lb_ipam::dhcp::HardwareAddressError;

use crate::sharing::membership::NotAMember;

/// The consumer of a violation (VAL-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumer {
    /// Admission of a new object or of a changed spec.
    Admission,
    /// The operator. It also reads objects that are older than a rule or were stored while admission was off.
    Operator,
}

/// The severity of a violation for a [`Consumer`] (VAL-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Denied by admission, not served by the operator.
    Refuse,
    /// Accepted, with an admission warning or a condition.
    Warn,
    /// Accepted silently.
    Accept,
}

/// A violation in a LoadBalancer (VAL-1). The text names field and value and says how to correct it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// WV-1: VM type without a listener.
    #[error("spec.listeners is empty: a load balancer of workload type vm needs at least one")]
    NoListener,
    /// WV-2: two listeners with the same name. An absent name counts as "".
    #[error("spec.listeners[{index}].name is {value:?}, as another listener's: names must differ")]
    DuplicateName {
        /// Index of the later listener.
        index: usize,
        /// The name.
        value: String,
    },
    /// A name that no port of a Service can have (section 8.2). One that shares an address has other names there (SHR-3).
    #[error("spec.listeners[{index}].name is {value:?}: {problem}")]
    UnusableName {
        /// Index of the listener.
        index: usize,
        /// The name, truncated to 64 characters.
        value: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// WV-3: two listeners with the same protocol and port.
    #[error("spec.listeners[{index}] serves {protocol} {port}, as another listener does")]
    DuplicatePort {
        /// Index of the later listener.
        index: usize,
        /// Its protocol.
        protocol: String,
        /// Its port.
        port: i64,
    },
    /// WV-4: two listeners with the same protocol and backend port.
    #[error(
        "spec.listeners[{index}].backendPort is {protocol} {backend_port}, as that of spec.listeners[{other}]: backend ports must differ"
    )]
    DuplicateBackendPort {
        /// Index of the later listener.
        index: usize,
        /// Index of the first listener with that backend port.
        other: usize,
        /// Its protocol.
        protocol: String,
        /// Its backend port.
        backend_port: i64,
    },
    /// A protocol that a Service cannot have (section 8.2).
    #[error("spec.listeners[{index}].protocol is {value:?}: it must be TCP, UDP or SCTP")]
    UnknownProtocol {
        /// Index of the listener.
        index: usize,
        /// The value.
        value: String,
    },
    /// WV-5: a port outside 1 to 65535.
    #[error("spec.listeners[{index}].{field} is {value}: it must be 1 to 65535")]
    PortOutOfRange {
        /// Index of the listener.
        index: usize,
        /// `port` or `backendPort`.
        field: &'static str,
        /// The value.
        value: i64,
    },
    /// BE-1: a selector key without values; the first such key by name.
    #[error(
        "spec.backendServerSelector[{0:?}] has no values: give it at least one, or remove the key"
    )]
    SelectorWithoutValues(String),
    /// WV-6: a health check port outside 0 to 65535 (section 8.5).
    #[error("spec.healthCheck.port is {0}: it must be 0 (off) to 65535")]
    CheckPortOutOfRange(i64),
    /// WV-6: a health check port that is not the backend port of a TCP listener (HC-7).
    #[error(
        "spec.healthCheck.port {port} is not the backendPort of a TCP listener: {}; the health check uses {port}",
        listed(.backend_ports)
    )]
    CheckPortMismatch {
        /// The port of the health check.
        port: u16,
        /// Backend ports of the TCP listeners.
        backend_ports: BTreeSet<i64>,
    },
    /// WV-7: a number of the health check below 1. Occurs only if the mutating webhook did not fill in the defaults.
    #[error("spec.healthCheck.{field} is {value}: it must be at least 1")]
    CheckNumber {
        /// `successThreshold`, `failureThreshold`, `periodSeconds` or `timeoutSeconds`.
        field: &'static str,
        /// The value; 0 if absent.
        value: i64,
    },
    /// REQ-1: the requested address is no address, or not one of a pool.
    #[error(
        "annotation {} is {value:?}: {problem}",
        keys::ANNOTATION_REQUESTED_ADDRESS
    )]
    RequestedAddress {
        /// The text, truncated to 64 characters.
        value: String,
        /// What is wrong with it, and what to do.
        problem: &'static str,
    },
    /// DHC-1: the annotation for the client of a DHCP lease is no hardware address.
    #[error("annotation {}: {problem}", keys::ANNOTATION_DHCP_HARDWARE_ADDRESS)]
    HardwareAddress {
        /// The text, truncated to 64 characters.
        value: String,
        /// What is wrong with it.
        problem: HardwareAddressError,
    },
    /// SHR-1: the request to share an address can be cured by an edit of the load balancer alone ([`NotAMember::is_final`]).
    #[error(transparent)]
    SharedAddress(NotAMember),
    /// WV-8, WV-9: a change of an immutable field.
    #[error(
        "spec.{field} cannot be changed from {before} to {after}: delete the load balancer and create it again"
    )]
    Immutable {
        /// `ipam` (WV-8) or `workloadType` (WV-9).
        field: &'static str,
        /// The old value; the default if absent.
        before: &'static str,
        /// The new value; the default if absent.
        after: &'static str,
    },
}

/// The first backend ports as the end of a message; the number of the others bounds its length.
fn listed(ports: &BTreeSet<i64>) -> String {
    const SHOWN: usize = 8;
    if ports.is_empty() {
        return "there is no TCP listener".to_owned();
    }
    let shown: Vec<String> = ports.iter().take(SHOWN).map(i64::to_string).collect();
    let rest = match ports.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("the TCP listeners have {}{rest}", shown.join(", "))
}

impl Violation {
    /// The id of the rule, or the section of a rule without an id.
    pub fn rule(&self) -> &'static str {
        match self {
            Self::NoListener => "WV-1",
            Self::DuplicateName { .. } => "WV-2",
            Self::DuplicatePort { .. } => "WV-3",
            Self::DuplicateBackendPort { .. } => "WV-4",
            Self::UnusableName { .. } | Self::UnknownProtocol { .. } => "8.2",
            Self::PortOutOfRange { .. } => "WV-5",
            Self::SelectorWithoutValues(_) => "BE-1",
            Self::CheckPortOutOfRange(_) | Self::CheckPortMismatch { .. } => "WV-6",
            Self::CheckNumber { .. } => "WV-7",
            Self::RequestedAddress { .. } => "REQ-1",
            Self::HardwareAddress { .. } => "DHC-1",
            Self::SharedAddress(_) => "SHR-1",
            Self::Immutable { field: "ipam", .. } => "WV-8",
            Self::Immutable { .. } => "WV-9",
        }
    }

    /// The path of the offending field, as in `spec.listeners[0].port`.
    pub fn field(&self) -> String {
        match self {
            Self::NoListener => "spec.listeners".to_owned(),
            Self::DuplicateName { index, .. } | Self::UnusableName { index, .. } => {
                format!("spec.listeners[{index}].name")
            }
            Self::DuplicatePort { index, .. } => format!("spec.listeners[{index}].port"),
            Self::DuplicateBackendPort { index, .. } => {
                format!("spec.listeners[{index}].backendPort")
            }
            Self::UnknownProtocol { index, .. } => format!("spec.listeners[{index}].protocol"),
            Self::PortOutOfRange { index, field, .. } => format!("spec.listeners[{index}].{field}"),
            Self::SelectorWithoutValues(key) => format!("spec.backendServerSelector[{key:?}]"),
            Self::CheckPortOutOfRange(_) | Self::CheckPortMismatch { .. } => {
                "spec.healthCheck.port".to_owned()
            }
            Self::CheckNumber { field, .. } => format!("spec.healthCheck.{field}"),
            Self::RequestedAddress { .. } => {
                format!(
                    "metadata.annotations[{}]",
                    keys::ANNOTATION_REQUESTED_ADDRESS
                )
            }
            Self::HardwareAddress { .. } => format!(
                "metadata.annotations[{}]",
                keys::ANNOTATION_DHCP_HARDWARE_ADDRESS
            ),
            Self::SharedAddress(_) => {
                format!("metadata.annotations[{}]", keys::ANNOTATION_PRIMARY)
            }
            Self::Immutable { field, .. } => format!("spec.{field}"),
        }
    }

    /// The offending value as text.
    pub fn value(&self) -> String {
        match self {
            Self::NoListener | Self::SelectorWithoutValues(_) => "[]".to_owned(),
            Self::DuplicateName { value, .. }
            | Self::UnusableName { value, .. }
            | Self::UnknownProtocol { value, .. }
            | Self::RequestedAddress { value, .. }
            | Self::HardwareAddress { value, .. } => value.clone(),
            Self::DuplicatePort { port: value, .. }
            | Self::DuplicateBackendPort {
                backend_port: value,
                ..
            }
            | Self::PortOutOfRange { value, .. }
            | Self::CheckPortOutOfRange(value)
            | Self::CheckNumber { value, .. } => value.to_string(),
            Self::CheckPortMismatch { port, .. } => port.to_string(),
            Self::SharedAddress(why) => why.value().to_owned(),
            Self::Immutable { after, .. } => (*after).to_owned(),
        }
    }

    /// The severity for a consumer (VAL-1).
    ///
    /// Admission denies what the Go operator's webhook denies; it only warns about the rest that no Service can have. The
    /// operator serves everything that can be served, because an object may be older than an admission rule. What is wrong with
    /// a request to share an address it tells by a condition of its own, next to the address that the load balancer has (SHR-7).
    pub const fn severity(&self, consumer: Consumer) -> Severity {
        match (self, consumer) {
            (
                Self::UnusableName { .. }
                | Self::UnknownProtocol { .. }
                | Self::SelectorWithoutValues(_),
                Consumer::Admission,
            )
            | (Self::CheckPortMismatch { .. }, Consumer::Operator) => Severity::Warn,
            (
                Self::UnusableName { .. }
                | Self::DuplicateBackendPort { .. }
                | Self::CheckNumber { .. }
                | Self::SharedAddress(_)
                | Self::Immutable { .. },
                Consumer::Operator,
            ) => Severity::Accept,
            _ => Severity::Refuse,
        }
    }
}
