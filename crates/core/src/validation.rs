//! What a spec may say (VAL-1): every violation of the rules of one object, with its field, its value, its rule, and what it
//! means to whoever asks. Pure: knows the types of the API and nothing of the operator.
//!
//! The order is that of the rules of admission: WV-1; WV-2 to WV-4 listener by listener; WV-5, likewise; the selector; WV-6;
//! WV-7. Pools are in [`pools`].

pub mod pools;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, HashSet};

use harvester_lb_api::{HealthCheck, Ipam, Listener, LoadBalancer, WorkloadType};

/// Who asks what a violation means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumer {
    /// Admission of a new object, or of a changed spec.
    Admission,
    /// The operator, which also meets objects that are older than a rule, or that came while admission was off.
    Operator,
}

/// What a violation means to a [`Consumer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The object is refused: not admitted, not served.
    Refuse,
    /// The object is taken as it is, and its user is told: by a warning, by a condition.
    Warn,
    /// The object is taken as it is.
    Accept,
}

/// What is wrong with a load balancer. The text says what is there and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// WV-1.
    #[error("spec.listeners is empty: a load balancer of workload type vm needs at least one")]
    NoListener,
    /// WV-2. No name counts as the name "".
    #[error("spec.listeners[{index}].name is {value:?}, as another listener's: names must differ")]
    NameTwice {
        /// Which listener; the later of the two.
        index: usize,
        /// The name.
        value: String,
    },
    /// WV-3.
    #[error("spec.listeners[{index}] serves {protocol} {port}, as another listener does")]
    PortTwice {
        /// Which listener; the later of the two.
        index: usize,
        /// Its protocol.
        protocol: String,
        /// Its port.
        port: i64,
    },
    /// WV-4.
    #[error(
        "spec.listeners[{index}].backendPort is {protocol} {backend_port}, as that of spec.listeners[{other}]: backend ports must differ"
    )]
    BackendPortTwice {
        /// Which listener; the later of the two.
        index: usize,
        /// The first that has it.
        other: usize,
        /// Its protocol.
        protocol: String,
        /// Its backend port.
        backend_port: i64,
    },
    /// What a Service can carry (section 8.2).
    #[error("spec.listeners[{index}].protocol is {value:?}: it must be TCP, UDP or SCTP")]
    UnknownProtocol {
        /// Which listener.
        index: usize,
        /// The value.
        value: String,
    },
    /// WV-5.
    #[error("spec.listeners[{index}].{field} is {value}: it must be 1 to 65535")]
    PortOutOfRange {
        /// Which listener.
        index: usize,
        /// Which of its ports.
        field: &'static str,
        /// The value.
        value: i64,
    },
    /// BE-1. Of several keys the first by name.
    #[error(
        "spec.backendServerSelector[{0:?}] has no values: give it at least one, or remove the key"
    )]
    SelectorWithoutValues(String),
    /// WV-6, and no port at all (section 8.5).
    #[error("spec.healthCheck.port is {0}: it must be 0 (off) to 65535")]
    CheckPortOutOfRange(i64),
    /// WV-6 (HC-7).
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
    /// WV-7. Only where nothing has filled in the defaults.
    #[error("spec.healthCheck.{field} is {value}: it must be at least 1")]
    CheckNumber {
        /// Which number.
        field: &'static str,
        /// The value; 0 where it is absent.
        value: i64,
    },
    /// WV-8, WV-9.
    #[error(
        "spec.{field} cannot be changed from {before} to {after}: delete the load balancer and create it again"
    )]
    Fixed {
        /// `ipam` (WV-8) or `workloadType` (WV-9).
        field: &'static str,
        /// The value so far, the default where it is absent.
        before: &'static str,
        /// The new value, the default where it is absent.
        after: &'static str,
    },
}

