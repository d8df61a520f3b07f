use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::*;
use harvester_lb_api::keys;
use harvester_lb_api::meta::{Decoded, Undecodable};
use harvester_lb_api::{IPAllocation, projection};
use harvester_lb_ipam::{Micros, Owner, OwnerId, Phase, RecordSpec};
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

#[allow(clippy::result_large_err, reason = "what the watch hands over")]
fn undecodable<K>(metadata: Value) -> Decoded<K> {
    Err(Undecodable {
        error: "invalid type".into(),
        metadata: object(metadata),
        ..Undecodable::default()
    })
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Metadata with fields that the stores drop.
fn verbose() -> Value {
    json!({
        "namespace": "shop", "name": "web", "uid": "u-1", "resourceVersion": "9",
        "annotations": {LAST_APPLIED: "{}", "a": "b"},
        "managedFields": [{"manager": "kubectl", "operation": "Update"}],
    })
}

fn lean() -> ObjectMeta {
    object(json!({
        "namespace": "shop", "name": "web", "uid": "u-1", "resourceVersion": "9", "annotations": {"a": "b"},
    }))
}

#[test]
fn copies_are_lean() {
    let valid = Lb::from_watch(Ok(object(json!({"metadata": verbose(), "spec": {}}))));
    assert!(matches!(valid, Lb::Valid(_)));
    assert_eq!(valid.meta(), &lean());
    assert_eq!(valid.uid(), "u-1");

    let invalid = Lb::from_watch(undecodable(verbose()));
    assert!(matches!(&invalid, Lb::Invalid(_, error) if error == "invalid type"));
    assert_eq!(invalid.meta(), &lean());
    assert_eq!(invalid.uid(), "u-1");

    let pool = Pool::from_watch(Ok(object(
        json!({"metadata": verbose(), "spec": {"ranges": []}}),
    )));
    assert_eq!(pool.meta, lean());
    let pool = Pool::from_watch(undecodable(verbose()));
    assert_eq!(pool.meta, lean());
    assert_eq!(pool.spec, Err("invalid type".into()));

    let of_service = service(Ok(object(json!({"metadata": verbose()})))).unwrap();
    assert_eq!(of_service.metadata, lean());
    let of_slice = slice(Ok(object(
        json!({"metadata": verbose(), "addressType": "IPv4", "endpoints": []}),
    )))
    .unwrap();
    assert_eq!(of_slice.metadata, lean());
    let of_service = service(undecodable(verbose())).unwrap();
    assert_eq!(of_service.metadata, lean());
    assert_eq!(of_service.undecodable.as_deref(), Some("invalid type"));
    assert_eq!(slice(undecodable(verbose())), None);
}

#[test]
fn gc_1_of_the_labels_of_a_load_balancer_its_guest_cluster_is_kept() {
    for (cluster, kept) in [(Some("gc"), Some("gc")), (Some(""), None), (None, None)] {
        let mut labels = json!({"app": "x"});
        if let Some(cluster) = cluster {
            labels[keys::LABEL_CLOUDPROVIDER_CLUSTER] = json!(cluster);
        }
        let meta = json!({"name": "web", "labels": labels});
        let lb = Lb::from_watch(Ok(object(json!({"metadata": meta, "spec": {}}))));
        let Lb::Valid(lb) = lb else {
            panic!("not decoded")
        };
        assert_eq!(lb.guest_cluster.as_deref(), kept);
        assert_eq!(lb.metadata.labels, None);
    }
}

fn pool(annotation: Option<&str>, allocated: &Value, history: &Value) -> Pool {
    Pool::valid(object(json!({
        "metadata": {
            "name": "p",
            "annotations": annotation.map(|a| json!({keys::ANNOTATION_PROJECTION: a})),
        },
        "spec": {"ranges": [{"subnet": "172.20.1.0/29"}]},
        "status": {
            "total": 5, "available": 4, "lastAllocated": "172.20.1.2",
            "allocated": allocated, "allocatedHistory": history,
        },
    })))
}

#[test]
fn ipa_1_maps_that_this_operator_wrote_are_not_kept() {
    let allocated = json!({"172.20.1.2": "shop/web"});
    let history = json!({"172.20.1.3": "shop/api"});
    let map = |of: &Value| object::<BTreeMap<String, String>>(of.clone());
    let digest = projection::digest(Some(&map(&allocated)), Some(&map(&history)));

    let ours = pool(Some(&digest), &allocated, &history);
    assert!(ours.is_our_projection());
    assert!(ours.foreign_maps.is_none());
    assert_eq!(ours.digest, digest);
    assert_eq!(ours.counters, Some((5, 4, "172.20.1.2".into())));

    for (what, annotation) in [
        ("absent", None),
        ("empty", Some("")),
        ("another", Some("0000000000000000")),
    ] {
        let foreign = pool(annotation, &allocated, &history);
        assert!(!foreign.is_our_projection(), "{what}");
        let maps = foreign.foreign_maps.unwrap();
        assert_eq!(maps.allocated, map(&allocated), "{what}");
        assert_eq!(maps.history, map(&history), "{what}");
    }

    let swapped = pool(Some(&digest), &history, &allocated);
    assert!(
        swapped.foreign_maps.is_some(),
        "held and remembered are two things"
    );
    let emptied = pool(Some(&digest), &json!(null), &json!({}));
    assert!(!emptied.is_our_projection());
    assert!(emptied.foreign_maps.is_none(), "there is nothing to import");
}

#[test]
fn ipa_1_a_pool_without_status() {
    let fresh = Pool::valid(object(
        json!({"metadata": {"name": "p"}, "spec": {"ranges": []}}),
    ));
    assert_eq!(fresh.counters, None);
    assert_eq!(fresh.conditions, []);
    assert!(fresh.foreign_maps.is_none());
    assert_eq!(fresh.digest, projection::digest(None, None));
}

fn allocation(name: &str, spec: &Value) -> IPAllocation {
    object(json!({
        "metadata": {"name": name, "resourceVersion": "42", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": spec,
    }))
}

const CREATED: Micros = Micros(1_767_225_600_000_000);

fn spec(addr: &str, phase: Phase, bound_at: i64, released_at: Option<i64>) -> RecordSpec {
    RecordSpec {
        addr: addr.parse().unwrap(),
        pool: "p".into(),
        owner: Owner::new("shop", "web", "0a1b2c3d-0000-4000-8000-00000000000f"),
        phase,
        bound_at: Micros(bound_at),
        released_at: released_at.map(Micros),
        group: None,
    }
}

#[test]
fn section_6_5_records_round_trip() {
    let at = 1_767_225_601_123_456;
    let cases = [
        ("172.20.1.4", spec("172.20.1.4", Phase::Bound, at, None)),
        (
            "fd10-0005-0000-0000-0000-0000-0000-01ff",
            spec("fd10:5::1ff", Phase::Released, at, Some(at + 1)),
        ),
        (
            "172.20.1.5",
            spec("172.20.1.5", Phase::Released, at, Some(at)),
        ),
    ];
    for (name, spec) in cases {
        let written = allocation(name, &serde_json::to_value(allocation_spec(&spec)).unwrap());
        let Allocation::Valid { record: read, .. } = Allocation::from_watch(Ok(written)) else {
            unreachable!("{name} can be read")
        };
        assert_eq!(read.spec, spec, "{name}");
        assert_eq!(read.version, harvester_lb_object::Version(42), "{name}");
    }
}

#[test]
fn section_6_5_a_record_as_it_is_stored() {
    let bound = spec("fd10:5::1ff", Phase::Bound, 1_767_225_601_000_001, None);
    assert_eq!(
        serde_json::to_value(allocation_spec(&bound)).unwrap(),
        json!({
            "address": "fd10:5::1ff",
            "pool": "p",
            "owner": {"namespace": "shop", "name": "web", "uid": "0a1b2c3d-0000-4000-8000-00000000000f"},
            "phase": "Bound",
            "boundAt": "2026-01-01T00:00:01.000001Z",
        })
    );
    let released = spec(
        "172.20.1.4",
        Phase::Released,
        0,
        Some(1_767_225_602_000_000),
    );
    let stored = serde_json::to_value(allocation_spec(&released)).unwrap();
    assert_eq!(stored["phase"], "Released");
    assert_eq!(stored["releasedAt"], "2026-01-01T00:00:02.000000Z");
    assert_eq!(
        stored.get("boundAt"),
        None,
        "an unknown time is not written"
    );
}

#[test]
fn section_6_5_a_record_must_bear_the_name_of_its_address() {
    let cases = [
        ("another address", "172.20.1.5", "172.20.1.4"),
        ("an empty name", "", "172.20.1.4"),
        ("IPv6 in short form", "fd10-5--1ff", "fd10:5::1ff"),
        (
            "IPv6 in capitals",
            "FD10-0005-0000-0000-0000-0000-0000-01FF",
            "fd10:5::1ff",
        ),
        ("mapped IPv4", "172.20.1.4", "::ffff:172.20.1.4"),
        ("no address", "172.20.1.4", "172.20.1.4/24"),
        ("nothing", "172.20.1.4", ""),
        ("leading zeros", "172.20.1.4", "172.20.01.4"),
    ];
    for (what, name, address) in cases {
        let written = allocation(
            name,
            &json!({"address": address, "pool": "p", "owner": {"namespace": "a", "name": "b"}, "phase": "Bound"}),
        );
        let read = Allocation::decoded(&written);
        // IPA-8: an object whose name is no address blocks none.
        let expected = match harvester_lb_ipam::addr::parse_record_name(name) {
            Some(_) => matches!(read, Allocation::Unreadable { .. }),
            None => !matches!(
                read,
                Allocation::Valid { .. } | Allocation::Unreadable { .. }
            ),
        };
        assert!(expected, "{what}: {read:?}");
    }
    let misnamed = allocation(
        "172.20.1.5",
        &json!({"address": "172.20.1.4", "pool": "p", "owner": {"namespace": "a", "name": "b"}, "phase": "Bound"}),
    );
    assert_eq!(
        record(&misnamed),
        Err("spec.address 172.20.1.4 requires the object name 172.20.1.4".into())
    );
    // A request for such a load balancer could not even be sent.
    for (namespace, name) in [
        ("n", ""),
        ("n", "a b"),
        ("n", "a/b"),
        ("n", "<a>"),
        ("n", "A"),
        ("<a>", "web"),
        ("a.b", "web"),
        ("", "web"),
    ] {
        let nobodys = allocation(
            "172.20.1.4",
            &json!({"address": "172.20.1.4", "pool": "p", "owner": {"namespace": namespace, "name": name}, "phase": "Bound"}),
        );
        let read = Allocation::decoded(&nobodys);
        assert!(
            matches!(read, Allocation::Unreadable { .. }),
            "{namespace:?} {name:?}: {read:?}"
        );
    }
    let undecodable = Allocation::from_watch(undecodable(json!({"name": "172.20.1.4"})));
    assert!(matches!(undecodable, Allocation::Unreadable { why, .. } if why == "invalid type"));
}

#[test]
fn section_6_5_times_that_cannot_be_read() {
    let second = Micros(CREATED.0 + 1_000_000);
    // Phase, boundAt, releasedAt, and the times of the record.
    let cases = [
        ("Bound", json!(null), json!(null), CREATED, None),
        ("Bound", json!("yesterday"), json!(null), CREATED, None),
        (
            "Bound",
            json!("2026-01-01T00:00:01Z"),
            json!(null),
            second,
            None,
        ),
        (
            "Bound",
            json!("2026-01-01T00:00:01Z"),
            json!("2026-01-01T00:00:02Z"),
            second,
            None,
        ),
        (
            "Released",
            json!(null),
            json!(null),
            Micros::MIN,
            Some(CREATED),
        ),
        (
            "Released",
            json!("2026-01-01T00:00:01Z"),
            json!("soon"),
            second,
            Some(second),
        ),
        (
            "Released",
            json!("x"),
            json!("2026-01-01T00:00:01Z"),
            Micros::MIN,
            Some(second),
        ),
    ];
    for (phase, bound_at, released_at, bound, released) in cases {
        let what = format!("{phase} {bound_at} {released_at}");
        let read = record(&allocation(
            "172.20.1.4",
            &json!({
                "address": "172.20.1.4", "pool": "p", "owner": {"namespace": "a", "name": "b"},
                "phase": phase, "boundAt": bound_at, "releasedAt": released_at,
            }),
        ))
        .unwrap();
        assert_eq!(read.spec.bound_at, bound, "{what}");
        assert_eq!(read.spec.released_at, released, "{what}");
        assert!(read.spec.owner.uid.is_empty(), "{what}");
    }
}

#[test]
fn fin_1_finalizers_that_must_remain() {
    let [vmi_controller, vm_controller] = keys::LEGACY_VM_FINALIZERS;
    let cases: [(Value, Option<&[&str]>); 6] = [
        (json!(null), None),
        (json!([]), None),
        (json!(["x/y"]), None),
        (json!([vmi_controller]), Some(&[])),
        (
            json!(["x/y", vm_controller, "a/b", vmi_controller]),
            Some(&["x/y", "a/b"]),
        ),
        // Load balancers and pools have other legacy finalizers.
        (json!([keys::LEGACY_FINALIZERS[0]]), None),
    ];
    for (finalizers, expected) in cases {
        let expected = expected.map(|f| f.iter().map(|f| (*f).to_owned()).collect::<Vec<_>>());
        let metadata = json!({"name": "a", "uid": "u", "finalizers": finalizers});
        let whole = json!({"metadata": metadata, "spec": {}});
        let kept = [
            Vmi::from_watch(Ok(object(whole.clone()))).finalizers_to_keep,
            Vmi::from_watch(undecodable(metadata.clone())).finalizers_to_keep,
            Vm::from_watch(Ok(object(whole))).finalizers_to_keep,
            Vm::from_watch(undecodable(metadata)).finalizers_to_keep,
        ];
        for kept in kept {
            assert_eq!(kept, expected, "{finalizers}");
        }
    }
}

#[test]
fn be_1_be_2_a_running_machine() {
    let vmi = Vmi::from_watch(Ok(object(json!({
        "metadata": {"name": "vm7", "uid": "u-7", "labels": {"app": "web"}, "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {},
        "status": {"phase": "Failed", "interfaces": [{"name": "default", "ipAddress": "10.10.1.7"}]},
    }))));
    assert_eq!(
        vmi,
        Vmi {
            uid: "u-7".into(),
            labels: BTreeMap::from([("app".into(), "web".into())]),
            deleting: true,
            address: Some(Ipv4Addr::new(10, 10, 1, 7)),
            state: VmiState::Failed,
            finalizers_to_keep: None,
        }
    );
    let vmi = Vmi::from_watch(undecodable(json!({"uid": "u-7", "labels": {"app": "web"}})));
    assert_eq!(
        (vmi.uid.as_str(), vmi.deleting, vmi.address),
        ("u-7", false, None)
    );
    assert_eq!(vmi.labels["app"], "web", "it matches and has no address");
}

#[test]
fn gc_1_a_machine_of_a_guest_cluster() {
    let vm = |creator: &str, cluster: &str, removed: &str| {
        Vm::from_watch(Ok(object(json!({
            "metadata": {
                "name": "a",
                "labels": {keys::LABEL_CREATOR: creator, keys::LABEL_GUEST_CLUSTER: cluster},
                "annotations": {keys::ANNOTATION_REMOVE_ALL_PVCS: removed},
            },
            "spec": {},
        }))))
    };
    let driver = keys::CREATOR_NODE_DRIVER;
    let cases = [
        (vm(driver, "gc1", "true"), Some("gc1"), true, true),
        (vm("somebody", "gc1", "true"), Some("gc1"), false, true),
        (vm(driver, "", "true"), None, true, true),
        (vm(driver, "gc1", "false"), Some("gc1"), true, false),
        (
            Vm::from_watch(Ok(object(json!({"metadata": {"name": "a"}, "spec": {}})))),
            None,
            false,
            false,
        ),
    ];
    for (vm, cluster, from_driver, removed) in cases {
        assert_eq!(
            (
                vm.guest_cluster.as_deref(),
                vm.from_node_driver,
                vm.cluster_removed,
                vm.deleted_at.is_some()
            ),
            (cluster, from_driver, removed, false)
        );
    }
}

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
fn ids_and_keys_are_one_to_one() {
    let web = Key::new("shop", "web");
    assert_eq!(id(&web), OwnerId::new("shop", "web"));
    assert_eq!(key(&id(&web)), web);
}

#[test]
fn ipa_8_records_whose_name_is_no_address_are_for_later_kinds() {
    let decoded = |name: &str, spec: serde_json::Value| {
        let metadata = serde_json::json!({"name": name, "resourceVersion": "7"});
        let text = serde_json::json!({"metadata": metadata, "spec": spec});
        let decoded = serde_json::from_value::<IPAllocation>(text);
        Allocation::from_watch(decoded.map_err(|error| Undecodable {
            error: error.to_string(),
            metadata: object(metadata),
            ..Undecodable::default()
        }))
    };
    let owner = serde_json::json!({"namespace": "ns", "name": "a", "uid": "u"});
    let spec = |address: &str, phase: &str| serde_json::json!({"address": address, "pool": "p", "owner": owner, "phase": phase});
    for name in [
        "dhcp-0a1b2c3d-0000-4000-8000-00000000000f",
        "lease",
        "10.0.0.5-a",
    ] {
        for spec in [
            spec("10.0.0.5", "Bound"),
            spec("", "Leased"),
            serde_json::json!({"lease": {"server": "10.0.0.1"}}),
        ] {
            assert!(
                !matches!(
                    decoded(name, spec),
                    Allocation::Valid { .. } | Allocation::Unreadable { .. }
                ),
                "{name}"
            );
        }
    }
    // Named after an address: blocked with any content.
    for spec in [spec("10.0.0.5", "Leased"), spec("", "Bound")] {
        assert!(matches!(
            decoded("10.0.0.5", spec),
            Allocation::Unreadable { .. }
        ));
    }
    let sound = decoded("10.0.0.5", spec("10.0.0.5", "Bound"));
    assert!(matches!(sound, Allocation::Valid { .. }));
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
