use harvester_lb_fixtures::{pool, subnet, vm_spec};
use serde_json::{Value, json};

use super::*;
use crate::admission::tests::world::body;

fn parse(body: &Value) -> Result<Request, ReviewError> {
    Request::parse(body.to_string().as_bytes())
}

fn lb() -> Value {
    json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": vm_spec("web")})
}

#[test]
fn both_versions_of_a_review() {
    for (text, version) in [
        ("admission.k8s.io/v1", ReviewVersion::V1),
        ("admission.k8s.io/v1beta1", ReviewVersion::V1Beta1),
    ] {
        let mut body = body("UPDATE", "LoadBalancer", "web", &lb(), &lb());
        body["apiVersion"] = json!(text);
        let request = parse(&body).unwrap();
        assert_eq!(request.version, version);
        assert_eq!(request.operation, Operation::Update);
        assert_eq!((&*request.uid, &*request.user), ("r-1", "admin"));
        assert_eq!(request.key().to_string(), "shop/web");
        let Subject::LoadBalancer(change) = request.subject else {
            panic!("{:?}", request.subject)
        };
        assert!(change.object.unwrap().is_ok() && change.old.unwrap().is_ok());
    }
}

#[test]
fn what_is_no_review() {
    let good = body("CREATE", "LoadBalancer", "web", &lb(), &Value::Null);
    let with = |path: &str, value: Value| {
        let mut body = good.clone();
        *body.pointer_mut(path).unwrap() = value;
        parse(&body).unwrap_err().to_string()
    };
    assert!(with("/apiVersion", json!("admission.k8s.io/v2")).contains("\"admission.k8s.io/v2\""));
    assert!(with("/kind", json!("ConversionReview")).contains("\"ConversionReview\""));
    assert!(with("/request", Value::Null).contains("no request"));
    assert!(with("/request/uid", json!("")).contains("uid"));
    assert!(with("/request/operation", json!("PATCH")).contains("\"PATCH\""));
    assert!(with("/request/operation", json!(7)).contains("no AdmissionReview"));
    for body in [&b""[..], b"{", b"[]", b"null", b"\"x\"", b"\xff\xfe", b"{}"] {
        assert!(Request::parse(body).is_err(), "{body:?}");
    }
    let long = with("/kind", json!("é".repeat(100_000)));
    assert!(long.len() < 1_000, "{}", long.len());
}

#[test]
fn what_no_rule_reads_is_skipped_at_any_depth() {
    let levels = 5_000;
    let deep = format!("{}1{}", r#"{"f:a":"#.repeat(levels), "}".repeat(levels));
    let object = format!(
        r#"{{"metadata":{{"namespace":"shop","name":"web","managedFields":[{{"fieldsV1":{deep}}}],"ownerReferences":7}},"spec":{},"status":{deep}}}"#,
        vm_spec("web")
    );
    let body = body(
        "CREATE",
        "LoadBalancer",
        "web",
        &json!("OBJECT"),
        &Value::Null,
    );
    let body = body.to_string().replace("\"OBJECT\"", &object);
    let request = Request::parse(body.as_bytes()).unwrap();
    let Subject::LoadBalancer(change) = request.subject else {
        panic!("{:?}", request.subject)
    };
    assert!(change.object.unwrap().is_ok());
}

#[test]
fn an_object_that_cannot_be_decoded_keeps_its_metadata() {
    let broken = json!({
        "metadata": {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"ranges": "x"},
    });
    let good = pool("p", &[subnet("10.0.0.0/24")]);
    let request = parse(&body("UPDATE", "IPPool", "p", &good, &broken)).unwrap();
    let Subject::IPPool(change) = &request.subject else {
        panic!("{:?}", request.subject)
    };
    assert!(change.is_deleting());
    assert!(change.stored().is_none());
    let invalid = change.old.as_ref().unwrap().as_ref().unwrap_err();
    assert_eq!(
        invalid.error,
        "spec: invalid type: string \"x\", expected a sequence"
    );
    let long = json!({"metadata": {"name": "p"}, "spec": {"ranges": "é".repeat(100_000)}});
    let request = parse(&body("CREATE", "IPPool", "p", &long, &Value::Null)).unwrap();
    let Subject::IPPool(change) = &request.subject else {
        panic!("{:?}", request.subject)
    };
    assert!(change.new_object().unwrap_err().len() < 500);
}

#[test]
fn the_name_is_that_of_the_request_else_that_of_the_object() {
    let name = |in_request: Value, in_object: Value| {
        let object = json!({"metadata": {"namespace": "shop", "name": in_object}, "spec": {}});
        let mut body = body("CREATE", "LoadBalancer", "", &object, &Value::Null);
        body["request"]["name"] = in_request.clone();
        body["request"]["namespace"] = Value::Null;
        parse(&body).unwrap().key().to_string()
    };
    assert_eq!(name(json!("a"), json!("b")), "shop/a");
    assert_eq!(name(json!(""), json!("b")), "shop/b");
    assert_eq!(name(Value::Null, json!("b")), "shop/b");
    assert_eq!(name(Value::Null, Value::Null), "shop/", "to be generated");
}
