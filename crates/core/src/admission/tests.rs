//! Admission from bytes to bytes. `world` has the facts, `properties` what holds for any object.

mod properties;
pub(crate) mod world;

use harvester_lb_fixtures::{cluster_spec, listener, pool, subnet, vm_spec};
use serde_json::{Value, json};

use super::*;
use world::{World, denied, review, review_of};

/// The response to a request, as JSON.
fn answer(request: &Request, world: &World) -> Value {
    let body = match validate(request, world) {
        Ok(warnings) => Response::Allowed(&warnings).to_bytes(request),
        Err(Denial::Refused(refusal)) => Response::Refused(&refusal).to_bytes(request),
        Err(Denial::NotReady(fact)) => panic!("{fact}"),
    };
    serde_json::from_slice(&body).unwrap()
}

fn lb(spec: &Value) -> Value {
    json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": spec})
}

#[test]
fn val_1_a_denial_is_422_and_names_object_and_value() {
    let request = review(
        "CREATE",
        &lb(&json!({"listeners": [listener("a", "TCP", 0, 8080)]})),
    );
    let message = "LoadBalancer shop/web: spec.listeners[0].port is 0: it must be 1 to 65535";
    assert_eq!(
        answer(&request, &World::default()),
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {
                "uid": "r-1", "allowed": false,
                "status": {"status": "Failure", "code": 422, "reason": "Invalid", "message": message},
            },
        })
    );
}

#[test]
fn val_1_a_refusal_says_what_the_operator_says() {
    let both = json!([
        listener("a", "TCP", 0, 8080),
        listener("b", "TCP", 1, 70_000)
    ]);
    let object = lb(&json!({"listeners": both}));
    let decoded = serde_json::from_value(object.clone()).unwrap();
    let condition = crate::spec::check(&decoded).unwrap_err().to_string();
    let refusal = denied(&review("CREATE", &object), &World::default());
    assert_eq!(
        refusal.message(),
        format!("LoadBalancer shop/web: {condition}")
    );
    let object = pool("p", &[json!({"subnet": "10.0.0.0"})]);
    let raw: harvester_lb_api::IPPool = serde_json::from_value(object.clone()).unwrap();
    let raw = crate::pool_spec::ranges_of(&raw.spec);
    let condition = harvester_lb_ipam::PoolRanges::parse(&raw).unwrap_err();
    let refusal = denied(&review("CREATE", &object), &World::default());
    assert_eq!(refusal.message(), format!("IPPool p: {condition}"));
}

#[test]
fn val_1_admission_refuses_what_the_operator_serves() {
    let shared = json!([
        listener("a", "TCP", 80, 8080),
        listener("b", "TCP", 81, 8080)
    ]);
    let check = json!({
        "port": 80, "successThreshold": 1, "failureThreshold": 3, "periodSeconds": 5, "timeoutSeconds": 3,
    });
    let one = json!([listener("a", "TCP", 80, 8080)]);
    for (rule, spec) in [
        ("WV-4", json!({"listeners": shared})),
        ("WV-6", json!({"listeners": one, "healthCheck": check})),
    ] {
        let object = lb(&spec);
        let decoded = serde_json::from_value(object.clone()).unwrap();
        assert!(crate::spec::check(&decoded).is_ok(), "{rule}");
        assert_eq!(
            denied(&review("CREATE", &object), &World::default()).rule(),
            rule
        );
    }
}

#[test]
fn cnv_1_local_rules_answer_before_anything_is_listed() {
    let unlisted = World::unlisted();
    let allowed = |request: &Request| validate(request, &unlisted).map(|_| ());
    let web = lb(&vm_spec("web"));
    assert_eq!(allowed(&review("CREATE", &web)), Ok(()));
    let none = lb(&json!({"listeners": []}));
    assert_eq!(denied(&review("CREATE", &none), &unlisted).rule(), "WV-1");
    // Without the label no VirtualMachine is looked at.
    let guest = lb(&cluster_spec());
    assert_eq!(allowed(&review("CREATE", &guest)), Ok(()));
    let mut labelled = guest.clone();
    labelled["metadata"]["labels"] = json!({"cloudprovider.harvesterhci.io/cluster": "gc1"});
    assert_eq!(
        allowed(&review("CREATE", &labelled)),
        Err(Denial::NotReady(Fact::VirtualMachines))
    );
    assert_eq!(
        allowed(&review_of("UPDATE", &labelled, &guest)),
        Ok(()),
        "not created"
    );

    let bad = pool("p", &[subnet("10.0.0.0/24"), subnet("10.0.0.0/25")]);
    assert_eq!(denied(&review("CREATE", &bad), &unlisted).rule(), "PV-2");
    let good = pool("p", &[subnet("10.0.0.0/24")]);
    let waiting = allowed(&review("CREATE", &good)).unwrap_err();
    assert!(matches!(waiting, Denial::NotReady(_)), "{waiting}");
    assert_eq!(
        allowed(&review_of("DELETE", &Value::Null, &good)),
        Err(Denial::NotReady(Fact::IPAllocations))
    );
    let mut edited = good.clone();
    edited["metadata"]["annotations"] = json!({"a": "b"});
    assert_eq!(
        allowed(&review_of("UPDATE", &edited, &good)),
        Ok(()),
        "same spec"
    );
    assert_eq!(
        waiting.to_string(),
        "the list of IPAllocations is not complete yet; try again"
    );
}

