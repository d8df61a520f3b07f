//! The engine with real sockets on the loopback network.

use std::net::Ipv4Addr;

use tokio::net::TcpListener;

use super::*;
use crate::connect::tests::deaf_listener;

#[tokio::test]
async fn hc_real_targets_accept_refuse_and_keep_silent() {
    let recorder = Arc::new(Recorder::default());
    let (deaf, _socket, _filling) = deaf_listener((Ipv4Addr::new(127, 78, 0, 3), 0).into()).await;
    let port = deaf.port();
    let good = Ipv4Addr::new(127, 78, 0, 1);
    let _listener = TcpListener::bind((good, port)).await.unwrap();
    let closed = Ipv4Addr::new(127, 78, 0, 2);

    let observer = Arc::clone(&recorder) as Arc<dyn Observer>;
    let (prober, mut changes) = Prober::start(Settings::default(), observer);
    let check = HealthCheck::new(Some(port.into()), Some(1), Some(1), Some(1), Some(1));
    let all = vec![
        Target::new("good", good.into(), false),
        Target::new("closed", closed.into(), true),
        Target::new("deaf", deaf.ip(), true),
    ];
    prober.set_group("g", check.unwrap().unwrap(), all);
    let settled = async {
        loop {
            let groups = changes.next().await.unwrap();
            assert_eq!(groups, ["g".into()]);
            let view = prober.group("g").unwrap();
            let ready: Vec<_> = view.iter().map(|view| (view.ready, view.last)).collect();
            if ready
                == [
                    (true, Some(ProbeResult::Success)),
                    (false, Some(ProbeResult::Refused)),
                    (false, Some(ProbeResult::Timeout)),
                ]
            {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), settled)
        .await
        .unwrap();
}

#[test]
fn hc_5_end_of_the_runtime_in_the_middle_of_probes_is_harmless() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let recorder = Arc::new(Recorder::default());
    let observer = Arc::clone(&recorder) as Arc<dyn Observer>;
    let (prober, _edges) =
        runtime.block_on(async { Prober::start_with(Settings::default(), observer, Hangs) });
    prober.set_group("g", check_of(1, 1, 1, 100), targets(0..200, true));
    let patience = std::time::Instant::now();
    while prober.snapshot().in_flight < 100 {
        assert!(patience.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(runtime);
    let snapshot = prober.snapshot();
    assert_eq!(
        (snapshot.in_flight, snapshot.up),
        (0, 200),
        "no verdict from our own end"
    );
}

struct Hangs;

impl Connector for Hangs {
    async fn connect(&self, _: SocketAddr) -> Result<(), ConnectError> {
        pending().await
    }
}
