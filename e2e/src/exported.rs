//! Whether the metrics that the leader exports match the objects in the API server (OPS-1).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Debug;

use harvester_lb_api::{IPAllocation, Phase, keys};
use harvester_lb_audit::Snapshot;

use crate::metrics_snapshot::MetricsSnapshot;
use crate::read::{allocated, ready};

/// Reasons of LoadBalancers that wait for an address.
const WAIT: [&str; 4] = [
    "NoAvailableIP",
    "NoMatchedPool",
    "PoolNotFound",
    "RequestedAddressUnavailable",
];

/// One line for each wrong metric.
pub fn findings(all: &Snapshot, metrics: &MetricsSnapshot, pools: &[&str]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut compare = |what: &str, exported: BTreeMap<String, f64>, stored: &[(String, f64)]| {
        let stored: BTreeMap<String, f64> = stored.iter().cloned().collect();
        if exported != stored {
            findings.push(differs(what, &exported, &stored));
        }
    };

    let mut stored: BTreeMap<String, f64> = BTreeMap::new();
    for lb in &all.load_balancers {
        let (status, reason, _) =
            ready(lb).unwrap_or_else(|| ("Unknown".into(), String::new(), String::new()));
        *stored.entry(format!("{status} {reason}")).or_default() += 1.0;
    }
    let stored: Vec<(String, f64)> = stored.into_iter().collect();
    let name = "harvester_lb_load_balancers";
    compare(name, series(metrics, name, &["ready", "reason"]), &stored);

    let is_lease = |record: &IPAllocation| {
        let name = record.metadata.name.as_deref().unwrap_or_default();
        name.starts_with(keys::LEASE_RECORD_PREFIX)
    };
    let phase = |phase: Phase| {
        // IPA-8: those of later kinds do not count.
        let records = all.records.iter().filter(|record| !is_lease(record));
        size(records.filter(|r| r.spec.phase == phase).count())
    };
    let stored = [("Bound", Phase::Bound), ("Released", Phase::Released)]
        .map(|(label, of)| (label.to_owned(), phase(of)));
    let name = "harvester_lb_ipallocations";
    compare(name, series(metrics, name, &["phase"]), &stored);

    let waiting = all.load_balancers.iter().filter(|lb| {
        allocated(lb).is_none() && ready(lb).is_some_and(|(_, reason, _)| WAIT.contains(&&*reason))
    });
    let name = "harvester_lb_load_balancers_waiting";
    compare(
        name,
        series(metrics, name, &[]),
        &[(String::new(), size(waiting.count()))],
    );

    for pool in pools {
        #[allow(clippy::cast_precision_loss, reason = "a pool of a test is small")]
        let total = all
            .pools
            .iter()
            .find(|p| p.metadata.name.as_deref() == Some(pool))
            .and_then(|p| p.status.as_ref())
            .map_or(0.0, |s| s.total as f64);
        let of_pool = all.records.iter().filter(|r| r.spec.pool == **pool);
        let held = size(of_pool.filter(|r| r.spec.phase == Phase::Bound).count());
        let stored = [
            ("allocated", held),
            ("available", total - held),
            ("total", total),
        ]
        .map(|(state, value)| (format!("{pool} {state}"), value));
        let name = "harvester_lb_ippool_addresses";
        let mut exported = series(metrics, name, &["pool", "state"]);
        exported.retain(|key, _| key.split(' ').next() == Some(pool));
        compare(name, exported, &stored);
    }
    findings
}

/// Values of a metric by the values of these labels.
fn series(metrics: &MetricsSnapshot, name: &str, labels: &[&str]) -> BTreeMap<String, f64> {
    let of = metrics.0.iter().filter(|s| s.name == name);
    of.map(|s| {
        (
            labels
                .iter()
                .map(|l| s.label(l))
                .collect::<Vec<_>>()
                .join(" "),
            s.value,
        )
    })
    .collect()
}

fn differs(what: &str, exported: &impl Debug, stored: &impl Debug) -> String {
    format!("{what} exports {exported:?}, stored are {stored:?}")
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52 objects")]
fn size(count: usize) -> f64 {
    count as f64
}
