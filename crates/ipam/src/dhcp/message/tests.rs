//! Messages of clients are read back with `dhcproto`'s decoder, and replies are written with its encoder: it knows nothing
//! of the code here.

use dhcproto::v4::{
    Decodable, Encodable, Encoder, Flags, HType, Message, MessageType, Opcode, UnknownOption,
};
use proptest::prelude::*;

use super::*;
use crate::types::Uid;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 168, 100, 210);
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 168, 100, 1);

fn identity() -> Identity {
    Identity::new(&Uid::new("3f0c9a52-6d0e-4b59-9a51-0c3a1d2e4f60"), None)
}

fn sent(body: Body) -> Message {
    let message = ClientMessage {
        xid: 0xdead_beef,
        secs: 7,
        identity: identity(),
        body,
    };
    let bytes = message.encode();
    assert!((300..=MAX_MESSAGE).contains(&bytes.len()));
    Message::from_bytes(&bytes).unwrap()
}

#[test]
fn dhc_1_what_clients_send_is_that_of_table_5() {
    let (address, server) = (ADDRESS, SERVER);
    let wanted = Some(ADDRESS);
    let table = [
        (
            Body::Discover { wanted: None },
            MessageType::Discover,
            None,
            None,
        ),
        (
            Body::Discover { wanted },
            MessageType::Discover,
            wanted,
            None,
        ),
        (
            Body::Select { address, server },
            MessageType::Request,
            wanted,
            Some(SERVER),
        ),
        // DHC-2: a renewal too. Neither ciaddr nor a server identifier.
        (
            Body::Confirm { address },
            MessageType::Request,
            wanted,
            None,
        ),
        (
            Body::Decline { address, server },
            MessageType::Decline,
            wanted,
            Some(SERVER),
        ),
        // DHC-4: what dnsmasq and Kea need to find the lease.
        (
            Body::Release { address, server },
            MessageType::Release,
            None,
            Some(SERVER),
        ),
    ];
    for (body, kind, requested, server) in table {
        let message = sent(body);
        let asks = !matches!(kind, MessageType::Decline | MessageType::Release);
        assert_eq!(message.opcode(), Opcode::BootRequest);
        assert_eq!(
            (message.htype(), message.hlen(), message.hops()),
            (HType::Eth, 6, 0)
        );
        assert_eq!((message.xid(), message.secs()), (0xdead_beef, 7));
        assert_eq!(message.flags().broadcast(), asks, "{kind:?}");
        let ciaddr = if kind == MessageType::Release {
            ADDRESS
        } else {
            Ipv4Addr::UNSPECIFIED
        };
        assert_eq!(message.ciaddr(), ciaddr, "{kind:?}");
        assert_eq!(message.yiaddr(), Ipv4Addr::UNSPECIFIED);
        assert_eq!(message.giaddr(), Ipv4Addr::UNSPECIFIED);
        assert_eq!(message.chaddr(), identity().hardware.0);
        assert_eq!((message.sname(), message.fname()), (None, None));
        let mut expected = vec![
            DhcpOption::MessageType(kind),
            DhcpOption::ClientIdentifier(identity().client_id.bytes().to_vec()),
        ];
        expected.extend(requested.map(DhcpOption::RequestedIpAddress));
        expected.extend(server.map(DhcpOption::ServerIdentifier));
        if asks {
            expected.push(DhcpOption::MaxMessageSize(1500));
            expected.push(DhcpOption::ParameterRequestList(PARAMETERS.to_vec()));
        }
        expected.sort();
        let options: Vec<DhcpOption> = message.opts().iter().map(|(_, o)| o.clone()).collect();
        assert_eq!(options, expected, "{kind:?}");
    }
}

/// A reply of a server, with some options.
fn reply(options: &[DhcpOption]) -> Message {
    let mut message = Message::new_with_id(
        0xdead_beef,
        Ipv4Addr::UNSPECIFIED,
        ADDRESS,
        SERVER,
        Ipv4Addr::UNSPECIFIED,
        &identity().hardware.0,
    );
    message.set_opcode(Opcode::BootReply);
    message.set_flags(Flags::default().set_broadcast());
    for option in options {
        message.opts_mut().insert(option.clone());
    }
    message
}