/// Backend ports in a sentence; a few, so that it stays one.
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
    /// The id of the rule; a section where the rule has no id.
    pub fn rule(&self) -> &'static str {
        match self {
            Self::NoListener => "WV-1",
            Self::NameTwice { .. } => "WV-2",
            Self::PortTwice { .. } => "WV-3",
            Self::BackendPortTwice { .. } => "WV-4",
            Self::UnknownProtocol { .. } => "8.2",
            Self::PortOutOfRange { .. } => "WV-5",
            Self::SelectorWithoutValues(_) => "BE-1",
            Self::CheckPortOutOfRange(_) | Self::CheckPortMismatch { .. } => "WV-6",
            Self::CheckNumber { .. } => "WV-7",
            Self::Fixed { field: "ipam", .. } => "WV-8",
            Self::Fixed { .. } => "WV-9",
        }
    }

    /// Path of the field in the object.
    pub fn field(&self) -> String {
        match self {
            Self::NoListener => "spec.listeners".to_owned(),
            Self::NameTwice { index, .. } => format!("spec.listeners[{index}].name"),
            Self::PortTwice { index, .. } => format!("spec.listeners[{index}].port"),
            Self::BackendPortTwice { index, .. } => format!("spec.listeners[{index}].backendPort"),
            Self::UnknownProtocol { index, .. } => format!("spec.listeners[{index}].protocol"),
            Self::PortOutOfRange { index, field, .. } => format!("spec.listeners[{index}].{field}"),
            Self::SelectorWithoutValues(key) => format!("spec.backendServerSelector[{key:?}]"),
            Self::CheckPortOutOfRange(_) | Self::CheckPortMismatch { .. } => {
                "spec.healthCheck.port".to_owned()
            }
            Self::CheckNumber { field, .. } => format!("spec.healthCheck.{field}"),
            Self::Fixed { field, .. } => format!("spec.{field}"),
        }
    }

    /// The value that is there.
    pub fn value(&self) -> String {
        match self {
            Self::NoListener | Self::SelectorWithoutValues(_) => "[]".to_owned(),
            Self::NameTwice { value, .. } | Self::UnknownProtocol { value, .. } => value.clone(),
            Self::PortTwice { port: value, .. }
            | Self::BackendPortTwice {
                backend_port: value,
                ..
            }
            | Self::PortOutOfRange { value, .. }
            | Self::CheckPortOutOfRange(value)
            | Self::CheckNumber { value, .. } => value.to_string(),
            Self::CheckPortMismatch { port, .. } => port.to_string(),
            Self::Fixed { after, .. } => (*after).to_owned(),
        }
    }

    /// What it means to whoever asks.
    ///
    /// Admission is as strict as the Go operator's: of what that admits and no Service can carry it only warns. The operator
    /// serves what can be served, whatever admission thinks of it: an object may be older than a rule.
    pub const fn severity(&self, consumer: Consumer) -> Severity {
        match (self, consumer) {
            (
                Self::UnknownProtocol { .. } | Self::SelectorWithoutValues(_),
                Consumer::Admission,
            )
            | (Self::CheckPortMismatch { .. }, Consumer::Operator) => Severity::Warn,
            (
                Self::BackendPortTwice { .. } | Self::CheckNumber { .. } | Self::Fixed { .. },
                Consumer::Operator,
            ) => Severity::Accept,
            _ => Severity::Refuse,
        }
    }
}

/// A port of a listener (WV-5).
///
/// # Errors
/// It is not 1 to 65535.
pub fn port(index: usize, field: &'static str, value: i64) -> Result<u16, Violation> {
    let port = u16::try_from(value).ok().filter(|port| *port != 0);
    port.ok_or(Violation::PortOutOfRange {
        index,
        field,
        value,
    })
}

/// The protocol of a listener; an empty text stands for TCP.
///
/// # Errors
/// It is not one that a Service can carry.
pub fn protocol(index: usize, value: &str) -> Result<&'static str, Violation> {
    let known = ["TCP", "UDP", "SCTP"].into_iter().find(|p| *p == value);
    known
        .or_else(|| value.is_empty().then_some("TCP"))
        .ok_or_else(|| Violation::UnknownProtocol {
            index,
            value: value.to_owned(),
        })
}

