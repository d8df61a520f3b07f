//! A process that starts with a recorded lease (DHC-2).

use super::*;

#[test]
fn dhc_2_after_a_restart_the_recorded_address_is_confirmed() {
    let mut bench = Bench::new(Some(record()));
    assert_eq!(bench.input(Input::Start), "");
    assert_eq!(bench.state(), StateName::Rebooting);
    assert_eq!(bench.client.lease(), Some(&record()));
    // At most 10 s later: a thousand clients do not ask at once. A reply cannot come before.
    let early = Reply {
        xid: bench.client.xid().unwrap(),
        ..Bench::bound().answer(ReplyKind::Ack, SERVER, ADDRESS, 120)
    };
    assert_eq!(bench.reply(&early), "ignored xid");
    assert_eq!(bench.sleep(), "REQUEST .210");
    let asked = bench.mono;
    assert!(asked <= secs(10));
    bench.mono += secs(3);
    // The address is not probed: it is announced already.
    let end = asked.as_secs() + 120;
    let text = bench.ack(SERVER, ADDRESS);
    assert_eq!(text, format!("record .210 until Some({end}), renewed .210"));
}

/// Two servers on one network, with ranges of their own: the other one may be authoritative and does not know the lease.
#[test]
fn dhc_2_after_a_restart_only_the_server_of_the_lease_counts_until_t2() {
    let mut bench = Bench::rebooting();
    for _ in 0..3 {
        assert_eq!(bench.nak(SECOND), "ignored other_server");
        assert_eq!(bench.ack(SECOND, ADDRESS), "ignored other_server");
        assert_eq!(bench.client.lease(), Some(&record()));
        assert_eq!(bench.sleep(), "REQUEST .210");
    }
    bench.ack(SERVER, ADDRESS);
    assert_eq!(bench.state(), StateName::Bound);
    // From T2 on another server may take over, to which RELEASE then goes.
    let mut bench = Bench::new(Some(record()));
    bench.mono = secs(105);
    bench.input(Input::Start);
    bench.sleep();
    assert_eq!(bench.state(), StateName::Rebooting);
    bench.ack(SECOND, ADDRESS);
    assert_eq!(bench.client.lease().unwrap().server, SECOND);
}

#[test]
fn dhc_2_without_an_answer_the_recorded_lease_goes_on() {
    let mut bench = Bench::rebooting();
    for _ in 0..3 {
        assert_eq!(bench.sleep(), "REQUEST .210");
    }
    assert_eq!(bench.state(), StateName::Rebooting);
    // Four REQUESTs take about a minute: T1 has passed.
    let text = bench.sleep();
    assert_eq!(
        (text.as_str(), bench.state()),
        ("REQUEST .210", StateName::Renewing)
    );
    let texts = bench.until(secs(119));
    let again = "renewal unanswered, REQUEST .210";
    assert!(texts.iter().all(|text| text == again), "{texts:?}");
    assert_eq!(bench.state(), StateName::Rebinding);
    assert_eq!(
        bench.sleep(),
        "expired .210, lost .210 Expired, DISCOVER .210"
    );
    assert_eq!(bench.mono, secs(120));
}

#[test]
fn dhc_2_a_lease_without_end_is_confirmed_once_and_never_renewed() {
    let record = Lease {
        times: None,
        ..record()
    };
    let mut bench = Bench::new(Some(record));
    bench.input(Input::Start);
    for _ in 0..4 {
        assert_eq!(bench.sleep(), "REQUEST .210");
    }
    assert_eq!(bench.sleep(), "");
    assert_eq!(
        (bench.state(), bench.client.next_wakeup()),
        (StateName::Bound, None)
    );

    let mut bench = Bench::new(Some(record));
    bench.input(Input::Start);
    bench.sleep();
    let reply = bench.answer(ReplyKind::Ack, SERVER, ADDRESS, u32::MAX);
    assert_eq!(bench.reply(&reply), "record .210 until None, renewed .210");
    assert_eq!(bench.client.next_wakeup(), None);
}

/// It has no T2, from which on another server might take over.
#[test]
fn dhc_2_a_lease_without_end_goes_over_to_another_server_if_its_own_does_not_answer() {
    let asked = |requests: u32| {
        let record = Lease {
            times: None,
            ..record()
        };
        let mut bench = Bench::new(Some(record));
        bench.input(Input::Start);
        for _ in 0..requests {
            assert_eq!(bench.sleep(), "REQUEST .210");
        }
        bench
    };
    for requests in 1..4 {
        let mut bench = asked(requests);
        assert_eq!(bench.nak(SECOND), "ignored other_server");
        assert_eq!(bench.ack(SECOND, ADDRESS), "ignored other_server");
    }
    let text = "refused by .2, lost .210 Nak, DISCOVER";
    assert_eq!(asked(4).nak(SECOND), text);
    let mut bench = asked(4);
    bench.ack(SECOND, ADDRESS);
    assert_eq!(bench.client.lease().unwrap().server, SECOND);
    // Its own one may be late.
    let mut bench = asked(4);
    bench.ack(SERVER, ADDRESS);
    assert_eq!(bench.client.lease().unwrap().server, SERVER);
}

#[test]
fn dhc_2_an_expired_record_is_asked_for_anew() {
    let mut bench = Bench::new(Some(record()));
    bench.mono = secs(120);
    assert_eq!(
        bench.input(Input::Start),
        "expired .210, lost .210 Expired, DISCOVER .210"
    );
    assert_eq!(bench.offer(SERVER, ADDRESS), "REQUEST .210 of .1");
    // Another host may have it by now.
    assert_eq!(bench.ack(SERVER, ADDRESS), "probe .210");
}

#[test]
fn dhc_2_a_lease_that_ends_soon_is_confirmed_before_that() {
    for seed in 0..100 {
        let mut bench = Bench::seeded(Some(record()), None, seed);
        bench.mono = secs(116);
        bench.input(Input::Start);
        assert_eq!(bench.sleep(), "REQUEST .210");
        assert!(bench.mono <= secs(117), "{:?}", bench.mono);
    }
}
