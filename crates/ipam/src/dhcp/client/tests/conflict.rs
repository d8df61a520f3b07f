//! Addresses that somebody else has: which are probed, and which declined (DHC-5).

use super::*;

#[test]
fn dhc_5_an_address_in_use_is_declined_and_asked_for_10_s_later() {
    let mut bench = Bench::new(None);
    bench.input(Input::Start);
    bench.offer(SERVER, ADDRESS);
    assert_eq!(bench.input(Input::InUse(ADDRESS, HOST)), "");
    bench.ack(SERVER, ADDRESS);
    assert_eq!(bench.input(Input::InUse(OTHER, HOST)), "");
    let text = "DECLINE .210 of .1, declined .210 Host";
    assert_eq!(bench.input(Input::InUse(ADDRESS, HOST)), text);
    assert_eq!(
        (bench.state(), bench.client.probed()),
        (StateName::Init, None)
    );
    assert_eq!(bench.client.next_wakeup(), Some(secs(10)));
    assert_eq!(bench.sleep(), "DISCOVER");
    // A bound address answers ARP: kube-vip does.
    let mut bench = Bench::bound();
    assert_eq!(bench.input(Input::InUse(ADDRESS, HOST)), "");
}

/// The interface is down, or another process leads: nobody could answer.
#[test]
fn dhc_5_an_address_is_not_bound_before_a_probe_of_it_was_sent() {
    let mut bench = Bench::new(None);
    bench.input(Input::Start);
    bench.offer(SERVER, ADDRESS);
    assert_eq!(bench.ack(SERVER, ADDRESS), "probe .210");
    for second in 1..9 {
        assert_eq!(bench.input(Input::Unsent), "");
        assert_eq!(bench.sleep(), "probe .210");
        assert_eq!(bench.mono, secs(second));
        assert_eq!(bench.state(), StateName::Checking);
    }
    // It was sent, but the interface went down before an answer could come.
    bench.mono += Duration::from_millis(500);
    assert_eq!(bench.input(Input::Unsent), "");
    assert_eq!(bench.sleep(), "probe .210");
    // This one was sent.
    assert_eq!(bench.sleep(), "record .210 until Some(120), bound .210");
    // After that nothing is probed any more.
    assert_eq!(bench.input(Input::Unsent), "");
    assert_eq!(bench.client.probed(), None);
}

/// The process was delayed before it has sent the probe.
#[test]
fn dhc_5_an_answer_has_a_second_from_when_the_probe_was_sent() {
    let mut bench = Bench::new(None);
    bench.input(Input::Start);
    bench.offer(SERVER, ADDRESS);
    bench.ack(SERVER, ADDRESS);
    bench.input(Input::Unsent);
    bench.mono = Duration::from_millis(900);
    assert_eq!(bench.input(Input::Sent), "");
    let end = Duration::from_millis(1_900);
    assert_eq!(bench.client.next_wakeup(), Some(end));
    assert_eq!(bench.sleep(), "record .210 until Some(120), bound .210");
    // After that nothing is waited for.
    let wakeup = bench.client.next_wakeup();
    assert_eq!(bench.input(Input::Sent), "");
    assert_eq!(bench.client.next_wakeup(), wakeup);
}

/// The load balancer may be meant to have a lease on another interface.
#[test]
fn dhc_5_after_ten_probes_that_were_not_sent_the_client_starts_over() {
    let mut bench = Bench::new(None);
    bench.input(Input::Start);
    bench.offer(SERVER, ADDRESS);
    bench.ack(SERVER, ADDRESS);
    for _ in 0..10 {
        bench.input(Input::Unsent);
        assert_eq!(bench.sleep(), "probe .210");
    }
    bench.input(Input::Unsent);
    assert_eq!(bench.sleep(), "DISCOVER");
    assert_eq!(bench.state(), StateName::Selecting);
}

