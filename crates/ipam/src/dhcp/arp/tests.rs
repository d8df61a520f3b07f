use proptest::prelude::*;

use super::*;

const INTERFACE: HardwareAddress = HardwareAddress([2, 0, 0, 0, 0, 1]);
const OTHER: HardwareAddress = HardwareAddress([2, 0, 0, 0, 0, 2]);
const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 168, 100, 210);

#[test]
fn dhc_5_a_probe_has_the_form_of_rfc_5227() {
    let probe = Arp::probe(INTERFACE, ADDRESS);
    let mut bytes = vec![0, 1, 8, 0, 6, 4, 0, 1];
    bytes.extend([2, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    bytes.extend([0, 0, 0, 0, 0, 0, 192, 168, 100, 210]);
    assert_eq!(probe.encode(), bytes);
    assert_eq!(Arp::parse(&bytes), Some(probe));
    assert_eq!(Arp::parse(&[bytes, vec![0; 18]].concat()), Some(probe));
}

#[test]
fn dhc_5_which_packets_show_that_an_address_is_in_use() {
    let none = Ipv4Addr::UNSPECIFIED;
    let peer = Ipv4Addr::new(192, 168, 100, 1);
    let (request, reply) = (ArpKind::Request, ArpKind::Reply);
    let table = [
        // The answer to the probe.
        (reply, OTHER, ADDRESS, none, Some(ADDRESS)),
        // The holder asks for another host, or announces itself.
        (request, OTHER, ADDRESS, peer, Some(ADDRESS)),
        (request, OTHER, ADDRESS, ADDRESS, Some(ADDRESS)),
        // Another host probes for the same address.
        (request, OTHER, none, ADDRESS, Some(ADDRESS)),
        // Somebody asks for the address.
        (request, OTHER, peer, ADDRESS, Some(peer)),
        (reply, OTHER, none, ADDRESS, None),
        // Our own, seen again.
        (request, INTERFACE, none, ADDRESS, None),
        (reply, INTERFACE, ADDRESS, peer, None),
    ];
    for (kind, sender, sender_address, target_address, claimed) in table {
        let arp = Arp {
            kind,
            sender,
            sender_address,
            target: HardwareAddress::ZERO,
            target_address,
        };
        assert_eq!(arp.claims(INTERFACE), claimed, "{arp:?}");
    }
}

proptest! {
    #[test]
    fn dhc_5_any_bytes_are_read_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..60), good in any::<bool>()) {
        if good && bytes.len() >= 8 {
            bytes[..6].copy_from_slice(&TYPES);
            bytes[6..8].copy_from_slice(&[0, 2]);
        }
        if let Some(arp) = Arp::parse(&bytes) {
            prop_assert_eq!(&arp.encode()[..], &bytes[..28]);
        }
    }
}
