use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::*;
use crate::validation::pool_index::PoolIndex;

fn spec(value: &Value) -> IPPoolSpec {
    serde_json::from_value(value.clone()).unwrap()
}

/// The violations of a pool beside others.
fn violations(own: &Value, others: &[(&str, Value)]) -> Vec<PoolViolation> {
    let mut pools = PoolIndex::default();
    for (name, other) in others {
        pools.set(name, &ObjectMeta::default(), &spec(other));
    }
    pools.validate("own", &ParsedPool::of(&spec(own)))
}

/// Rule and field of each violation.
fn found(own: &Value, others: &[(&str, Value)]) -> Vec<(&'static str, String)> {
    let all = violations(own, others);
    all.iter().map(|v| (v.rule(), v.field())).collect()
}

fn range(subnet: &str, start: &str, end: &str) -> Value {
    json!({"subnet": subnet, "rangeStart": start, "rangeEnd": end})
}

/// A pool with its own subnet and this selector.
fn pool(number: u8, selector: &Value) -> Value {
    json!({"ranges": [{"subnet": format!("10.10.{number}.0/24")}], "selector": selector})
}

fn scope(tuples: &[[&str; 3]]) -> Value {
    let tuples = tuples
        .iter()
        .map(|[p, n, c]| json!({"project": p, "namespace": n, "guestCluster": c}));
    Value::Array(tuples.collect())
}

fn tuples(all: &[[&str; 3]]) -> Value {
    json!({"scope": scope(all)})
}

#[test]
fn pv_1_to_pv_3_ranges() {
    let ranges = |ranges: Value| json!({"ranges": ranges});
    let own = |all: Value| found(&ranges(all), &[]);
    assert_eq!(own(json!([])), [("PV-1", "spec.ranges".to_owned())]);
    assert_eq!(
        own(
            json!([{"subnet": "x"}, {"subnet": "10.0.0.0/24"}, range("10.0.1.0/24", "10.0.9.9", "")])
        ),
        [
            ("PV-1", "spec.ranges[0].subnet".to_owned()),
            ("PV-1", "spec.ranges[2].rangeStart".to_owned())
        ],
        "each of them"
    );
    let part = |start, end| range("10.0.0.0/24", start, end);
    assert_eq!(
        own(json!([
            part("10.0.0.10", "10.0.0.20"),
            part("10.0.0.21", "10.0.0.30")
        ])),
        []
    );
    assert_eq!(
        own(json!([{"subnet": "10.0.0.0/24"}, part("10.0.0.10", "10.0.0.20")])),
        [("PV-2", "spec.ranges[1]".to_owned())]
    );
    let half = |n: u8| ranges(json!([{"subnet": format!("10.10.5.{n}/25")}]));
    assert_eq!(found(&half(0), &[("b", half(128))]), []);
    assert_eq!(
        found(&half(0), &[("a", half(128)), ("b", half(0))]),
        [("PV-3", "spec.ranges[0]".to_owned())]
    );
    let unreadable = ranges(json!([{"subnet": "x"}]));
    assert_eq!(found(&half(0), &[("b", unreadable)]), []);
}

#[test]
fn pv_5_one_global_pool_that_skips_the_rest() {
    let global = json!({"scope": scope(&[["*", "*", "*"]]), "priority": 3});
    let other = json!({"scope": scope(&[["p", "n", "c"]]), "priority": 3});
    assert_eq!(found(&pool(1, &global), &[("b", pool(2, &other))]), []);
    assert_eq!(found(&pool(2, &other), &[("a", pool(1, &global))]), []);
    assert_eq!(
        found(&pool(1, &global), &[("b", pool(2, &global))]),
        [("PV-5", "spec.selector.scope".to_owned())]
    );
}

#[test]
fn pv_6_scopes_of_one_pool() {
    let own = |all: &[[&str; 3]]| found(&pool(1, &tuples(all)), &[]);
    assert_eq!(own(&[["p1", "a", "*"], ["p1", "b", "*"]]), []);
    let second = [("PV-6", "spec.selector.scope[1]".to_owned())];
    assert_eq!(own(&[["p1", "a", "*"], ["p1", "*", "gc"]]), second);
    assert_eq!(own(&[["", "a", ""], ["", "a", ""]]), second);
}

/// A selector.
fn with(priority: u32, network: &str, tuple: [&str; 3]) -> Value {
    json!({"priority": priority, "network": network, "scope": scope(&[tuple])})
}

/// Rule and field of each violation of a pool beside another one, by their selectors.
fn beside(own: &Value, other: &Value) -> Vec<(&'static str, String)> {
    found(&pool(1, own), &[("b", pool(2, other))])
}

