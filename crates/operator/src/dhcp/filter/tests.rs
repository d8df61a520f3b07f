use harvester_lb_ipam::dhcp::{Arp, HardwareAddress, arp_frame};

use super::*;

/// The packet's metadata that the filter reads.
#[derive(Clone, Copy, Default)]
struct Metadata {
    kind: u32,
    /// The VLAN tag, if there is one.
    tag: Option<u32>,
}

/// What the kernel does with the instructions of the filter: whether it leaves a frame.
fn passes(frame: &[u8], metadata: Metadata) -> bool {
    let (mut accumulator, mut index, mut at) = (0_u32, 0_u32, 0_usize);
    // A load beyond the end rejects the frame.
    let load = |from: u32, bytes: usize| -> Option<u32> {
        let from = usize::try_from(from).unwrap();
        let found = frame.get(from..from + bytes)?;
        Some(
            found
                .iter()
                .fold(0, |value, byte| value << 8 | u32::from(*byte)),
        )
    };
    loop {
        let Instruction {
            code,
            then,
            otherwise,
            value: k,
        } = PROGRAM[at];
        at += 1;
        let jump = |holds: bool| usize::from(if holds { then } else { otherwise });
        let loaded = match code {
            LOAD_WORD if k == PACKET_TYPE => Some(metadata.kind),
            LOAD_WORD if k == IS_TAGGED => Some(u32::from(metadata.tag.is_some())),
            LOAD_WORD if k == TAG => Some(metadata.tag.unwrap_or_default()),
            LOAD_HALF => load(k, 2),
            LOAD_BYTE => load(k, 1),
            LOAD_HALF_INDEXED => load(index + k, 2),
            INDEX_OF_HEADER => load(k, 1).map(|byte| (byte & 0xf) * 4),
            IF_EQUAL => {
                at += jump(accumulator == k);
                continue;
            }
            IF_ANY_BIT => {
                at += jump(accumulator & k != 0);
                continue;
            }
            RETURN => return k != 0,
            other => panic!("instruction {other:#x}"),
        };
        match (code, loaded) {
            (_, None) => return false,
            (INDEX_OF_HEADER, Some(value)) => index = value,
            (_, Some(value)) => accumulator = value,
        }
    }
}

/// An Ethernet frame with an IPv4 header of this many words, a protocol, an offset of the fragment and a target port.
fn ipv4(words: u8, protocol: u8, fragment: u16, port: u16) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([0x08, 0x00, 0x40 | words, 0, 0, 0, 0, 0]);
    frame.extend(fragment.to_be_bytes());
    frame.extend([64, protocol, 0, 0]);
    frame.resize(14 + usize::from(words) * 4, 0);
    frame.extend(67_u16.to_be_bytes());
    frame.extend(port.to_be_bytes());
    frame.extend([0; 4]);
    frame
}

#[test]
fn dhc_1_the_filter_leaves_arp_and_dhcp_to_clients() {
    let plain = Metadata::default();
    let own = Metadata { kind: 4, ..plain };
    let tagged = |tag| Metadata {
        tag: Some(tag),
        ..plain
    };
    let hardware = HardwareAddress([2, 0, 0, 0, 0, 1]);
    let arp = arp_frame(hardware, &Arp::probe(hardware, [192, 168, 100, 7].into()));
    let reply = ipv4(5, 17, 0, CLIENT_PORT);
    let cases = [
        ("ARP", &arp, plain, true),
        ("sent by this host", &arp, own, false),
        ("of another VLAN", &arp, tagged(0x6014), false),
        ("with a priority alone", &arp, tagged(0x6000), true),
        ("a reply of another VLAN", &reply, tagged(1), false),
        ("a reply with a tag of zeros", &reply, tagged(0), true),
        ("a reply", &reply, plain, true),
        ("with options", &ipv4(15, 17, 0, CLIENT_PORT), plain, true),
        (
            "a first fragment",
            &ipv4(5, 17, 0x2000, CLIENT_PORT),
            plain,
            true,
        ),
        (
            "a later fragment",
            &ipv4(5, 17, 1, CLIENT_PORT),
            plain,
            false,
        ),
        ("to a server", &ipv4(5, 17, 0, 67), plain, false),
        ("TCP", &ipv4(5, 6, 0, CLIENT_PORT), plain, false),
        ("cut off", &reply[..36].to_vec(), plain, false),
        ("empty", &Vec::new(), plain, false),
    ];
    for (name, frame, metadata, expected) in cases {
        assert_eq!(passes(frame, metadata), expected, "{name}");
    }
    let mut ipv6 = reply.clone();
    ipv6[12..14].copy_from_slice(&[0x86, 0xdd]);
    assert!(!passes(&ipv6, plain));
}
