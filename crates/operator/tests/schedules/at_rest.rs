//! Check of the steady state by the auditor, which, like the oracle, does not use the operator's own state.

use harvester_lb_audit::{Cluster, Snapshot, audit};
use serde::de::DeserializeOwned;

use super::api::{Kind, Server};
use super::failure::Failure;

/// Checks the steady state.
pub(crate) fn judge(server: &Server) -> Result<(), Failure> {
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
    match audit(&snapshot).findings.into_iter().next() {
        Some(finding) => Err(Failure::new(finding.rule, finding.to_string())),
        None => Ok(()),
    }
}

fn all<T: DeserializeOwned>(server: &Server, kind: Kind) -> Vec<T> {
    let objects = server.all(kind).values();
    objects
        .map(|object| T::deserialize(&**object).unwrap())
        .collect()
}
