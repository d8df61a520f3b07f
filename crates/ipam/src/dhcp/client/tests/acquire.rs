//! From a DISCOVER to a lease (DHC-1, DHC-6): which offer is taken, and how long a client asks.

use super::*;

#[test]
fn dhc_1_from_discover_to_a_lease() {
    let mut bench = Bench::new(None);
    assert_eq!(
        (bench.state(), bench.client.next_wakeup()),
        (StateName::Stopped, None)
    );
    assert_eq!(bench.input(Input::Time), "");
    assert_eq!(bench.input(Input::Start), "DISCOVER");
    let xid = bench.sent.unwrap().xid;
    assert_eq!(bench.client.xid(), Some(xid));
    assert_eq!(bench.input(Input::Start), "");
    assert_eq!(bench.offer(SERVER, ADDRESS), "REQUEST .210 of .1");
    assert_eq!(bench.sent.unwrap().xid, xid);
    assert_eq!(bench.offer(SECOND, OTHER), "ignored state");
    assert_eq!(bench.ack(SERVER, ADDRESS), "probe .210");
    assert_eq!(
        (bench.state(), bench.client.probed()),
        (StateName::Checking, Some(ADDRESS))
    );
    assert_eq!(bench.client.lease(), None);
    assert_eq!(bench.ack(SERVER, ADDRESS), "ignored state");
    // The lease began with the REQUEST, not with the end of the probe.
    assert_eq!(bench.sleep(), "record .210 until Some(120), bound .210");
    assert_eq!(bench.mono, secs(1));
    assert_eq!(bench.client.lease().unwrap().address, ADDRESS);
    assert_eq!(bench.client.next_wakeup(), Some(secs(60)));
    assert_eq!(bench.input(Input::Time), "");
}

#[test]
fn dhc_1_a_client_never_gives_up() {
    let mut bench = Bench::new(None);
    assert_eq!(bench.input(Input::Start), "DISCOVER");
    let mut times = vec![bench.mono];
    for n in 1..200 {
        let text = bench.sleep();
        assert_eq!(
            text,
            if n == 3 {
                "unanswered, DISCOVER"
            } else {
                "DISCOVER"
            }
        );
        times.push(bench.mono);
    }
    let pauses: Vec<Duration> = times
        .windows(2)
        .map(|pair| pair[1].abs_diff(pair[0]))
        .collect();
    for (n, pause) in pauses.iter().enumerate() {
        let middle = secs(4 << n.min(4));
        assert!(pause.abs_diff(middle) <= secs(1), "{n}: {pause:?}");
    }
    assert_eq!(u64::from(bench.sent.unwrap().secs), bench.mono.as_secs());
    // A late answer still counts: the transaction is the same, and `secs` too (RFC 2131, 3.1).
    let asked_at = bench.sent.unwrap().secs;
    bench.mono += secs(2);
    assert_eq!(bench.offer(SERVER, ADDRESS), "REQUEST .210 of .1");
    for _ in 0..3 {
        assert_eq!(bench.sent.unwrap().secs, asked_at);
        assert_eq!(bench.sleep(), "REQUEST .210 of .1");
    }
    // A server that offers and does not acknowledge is told too.
    assert_eq!(bench.sleep(), "unanswered, DISCOVER");
    assert_eq!(bench.state(), StateName::Selecting);
}

#[test]
fn dhc_1_which_offer_is_taken() {
    // The first one.
    let mut bench = Bench::new(None);
    bench.input(Input::Start);
    assert_eq!(bench.offer(SECOND, OTHER), "REQUEST .211 of .2");
}

#[test]
fn dhc_6_the_address_asked_for_is_waited_for_a_second() {
    let wanting = || {
        let mut bench = Bench::wanting(None, Some(ADDRESS));
        assert_eq!(bench.input(Input::Start), "DISCOVER .210");
        assert_eq!(bench.offer(SECOND, OTHER), "");
        bench
    };
    let mut bench = wanting();
    assert_eq!(bench.offer(SECOND, OTHER), "ignored other_address");
    assert_eq!(bench.offer(SERVER, ADDRESS), "REQUEST .210 of .1");
    // Else the first one after that.
    let mut bench = wanting();
    assert_eq!(bench.sleep(), "REQUEST .211 of .2");
    assert_eq!(bench.mono, secs(1));
}

#[test]
fn dhc_2_the_same_seed_sends_the_same_messages() {
    let run = |seed| {
        let mut client = Client::new(identity(), None, None, seed, at(secs(0), 0));
        let mut all = Vec::new();
        client.handle(Input::Start, at(secs(0), 0), &mut all);
        for _ in 0..20 {
            let mono = client.next_wakeup().unwrap();
            client.handle(Input::Time, at(mono, 0), &mut all);
        }
        (all, client.next_wakeup())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