/// Every violation of the rules that concern one load balancer by itself, in the order of the rules. Cluster type has none:
/// its listeners and health check are not looked at (REC-1).
pub fn validate(lb: &LoadBalancer) -> Vec<Violation> {
    let mut found = Vec::new();
    if lb.spec.workload() == WorkloadType::Cluster {
        return found;
    }
    let listeners = lb.spec.listeners.as_deref().unwrap_or_default();
    if listeners.is_empty() {
        found.push(Violation::NoListener);
    }
    unique(listeners, &mut found);
    for (index, listener) in listeners.iter().enumerate() {
        found.extend(protocol(index, &listener.protocol).err());
        found.extend(port(index, "port", listener.port).err());
        found.extend(port(index, "backendPort", listener.backend_port).err());
    }
    let selector = lb.spec.backend_server_selector.iter().flatten();
    let valueless = selector.filter(|(_, values)| values.is_empty());
    found.extend(
        valueless
            .take(1)
            .map(|(key, _)| Violation::SelectorWithoutValues(key.clone())),
    );
    if let Some(check) = &lb.spec.health_check {
        health_check(listeners, check, &mut found);
    }
    found
}

/// WV-2 to WV-4, listener by listener.
fn unique(listeners: &[Listener], found: &mut Vec<Violation>) {
    let (mut names, mut ports) = (HashSet::new(), HashSet::new());
    let mut backend_ports = HashMap::new();
    for (index, listener) in listeners.iter().enumerate() {
        let name = listener.name.as_deref().unwrap_or_default();
        let protocol = match &*listener.protocol {
            "" => "TCP",
            other => other,
        };
        if !names.insert(name) {
            found.push(Violation::NameTwice {
                index,
                value: name.to_owned(),
            });
        }
        if !ports.insert((protocol, listener.port)) {
            found.push(Violation::PortTwice {
                index,
                protocol: protocol.to_owned(),
                port: listener.port,
            });
        }
        let other = *backend_ports
            .entry((protocol, listener.backend_port))
            .or_insert(index);
        if other != index {
            found.push(Violation::BackendPortTwice {
                index,
                other,
                protocol: protocol.to_owned(),
                backend_port: listener.backend_port,
            });
        }
    }
}

/// WV-6 and WV-7. Port 0 is no health check.
fn health_check(listeners: &[Listener], check: &HealthCheck, found: &mut Vec<Violation>) {
    let raw = check.port.unwrap_or(0);
    if raw == 0 {
        return;
    }
    let Ok(port) = u16::try_from(raw) else {
        found.push(Violation::CheckPortOutOfRange(raw));
        return;
    };
    let mismatch = check_port(port, listeners);
    if mismatch.is_some() {
        found.extend(mismatch);
        return;
    }
    for (field, value) in [
        ("successThreshold", check.success_threshold),
        ("failureThreshold", check.failure_threshold),
        ("periodSeconds", check.period_seconds),
        ("timeoutSeconds", check.timeout_seconds),
    ] {
        let value = value.unwrap_or(0);
        if value <= 0 {
            found.push(Violation::CheckNumber { field, value });
        }
    }
}

/// WV-6: a health check's port that is the backend port of no TCP listener.
fn check_port(port: u16, listeners: &[Listener]) -> Option<Violation> {
    let tcp = listeners
        .iter()
        .filter(|listener| matches!(&*listener.protocol, "" | "TCP"));
    let backend_ports: BTreeSet<i64> = tcp.map(|listener| listener.backend_port).collect();
    (!backend_ports.contains(&i64::from(port))).then_some(Violation::CheckPortMismatch {
        port,
        backend_ports,
    })
}

/// What an update must not change (WV-8, WV-9). An absent field is its default.
pub fn validate_update(before: &LoadBalancer, after: &LoadBalancer) -> Vec<Violation> {
    let ipam = |lb: &LoadBalancer| match lb.spec.address_source() {
        Ipam::Pool => "pool",
        Ipam::Dhcp => "dhcp",
    };
    let workload = |lb: &LoadBalancer| match lb.spec.workload() {
        WorkloadType::Vm => "vm",
        WorkloadType::Cluster => "cluster",
    };
    [
        ("ipam", ipam(before), ipam(after)),
        ("workloadType", workload(before), workload(after)),
    ]
    .into_iter()
    .filter(|(_, before, after)| before != after)
    .map(|(field, before, after)| Violation::Fixed {
        field,
        before,
        after,
    })
    .collect()
}
