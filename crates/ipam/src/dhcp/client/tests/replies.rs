//! Replies that do not fit the state, the message or the server (DHC-1).

use super::*;

#[test]
fn dhc_1_replies_that_do_not_fit_are_ignored() {
    use ReplyKind::{Ack, Nak, Offer};
    type Change = fn(&mut Reply);
    /// How a client gets there, a reply, what is odd about it, and the reason.
    type Row = (fn() -> Bench, ReplyKind, Change, Ignored);
    fn selecting() -> Bench {
        let mut bench = Bench::new(None);
        bench.input(Input::Start);
        bench
    }
    fn requesting() -> Bench {
        let mut bench = selecting();
        bench.offer(SERVER, ADDRESS);
        bench
    }
    fn renewing() -> Bench {
        let mut bench = Bench::bound();
        assert_eq!(bench.sleep(), "REQUEST .210");
        assert_eq!(bench.state(), StateName::Renewing);
        bench
    }
    let same: Change = |_| {};
    let table: Vec<Row> = vec![
        (selecting, Offer, |r| r.xid ^= 1, Ignored::Xid),
        (selecting, Offer, |r| r.hardware = SOURCE, Ignored::Hardware),
        (
            selecting,
            Offer,
            |r| r.client_id = Some(vec![1]),
            Ignored::ClientId,
        ),
        (selecting, Offer, |r| r.server = None, Ignored::NoServer),
        (
            selecting,
            Offer,
            |r| r.address = Ipv4Addr::UNSPECIFIED,
            Ignored::UnusableAddress,
        ),
        (
            selecting,
            Offer,
            |r| r.address = Ipv4Addr::BROADCAST,
            Ignored::UnusableAddress,
        ),
        (selecting, Offer, |r| r.lease = None, Ignored::NoLeaseTime),
        (selecting, Offer, |r| r.lease = Some(9), Ignored::ShortLease),
        (selecting, Ack, same, Ignored::State),
        (selecting, Nak, same, Ignored::State),
        (requesting, Offer, same, Ignored::State),
        (
            requesting,
            Ack,
            |r| r.server = Some(SECOND),
            Ignored::OtherServer,
        ),
        (requesting, Ack, |r| r.server = None, Ignored::NoServer),
        (
            requesting,
            Ack,
            |r| r.address = OTHER,
            Ignored::OtherAddress,
        ),
        (requesting, Ack, |r| r.lease = None, Ignored::NoLeaseTime),
        (
            requesting,
            Nak,
            |r| r.server = Some(SECOND),
            Ignored::OtherServer,
        ),
        (requesting, Nak, |r| r.server = None, Ignored::NoServer),
        (Bench::bound, Ack, same, Ignored::State),
        (Bench::bound, Nak, same, Ignored::State),
        (renewing, Ack, |r| r.address = OTHER, Ignored::OtherAddress),
        (
            renewing,
            Ack,
            |r| r.server = Some(SECOND),
            Ignored::OtherServer,
        ),
        (
            renewing,
            Nak,
            |r| r.server = Some(SECOND),
            Ignored::OtherServer,
        ),
        (Bench::rebooting, Offer, same, Ignored::State),
        (
            Bench::rebooting,
            Ack,
            |r| r.server = Some(SECOND),
            Ignored::OtherServer,
        ),
        (
            Bench::rebooting,
            Nak,
            |r| r.server = Some(SECOND),
            Ignored::OtherServer,
        ),
        (
            Bench::rebooting,
            Ack,
            |r| r.address = OTHER,
            Ignored::OtherAddress,
        ),
    ];
    for (row, (make, kind, change, ignored)) in table.into_iter().enumerate() {
        let mut bench = make();
        let before = (
            bench.state(),
            bench.client.next_wakeup(),
            bench.client.lease().copied(),
        );
        let mut reply = bench.answer(kind, SERVER, ADDRESS, 120);
        change(&mut reply);
        assert_eq!(
            bench.reply(&reply),
            format!("ignored {ignored}"),
            "row {row}"
        );
        let after = (
            bench.state(),
            bench.client.next_wakeup(),
            bench.client.lease().copied(),
        );
        assert_eq!(before, after, "row {row}");
    }
}

/// Hosts answer at the address of the subnet and at its broadcast address, or none does.
#[test]
fn dhc_1_an_address_that_no_host_of_the_subnet_can_have_is_ignored() {
    // .211 is the last address of its /30.
    let narrow = |mut reply: Reply| {
        reply.mask = Some(Ipv4Addr::new(255, 255, 255, 252));
        reply
    };
    let mut bench = Bench::new(None);
    bench.input(Input::Start);
    let offer = narrow(bench.answer(ReplyKind::Offer, SERVER, OTHER, 120));
    assert_eq!(bench.reply(&offer), "ignored unusable_address");
    bench.offer(SERVER, OTHER);
    let ack = narrow(bench.answer(ReplyKind::Ack, SERVER, OTHER, 120));
    assert_eq!(bench.reply(&ack), "ignored unusable_address");
    bench.ack(SERVER, OTHER);
    bench.sleep();
    // It is served by now.
    bench.sleep();
    let ack = narrow(bench.answer(ReplyKind::Ack, SERVER, OTHER, 120));
    assert!(bench.reply(&ack).ends_with("renewed .211"));
}