/// A lease that the client forgets is not given back.
#[test]
fn dhc_5_a_lease_in_doubt_is_not_forgotten() {
    let mut bench = Bench::new(None);
    bench.input(Input::Start);
    bench.offer(SERVER, ADDRESS);
    bench.ack(SERVER, ADDRESS);
    for _ in 0..60 {
        bench.input(Input::Doubted);
        assert_eq!(bench.sleep(), "probe .210");
    }
    // Probes that cannot be sent are counted from then on.
    for _ in 0..9 {
        bench.input(Input::Unsent);
        assert_eq!(bench.sleep(), "probe .210");
    }
    bench.input(Input::Unsent);
    assert_eq!(bench.sleep(), "DISCOVER");
}

#[test]
fn dhc_5_a_lease_ends_the_probing_of_an_address() {
    let mut bench = Bench::new(None);
    bench.input(Input::Start);
    bench.offer(SERVER, ADDRESS);
    bench.ack(SERVER, ADDRESS);
    let mut told = String::new();
    while bench.mono < secs(120) {
        bench.input(Input::Unsent);
        told = bench.sleep();
    }
    assert_eq!(told, "DISCOVER");
    assert_eq!(bench.client.lease(), None);
}

/// kube-vip may still announce what the load balancer had, or what its own DHCP client had (DHC-6). What the client asks for because the
/// load balancer had it once may have another host by now.
#[test]
fn dhc_5_an_address_that_kube_vip_announces_for_the_load_balancer_is_not_declined() {
    let checking = || {
        let mut bench = Bench::wanting(None, Some(ADDRESS));
        bench.input(Input::Start);
        bench.offer(SERVER, ADDRESS);
        assert_eq!(bench.ack(SERVER, ADDRESS), "probe .210");
        bench
    };
    let mut bench = checking();
    assert_eq!(bench.input(Input::Own(OTHER)), "");
    let told = bench.input(Input::Own(ADDRESS));
    assert_eq!(told, "record .210 until Some(120), bound .210");
    // kube-vip's answer.
    assert_eq!(bench.input(Input::InUse(ADDRESS, HOST)), "");
    assert_eq!(bench.input(Input::Own(ADDRESS)), "");
    // Another host's.
    let told = checking().input(Input::InUse(ADDRESS, HOST));
    assert_eq!(told, "DECLINE .210 of .1, declined .210 Host");
    // The lease is over by then.
    let mut bench = checking();
    bench.mono = secs(120);
    assert_eq!(bench.input(Input::Own(ADDRESS)), "DISCOVER .210");
}

#[test]
fn dhc_5_an_address_of_a_pools_record_is_declined() {
    let mut bench = Bench::bound();
    assert_eq!(bench.input(Input::Held(OTHER, Conflict::Pool)), "");
    assert_eq!(
        bench.input(Input::Held(ADDRESS, Conflict::Pool)),
        "lost .210 Conflict, DECLINE .210 of .1, declined .210 Pool"
    );
    assert_eq!(bench.client.next_wakeup(), Some(secs(11)));
    // Offered again, and by no other server, it is probed: it is not known as ours.
    assert_eq!(bench.sleep(), "DISCOVER");
    assert_eq!(bench.offer(SERVER, ADDRESS), "");
    assert_eq!(bench.sleep(), "REQUEST .210 of .1");
    assert_eq!(bench.ack(SERVER, ADDRESS), "probe .210");
    assert_eq!(
        bench.input(Input::Held(ADDRESS, Conflict::Pool)),
        "DECLINE .210 of .1, declined .210 Pool"
    );
}

/// A server that identifies clients by their hardware address would end the other one's lease.
#[test]
fn dhc_5_an_address_of_a_client_with_the_same_hardware_address_is_left_without_a_message() {
    let twin = Input::Held(ADDRESS, Conflict::Twin);
    let mut bench = Bench::bound();
    assert_eq!(bench.input(twin), "lost .210 Conflict, declined .210 Twin");
    assert_eq!(bench.client.next_wakeup(), Some(secs(11)));
    assert_eq!(bench.sleep(), "DISCOVER");
    bench.offer(SERVER, ADDRESS);
    bench.sleep();
    assert_eq!(bench.ack(SERVER, ADDRESS), "probe .210");
    assert_eq!(bench.input(twin), "declined .210 Twin");
    assert_eq!(bench.client.probed(), None);
    // Nor is it given back.
    assert_eq!(bench.input(Input::Release), "");
}

