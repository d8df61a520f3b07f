//! A wall clock that is set, and a process that was stopped for a while (DHC-3).

use super::*;

#[test]
fn dhc_3_the_recorded_expiry_counts_even_if_the_wall_clock_was_set() {
    // Forward by a minute, past the recorded T1: renewed before the operator ends the Service.
    let mut bench = Bench::bound();
    bench.ahead = 60;
    assert_eq!(bench.input(Input::Time), "");
    assert_eq!(bench.state(), StateName::Renewing);
    assert_eq!(bench.sleep(), "REQUEST .210");
    let asked = bench.mono;
    assert!(asked <= secs(11));
    let text = bench.ack(SERVER, ADDRESS);
    assert!(text.ends_with(", renewed .210"), "{text}");
    assert_eq!(bench.client.next_wakeup(), Some(asked + secs(60)));
    // Without an answer the lease ends at the recorded time.
    let mut bench = Bench::bound();
    bench.ahead = 60;
    bench.input(Input::Time);
    bench.until(secs(59));
    assert_eq!(bench.state(), StateName::Rebinding);
    assert_eq!(bench.sleep(), "expired .210, lost .210 Expired");
    assert_eq!(bench.mono.as_secs(), 60);
    assert_eq!(bench.sleep(), "DISCOVER .210");
    assert!(bench.mono <= secs(70));
    // Beyond the expiry.
    let mut bench = Bench::bound();
    bench.ahead = 1000;
    let text = "expired .210, lost .210 Expired";
    assert_eq!(bench.input(Input::Time), text);
    assert_eq!(bench.sleep(), "DISCOVER .210");
    assert!(bench.mono <= secs(11));
    // Back by an hour: by the record the operator would serve it for an hour too long.
    let mut bench = Bench::bound();
    bench.ahead = -3600;
    assert_eq!(bench.input(Input::Time), "record .210 until Some(-3480)");
    assert_eq!(bench.input(Input::Time), "");
    assert_eq!(bench.client.next_wakeup(), Some(secs(60)));
    // Drift makes no write.
    let mut bench = Bench::bound();
    bench.ahead = -10;
    assert_eq!(bench.input(Input::Time), "");
}

#[test]
fn dhc_3_a_process_that_was_stopped_serves_nothing_that_has_expired() {
    let mut bench = Bench::new(None);
    bench.input(Input::Start);
    bench.offer(SERVER, ADDRESS);
    bench.ack(SERVER, ADDRESS);
    bench.mono = secs(500);
    assert_eq!(bench.input(Input::Time), "DISCOVER");
    // Past T1: bound, and renewed at once.
    bench.offer(SERVER, ADDRESS);
    bench.ack(SERVER, ADDRESS);
    bench.mono = secs(570);
    assert_eq!(
        bench.input(Input::Time),
        "record .210 until Some(620), bound .210, REQUEST .210"
    );
    // An answer that took longer than the lease.
    bench.mono = secs(700);
    bench.input(Input::Time);
    bench.offer(SERVER, ADDRESS);
    let late = bench.answer(ReplyKind::Ack, SERVER, ADDRESS, 10);
    bench.mono = secs(711);
    bench.input(Input::Time);
    assert_eq!(bench.reply(&late), "ignored short_lease");
}

/// All leases of a process are due at the same moment.
#[test]
fn dhc_3_a_wall_clock_that_was_set_forward_makes_no_burst_of_messages() {
    // Past T1, T2 and the expiry; the longest time until the message, in seconds.
    for (ahead, state, most) in [
        (62, StateName::Renewing, 10),
        (110, StateName::Rebinding, 3),
        (200, StateName::Init, 10),
    ] {
        let mut times = Vec::new();
        for seed in 0..50 {
            let mut bench = Bench::seeded(None, None, seed);
            bench.input(Input::Start);
            bench.offer(SERVER, ADDRESS);
            bench.ack(SERVER, ADDRESS);
            bench.sleep();
            bench.ahead = ahead;
            assert!(!bench.input(Input::Time).contains("RE"), "{ahead}");
            assert_eq!(bench.state(), state);
            bench.sleep();
            times.push(bench.mono.as_millis() - 1_000);
        }
        times.sort_unstable();
        times.dedup();
        assert!(
            times.len() > 40 && times.iter().all(|it| *it <= most * 1_000),
            "{times:?}"
        );
    }
}
