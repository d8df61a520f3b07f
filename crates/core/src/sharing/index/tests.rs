use harvester_lb_api::LoadBalancer;
use harvester_lb_ipam::{Micros, Owner, Phase, RecordSpec};
use harvester_lb_object::Version;
use serde_json::{Value, json};

use super::*;

/// Annotations that name this primary.
fn annotations(primary: Option<&str>) -> Value {
    match primary {
        Some(name) => json!({ keys::ANNOTATION_PRIMARY: name }),
        None => json!({}),
    }
}

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn key(name: &str) -> Key {
    Key::new("ns", name)
}

fn keys_of(names: &[&str]) -> BTreeSet<Key> {
    names.iter().map(|name| key(name)).collect()
}

/// One that names this primary, and has an address in its status.
fn lb(name: &str, primary: Option<&str>, ip: &str) -> Lb {
    let object: LoadBalancer = object(json!({
        "metadata": {
            "namespace": "ns", "name": name, "uid": format!("{name}-1"),
            "annotations": annotations(primary),
        },
        "spec": {},
        "status": {"allocatedAddress": {"ip": ip}},
    }));
    Lb::valid(object)
}

fn service(name: &str, owners: &[&str]) -> Service {
    let owner = |owner: &&str| {
        json!({
            "apiVersion": harvester_lb_api::API_VERSION, "kind": "LoadBalancer",
            "name": owner, "uid": format!("{owner}-1"),
        })
    };
    let owners: Vec<Value> = owners.iter().map(owner).collect();
    object(json!({"metadata": {"namespace": "ns", "name": name, "ownerReferences": owners}}))
}

fn record(addr: &str, namespace: &str, name: &str) -> Record {
    Record {
        spec: RecordSpec {
            addr: addr.parse().unwrap(),
            pool: "p".into(),
            owner: Owner::new(namespace, name, "gone"),
            phase: Phase::Bound,
            bound_at: Micros(1),
            released_at: None,
            group: None,
        },
        version: Version(1),
    }
}

#[test]
fn shr_1_a_name_that_cannot_be_one_names_no_group() {
    for (name, expected) in [
        ("web", Some("web")),
        ("", None),
        ("other/web", None),
        ("a", None),
    ] {
        let lb = lb("a", Some(name), "10.0.0.9");
        let group = named_group(&key("a"), lb.meta());
        assert_eq!(group, expected.map(key), "{name:?}");
    }
    let alone: LoadBalancer =
        object(json!({"metadata": {"namespace": "ns", "name": "a"}, "spec": {}}));
    assert_eq!(named_group(&key("a"), &alone.metadata), None);
}

#[test]
fn shr_3_who_names_a_group_and_who_owns_its_service() {
    let mut index = Index::default();
    assert!(!index.is_group(&key("web")));
    let affected = index.set_lb(&key("b"), Some(&lb("b", Some("web"), "")));
    assert_eq!(affected.lbs, keys_of(&["web"]));
    index.set_lb(&key("c"), Some(&lb("c", Some("web"), "")));
    assert!(index.is_group(&key("web")) && !index.is_group(&key("b")));
    assert_eq!(index.group_of(&key("b")), Some(&key("web")));
    assert_eq!(index.naming(&key("web")).count(), 2);
    // It names another one now.
    let affected = index.set_lb(&key("b"), Some(&lb("b", Some("db"), "")));
    assert_eq!(affected.lbs, keys_of(&["web", "db"]));
    // Nothing new.
    let affected = index.set_lb(&key("b"), Some(&lb("b", Some("db"), "")));
    assert_eq!(affected, Affected::default());
    index.set_lb(&key("c"), None);
    assert!(!index.is_group(&key("web")));
    // The owners that it gains and loses.
    let own = service("web", &["web"]);
    assert_eq!(index.set_service(&key("web"), Some(&own)), keys_of(&[]));
    let shared = service("web", &["web", "b"]);
    assert_eq!(
        index.set_service(&key("web"), Some(&shared)),
        keys_of(&["web", "b"])
    );
    assert!(index.is_group(&key("web")));
    let other = service("web", &["web", "c"]);
    assert_eq!(
        index.set_service(&key("web"), Some(&other)),
        keys_of(&["b", "c"])
    );
    assert_eq!(
        index.all().cloned().collect::<BTreeSet<_>>(),
        keys_of(&["db", "web"])
    );
    index.set_service(&key("web"), None);
    index.set_lb(&key("b"), None);
    assert_eq!(index.all().count(), 0);
    assert!(index.services.to.is_empty() && index.services.from.is_empty());
    assert!(index.groups.to.is_empty() && index.groups.from.is_empty());
}