/// Somebody chose the hardware address of a host, and the server has acknowledged the lease of that one (DHC-1).
#[test]
fn dhc_5_an_address_of_a_host_with_the_same_hardware_address_is_left_without_a_message() {
    let twin = Input::InUse(ADDRESS, identity().hardware);
    let mut bench = Bench::new(None);
    bench.input(Input::Start);
    bench.offer(SERVER, ADDRESS);
    assert_eq!(bench.ack(SERVER, ADDRESS), "probe .210");
    assert_eq!(bench.input(twin), "declined .210 TwinHost");
    assert_eq!(bench.client.next_wakeup(), Some(secs(10)));
    // Nor is it given back.
    assert_eq!(bench.input(Input::Release), "");
}

/// A server that identifies clients by their hardware address would give the lease of who has it to the client that asks, and answer the
/// renewals of the other one no more.
#[test]
fn dhc_5_an_offered_address_that_somebody_has_is_not_asked_for_if_the_hardware_address_was_chosen()
{
    let hardware = chosen().hardware;
    for (input, conflict) in [
        (Input::Held(ADDRESS, Conflict::Twin), "Twin"),
        (Input::InUse(ADDRESS, hardware), "TwinHost"),
        // The load balancer of another cluster, or a host that is no client.
        (Input::InUse(ADDRESS, HOST), "Host"),
    ] {
        let mut bench = Bench::chosen();
        assert_eq!(bench.input(Input::Start), "DISCOVER");
        for pause in [10, 10, 16, 32, 64, 64] {
            let mut told = bench.offer(SERVER, ADDRESS);
            if told.is_empty() {
                told = bench.sleep();
            }
            assert_eq!(told, "probe .210");
            assert_eq!(bench.state(), StateName::Selecting);
            assert_eq!(bench.input(Input::InUse(OTHER, HOST)), "");
            assert_eq!(bench.input(input), format!("left .210 {conflict}"));
            assert_eq!(bench.client.probed(), None);
            let before = bench.mono;
            assert_eq!(bench.sleep(), "DISCOVER");
            let waited = bench.mono.abs_diff(before);
            assert!(waited.abs_diff(secs(pause)) <= secs(1), "{waited:?}");
        }
        // Nothing was asked for, so nothing is given back.
        bench.offer(SERVER, ADDRESS);
        bench.sleep();
        assert_eq!(bench.input(Input::Release), "");
    }
}

#[test]
fn dhc_5_an_offered_address_that_nobody_has_is_asked_for_after_a_second() {
    let offered = || {
        let mut bench = Bench::chosen();
        bench.input(Input::Start);
        assert_eq!(bench.offer(SERVER, ADDRESS), "probe .210");
        assert_eq!(bench.offer(SECOND, OTHER), "ignored state");
        bench
    };
    let mut bench = offered();
    assert_eq!(bench.input(Input::Own(OTHER)), "");
    let xid = bench.sent.unwrap().xid;
    assert_eq!(bench.sleep(), "REQUEST .210 of .1");
    assert_eq!((bench.mono, bench.sent.unwrap().xid), (secs(1), xid));
    // It is probed again, once the server has it for the client.
    assert_eq!(bench.ack(SERVER, ADDRESS), "probe .210");
    assert_eq!(bench.sleep(), "record .210 until Some(121), bound .210");
    // kube-vip answers for the load balancer itself.
    let mut bench = offered();
    let told = bench.input(Input::Own(ADDRESS));
    assert_eq!(told, "REQUEST .210 of .1");
    // No probe could be sent, ten times.
    let mut bench = offered();
    for _ in 0..10 {
        bench.input(Input::Unsent);
        assert_eq!(bench.sleep(), "probe .210");
    }
    bench.input(Input::Unsent);
    assert_eq!(bench.sleep(), "DISCOVER");
}

