//! The world at rest is judged by the auditor, which knows as little of the operator's picture as the oracle does.

use harvester_lb_audit::{Cluster, Snapshot, audit};
use serde::de::DeserializeOwned;

use super::api::{Kind, Server};
use super::failure::{Failure, must};

/// Judges the world at rest.
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
    };
    if let Some(finding) = audit(&snapshot).findings.into_iter().next() {
        return Err(Failure::new(finding.rule, finding.to_string()));
    }
    // Kube-vip has announced everything by then.
    for (key, lb) in server.all(Kind::Lb) {
        let conditions = lb["status"]["conditions"].as_array().into_iter().flatten();
        let mut reasons = conditions.map(|condition| &condition["reason"]);
        must!(
            "REC-4",
            !reasons.any(|reason| reason == "WaitingForExternalIP"),
            "{key} waits for what is announced: {}",
            lb["status"]
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