#[test]
fn shr_2_the_endpoint_slices_of_a_service() {
    let mut index = Index::default();
    let slice = |of: Option<&str>| -> EndpointSlice {
        let labels = of.map(|of| json!({ keys::LABEL_SERVICE_NAME: of }));
        object(json!({"metadata": {"labels": labels}, "addressType": "IPv4", "endpoints": []}))
    };
    // Nobody's, with our label.
    assert!(
        index
            .set_slice(&key("stray"), Some(&slice(Some("web"))))
            .is_empty()
    );
    assert!(!index.is_group(&key("web")));
    let mut set = |name: &str, mut of: Option<EndpointSlice>| {
        if let Some(of) = &mut of {
            of.metadata.owner_references = object(json!([{
                "apiVersion": harvester_lb_api::API_VERSION, "kind": "LoadBalancer", "name": name,
                "uid": "u",
            }]));
        }
        let affected = index.set_slice(&key(name), of.as_ref());
        let all: BTreeSet<Key> = index.slices_of(&key("web")).cloned().collect();
        (affected, all)
    };
    assert_eq!(
        set("web", Some(slice(Some("web")))),
        (keys_of(&[]), keys_of(&[]))
    );
    assert_eq!(
        set("b", Some(slice(Some("web")))),
        (keys_of(&["web"]), keys_of(&["b"]))
    );
    assert_eq!(
        set("b", Some(slice(Some("web")))),
        (keys_of(&[]), keys_of(&["b"]))
    );
    assert_eq!(set("c", Some(slice(None))), (keys_of(&[]), keys_of(&["b"])));
    assert_eq!(
        set("c", Some(slice(Some("web")))),
        (keys_of(&["web"]), keys_of(&["b", "c"]))
    );
    assert_eq!(
        set("c", Some(slice(Some("other")))),
        (keys_of(&["web", "other"]), keys_of(&["b"]))
    );
    assert_eq!(set("b", None), (keys_of(&["web"]), keys_of(&[])));
    assert_eq!(index.service_of(&key("c")), Some(&key("other")));
    assert_eq!(index.service_of(&key("b")), None);
}

#[test]
fn shr_7_who_shares_the_address_of_a_load_balancer_now() {
    let addrs = ["10.0.0.9".parse().unwrap()];
    let mut index = Index::default();
    let of = |index: &Index| index.secondary_of(&key("web"), &addrs).cloned();
    // It only asks for it.
    index.set_lb(&key("b"), Some(&lb("b", Some("web"), "10.0.0.8")));
    assert_eq!(of(&index), None);
    // VM type: by the Service.
    index.set_service(&key("web"), Some(&service("web", &["web", "b"])));
    assert_eq!(of(&index), Some(key("b")));
    index.set_service(&key("web"), Some(&service("web", &["web", "x"])));
    assert_eq!(of(&index), None, "another one left it");
    // Cluster type: by the status.
    index.set_lb(&key("b"), Some(&lb("b", Some("web"), "10.0.0.9")));
    assert_eq!(of(&index), Some(key("b")));
}

#[test]
fn shr_5_a_record_that_others_share_is_not_released() {
    let mut index = Index::default();
    assert!(!index.shares_record(&record("10.0.0.9", "ns", "web")));
    index.set_lb(&key("b"), Some(&lb("b", Some("web"), "10.0.0.9")));
    assert!(index.shares_record(&record("10.0.0.9", "ns", "web")));
    // What it has itself is no reason to keep it, and addresses are not shared between namespaces.
    assert!(!index.shares_record(&record("10.0.0.9", "ns", "b")));
    assert!(!index.shares_record(&record("10.0.0.9", "other", "web")));
    assert!(!index.shares_record(&record("10.0.0.8", "ns", "web")));
    // It has left, and its status is still to say so.
    let mut left = serde_json::to_value(lb("b", None, "10.0.0.9").as_valid().unwrap()).unwrap();
    left["status"]["conditions"] =
        json!([{"type": "AddressShared", "status": "True", "reason": "Secondary"}]);
    index.set_lb(&key("b"), Some(&Lb::valid(object(left))));
    assert!(index.shares_record(&record("10.0.0.9", "ns", "web")));
    // The owner of the address may release it now.
    let affected = index.set_lb(&key("b"), Some(&lb("b", None, "10.0.0.9")));
    assert_eq!(
        affected.addrs,
        BTreeSet::from(["10.0.0.9".parse().unwrap()])
    );
    assert!(!index.shares_record(&record("10.0.0.9", "ns", "web")));
    assert!(index.named.by_addr.is_empty() && index.named.by_key.is_empty());
}