#[test]
fn cnv_1_a_mutation_waits_for_its_facts_only() {
    let unlisted = World::unlisted();
    assert!(mutate(&review("CREATE", &lb(&vm_spec("web"))), &unlisted).is_ok());
    let missing = mutate(&review("CREATE", &lb(&cluster_spec())), &unlisted);
    assert_eq!(
        missing,
        Err(Denial::NotReady(Fact::Namespace("shop".into())))
    );
    let mut known = World::unlisted();
    known.project("shop", "c:p");
    assert!(mutate(&review("CREATE", &lb(&cluster_spec())), &known).is_ok());
    let mut named = lb(&cluster_spec());
    named["metadata"]["annotations"] = json!({"loadbalancer.harvesterhci.io/cluster": "gc1"});
    assert_eq!(
        mutate(&review("CREATE", &named), &known),
        Err(Denial::NotReady(Fact::VirtualMachineInstances))
    );
}

/// A pool that cannot be checked is not admitted, whatever the reason.
#[test]
fn pv_1_no_pool_is_admitted_unchecked() {
    let world = World::default();
    let good = pool("p", &[subnet("10.0.0.0/24")]);
    assert!(validate(&review("CREATE", &good), &world).is_ok());
    for (what, object) in [
        ("no spec", json!({"metadata": {"name": "p"}})),
        ("no ranges", json!({"metadata": {"name": "p"}, "spec": {}})),
        (
            "a number",
            json!({"metadata": {"name": "p"}, "spec": {"ranges": 7}}),
        ),
        ("no metadata", json!({"spec": good["spec"]})),
        (
            "a priority that is no number",
            json!({"metadata": {"name": "p"}, "spec": {"ranges": good["spec"]["ranges"], "selector": {"priority": "high"}}}),
        ),
    ] {
        for old in [Value::Null, good.clone()] {
            let operation = if old.is_null() { "CREATE" } else { "UPDATE" };
            let request = world::review_named(operation, "IPPool", "p", &object, &old);
            let refusal = denied(&request, &world);
            assert!(
                refusal.message().starts_with("IPPool p cannot be decoded"),
                "{what}: {refusal}"
            );
            assert_eq!(mutate(&request, &world), Ok(Patch::default()), "{what}");
        }
    }
    // Its metadata and its status can be written: a finalizer can be taken off.
    let stored = json!({"metadata": {"name": "p", "finalizers": ["x"]}, "spec": {"ranges": 7}});
    let mut freed = stored.clone();
    freed["metadata"]["finalizers"] = Value::Null;
    assert!(validate(&review_of("UPDATE", &freed, &stored), &world).is_ok());
    freed["spec"]["ranges"] = json!(8);
    assert!(validate(&review_of("UPDATE", &freed, &stored), &world).is_err());
    let missing = world::review_named("CREATE", "IPPool", "p", &Value::Null, &Value::Null);
    assert!(denied(&missing, &world).message().contains("missing"));
    let mut body = world::body("CREATE", "IPPool", "p", &good, &Value::Null);
    body["request"]["kind"]["version"] = json!("v2");
    for operation in ["CREATE", "UPDATE", "DELETE"] {
        body["request"]["operation"] = json!(operation);
        let other = Request::parse(body.to_string().as_bytes()).unwrap();
        let refusal = denied(&other, &world);
        assert!(refusal.message().contains("\"v2\""), "{refusal}");
        assert_eq!(mutate(&other, &world), Ok(Patch::default()));
    }
}

#[test]
fn objects_of_other_kinds_are_left_alone() {
    let world = World::unlisted();
    let mut body = world::body("CREATE", "Pod", "p", &json!({"spec": 7}), &Value::Null);
    for group in ["", "loadbalancer.harvesterhci.io", "example.org"] {
        body["request"]["kind"]["group"] = json!(group);
        let request = Request::parse(body.to_string().as_bytes()).unwrap();
        assert_eq!(validate(&request, &world), Ok(Vec::new()));
        assert_eq!(mutate(&request, &world), Ok(Patch::default()));
    }
    // A kind of the same name in another group is none of ours.
    body["request"]["kind"] = json!({"group": "example.org", "version": "v1", "kind": "IPPool"});
    let request = Request::parse(body.to_string().as_bytes()).unwrap();
    assert_eq!(validate(&request, &world), Ok(Vec::new()));
}

#[test]
fn what_is_being_deleted_is_not_checked() {
    let world = World::unlisted();
    let old = |mut object: Value| {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        object
    };
    for (object, bad) in [
        (lb(&vm_spec("web")), lb(&json!({"ipam": "dhcp"}))),
        (pool("p", &[subnet("10.0.0.0/24")]), pool("p", &[])),
    ] {
        let request = review_of("UPDATE", &old(bad.clone()), &old(object.clone()));
        assert_eq!(validate(&request, &world), Ok(Vec::new()));
        assert_eq!(mutate(&request, &world), Ok(Patch::default()));
        // The stored object decides: who writes a deletionTimestamp gets no way around the rules.
        let request = review_of("UPDATE", &old(bad), &object);
        assert!(validate(&request, &world).is_err());
    }
}