fn ack() -> Message {
    reply(&[
        DhcpOption::MessageType(MessageType::Ack),
        DhcpOption::ServerIdentifier(SERVER),
        DhcpOption::AddressLeaseTime(120),
        DhcpOption::Renewal(60),
        DhcpOption::Rebinding(105),
        DhcpOption::SubnetMask([255, 255, 255, 0].into()),
        DhcpOption::Router(vec![SERVER, ADDRESS]),
        DhcpOption::ClientIdentifier(identity().client_id.bytes().to_vec()),
    ])
}

fn bytes(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut Encoder::new(&mut bytes)).unwrap();
    bytes
}

/// A reply without options, and these bytes after the cookie.
fn raw(options: &[u8]) -> Vec<u8> {
    let mut bytes = bytes(&reply(&[]));
    bytes.truncate(options::START);
    bytes.extend(options);
    bytes
}

#[test]
fn dhc_1_an_ack_is_read() {
    let reply = Reply::parse(&bytes(&ack())).unwrap();
    let expected = Reply {
        kind: ReplyKind::Ack,
        xid: 0xdead_beef,
        hardware: identity().hardware,
        address: ADDRESS,
        server: Some(SERVER),
        lease: Some(120),
        t1: Some(60),
        t2: Some(105),
        mask: Some([255, 255, 255, 0].into()),
        router: Some(SERVER),
        client_id: Some(identity().client_id.bytes().to_vec()),
        text: None,
    };
    assert_eq!(reply, expected);
    assert!(reply.is_for(&identity().client_id));
    let other = ClientId::from_uid(&Uid::new("other"));
    assert!(!reply.is_for(&other));
    let without = Reply {
        client_id: None,
        ..reply
    };
    assert!(without.is_for(&other));
}

#[test]
fn dhc_3_the_text_of_a_nak_is_short_and_printable() {
    let nak = reply(&[
        DhcpOption::MessageType(MessageType::Nak),
        DhcpOption::Unknown(UnknownOption::new(
            OptionCode::Message,
            b"wrong\x1b[2J \xffnetwork\n".to_vec(),
        )),
    ]);
    let text = |nak: &Message| Reply::parse(&bytes(nak)).unwrap().text;
    assert_eq!(text(&nak).unwrap(), "wrong[2J \u{fffd}network");
    let long = reply(&[
        DhcpOption::MessageType(MessageType::Nak),
        DhcpOption::Message("é".repeat(400)),
    ]);
    assert_eq!(text(&long).unwrap(), "é".repeat(128));
    assert_eq!(
        text(&reply(&[DhcpOption::MessageType(MessageType::Nak)])),
        None
    );
}