#[test]
fn dhc_5_an_address_of_another_lease_is_declined() {
    let mut bench = Bench::bound();
    assert_eq!(
        bench.input(Input::Held(ADDRESS, Conflict::Lease)),
        "lost .210 Conflict, DECLINE .210 of .1, declined .210 Lease"
    );
    assert_eq!(bench.client.next_wakeup(), Some(secs(11)));
}

/// RFC 2131 has 10 s at least. A server that has nothing but addresses in use would put all that are left aside.
#[test]
fn dhc_5_the_pause_after_a_decline_grows_until_a_lease_is_renewed() {
    let mut bench = Bench::new(None);
    bench.input(Input::Start);
    for pause in [10, 10, 16, 32, 64, 64] {
        let before = bench.mono;
        if bench.offer(SERVER, ADDRESS).is_empty() {
            bench.sleep();
        }
        bench.ack(SERVER, ADDRESS);
        bench.input(Input::InUse(ADDRESS, HOST));
        assert_eq!(bench.sleep(), "DISCOVER");
        let waited = bench.mono.abs_diff(before);
        assert!(waited.abs_diff(secs(pause)) <= secs(2), "{waited:?}");
    }
    let bound = |bench: &mut Bench| {
        bench.offer(SERVER, OTHER);
        bench.sleep();
        bench.ack(SERVER, OTHER);
        bench.sleep();
        assert_eq!(bench.state(), StateName::Bound);
    };
    bound(&mut bench);
    bench.sleep();
    bench.ack(SERVER, OTHER);
    bench.input(Input::Held(OTHER, Conflict::Pool));
    assert_eq!(bench.client.next_wakeup(), Some(bench.mono + secs(10)));
    // A holder that does not answer ARP is found once the lease is told: each time.
    for pause in [10, 16, 32, 64, 64] {
        bench.sleep();
        bound(&mut bench);
        bench.input(Input::Held(OTHER, Conflict::Lease));
        let wakeup = bench.client.next_wakeup().unwrap();
        let waits = wakeup.abs_diff(bench.mono);
        assert!(waits.abs_diff(secs(pause)) <= secs(1), "{waits:?}");
    }
}

/// Of two servers on one network the one that answers first may be of no use.
#[test]
fn dhc_1_another_server_is_taken_if_the_last_offer_led_to_nothing() {
    let declined = |bench: &mut Bench| {
        bench.ack(SERVER, ADDRESS);
        bench.input(Input::InUse(ADDRESS, HOST));
    };
    let refused = |bench: &mut Bench| {
        bench.nak(SERVER);
    };
    let unanswered = |bench: &mut Bench| {
        for _ in 0..3 {
            bench.sleep();
        }
    };
    let twin = |bench: &mut Bench| {
        bench.ack(SERVER, ADDRESS);
        bench.input(Input::Held(ADDRESS, Conflict::Twin));
    };
    let failures: [&dyn Fn(&mut Bench); 4] = [&declined, &refused, &unanswered, &twin];
    for fails in failures {
        let failed = || {
            let mut bench = Bench::new(None);
            bench.input(Input::Start);
            assert_eq!(bench.offer(SERVER, ADDRESS), "REQUEST .210 of .1");
            fails(&mut bench);
            assert!(bench.sleep().ends_with("DISCOVER"));
            bench
        };
        let mut bench = failed();
        assert_eq!(bench.offer(SERVER, ADDRESS), "");
        assert_eq!(bench.offer(SECOND, OTHER), "REQUEST .211 of .2");
        // There is no other one.
        let mut bench = failed();
        assert_eq!(bench.offer(SERVER, ADDRESS), "");
        assert_eq!(bench.offer(SERVER, OTHER), "ignored other_address");
        assert_eq!(bench.sleep(), "REQUEST .210 of .1");
    }
}
