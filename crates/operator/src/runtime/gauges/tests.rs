use std::collections::BTreeSet;
use std::time::Duration;

use harvester_lb_controller_kit::cached_client::ConflictObserver;
use harvester_lb_controller_kit::client::RequestObserver;
use harvester_lb_controller_kit::work_queue::ReconcileObserver;
use harvester_lb_prober::{Observer, ProbeResult};
use prometheus::proto::MetricFamily;
use prometheus::proto::MetricType;

use super::*;
use crate::metrics::{Metrics, ProbeMetrics};
use harvester_lb_api::LoadBalancer;
use harvester_lb_object::{Key, Version};

/// Every family, whether it has values yet or not.
fn all() -> Vec<MetricFamily> {
    let metrics = Metrics::new().unwrap();
    let (reconciles, client) = (&metrics.reconciles, &metrics.client);
    reconciles.reconciled("IPPool", Duration::from_millis(3), true);
    reconciles.conflict("IPPool");
    client.watch("IPPool", None);
    metrics.announcing_node_changes.with_label_values(&["sent"]);
    client.request("get", "ippools", 200, Duration::from_millis(3));
    metrics.verdict_changes.with_label_values(&["up"]);
    let mut families = metrics.registry().gather();
    for collector in Families::new().unwrap().collectors() {
        families.extend(collector.collect());
    }
    families
}

#[test]
fn ops_1_names_are_those_of_prometheus() {
    for family in all() {
        let name = family.name();
        assert!(name.starts_with("harvester_lb_"), "{name}");
        assert!(
            name.bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
            "{name}"
        );
        let is_counter = family.get_field_type() == MetricType::COUNTER;
        assert_eq!(name.ends_with("_total"), is_counter, "{name}");
        let is_histogram = family.get_field_type() == MetricType::HISTOGRAM;
        let is_time = name.ends_with("_timestamp_seconds");
        assert_eq!(
            name.ends_with("_seconds"),
            is_histogram || is_time,
            "{name}"
        );
        assert!(family.help().ends_with('.'), "{name}: {}", family.help());
    }
}

#[test]
fn ops_1_what_the_contract_names_is_there() {
    let families = all();
    let names: BTreeSet<&str> = families.iter().map(MetricFamily::name).collect();
    assert_eq!(names.len(), families.len(), "each name once");
    for name in [
        "ippool_addresses",
        "load_balancers",
        "load_balancer_ready",
        "backends",
        "backend_up",
        "probes_total",
        "probe_duration_seconds",
        "reconcile_duration_seconds",
    ] {
        assert!(
            names.contains(format!("harvester_lb_{name}").as_str()),
            "{name}"
        );
    }
}

#[test]
fn ops_1_labels_of_the_sizes() {
    let families = Families::new().unwrap();
    let cases: [(&dyn Collector, &[&str]); 5] = [
        (
            &families.load_balancer_ready,
            &["namespace", "loadbalancer"],
        ),
        (&families.pool_addresses, &["pool", "state"]),
        (&families.load_balancers, &["ready", "reason"]),
        (&families.backends, &["namespace", "loadbalancer", "state"]),
        (
            &families.backend_up,
            &["namespace", "loadbalancer", "backend"],
        ),
    ];
    for (collector, labels) in cases {
        assert_eq!(collector.desc()[0].variable_labels, labels);
    }
}

#[test]
fn ops_1_sizes_share_the_registry_and_end_with_what_they_measure() {
    let metrics = Metrics::new().unwrap();
    let before = metrics.registry().gather().len();
    let gauges = Gauges {
        current: std::sync::Weak::new(),
        backend_limit: 1,
        families: Families::new().unwrap(),
        scrape: parking_lot::Mutex::new(()),
    };
    metrics.registry().register(Box::new(gauges)).unwrap();
    assert_eq!(metrics.registry().gather().len(), before);
}

#[tokio::test]
async fn ops_1_a_standby_exports_leadership_and_its_own_health() {
    let nobody = crate::fake::client(|_| std::future::pending());
    let ctx = crate::fake::first(nobody, &crate::timings::Timings::default());
    let (key, version) = (Key::new("n", "a"), Version(1));
    let lb = Lb::valid(LoadBalancer::default());
    ctx.index.stores.lbs.written(&key, version, lb);
    let current = Arc::new(CurrentTerm::new(ctx));
    let gauges = Gauges::new(&current, 1).unwrap();
    let families = gauges.collect();
    let mut names: Vec<&str> = families.iter().map(MetricFamily::name).collect();
    names.sort_unstable();
    let expected = [
        "harvester_lb_cached_objects",
        "harvester_lb_events_dropped_total",
        "harvester_lb_leader",
        "harvester_lb_probe_targets",
        "harvester_lb_probe_targets_unknown",
        "harvester_lb_probes_in_flight",
    ];
    assert_eq!(names, expected);
    let cached = families.iter().find(|f| f.name() == expected[0]).unwrap();
    let of_lbs = cached.get_metric().iter().find(|metric| {
        let labels = metric.get_label();
        labels.iter().any(|label| label.value() == "LoadBalancer")
    });
    let count = of_lbs.map(|metric| metric.get_gauge().get_value());
    assert_eq!(count, Some(1.0));
}

fn counter(metrics: &Metrics, family: &str, label: &str) -> f64 {
    metrics
        .registry()
        .gather()
        .iter()
        .filter(|f| f.name() == family)
        .flat_map(MetricFamily::get_metric)
        .find(|m| m.get_label().iter().any(|l| l.value() == label))
        .map_or(f64::NAN, |m| m.get_counter().get_value())
}

#[test]
#[allow(clippy::float_cmp, reason = "whole numbers")]
fn ops_1_probes_are_counted_by_result() {
    let metrics = Arc::new(Metrics::new().unwrap());
    let observer = ProbeMetrics::new(&metrics);
    for result in ProbeResult::ALL {
        let count = || counter(&metrics, "harvester_lb_probes_total", result.as_label());
        assert_eq!(count(), 0.0, "{result:?} is there from the start");
        observer.probe(result, Duration::from_millis(1));
        assert_eq!(count(), 1.0, "{result:?}");
    }
    observer.verdict_changed(true);
    observer.verdict_changed(false);
    observer.verdict_changed(false);
    let changes = |label| counter(&metrics, "harvester_lb_probe_verdict_changes_total", label);
    assert_eq!((changes("up"), changes("down")), (1.0, 2.0));
}

#[test]
#[allow(clippy::float_cmp, reason = "whole numbers")]
fn ops_1_requests_are_counted_by_code() {
    let metrics = Metrics::new().unwrap();
    for code in [200, 409, 409, 0] {
        metrics
            .client
            .request("patch", "services", code, Duration::ZERO);
    }
    let count = |code| counter(&metrics, "harvester_lb_api_requests_total", code);
    assert_eq!((count("200"), count("409"), count("0")), (1.0, 2.0, 1.0));
}