#[test]
fn dhc_1_what_is_no_reply_is_refused_with_the_reason() {
    let good = bytes(&ack());
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let length = |code, len| ParseError::Option(OptionError::Length { code, len });
    let table: Vec<(Vec<u8>, ParseError, &str)> = vec![
        (vec![], ParseError::TooShort(0), "too_short"),
        (vec![2, 1, 6], ParseError::TooShort(3), "too_short"),
        (good[..239].to_vec(), ParseError::TooShort(239), "too_short"),
        (vec![0; 1473], ParseError::TooLong(1473), "too_long"),
        (with(0, 1), ParseError::NotReply(1), "not_reply"),
        (with(0, 0), ParseError::NotReply(0), "not_reply"),
        (
            with(1, 32),
            ParseError::NotEthernet { htype: 32, hlen: 6 },
            "not_ethernet",
        ),
        (
            with(2, 16),
            ParseError::NotEthernet { htype: 1, hlen: 16 },
            "not_ethernet",
        ),
        (
            with(2, 255),
            ParseError::NotEthernet {
                htype: 1,
                hlen: 255,
            },
            "not_ethernet",
        ),
        (
            with(236, 0),
            ParseError::Cookie([0, 0x82, 0x53, 0x63]),
            "cookie",
        ),
        (raw(&[]), ParseError::NoMessageType, "no_message_type"),
        (raw(&[255]), ParseError::NoMessageType, "no_message_type"),
        // Cut off.
        (raw(&[53]), ParseError::NoMessageType, "no_message_type"),
        (raw(&[53, 1]), ParseError::NoMessageType, "no_message_type"),
        (
            raw(&[53, 1, 1, 255]),
            ParseError::MessageType(1),
            "message_type",
        ),
        (
            raw(&[53, 1, 3, 255]),
            ParseError::MessageType(3),
            "message_type",
        ),
        (
            raw(&[53, 1, 99, 255]),
            ParseError::MessageType(99),
            "message_type",
        ),
        (raw(&[53, 0, 255]), length(53, 0), "option_length"),
        (raw(&[53, 2, 5, 5, 255]), length(53, 2), "option_length"),
        // Twice, adjacent or not.
        (raw(&[53, 1, 5, 53, 1, 6]), length(53, 2), "option_length"),
        (
            raw(&[53, 1, 5, 0, 53, 1, 5]),
            length(53, 2),
            "option_length",
        ),
        (
            raw(&[53, 1, 5, 54, 4, 1, 2, 3, 4, 0, 54, 4, 5, 6, 7, 8]),
            length(54, 8),
            "option_length",
        ),
        (
            raw(&[53, 1, 5, 51, 3, 1, 2, 3]),
            length(51, 3),
            "option_length",
        ),
        (
            raw(&[53, 1, 5, 1, 5, 1, 2, 3, 4, 5]),
            length(1, 5),
            "option_length",
        ),
        (
            raw(&[53, 1, 5, 3, 6, 1, 2, 3, 4, 5, 6]),
            length(3, 6),
            "option_length",
        ),
        (raw(&[53, 1, 5, 3, 0]), length(3, 0), "option_length"),
        (
            raw(&[53, 1, 5, 52, 1, 0]),
            OptionError::Overload(0).into(),
            "overload",
        ),
        (
            raw(&[53, 1, 5, 52, 1, 4]),
            OptionError::Overload(4).into(),
            "overload",
        ),
        (
            raw(&[53, 1, 5, 52, 2, 1, 1]),
            length(52, 2),
            "option_length",
        ),
    ];
    for (bytes, error, kind) in table {
        let result = Reply::parse(&bytes);
        assert_eq!(
            result,
            Err(error.clone()),
            "{:?}",
            &bytes[bytes.len().min(240)..]
        );
        assert_eq!(error.kind(), kind);
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn dhc_1_options_continue_in_file_and_sname() {
    let with = |overload: &[u8], file: &[u8], sname: &[u8]| {
        let mut bytes = raw(&[&[54, 2, 10, 0], overload, &[255]].concat());
        bytes[108..108 + file.len()].copy_from_slice(file);
        bytes[44..44 + sname.len()].copy_from_slice(sname);
        Reply::parse(&bytes)
    };
    let ack = [53, 1, 5, 255];
    let half = [54, 2, 0, 9, 255];
    let both = [53, 1, 5, 54, 2, 0, 9, 255];
    let server = |reply: Result<Reply, ParseError>| reply.unwrap().server.unwrap();
    // RFC 3396, 5: options, then file, then sname.
    let expected = Ipv4Addr::new(10, 0, 0, 9);
    assert_eq!(server(with(&[52, 1, 3], &ack, &half)), expected);
    assert_eq!(server(with(&[52, 1, 3], &half, &ack)), expected);
    assert_eq!(server(with(&[52, 1, 1], &both, &[])), expected);
    assert_eq!(server(with(&[52, 1, 2], &[], &both)), expected);
    // Not announced, or announced in the wrong place.
    assert_eq!(with(&[], &both, &both), Err(ParseError::NoMessageType));
    assert_eq!(
        with(&[52, 1, 1], &[], &both),
        Err(ParseError::NoMessageType)
    );
    assert_eq!(
        with(&[52, 1, 1], &[52, 1, 2, 255], &both),
        Err(ParseError::NoMessageType)
    );
    // A field that is full ends without an end marker.
    let mut full = vec![0; 128];
    full[119..].copy_from_slice(&[0, 53, 1, 5, 54, 2, 0, 9, 99]);
    assert_eq!(server(with(&[52, 1, 1], &full, &[])), expected);
}

proptest! {
    #[test]
    fn dhc_1_any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..1600)) {
        let _ = Reply::parse(&bytes);
        let _ = Reply::parse(&raw(&bytes[..bytes.len().min(1232)]));
    }

    /// Options with plausible codes and lengths, so that most are read.
    #[test]
    fn dhc_1_any_options_are_read_or_refused(
        options in proptest::collection::vec(
            (prop_oneof![Just(1), Just(3), 50u8..62, any::<u8>()], proptest::collection::vec(any::<u8>(), 0..9)),
            0..20,
        ),
        cut in 0usize..40,
        overload in 0u8..5,
    ) {
        let mut list = vec![53, 1, 5, 52, 1, overload];
        for (code, value) in &options {
            list.extend([*code, u8::try_from(value.len()).unwrap()]);
            list.extend(value);
        }
        list.truncate(list.len().saturating_sub(cut));
        let mut bytes = raw(&list);
        let field = list.len().min(128);
        bytes[108..108 + field].copy_from_slice(&list[..field]);
        if let Err(error) = Reply::parse(&bytes) {
            prop_assert!(error.to_string().len() < 200);
        }
    }

    #[test]
    fn dhc_1_a_reply_survives_any_truncation_and_any_change(
        cut in 0usize..400, at in 0usize..300, byte in any::<u8>(),
    ) {
        let good = bytes(&ack());
        let _ = Reply::parse(&good[..cut.min(good.len())]);
        let mut changed = good.clone();
        let at = at.min(changed.len() - 1);
        changed[at] = byte;
        let _ = Reply::parse(&changed);
    }

    #[test]
    fn dhc_1_what_a_server_writes_is_what_a_client_reads(
        kind in prop_oneof![Just(MessageType::Offer), Just(MessageType::Ack), Just(MessageType::Nak)],
        xid in any::<u32>(), address in any::<u32>(), server in any::<Option<u32>>(),
        times in any::<[Option<u32>; 3]>(), mask in any::<Option<u32>>(),
        routers in proptest::collection::vec(any::<u32>(), 0..90),
    ) {
        let mut message = reply(&[DhcpOption::MessageType(kind)]);
        message.set_xid(xid).set_yiaddr(address);
        let [lease, t1, t2] = times;
        let options = message.opts_mut();
        let mut add = |option: Option<DhcpOption>| option.map(|option| options.insert(option));
        add(server.map(|bits| DhcpOption::ServerIdentifier(bits.into())));
        add(lease.map(DhcpOption::AddressLeaseTime));
        add(t1.map(DhcpOption::Renewal));
        add(t2.map(DhcpOption::Rebinding));
        add(mask.map(|bits| DhcpOption::SubnetMask(bits.into())));
        let list: Vec<Ipv4Addr> = routers.iter().map(|bits| (*bits).into()).collect();
        add((!list.is_empty()).then(|| DhcpOption::Router(list.clone())));
        let read = Reply::parse(&bytes(&message)).unwrap();
        prop_assert_eq!(read.xid, xid);
        prop_assert_eq!(read.address, Ipv4Addr::from(address));
        prop_assert_eq!(read.server, server.map(Ipv4Addr::from));
        prop_assert_eq!([read.lease, read.t1, read.t2], times);
        prop_assert_eq!(read.mask, mask.map(Ipv4Addr::from));
        prop_assert_eq!(read.router, list.first().copied());
    }
}
