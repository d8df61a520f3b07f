//! The wire format: order, uid, failures of the whole review, bodies that are no review.

use super::*;

fn named(version: &str, name: &str) -> Value {
    with(
        lb(version, json!({"spec": {"ipam": "pool"}})),
        json!({"metadata": {"namespace": "web", "name": name}}),
    )
}

#[test]
fn a_review_keeps_uid_and_order() {
    let objects: Vec<Value> = (0..50).map(|n| named(ALPHA, &format!("lb-{n}"))).collect();
    let answer = answer(&body(BETA, &objects), Some(&facts()));
    assert_eq!(answer["apiVersion"], "apiextensions.k8s.io/v1");
    assert_eq!(answer["kind"], "ConversionReview");
    let response = &answer["response"];
    assert_eq!(response["uid"], "r-1");
    assert_eq!(response["result"], json!({"status": "Success"}));
    let converted = response["convertedObjects"].as_array().unwrap();
    let expected: Vec<Value> = objects
        .into_iter()
        .map(|object| with(object, json!({"apiVersion": BETA})))
        .collect();
    assert_eq!(*converted, expected);
}

#[test]
fn a_review_without_objects_succeeds() {
    for objects in [json!([]), Value::Null] {
        let mut review = body(BETA, &[]);
        review["request"]["objects"] = objects;
        let response = super::super::review(review.to_string().as_bytes(), None).unwrap();
        let outcome = Outcome::Converted {
            desired: Version::V1Beta1,
            objects: 0,
        };
        assert_eq!(response.outcome, outcome);
    }
    let mut review = body(BETA, &[]);
    review["request"].as_object_mut().unwrap().remove("objects");
    assert_eq!(
        answer(&review, None)["response"]["convertedObjects"],
        json!([])
    );
}

/// The message of a failed review.
fn failure(review: &Value) -> String {
    let answer = answer(review, Some(&facts()));
    let response = &answer["response"];
    assert_eq!(response["uid"], "r-1");
    assert_eq!(response["result"]["status"], "Failure");
    assert_eq!(response["convertedObjects"], json!([]));
    response["result"]["message"].as_str().unwrap().to_owned()
}

#[test]
fn a_failure_fails_the_review_and_names_the_object() {
    let good = named(ALPHA, "good");
    let of = |desired: &str, bad: Value| failure(&body(desired, &[good.clone(), bad]));
    let versions = "loadbalancer.harvesterhci.io/v1alpha1 and loadbalancer.harvesterhci.io/v1beta1";
    assert_eq!(
        of(BETA, named(BETA, "bad")),
        format!("LoadBalancer web/bad is of {BETA} already: there is nothing to convert")
    );
    let none = named("loadbalancer.harvesterhci.io/v2", "bad");
    assert_eq!(
        of(BETA, none),
        format!(
            "web/bad is a \"LoadBalancer\" of \"loadbalancer.harvesterhci.io/v2\": only LoadBalancers of {versions} are converted"
        )
    );
    let pool = with(named(ALPHA, "bad"), json!({"kind": "IPPool"}));
    assert_eq!(
        of(BETA, pool),
        format!(
            "web/bad is a \"IPPool\" of {ALPHA:?}: only LoadBalancers of {versions} are converted"
        )
    );
    let untyped = json!({"metadata": {"name": "bad"}});
    assert!(of(BETA, untyped).starts_with("/bad is a \"\" of \"\": "));
    for no_object in [json!(7), json!([]), Value::Null, json!("x")] {
        assert!(of(BETA, no_object).starts_with("objects[1]: invalid type: "));
    }
    for desired in ["v1beta1", "", "loadbalancer.harvesterhci.io/v1"] {
        assert_eq!(
            of(desired, named(BETA, "x")),
            format!(
                "LoadBalancers cannot be converted to {desired:?}: the versions are {versions}"
            )
        );
    }
    for no_list in [json!({}), json!("x"), json!(1)] {
        let mut review = body(BETA, &[]);
        review["request"]["objects"] = no_list;
        assert_eq!(failure(&review), "request.objects is not a list");
    }
}

#[test]
fn a_message_quotes_little_of_the_request() {
    let long = "x".repeat(100_000);
    let bad = with(
        named(&long, &long),
        json!({"kind": long, "spec": {"ipam": long}}),
    );
    assert!(failure(&body(BETA, &[bad])).len() < 1_200);
    assert!(failure(&body(&long, &[])).len() < 600);
    let error = super::super::review(json!(long).to_string().as_bytes(), None).unwrap_err();
    assert!(error.to_string().len() < 600, "{error}");
}

