use harvester_lb_api::meta::Undecodable;
use serde_json::{Value, json};

use super::*;
use crate::cached::tests::{object, undecodable};

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
