use std::net::Ipv4Addr;

use harvester_lb_ipam::Owner;

use super::*;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 168, 100, 7);
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 168, 100, 1);

fn lease() -> Lease {
    Lease {
        address: ADDRESS,
        server: SERVER,
        server_hardware: None,
        mask: None,
        router: None,
        times: None,
    }
}

#[test]
fn dhc_3_a_loss_is_a_warning_and_a_renewal_is_no_event() {
    let refused = Event::Refused {
        server: SERVER,
        text: Some("wrong network".to_owned()),
    };
    let declined = |conflict| Event::Declined {
        address: ADDRESS,
        conflict,
        is_offer: false,
    };
    let cases = [
        (Event::Renewed(lease()), true, None, ""),
        (Event::RenewalUnanswered, true, None, ""),
        (Event::Bound(lease()), false, None, ""),
        (Event::Released(ADDRESS), true, None, ""),
        (Event::Unanswered, false, Some(LEASE_UNANSWERED), "no DHCP"),
        (refused.clone(), true, Some(LEASE_LOST), "\"wrong network\""),
        (refused, false, Some(LEASE_REFUSED), "asking again"),
        (Event::Expired(ADDRESS), true, Some(LEASE_LOST), "expired"),
        // kube-vip answers for what another record has.
        (
            declined(Conflict::Host),
            false,
            Some(LEASE_DECLINED),
            "by load balancer shop/api; declined",
        ),
        (
            declined(Conflict::TwinHost),
            false,
            Some(LEASE_DECLINED),
            "by another host with the same hardware address",
        ),
        (
            declined(Conflict::Pool),
            true,
            Some(LEASE_DECLINED),
            "by a pool",
        ),
        (
            declined(Conflict::Lease),
            true,
            Some(LEASE_DECLINED),
            "by load balancer shop/api; declined",
        ),
        (
            declined(Conflict::Twin),
            false,
            Some(LEASE_DECLINED),
            "by load balancer shop/api, which has the same hardware address",
        ),
    ];
    let holder = Holder::Lease {
        lb: Owner::new("shop", "api", "u-9"),
        is_twin: true,
    };
    let host = of_client(&declined(Conflict::Host), false, None).unwrap();
    assert!(host.text.contains("another host, which answers ARP"));
    assert!(host.text.ends_with("declined, asking for another address"));
    let offered = Event::Declined {
        address: ADDRESS,
        conflict: Conflict::Host,
        is_offer: true,
    };
    let offered = of_client(&offered, false, None).unwrap();
    assert!(offered.text.ends_with("not asked for, asking again"));
    let pool = of_client(&declined(Conflict::Host), false, Some(&Holder::Pool)).unwrap();
    assert!(pool.text.contains("by a pool"));
    for (event, has_lease, reason, text) in cases {
        let draft = of_client(&event, has_lease, Some(&holder));
        assert_eq!(
            draft.as_ref().map(|d| d.reason.as_str()),
            reason,
            "{event:?}"
        );
        if let Some(draft) = draft {
            assert!(draft.warning && draft.text.contains(text), "{draft:?}");
        }
    }
}

#[test]
fn dhc_1_the_events_name_address_server_and_interface() {
    for draft in [bound(&lease()), released(&lease())] {
        assert!(!draft.warning);
        let texts = ["192.168.100.7", "192.168.100.1"];
        assert!(
            texts.iter().all(|text| draft.text.contains(text)),
            "{draft:?}"
        );
    }
    let down = interface_down("mgmt-br", "it is down");
    assert!(down.text.contains("mgmt-br") && down.text.contains("it is down"));
    let full = limit_reached("mgmt-br", 4096);
    assert!(full.text.contains("4096") && full.text.contains("--dhcp-lease-limit"));
    let error = HardwareAddressError::Format("x".to_owned());
    let first = invalid_hardware_address(&error, false);
    assert!(first.text.contains("no address is leased"));
    let later = invalid_hardware_address(&error, true);
    assert!(later.text.contains("stays as it is"));
}
