//! Check of the steady state by the auditor, which, like the oracle, does not use the operator's own state.

use std::collections::BTreeSet;

use harvester_lb_api::{condition, keys};
use harvester_lb_audit::{Cluster, Finding, Snapshot, audit};
use k8s_openapi::api::discovery::v1::Endpoint;
use serde::de::DeserializeOwned;

use super::api::{Kind, Server};
use super::failure::{Failure, must};

/// Checks the steady state. `released`: addresses whose IPAllocation was released by hand, which two Services may show.
pub(crate) fn judge(server: &Server, released: &BTreeSet<String>) -> Result<(), Failure> {
    let snapshot = Snapshot {
        load_balancers: all(server, Kind::Lb),
        pools: all(server, Kind::Pool),
        records: all(server, Kind::Record),
        services: all(server, Kind::Service),
        slices: all(server, Kind::Slice),
        cluster: Some(Cluster {
            machines: all(server, Kind::Vmi),
            nodes: all(server, Kind::Node),
            denied: Vec::new(),
        }),
        undecodable: Vec::new(),
        announcing: true,
    };
    let is_excused = |finding: &Finding| {
        let text = finding.to_string();
        finding.rule == "REL-3" && released.iter().any(|address| text.contains(address))
    };
    let mut findings = audit(&snapshot).findings.into_iter();
    match findings.find(|finding| !is_excused(finding)) {
        Some(finding) => Err(Failure::new(finding.rule, finding.to_string())),
        None => backends_healthy(&snapshot),
    }
}

/// Reasons of the condition Ready of a load balancer whose endpoints follow its spec.
const FOLLOWED: [&str; 5] = [
    "Ready",
    "WaitingForExternalIP",
    "NoBackend",
    "BackendsWithoutIP",
    "BackendsUnhealthy",
];

/// The condition BackendsHealthy counts the endpoints.
fn backends_healthy(snapshot: &Snapshot) -> Result<(), Failure> {
    for lb in &snapshot.load_balancers {
        let status = lb.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref());
        let condition = |type_| condition::find(conditions.unwrap_or_default(), type_);
        let reason = |type_| condition(type_).and_then(|c| c.reason.as_deref());
        let (Some(told), Some(ready)) = (condition("BackendsHealthy"), reason("Ready")) else {
            continue;
        };
        let slices = snapshot.slices.iter();
        let mut slices = slices.filter(|slice| {
            (&slice.metadata.namespace, &slice.metadata.name)
                == (&lb.metadata.namespace, &lb.metadata.name)
        });
        let Some(slice) = slices.next().filter(|_| FOLLOWED.contains(&ready)) else {
            continue;
        };
        let endpoints = slice.endpoints.iter();
        let endpoints = endpoints.filter(|e| e.addresses != [keys::DUMMY_ENDPOINT_ADDRESS]);
        let is_ready = |e: &Endpoint| e.conditions.as_ref().and_then(|c| c.ready) == Some(true);
        let all: Vec<bool> = endpoints.map(is_ready).collect();
        let up = all.iter().filter(|ready| **ready).count();
        let message = told.message.as_deref().unwrap_or_default();
        let is_right = if all.is_empty() {
            told.status == "False"
        } else {
            let counts = format!("{up} of {};", all.len());
            format!("{message};").starts_with(&counts)
                && (told.status == "True") == (up == all.len())
        };
        must!(
            "section 9",
            is_right,
            "endpoints of {:?} are ready: {all:?}, and BackendsHealthy is {told:?}",
            lb.metadata.name
        );
    }
    Ok(())
}

fn all<T: DeserializeOwned>(server: &Server, kind: Kind) -> Vec<T> {
    let objects = server.all(kind).values();
    objects
        .map(|object| T::deserialize(&**object).unwrap())
        .collect()
}
