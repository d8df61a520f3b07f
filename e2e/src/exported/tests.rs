//! Each metric that does not match the stored objects is reported (OPS-1).

use harvester_lb_fixtures::{cluster_spec, load_balancer, pool, record, with};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

const POOL: &str = "p";

fn made<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

/// Two LoadBalancers with an address each, and a released address.
fn stored() -> Snapshot {
    let lb = |name: &str, ip: &str| {
        let status = json!({
            "allocatedAddress": {"ip": ip, "ipPool": POOL},
            "conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}],
        });
        let lb = load_balancer("n", name, name, &cluster_spec());
        made(with(lb, json!({"status": status})))
    };
    let record =
        |ip: &str, phase: &str, owner: &str| made(record(ip, POOL, phase, ("n", owner, owner)));
    let status = json!({"status": {"total": 3, "available": 1, "lastAllocated": ""}});
    Snapshot {
        load_balancers: vec![lb("a", "10.0.0.2"), lb("b", "10.0.0.3")],
        records: vec![
            record("10.0.0.2", "Bound", "a"),
            record("10.0.0.3", "Bound", "b"),
            record("10.0.0.4", "Released", "old"),
        ],
        pools: vec![made(with(pool(POOL, &[]), status))],
        ..Snapshot::default()
    }
}

fn metrics(text: &str) -> MetricsSnapshot {
    MetricsSnapshot::parse(text).unwrap()
}

const FIGURES: &str = r#"
harvester_lb_load_balancers{ready="True",reason="Ready"} 2
harvester_lb_ipallocations{phase="Bound"} 2
harvester_lb_ipallocations{phase="Released"} 1
harvester_lb_load_balancers_waiting 0
harvester_lb_ippool_addresses{pool="p",state="total"} 3
harvester_lb_ippool_addresses{pool="p",state="allocated"} 2
harvester_lb_ippool_addresses{pool="p",state="available"} 1
harvester_lb_ippool_addresses{pool="other",state="available"} 9
"#;

#[test]
fn ops_1_each_figure_that_is_not_what_is_stored_is_named() {
    let all = findings(&stored(), &metrics(FIGURES), &[POOL]);
    assert_eq!(all, Vec::<String>::new());
    for (right, wrong) in [
        (r#"reason="Ready"} 2"#, r#"reason="Ready"} 3"#),
        (r#"reason="Ready"} 2"#, r#"reason="NoBackend"} 2"#),
        (r#"phase="Bound"} 2"#, r#"phase="Bound"} 1"#),
        (r#"phase="Released"} 1"#, r#"phase="Released"} 0"#),
        ("waiting 0", "waiting 1"),
        (r#"state="total"} 3"#, r#"state="total"} 4"#),
        (r#"state="allocated"} 2"#, r#"state="allocated"} 3"#),
        (r#"state="available"} 1"#, r#"state="available"} 0"#),
        (
            r#"harvester_lb_ippool_addresses{pool="p",state="total"} 3"#,
            "",
        ),
    ] {
        let text = FIGURES.replacen(right, wrong, 1);
        assert_ne!(text, FIGURES);
        let all = findings(&stored(), &metrics(&text), &[POOL]);
        assert_eq!(all.len(), 1, "{wrong}: {all:#?}");
    }
}
