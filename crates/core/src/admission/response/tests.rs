use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::*;
use crate::admission::request::{Operation, ReviewVersion, Subject};

fn request(version: ReviewVersion) -> Request {
    Request {
        version,
        uid: "r-7".to_owned(),
        operation: Operation::Create,
        namespace: String::new(),
        name: "p".to_owned(),
        user: String::new(),
        dry_run: false,
        subject: Subject::OtherKind("x".to_owned()),
    }
}

fn answer(response: Response<'_>, version: ReviewVersion) -> Value {
    serde_json::from_slice(&response.to_bytes(&request(version))).unwrap()
}

#[test]
fn a_response_has_the_version_and_the_uid_of_the_request() {
    for (version, text) in [
        (ReviewVersion::V1, "admission.k8s.io/v1"),
        (ReviewVersion::V1Beta1, "admission.k8s.io/v1beta1"),
    ] {
        assert_eq!(
            answer(Response::Allowed(&[]), version),
            json!({
                "apiVersion": text, "kind": "AdmissionReview",
                "response": {"uid": "r-7", "allowed": true},
            })
        );
    }
}

#[test]
fn wm_1_a_patch_on_the_wire() {
    let mut patch = Patch::default();
    let empty = answer(Response::Patched(&patch), ReviewVersion::V1);
    assert_eq!(empty["response"], json!({"uid": "r-7", "allowed": true}));
    patch.add_to_map("/metadata/labels", None, &[("a/b~c", "x".to_owned())]);
    let present = BTreeMap::from([("same".to_owned(), "1".to_owned())]);
    let wanted = [("same", "1".to_owned()), ("a/b~c", "x".to_owned())];
    patch.add_to_map("/metadata/labels", Some(&present), &wanted);
    patch.add_to_map("/metadata/labels", None, &[]);
    let full = answer(Response::Patched(&patch), ReviewVersion::V1);
    assert_eq!(full["response"]["patchType"], "JSONPatch");
    let patch: ByteString = serde_json::from_value(full["response"]["patch"].clone()).unwrap();
    let patch: Value = serde_json::from_slice(&patch.0).unwrap();
    assert_eq!(
        patch,
        json!([
            {"op": "add", "path": "/metadata/labels", "value": {"a/b~c": "x"}},
            {"op": "add", "path": "/metadata/labels/a~1b~0c", "value": "x"},
        ])
    );
}

#[test]
fn val_1_a_warning_is_short_and_one_line() {
    let plain = Warning::new(&"a\nb\u{7}c");
    assert_eq!(plain.as_str(), "abc");
    let exact = "x".repeat(Warning::LIMIT);
    assert_eq!(Warning::new(&exact).as_str(), exact);
    for text in ["x".repeat(257), "é".repeat(200), "\u{1F600}".repeat(100)] {
        let warning = Warning::new(&text);
        assert!(warning.as_str().len() <= Warning::LIMIT);
        assert!(warning.as_str().ends_with("..."));
    }
    let warnings = [Warning::new(&"one"), Warning::new(&"two")];
    let answer = answer(Response::Allowed(&warnings), ReviewVersion::V1);
    assert_eq!(answer["response"]["warnings"], json!(["one", "two"]));
}

#[test]
fn val_1_the_first_violation_leads_and_four_are_named() {
    let of = |count: usize| {
        let all: Vec<String> = (1..=count).map(|n| format!("v{n}")).collect();
        Refusal::of("IPPool p", &all, |_| "PV-1").map(|r| r.to_string())
    };
    assert_eq!(of(0), None);
    assert_eq!(of(1).unwrap(), "IPPool p: v1");
    assert_eq!(of(4).unwrap(), "IPPool p: v1; v2; v3; v4");
    assert_eq!(of(9).unwrap(), "IPPool p: v1; v2; v3; v4; and 5 more");
    let long = Refusal::new("IPPool p", &"é".repeat(9_000), "PV-1");
    assert!(long.message().len() <= MESSAGE_LIMIT);
}
