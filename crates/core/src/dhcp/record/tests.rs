use harvester_lb_ipam::dhcp::Identity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;

const UID: &str = "6f1c6f0a-3f0e-4b57-9d4e-1f2f3a4b5c6d";

fn lease(times: Option<LeaseTimes>) -> Lease {
    Lease {
        address: Ipv4Addr::new(192, 168, 100, 210),
        server: Ipv4Addr::new(192, 168, 100, 1),
        server_hardware: Some(HardwareAddress([2, 0, 0, 0, 0, 9])),
        mask: Some(Ipv4Addr::new(255, 255, 255, 0)),
        router: None,
        times,
    }
}

fn spec(phase: LeasePhase) -> LeaseSpec {
    LeaseSpec {
        owner: Owner::new("shop", "web", UID),
        phase,
        interface: "mgmt-br".to_owned(),
        is_chosen: true,
        hardware: Identity::new(&Uid::new(UID), None).hardware,
        wanted: None,
        bound_at: Some(Micros(1_770_000_000_000_000)),
    }
}

fn object(spec: &LeaseSpec) -> IPAllocation {
    IPAllocation {
        metadata: ObjectMeta {
            name: Some(spec.name()),
            uid: Some("u".to_owned()),
            resource_version: Some("7".to_owned()),
            ..Default::default()
        },
        spec: spec.to_api(),
    }
}

#[test]
fn dhc_1_what_is_written_is_read() {
    let times = LeaseTimes {
        renew_at: Micros(1_770_000_060_000_001),
        rebind_at: Micros(1_770_000_105_000_000),
        expires_at: Micros(1_770_000_120_000_000),
    };
    let wanted = LeaseSpec {
        wanted: Some(Ipv4Addr::new(192, 168, 100, 220)),
        ..spec(LeasePhase::Pending)
    };
    for spec in [
        spec(LeasePhase::Pending),
        wanted,
        spec(LeasePhase::Bound(lease(Some(times)))),
        spec(LeasePhase::Bound(lease(None))),
        // As an earlier version has recorded it.
        spec(LeasePhase::Bound(Lease {
            server_hardware: None,
            ..lease(Some(times))
        })),
        spec(LeasePhase::Releasing(lease(Some(times)))),
        spec(LeasePhase::Released(lease(None).address)),
        LeaseSpec {
            is_chosen: false,
            ..spec(LeasePhase::Pending)
        },
    ] {
        let record = LeaseRecord::read(&object(&spec)).unwrap();
        assert_eq!(record.spec, spec);
        assert_eq!(record.uid, Uid::new("u"));
    }
}

#[test]
fn dhc_1_before_the_first_discover_address_and_pool_are_empty() {
    let api = spec(LeasePhase::Pending).to_api();
    assert_eq!((api.address.as_str(), api.pool.as_str()), ("", ""));
    let lease = api.lease.unwrap();
    assert_eq!(lease.interface, "mgmt-br");
    assert!(
        lease
            .client_id
            .starts_with("ff:00:00:00:01:00:04:6f:1c:6f:0a")
    );
    assert_eq!(lease.expires_at, None);
}

#[test]
fn dhc_1_what_cannot_be_read_is_named() {
    type Break = fn(&mut IPAllocation);
    let cases: [(Break, &str); 8] = [
        (
            |o| o.metadata.name = Some("dhcp-other".to_owned()),
            "requires the object name dhcp-6f1c",
        ),
        (|o| o.spec.lease = None, "spec.lease is missing"),
        (
            |o| o.spec.address = "10.0.0".to_owned(),
            "spec.address \"10.0.0\" is not an IPv4 address",
        ),
        (
            |o| o.spec.address = String::new(),
            "spec.address \"\" is not",
        ),
        (
            |o| o.spec.lease.as_mut().unwrap().server = None,
            "spec.lease.server \"\" is not",
        ),
        (
            |o| o.spec.lease.as_mut().unwrap().expires_at = None,
            "spec.lease.expiresAt \"\" is not a time",
        ),
        (
            |o| o.spec.lease.as_mut().unwrap().hardware_address = "ff:ff:ff:ff:ff:ff".to_owned(),
            "spec.lease.hardwareAddress: ff:ff:ff:ff:ff:ff is a multicast",
        ),
        (
            |o| o.spec.lease.as_mut().unwrap().server_hardware_address = Some("x".to_owned()),
            "spec.lease.serverHardwareAddress: \"x\" is not a hardware address",
        ),
    ];
    for (break_it, text) in cases {
        let times = LeaseTimes {
            renew_at: Micros(1),
            rebind_at: Micros(2),
            expires_at: Micros(3),
        };
        let mut object = object(&spec(LeasePhase::Bound(lease(Some(times)))));
        break_it(&mut object);
        let error = LeaseRecord::read(&object).unwrap_err();
        assert!(error.contains(text), "{error}");
    }
}