#[test]
fn pv_7_priorities_of_two_pools() {
    let (a, b) = (["p", "a", "c"], ["p", "b", "c"]);
    assert_eq!(beside(&with(1, "", a), &with(2, "", a)), []);
    assert_eq!(
        beside(&with(1, "", a), &with(1, "net/v2", b)),
        [("PV-7", "spec.selector.priority".to_owned())],
        "whatever network and scope"
    );
    assert_eq!(beside(&with(0, "", a), &with(0, "", b)), [], "0 may repeat");
}

#[test]
fn pv_8_scopes_of_two_pools() {
    let (a, b) = (["p", "a", "c"], ["p", "b", "c"]);
    assert_eq!(beside(&with(0, "", a), &with(1, "", a)), []);
    assert_eq!(beside(&with(0, "", a), &with(0, "net/v2", a)), []);
    assert_eq!(beside(&with(0, "", a), &with(0, "", b)), []);
    let (wide, narrow) = (["*", "a", "*"], ["p1", "a", "gc"]);
    assert_eq!(
        beside(&with(0, "", wide), &with(0, "", narrow)),
        [("PV-8", "spec.selector.scope[0]".to_owned())]
    );
}

#[test]
fn val_1_admission_refuses_what_the_operator_serves() {
    use Severity::{Accept, Refuse, Warn};
    let both = |v: &PoolViolation| {
        (
            v.severity(Consumer::Admission),
            v.severity(Consumer::Operator),
        )
    };
    let one = |own: &Value, other: &Value| {
        let all = violations(own, &[("b", other.clone())]);
        assert_eq!(all.len(), 1, "{all:?}");
        (both(&all[0]), all[0].to_string())
    };
    let plain = pool(1, &json!({"scope": scope(&[["p", "a", "c"]])}));
    let (severity, text) = one(&json!({"ranges": []}), &plain);
    assert_eq!(severity, (Refuse, Refuse), "{text}");
    let (severity, text) = one(&pool(1, &json!({"priority": 1})), &plain);
    assert_eq!(severity, (Refuse, Warn), "{text}");
    assert!(
        text.contains("spec.ranges[0]") && text.contains("IPPool b"),
        "{text}"
    );
    let (severity, text) = one(
        &pool(2, &json!({"scope": scope(&[["*", "a", "c"]])})),
        &plain,
    );
    assert_eq!(severity, (Refuse, Accept), "{text}");
}

#[test]
fn val_1_the_value_of_each_violation_is_in_its_message() {
    let address: IpAddr = "10.0.0.9".parse().unwrap();
    let subnets = |all: &[&str]| {
        let all: Vec<Value> = all.iter().map(|s| json!({"subnet": s})).collect();
        json!({ "ranges": all })
    };
    let global = tuples(&[["*", "*", "*"]]);
    let of = |own: &Value, other: &Value| {
        let all = violations(own, &[("b", other.clone())]);
        assert_eq!(all.len(), 1, "{all:?}");
        all[0].clone()
    };
    let far = subnets(&["10.9.0.0/24"]);
    for (violation, value) in [
        (of(&subnets(&["10.0.0.0"]), &far), "10.0.0.0"),
        (
            of(&subnets(&["10.0.0.0/30", "10.0.0.0/30"]), &far),
            "10.0.0.1-10.0.0.2",
        ),
        (of(&subnets(&["10.9.0.0/25"]), &far), "10.9.0.1-10.9.0.126"),
        (
            of(&pool(1, &tuples(&[["p", "*", "c"], ["p", "a", "c"]])), &far),
            "{\"p\", \"a\", \"c\"}",
        ),
        (
            of(&pool(1, &global), &pool(2, &global)),
            "{\"*\", \"*\", \"*\"}",
        ),
        (
            of(
                &pool(1, &json!({"priority": 7})),
                &pool(2, &json!({"priority": 7})),
            ),
            "7",
        ),
        (
            of(
                &pool(1, &tuples(&[["p", "a", "c"]])),
                &pool(2, &tuples(&[["*", "a", "c"]])),
            ),
            "{\"p\", \"a\", \"c\"}",
        ),
        (
            PoolViolation::LeftOut {
                count: 1,
                address,
                holder: "x".to_owned(),
            },
            "10.0.0.9",
        ),
        (
            PoolViolation::AllocatedGateway {
                index: 0,
                gateway: address,
                holder: "x".to_owned(),
            },
            "10.0.0.9",
        ),
        (
            PoolViolation::UnreadableKey("10.0.0.x".to_owned()),
            "10.0.0.x",
        ),
        (
            PoolViolation::StillAllocated {
                count: 1,
                first: "10.0.0.9 of x".to_owned(),
            },
            "10.0.0.9 of x",
        ),
    ] {
        assert_eq!(violation.value(), value, "{violation}");
        assert!(violation.to_string().contains(value), "{violation}");
    }
    let none = of(&json!({"ranges": []}), &far);
    assert_eq!(none.value(), "[]");
}