#[test]
fn a_body_that_is_no_review_is_an_error() {
    let review = body(BETA, &[]);
    let mut v1beta1 = review.clone();
    v1beta1["apiVersion"] = "apiextensions.k8s.io/v1beta1".into();
    let mut admission = review.clone();
    admission["kind"] = "AdmissionReview".into();
    let mut without_request = review.clone();
    without_request["request"].take();
    let mut without_uid = review.clone();
    without_uid["request"]["uid"].take();
    let cases = [
        (String::new(), "EOF"),
        ("[]".to_owned(), "invalid"),
        ("{}".to_owned(), "it is a \"\" of \"\""),
        (v1beta1.to_string(), "apiextensions.k8s.io/v1beta1"),
        (admission.to_string(), "AdmissionReview"),
        (without_request.to_string(), "it has no request"),
        (without_uid.to_string(), "invalid type: null"),
        (format!("{review}x"), "trailing characters"),
        ("[".repeat(100_000), "invalid type"),
    ];
    for (body, expected) in cases {
        let error = super::super::review(body.as_bytes(), Some(&facts())).unwrap_err();
        assert!(matches!(error, ReviewError::NotAReview(_)));
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert!(super::super::review(&[0xff, 0xfe], None).is_err());
    let mut bytes = review.to_string().into_bytes();
    let at = bytes.iter().position(|b| *b == b'r').unwrap();
    bytes[at] = 0xff;
    assert!(super::super::review(&bytes, None).is_err());
}

/// Without facts only what needs none is converted: nothing is stripped.
#[test]
fn without_facts_objects_of_v1alpha1_are_not_converted() {
    let old = body(BETA, &[named(ALPHA, "a")]);
    let error = super::super::review(old.to_string().as_bytes(), None);
    assert_eq!(error, Err(ReviewError::NotReady));
    let new = body(ALPHA, &[named(BETA, "a")]);
    assert_eq!(
        answer(&new, None)["response"]["result"]["status"],
        "Success"
    );
}

/// Hostile bodies of 3 MiB: whatever they are made of, the work is linear, and the response stays in proportion.
#[test]
fn a_review_of_3_mib_is_answered_in_proportion() {
    const SIZE: usize = 3 << 20;
    let fill = |unit: &str| vec![unit; SIZE / (unit.len() + 1)].join(",");
    let lb = |version: &str, spec: &str| {
        format!(
            r#"{{"apiVersion":"{version}","kind":"LoadBalancer","metadata":{{}},"spec":{{{spec}}}}}"#
        )
    };
    let review = |desired: &str, objects: &str| {
        format!(
            r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{{"uid":"r","desiredAPIVersion":"{desired}","objects":[{objects}]}}}}"#
        )
    };
    let deep = format!("\"x\":{}{}", "[".repeat(SIZE / 2), "]".repeat(SIZE / 2));
    let bodies = [
        review(BETA, &fill("0")),
        review(ALPHA, &fill("{}")),
        review(BETA, &lb(ALPHA, &fill("\"\":0"))),
        review(BETA, &lb(ALPHA, &deep)),
        review(BETA, &lb(ALPHA, &format!("\"listeners\":[{}]", fill("0")))),
        review(ALPHA, &lb(BETA, &format!("\"listeners\":[{}]", fill("{}")))),
        review(
            BETA,
            &lb(
                ALPHA,
                &format!(
                    "\"listeners\":[{}]",
                    fill(&format!("{{{}}}", ["\"a\":0"; 255].join(",")))
                ),
            ),
        ),
        review(
            BETA,
            &lb(
                ALPHA,
                &format!("\"backendServers\":[{}]", fill("\"10.10.1.7\"")),
            ),
        ),
        review(
            BETA,
            &vec![lb(ALPHA, "\"ipam\":\"dhcp\""); SIZE / 150].join(","),
        ),
    ];
    let facts = facts();
    for body in bodies {
        let response = super::super::review(body.as_bytes(), Some(&facts)).unwrap();
        let (before, after) = (body.len(), response.body.len());
        assert!(after < before * 5 + 4096, "{before} bytes became {after}");
    }
}
