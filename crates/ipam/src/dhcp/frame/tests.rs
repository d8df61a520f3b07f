use proptest::prelude::*;

use super::*;
use crate::dhcp::identity::Identity;
use crate::dhcp::message::ReplyKind;
use crate::types::Uid;

const INTERFACE: HardwareAddress = HardwareAddress([2, 0, 0, 0, 0, 1]);
const SERVER: HardwareAddress = HardwareAddress([2, 0, 0, 0, 0, 9]);
const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 168, 100, 210);

fn message(body: Body) -> ClientMessage {
    ClientMessage {
        xid: 1,
        secs: 0,
        identity: Identity::new(&Uid::new("web"), None),
        body,
    }
}

/// The frame of a server's reply: that of a client, turned round.
pub(in crate::dhcp) fn server_frame(payload: &[u8]) -> Vec<u8> {
    let mut frame = HardwareAddress::BROADCAST.0.to_vec();
    frame.extend(SERVER.0);
    frame.extend(ETHERTYPE_IPV4);
    let total = u16::try_from(payload.len() + 28).unwrap();
    let mut ip = vec![0x45, 0];
    ip.extend(total.to_be_bytes());
    ip.extend([
        0, 0, 0x40, 0, 64, 17, 0, 0, 192, 168, 100, 1, 255, 255, 255, 255,
    ]);
    let checksum = !fold(sum(&ip));
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut udp = vec![0, 67, 0, 68];
    udp.extend((total - 20).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(payload);
    let checksum = !fold(pseudo_header(&ip[12..20], total - 20) + sum(&udp));
    udp[6..8].copy_from_slice(&checksum.to_be_bytes());
    frame.extend(ip);
    frame.extend(udp);
    frame
}

/// An ACK without options that matter.
fn payload() -> Vec<u8> {
    let mut bytes = message(Body::Discover { wanted: None }).encode();
    bytes[0] = 2;
    bytes[242] = 5;
    bytes
}

/// The checksum of RFC 1071, written differently: with carries added at once.
fn naive_checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0u16;
    for word in bytes.chunks(2) {
        let word = u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)]);
        let (next, carry) = sum.overflowing_add(word);
        sum = next + u16::from(carry);
    }
    !sum
}

#[test]
fn dhc_1_messages_are_broadcast_from_the_interface() {
    let (address, server) = (ADDRESS, Ipv4Addr::new(192, 168, 100, 1));
    for body in [
        Body::Discover { wanted: None },
        Body::Select { address, server },
        Body::Confirm { address },
        Body::Decline { address, server },
    ] {
        // The server's address is of no use to them.
        let frame = client_frame(INTERFACE, &message(body), Some(SERVER));
        assert_eq!(frame[..6], [0xff; 6]);
        assert_eq!(frame[6..12], INTERFACE.0);
        assert_eq!(frame[12..14], [8, 0]);
        assert_eq!(frame[26..34], [0, 0, 0, 0, 255, 255, 255, 255]);
        assert_eq!(frame[34..38], [0, 68, 0, 67]);
        assert_eq!(frame[42..], message(body).encode());
        assert_eq!(frame.len(), 14 + 20 + 8 + frame[42..].len());
    }
}

#[test]
fn dhc_4_a_release_comes_from_the_released_address_and_goes_to_the_server() {
    let (address, server) = (ADDRESS, Ipv4Addr::new(10, 1, 2, 3));
    let message = message(Body::Release { address, server });
    for (known, ethernet) in [(Some(SERVER), SERVER), (None, HardwareAddress::BROADCAST)] {
        let frame = client_frame(INTERFACE, &message, known);
        assert_eq!(frame[..6], ethernet.0);
        assert_eq!(frame[26..34], [192, 168, 100, 210, 10, 1, 2, 3]);
        assert_eq!(frame[42..], message.encode());
    }
}

#[test]
fn dhc_1_checksums_are_those_of_rfc_1071() {
    for xid in 0..2000 {
        let message = ClientMessage {
            xid,
            ..message(Body::Discover { wanted: None })
        };
        let frame = client_frame(INTERFACE, &message, None);
        assert_eq!(naive_checksum(&frame[14..34]), 0);
        let udp = &frame[34..];
        let pseudo = [&frame[26..34], &[0, 17], &udp[4..6]].concat();
        assert_ne!(udp[6..8], [0, 0]);
        assert_eq!(naive_checksum(&[&pseudo, udp].concat()), 0);
    }
    // RFC 1071, 3.
    assert_eq!(
        fold(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7])),
        0xddf2
    );
    assert_eq!(fold(sum(&[0xff])), 0xff00);
}

#[test]
fn dhc_1_a_reply_is_read_with_its_source() {
    for padding in [0, 1, 18] {
        let frame = [server_frame(&payload()), vec![0; padding]].concat();
        for checksum in [Checksum::Verify, Checksum::NotReady] {
            let Ok(Received::Reply { source, reply }) = parse(&frame, checksum) else {
                panic!("{:?}", parse(&frame, checksum));
            };
            assert_eq!((source, reply.kind, reply.xid), (SERVER, ReplyKind::Ack, 1));
        }
    }
}

