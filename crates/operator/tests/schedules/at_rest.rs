//! Check of the steady state by the auditor, which, like the oracle, does not use the operator's own state.

use std::collections::BTreeSet;

use harvester_lb_api::{Ipam, Phase, condition, keys};
use harvester_lb_audit::{Cluster, Finding, Snapshot, audit};
use k8s_openapi::api::discovery::v1::Endpoint;
use serde::de::DeserializeOwned;

use super::api::Server;
use super::failure::{Failure, must};
use super::kind::Kind;
use super::leases;

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
    if let Some(finding) = findings.find(|finding| !is_excused(finding)) {
        return Err(Failure::new(finding.rule, finding.to_string()));
    }
    leases_are_served(&snapshot)?;
    backends_healthy(&snapshot)
}

/// DHC-1: the Service of a load balancer with a valid lease has its address, unless another rule forbids one. DHC-3: it has not that of
/// a lease that is over.
fn leases_are_served(snapshot: &Snapshot) -> Result<(), Failure> {
    for record in &snapshot.records {
        let (spec, lease) = (&record.spec, record.spec.lease.as_ref());
        let expires_at = lease.and_then(|lease| lease.expires_at.as_deref());
        let is_over = expires_at == Some(leases::OVER);
        let is_readable = lease.is_some_and(|lease| lease.hardware_address.contains(':'));
        if spec.phase != Phase::Bound || !is_readable {
            continue;
        }
        let service = snapshot.services.iter().find(|service| {
            service.metadata.namespace.as_deref() == Some(&*spec.owner.namespace)
                && service.metadata.name.as_deref() == Some(&*spec.owner.name)
        });
        let asked = service.and_then(|it| it.spec.as_ref()?.load_balancer_ip.as_deref());
        must!(
            "DHC-3",
            !is_over || asked != Some(&*spec.address),
            "the lease of {} is over, and its Service asks for {asked:?}",
            spec.owner.name
        );
        if is_over {
            continue;
        }
        let lb = snapshot.load_balancers.iter().find(|lb| {
            lb.metadata.uid.as_deref() == Some(&*spec.owner.uid)
                && lb.metadata.deletion_timestamp.is_none()
                && lb.spec.address_source() == Ipam::Dhcp
        });
        let conditions = lb.and_then(|lb| lb.status.as_ref()?.conditions.as_deref());
        let ready = condition::find(conditions.unwrap_or_default(), "Ready");
        let reason = ready.and_then(|it| it.reason.as_deref());
        if lb.is_none() || !reason.is_some_and(|it| FOLLOWED.contains(&it)) {
            continue;
        }
        must!(
            "DHC-1",
            asked == Some(&*spec.address),
            "{} has leased {}, and its Service asks for {asked:?}",
            spec.owner.name,
            spec.address
        );
    }
    Ok(())
}

/// Reasons of the condition Ready of a load balancer whose endpoints follow its spec.
pub(crate) const FOLLOWED: [&str; 5] = [
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
