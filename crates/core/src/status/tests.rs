//! Fixture of the tests of a load balancer's status.

mod apply;
mod events;
mod pace;
mod reworded;

use super::*;
use serde_json::{Value, json};

const T1: &str = "2026-01-01T00:00:00Z";
const T2: &str = "2026-01-01T00:00:05Z";

fn lb(status: &Value) -> LoadBalancer {
    serde_json::from_value(json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "u-1"},
        "spec": {},
        "status": status,
    }))
    .unwrap()
}

fn allocated() -> AllocatedAddress {
    AllocatedAddress {
        ip_pool: Some("p".into()),
        ip: Some("172.20.1.4".into()),
        mask: Some("255.255.255.248".into()),
        gateway: Some("172.20.1.1".into()),
    }
}

/// The status update of the rules' example (section 8.3).
fn example() -> StatusUpdate {
    StatusUpdate {
        readiness: Readiness::ready(),
        allocated: FieldUpdate::Set(Some(allocated())),
        address: FieldUpdate::Set(Some("172.20.1.4".into())),
        backend_servers: FieldUpdate::Set(Some(vec!["10.10.1.7".into(), "10.10.1.8".into()])),
        extras: Vec::new(),
        details: Vec::new(),
        verdicts_changed: false,
    }
}

fn status_of(lb: &LoadBalancer) -> Value {
    serde_json::to_value(&lb.status).unwrap()
}

fn ready(lb: &LoadBalancer) -> Condition {
    let conditions = lb.status.as_ref().unwrap().conditions.as_ref().unwrap();
    condition::find(conditions, READY).unwrap().clone()
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Condition {
    Condition {
        type_: type_.into(),
        status: status.into(),
        reason: (!reason.is_empty()).then(|| reason.into()),
        message: Some(message.into()),
        ..Condition::default()
    }
}
