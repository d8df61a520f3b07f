//! Ownership of an object of the load balancer's name (SVC-1).

use super::*;

fn owner(api_version: &str, kind: &str, name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    }
}

fn ours(uid: &str) -> OwnerReference {
    owner(API_VERSION, "LoadBalancer", "web", uid)
}

#[test]
fn svc_1_shr_3_whose_an_object_is() {
    use Ownership::{Foreign, Ours};
    let group = harvester_lb_api::GROUP;
    let cases = [
        ("nothing", None, vec![], Foreign),
        ("our label", Some("true"), vec![], Ours),
        (
            "our label with another value",
            Some("false"),
            vec![],
            Foreign,
        ),
        ("this load balancer", None, vec![ours("uid-web")], Ours),
        (
            "one of its name before it",
            None,
            vec![ours("uid-old")],
            Ours,
        ),
        (
            "by the old version of the API",
            None,
            vec![owner(
                &format!("{group}/v1alpha1"),
                "LoadBalancer",
                "web",
                "u",
            )],
            Ours,
        ),
        (
            "another load balancer",
            None,
            vec![owner(API_VERSION, "LoadBalancer", "api", "uid-api")],
            Foreign,
        ),
        (
            "another kind of that name",
            None,
            vec![owner("apps/v1", "Deployment", "web", "uid-web")],
            Foreign,
        ),
        (
            "that kind of another group",
            None,
            vec![owner("example.org/v1beta1", "LoadBalancer", "web", "u")],
            Foreign,
        ),
        (
            "that kind of a group that begins like ours",
            None,
            vec![owner(
                &format!("{group}.example.org/v1"),
                "LoadBalancer",
                "web",
                "u",
            )],
            Foreign,
        ),
        (
            "this one and another load balancer",
            None,
            vec![
                ours("uid-web"),
                owner(API_VERSION, "LoadBalancer", "api", "uid-api"),
            ],
            Ours,
        ),
        (
            "our label, and another load balancer",
            Some("true"),
            vec![owner(API_VERSION, "LoadBalancer", "api", "uid-api")],
            Ours,
        ),
        (
            "not the first of several",
            None,
            vec![owner("apps/v1", "Deployment", "x", "u"), ours("uid-old")],
            Ours,
        ),
    ];
    for (what, label, owners, expected) in cases {
        let meta = ObjectMeta {
            labels: label
                .map(|v| BTreeMap::from([(keys::LABEL_SERVICELB.to_owned(), v.to_owned())])),
            owner_references: Some(owners),
            ..ObjectMeta::default()
        };
        assert_eq!(ownership(&meta, "web"), expected, "{what}");
    }
    assert_eq!(ownership(&ObjectMeta::default(), "web"), Foreign);
}

#[test]
fn svc_1_shr_3_the_only_load_balancer_is_this_one_and_owners_of_other_kinds_stay() {
    let deployment = owner("apps/v1", "Deployment", "web", "uid-deployment");
    let namesake = owner("example.org/v1", "LoadBalancer", "web", "uid-namesake");
    let sibling = owner(API_VERSION, "LoadBalancer", "api", "uid-api");
    let controlling = OwnerReference {
        controller: Some(true),
        block_owner_deletion: Some(true),
        ..ours("uid-web")
    };
    let cases = [
        ("none", vec![], vec![ours("uid-web")]),
        (
            "right already",
            vec![ours("uid-web")],
            vec![ours("uid-web")],
        ),
        ("an old uid", vec![ours("uid-old")], vec![ours("uid-web")]),
        (
            "an old uid beside the right one",
            vec![ours("uid-old"), ours("uid-web")],
            vec![ours("uid-web")],
        ),
        ("and nothing more", vec![controlling], vec![ours("uid-web")]),
        (
            "of others",
            vec![
                deployment.clone(),
                ours("uid-old"),
                sibling,
                namesake.clone(),
            ],
            vec![deployment, namesake, ours("uid-web")],
        ),
    ];
    let lb = example();
    for (what, owners, expected) in cases {
        let metadata = ObjectMeta {
            owner_references: Some(owners),
            ..ObjectMeta::default()
        };
        let present = Service {
            metadata: metadata.clone(),
            ..Service::default()
        };
        let service = service(&lb, Some(&present), &[], "172.20.1.4");
        assert_eq!(
            service.metadata.owner_references.as_ref(),
            Some(&expected),
            "{what}"
        );
        let present = EndpointSlice {
            metadata,
            ..EndpointSlice::default()
        };
        let slice = endpoint_slice(&lb, Some(&present), &[], &[]);
        assert_eq!(slice.metadata.owner_references, Some(expected), "{what}");
    }
}
