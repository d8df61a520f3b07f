//! Release of a lease (DHC-4).

use super::*;

#[test]
fn dhc_4_release_sends_what_a_server_needs() {
    let released = "RELEASE .210 of .1 at 02:00:00:00:00:09, released .210";
    let mut bench = Bench::bound();
    assert_eq!(bench.input(Input::Release), released);
    assert_eq!(
        (bench.state(), bench.client.lease()),
        (StateName::Stopped, None)
    );
    assert_eq!(bench.client.next_wakeup(), None);
    assert_eq!(bench.input(Input::Release), "");
    assert_eq!(bench.input(Input::Time), "");
    // While it is renewed.
    let mut bench = Bench::bound();
    bench.sleep();
    assert_eq!(bench.input(Input::Release), released);
    // Before it is bound: the server has or may have leased the address.
    let mut bench = Bench::new(None);
    bench.input(Input::Start);
    bench.offer(SERVER, ADDRESS);
    assert_eq!(
        bench.input(Input::Release),
        "RELEASE .210 of .1, released .210"
    );
    let mut bench = Bench::new(None);
    bench.input(Input::Start);
    bench.offer(SERVER, ADDRESS);
    bench.ack(SERVER, ADDRESS);
    assert_eq!(bench.input(Input::Release), released);
    // Nothing leased.
    let mut bench = Bench::new(None);
    bench.input(Input::Start);
    assert_eq!(bench.input(Input::Release), "");
    assert_eq!(bench.state(), StateName::Stopped);
}

#[test]
fn dhc_4_a_recorded_lease_is_released_without_a_start() {
    let mut bench = Bench::new(Some(record()));
    assert_eq!(
        bench.input(Input::Release),
        "RELEASE .210 of .1, released .210"
    );
    // As it is recorded since a server was heard: it may be behind a router.
    let heard = Lease {
        server_hardware: Some(SOURCE),
        ..record()
    };
    let mut bench = Bench::new(Some(heard));
    assert_eq!(
        bench.input(Input::Release),
        "RELEASE .210 of .1 at 02:00:00:00:00:09, released .210"
    );
    let recorded = Bench::bound().client.lease().copied().unwrap();
    assert_eq!(recorded.server_hardware, Some(SOURCE));
    // It has expired: the address may be somebody else's.
    let mut bench = Bench::new(Some(record()));
    bench.mono = secs(120);
    assert_eq!(bench.input(Input::Release), "");
    let mut bench = Bench::rebooting();
    assert_eq!(
        bench.input(Input::Release),
        "RELEASE .210 of .1, released .210"
    );
}