#[test]
fn dhc_1_what_is_no_reply_is_dropped_or_refused() {
    let good = server_frame(&payload());
    let change = |changes: &[(usize, u8)]| {
        let mut frame = good.clone();
        for (at, byte) in changes {
            frame[*at] = *byte;
        }
        frame
    };
    let other = Ok(Received::Other);
    let table: Vec<(Vec<u8>, Result<Received, FrameError>)> = vec![
        (vec![], other.clone()),
        (good[..13].to_vec(), other.clone()),
        // IPv6, VLAN, the length field of 802.3.
        (change(&[(12, 0x86), (13, 0xdd)]), other.clone()),
        (change(&[(12, 0x81)]), other.clone()),
        (change(&[(12, 0x01)]), other.clone()),
        // IPv6 in an IPv4 frame, TCP, another port, a later fragment.
        (change(&[(14, 0x65)]), other.clone()),
        (change(&[(23, 6)]), other.clone()),
        (change(&[(35, 53)]), other.clone()),
        (change(&[(37, 67)]), other.clone()),
        (change(&[(21, 1)]), other.clone()),
        (change(&[(20, 0x20)]), Err(FrameError::Fragment)),
        (good[..33].to_vec(), Err(FrameError::Ipv4Header)),
        (good[..good.len() - 1].to_vec(), Err(FrameError::Ipv4Header)),
        (change(&[(14, 0x44)]), Err(FrameError::Ipv4Header)),
        (change(&[(16, 0), (17, 19)]), Err(FrameError::Ipv4Header)),
        (change(&[(16, 0xff)]), Err(FrameError::Ipv4Header)),
        (change(&[(16, 0), (17, 20)]), Err(FrameError::UdpHeader)),
        (change(&[(22, 65)]), Err(FrameError::Ipv4Checksum)),
        (change(&[(38, 0), (39, 7)]), Err(FrameError::UdpHeader)),
        (change(&[(38, 0xff)]), Err(FrameError::UdpHeader)),
        (change(&[(46, 9)]), Err(FrameError::UdpChecksum)),
        (change(&[(12, 8), (13, 6)]), Err(FrameError::Arp)),
    ];
    for (index, (frame, expected)) in table.iter().enumerate() {
        let result = parse(frame, Checksum::Verify);
        assert_eq!(result, *expected, "row {index}");
        if let Err(error) = result {
            assert!(!error.kind().is_empty() && !error.to_string().is_empty());
        }
    }
    let short = parse(&server_frame(&[0; 10]), Checksum::Verify).unwrap_err();
    assert_eq!(short, ParseError::TooShort(10).into());
    assert_eq!(short.kind(), "too_short");
}

#[test]
fn dhc_1_a_missing_udp_checksum_is_no_error() {
    let mut frame = server_frame(&payload());
    // Only the pseudo header is summed up, as the kernel leaves it to the network card.
    frame[40] ^= 0x55;
    assert_eq!(
        parse(&frame, Checksum::Verify),
        Err(FrameError::UdpChecksum)
    );
    assert!(matches!(
        parse(&frame, Checksum::NotReady),
        Ok(Received::Reply { .. })
    ));
    // None at all.
    frame[40..42].copy_from_slice(&[0, 0]);
    assert!(matches!(
        parse(&frame, Checksum::Verify),
        Ok(Received::Reply { .. })
    ));
}

#[test]
fn dhc_5_an_arp_frame_is_read_back() {
    let probe = Arp::probe(INTERFACE, ADDRESS);
    let frame = arp_frame(INTERFACE, &probe);
    assert_eq!(frame[..6], [0xff; 6]);
    assert_eq!(frame.len(), 42);
    assert_eq!(parse(&frame, Checksum::Verify), Ok(Received::Arp(probe)));
    let answer = Arp {
        kind: ArpKind::Reply,
        sender: SERVER,
        sender_address: ADDRESS,
        target: INTERFACE,
        target_address: Ipv4Addr::UNSPECIFIED,
    };
    let frame = arp_frame(SERVER, &answer);
    assert_eq!(frame[..12], [INTERFACE.0, SERVER.0].concat());
    assert_eq!(parse(&frame, Checksum::Verify), Ok(Received::Arp(answer)));
}

proptest! {
    #[test]
    fn dhc_1_any_frame_is_read_or_refused(
        bytes in proptest::collection::vec(any::<u8>(), 0..1600),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let _ = parse(&bytes, Checksum::Verify);
        let mut frame = server_frame(&payload());
        for (at, byte) in changes {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        let _ = parse(&frame, Checksum::NotReady);
        frame.truncate(cut.index(frame.len() + 1));
        let _ = parse(&frame, Checksum::NotReady);
        let _ = parse(&frame, Checksum::Verify);
    }
}
