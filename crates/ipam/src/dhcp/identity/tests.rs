use proptest::prelude::*;

use super::*;

const UID: &str = "3f0c9a52-6d0e-4b59-9a51-0c3a1d2e4f60";

#[test]
fn dhc_1_the_derivation_is_stable() {
    let table = [
        (
            UID,
            "d2:e3:9c:d8:d3:11",
            "ff:00:00:00:01:00:04:3f:0c:9a:52:6d:0e:4b:59:9a:51:0c:3a:1d:2e:4f:60",
        ),
        (
            "00000000-0000-0000-0000-000000000000",
            "82:b4:a0:8c:02:88",
            "ff:00:00:00:01:00:04:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00",
        ),
        (
            "ffffffff-ffff-ffff-ffff-ffffffffffff",
            "92:b5:d5:87:af:ab",
            "ff:00:00:00:01:00:04:ff:ff:ff:ff:ff:ff:ff:ff:ff:ff:ff:ff:ff:ff:ff:ff",
        ),
        // Not made by an API server: upper case, other texts.
        (
            "3F0C9A52-6D0E-4B59-9A51-0C3A1D2E4F60",
            "a2:a4:92:9a:7e:ec",
            "ff:00:00:00:01:00:04:ee:ef:ab:a4:92:9a:8e:ec:b1:84:13:be:34:b9:f6:59",
        ),
        (
            "",
            "12:e9:a9:b5:e8:9b",
            "ff:00:00:00:01:00:04:f5:2a:15:e9:a9:b5:88:9b:bd:dc:93:b2:b3:a9:15:af",
        ),
        (
            "web",
            "f2:3f:92:a3:75:f3",
            "ff:00:00:00:01:00:04:c8:50:f0:3f:92:a3:85:f3:a4:4e:4d:69:56:52:35:df",
        ),
    ];
    for (uid, hardware, client_id) in table {
        let identity = Identity::new(&Uid::new(uid), None);
        assert_eq!(identity.hardware.to_string(), hardware, "{uid}");
        assert_eq!(identity.client_id.to_string(), client_id, "{uid}");
    }
}

#[test]
fn dhc_1_a_reservation_replaces_the_hardware_address_only() {
    let uid = Uid::new(UID);
    let reserved = HardwareAddress::parse("52:54:00:12:34:56").unwrap();
    let identity = Identity::new(&uid, Some(reserved));
    assert_eq!(identity.hardware, reserved);
    assert_eq!(identity.client_id, ClientId::from_uid(&uid));
    assert!(identity.is_chosen);
    // As it is recorded.
    let derived = Some(HardwareAddress::from_uid(&uid));
    assert_eq!(Identity::new(&uid, derived), Identity::new(&uid, None));
    assert!(!Identity::new(&uid, None).is_chosen);
}

#[test]
fn dhc_1_texts_of_hardware_addresses() {
    let read = |text: &str| HardwareAddress::parse(text).map(|address| address.to_string());
    for text in [
        "02:00:5e:10:00:0a",
        "02-00-5E-10-00-0A",
        " 02:00:5E:10:00:0a\n",
    ] {
        assert_eq!(read(text).unwrap(), "02:00:5e:10:00:0a", "{text:?}");
    }
    for text in [
        "",
        "02",
        "02:00:5e:10:00",
        "02:00:5e:10:00:0a:",
        "02:00:5e:10:00:0a:0b",
        ":02:00:5e:10:00:0a",
        "2:0:5e:10:0:a",
        "02:00:5e-10-00-0a",
        "0200.5e10.000a",
        "02005e10000a",
        "0g:00:5e:10:00:0a",
        "+2:00:5e:10:00:0a",
        "02:00:5e:10:00:é",
        "default",
    ] {
        let error = HardwareAddress::parse(text).unwrap_err();
        assert!(
            matches!(error, HardwareAddressError::Format(_)),
            "{text:?}: {error}"
        );
    }
    let message = |text: &str| HardwareAddress::parse(text).unwrap_err().to_string();
    assert_eq!(
        message("00:00:00:00:00:00"),
        "00:00:00:00:00:00 is no address: write that of the reservation on the DHCP server"
    );
    for text in [
        "ff:ff:ff:ff:ff:ff",
        "01:00:5e:00:00:01",
        "33-33-00-00-00-01",
    ] {
        assert!(message(text).contains("first byte is even"), "{text}");
    }
    let long = "x".repeat(1 << 16);
    assert!(message(&long).len() < 256);
    assert!(message("x").starts_with("\"x\" is not a hardware address: write six pairs"));
}

proptest! {
    #[test]
    fn dhc_1_derived_addresses_are_unicast_and_locally_administered(text in ".*") {
        let address = HardwareAddress::from_uid(&Uid::new(&text));
        prop_assert_eq!(address.0[0] & 0x0f, 0x02);
        prop_assert!(address.is_unicast());
        prop_assert_eq!(HardwareAddress::parse(&address.to_string()), Ok(address));
    }

    #[test]
    fn dhc_1_any_text_is_read_or_refused(text in "[0-9a-fA-F:.-]{0,20}|.*") {
        if let Ok(address) = HardwareAddress::parse(&text) {
            prop_assert!(address.is_unicast() && address != HardwareAddress::ZERO);
        }
    }
}

#[test]
fn dhc_1_uids_of_a_thousand_load_balancers_give_different_identities() {
    let uid = |n: u64| format!("{n:08x}-0000-4000-8000-{:012x}", n * 7);
    let all: Vec<Identity> = (0..1000)
        .map(|n| Identity::new(&Uid::new(&uid(n)), None))
        .collect();
    let hardware: std::collections::BTreeSet<_> = all.iter().map(|i| i.hardware).collect();
    assert_eq!(hardware.len(), 1000);
    // All bits of the hash are used: each byte but the first takes most of its values.
    for byte in 1..6 {
        let values: std::collections::BTreeSet<_> =
            all.iter().map(|i| i.hardware.0[byte]).collect();
        assert!(values.len() > 200, "byte {byte}");
    }
}
