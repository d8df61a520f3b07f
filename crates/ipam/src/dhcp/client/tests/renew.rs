//! Renewal of a lease, and what a server may do with it: refuse it, or shorten it (DHC-2, DHC-3).

use super::*;

/// What a renewal does after so many REQUESTs without an answer.
const fn asked(before: usize) -> &'static str {
    if before == 0 {
        "REQUEST .210"
    } else {
        "renewal unanswered, REQUEST .210"
    }
}

#[test]
fn dhc_2_renewal_is_a_broadcast_without_ciaddr_from_t1_to_the_expiry() {
    use StateName::{Rebinding, Renewing, Selecting};
    let mut bench = Bench::bound();
    let mut sent = Vec::new();
    loop {
        let text = bench.sleep();
        if bench.state() == Selecting {
            assert_eq!(text, "expired .210, lost .210 Expired, DISCOVER .210");
            break;
        }
        assert_eq!(text, asked(sent.len()));
        let xid = bench.sent.unwrap().xid;
        sent.push((bench.mono.as_millis(), bench.state(), xid));
    }
    let times: Vec<_> = sent
        .iter()
        .map(|(time, state, _)| (*time, *state))
        .collect();
    let expected = [
        (60_000, Renewing),
        (82_500, Renewing),
        (93_750, Renewing),
        (101_250, Renewing),
        (105_000, Rebinding),
        (112_500, Rebinding),
    ];
    assert_eq!(times, expected);
    let mut ids: Vec<u32> = sent.iter().map(|(_, _, xid)| *xid).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), expected.len());
}

#[test]
fn dhc_2_a_renewed_lease_begins_with_the_request_that_was_answered() {
    for wakeups in 1..=6 {
        let mut bench = Bench::bound();
        for before in 0..wakeups {
            assert_eq!(bench.sleep(), asked(before));
        }
        let end = bench.mono.as_secs() + 120;
        let late = bench.answer(ReplyKind::Ack, SERVER, ADDRESS, 120);
        bench.mono += secs(1);
        let text = bench.reply(&late);
        assert_eq!(text, format!("record .210 until Some({end}), renewed .210"));
        assert_eq!(bench.reply(&late), "ignored state");
    }
    // In REBINDING another server may take over.
    let mut bench = Bench::bound();
    bench.until(secs(105));
    assert_eq!(bench.state(), StateName::Rebinding);
    assert_eq!(
        bench.ack(SECOND, ADDRESS),
        "record .210 until Some(225), renewed .210"
    );
}

#[test]
fn dhc_3_a_nak_ends_the_lease_at_once() {
    let mut bench = Bench::bound();
    bench.sleep();
    let text = "refused by .1, lost .210 Nak, DISCOVER";
    assert_eq!(bench.nak(SERVER), text);
    assert_eq!(bench.client.lease(), None);
    assert_eq!(Bench::rebooting().nak(SERVER), text);
    // From T2 on of any server, also after a restart.
    let mut bench = Bench::new(Some(record()));
    bench.mono = secs(106);
    bench.input(Input::Start);
    bench.sleep();
    assert_eq!(bench.state(), StateName::Rebooting);
    assert_eq!(bench.nak(SECOND), "refused by .2, lost .210 Nak, DISCOVER");
    let mut bench = Bench::bound();
    bench.until(secs(106));
    assert_eq!(bench.nak(SECOND), "refused by .2, lost .210 Nak, DISCOVER");
    // The server gives it back, and kube-vip still announces it.
    assert_eq!(bench.offer(SECOND, ADDRESS), "REQUEST .210 of .2");
    assert_eq!(bench.ack(SECOND, ADDRESS), "probe .210");
    assert_eq!(
        bench.input(Input::Own(ADDRESS)),
        "record .210 until Some(226), bound .210"
    );
}

#[test]
fn dhc_3_a_server_that_refuses_what_it_offers_makes_no_storm() {
    let mut bench = Bench::new(None);
    bench.input(Input::Start);
    for n in 0..10 {
        let mut told = bench.offer(SERVER, ADDRESS);
        if n > 0 {
            // Another server may offer a better one.
            told = bench.sleep();
        }
        assert_eq!(told, "REQUEST .210 of .1");
        assert_eq!(bench.nak(SERVER), "refused by .1");
        let before = bench.mono;
        assert_eq!(bench.sleep(), "DISCOVER");
        assert!(bench.mono.abs_diff(before).abs_diff(secs(4 << n.min(4))) <= secs(1));
    }
}

#[test]
fn dhc_3_a_lease_that_the_server_shortens_ends_then() {
    let renewed = |lease| {
        let mut bench = Bench::bound();
        bench.sleep();
        bench.reply(&bench.answer(ReplyKind::Ack, SERVER, ADDRESS, lease));
        bench
    };
    // Renewed after 4 s, not faster.
    let mut bench = renewed(7);
    assert_eq!(bench.client.next_wakeup(), Some(secs(64)));
    assert_eq!(bench.sleep(), "REQUEST .210");
    assert_eq!(
        bench.until(secs(67)).last().unwrap(),
        "expired .210, lost .210 Expired, DISCOVER .210"
    );
    let mut bench = renewed(2);
    assert_eq!(
        bench.sleep(),
        "expired .210, lost .210 Expired, DISCOVER .210"
    );
    assert_eq!(bench.mono, secs(62));
    assert_eq!(renewed(0).state(), StateName::Selecting);
    // The answer took longer than the lease.
    let mut bench = Bench::bound();
    bench.sleep();
    let late = bench.answer(ReplyKind::Ack, SERVER, ADDRESS, 1);
    bench.mono += secs(1);
    assert_eq!(
        bench.reply(&late),
        "expired .210, lost .210 Expired, DISCOVER .210"
    );
}
