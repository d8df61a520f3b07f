use serde_json::{Value, json};

use super::*;
use crate::cached::tests::object;

#[test]
fn ipa_3_shown_addresses() {
    let shown = |metadata: Value, wanted: Value, ingress: Value| -> Vec<String> {
        let service: Service = object(json!({
            "metadata": metadata,
            "spec": {"loadBalancerIP": wanted},
            "status": {"loadBalancer": {"ingress": ingress}},
        }));
        shown_addresses(&service)
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    let labelled = || json!({"labels": {keys::LABEL_SERVICELB: "true"}});
    let owned = |api_version: &str, kind: &str| json!({"ownerReferences": [{"apiVersion": api_version, "kind": kind, "name": "web", "uid": "u"}]});
    let api = harvester_lb_api::API_VERSION;
    let cases: [(&str, Value, Value, Value, &[&str]); 13] = [
        (
            "wanted",
            labelled(),
            json!("172.20.1.4"),
            json!(null),
            &["172.20.1.4"],
        ),
        (
            "of old, by its owner",
            owned(api, "LoadBalancer"),
            json!("172.20.1.4"),
            json!(null),
            &["172.20.1.4"],
        ),
        (
            "wanted and announced, once",
            labelled(),
            json!("172.20.1.4"),
            json!([{"ip": "172.20.1.4"}]),
            &["172.20.1.4"],
        ),
        (
            "all that is announced, in order",
            labelled(),
            json!("172.20.1.9"),
            json!([{"ip": "172.20.1.4"}, {"hostname": "x"}, {"ip": "fd10::4"}]),
            &["172.20.1.4", "172.20.1.9", "fd10::4"],
        ),
        (
            "DHCP before the lease",
            labelled(),
            json!("0.0.0.0"),
            json!(null),
            &[],
        ),
        (
            "DHCP after it",
            labelled(),
            json!("0.0.0.0"),
            json!([{"ip": "10.9.9.9"}]),
            &["10.9.9.9"],
        ),
        (
            "unspecified IPv6",
            labelled(),
            json!("::"),
            json!([{"ip": "0.0.0.0"}]),
            &[],
        ),
        ("text", labelled(), json!("host"), json!([{"ip": ""}]), &[]),
        ("nothing", labelled(), json!(null), json!(null), &[]),
        (
            "of somebody else",
            json!({}),
            json!("172.20.1.4"),
            json!([{"ip": "172.20.1.4"}]),
            &[],
        ),
        (
            "another value of the label",
            json!({"labels": {keys::LABEL_SERVICELB: "yes"}}),
            json!("172.20.1.4"),
            json!(null),
            &[],
        ),
        (
            "another owner",
            owned("apps/v1", "Deployment"),
            json!("172.20.1.4"),
            json!(null),
            &[],
        ),
        (
            "an owner of another group",
            owned("example.org/v1", "LoadBalancer"),
            json!("172.20.1.4"),
            json!(null),
            &[],
        ),
    ];
    for (what, metadata, wanted, ingress, expected) in cases {
        assert_eq!(shown(metadata, wanted, ingress), expected, "{what}");
    }
    assert_eq!(
        shown_addresses(&object(json!({"metadata": labelled()}))),
        Vec::<std::net::IpAddr>::new()
    );
}

#[test]
fn rel_4_what_is_announced_although_the_service_asks_for_another_address() {
    let (two, three) = (Some("10.0.0.2"), Some("10.0.0.3"));
    let cases = [
        (None, None, None, true, false),
        (three, None, None, true, false),
        (None, two, None, true, false),
        (three, three, None, true, false),
        (three, two, None, true, true),
        // A DHCP server, or a user, chooses the address.
        (Some("0.0.0.0"), two, None, true, false),
        (three, two, two, true, false),
        // Somebody else's.
        (three, two, None, false, false),
    ];
    for (asked, shown, annotation, is_ours, wanted) in cases {
        let ingress: Vec<_> = shown.into_iter().map(|ip| json!({"ip": ip})).collect();
        let annotation = annotation.map(|it| json!({ keys::ANNOTATION_KUBE_VIP_ADDRESSES: it }));
        let kind = if is_ours { "LoadBalancer" } else { "Other" };
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": "a", "annotations": annotation, "ownerReferences": [{
                "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": kind, "name": "a", "uid": "u",
            }]},
            "spec": {"loadBalancerIP": asked},
            "status": {"loadBalancer": {"ingress": ingress}},
        }))
        .unwrap();
        let announced = announced_instead(&service);
        let wanted = shown.filter(|_| wanted).and_then(|ip| ip.parse().ok());
        assert_eq!(
            announced, wanted,
            "{asked:?} {shown:?} {annotation:?} {is_ours}"
        );
    }
}
