mod scenarios;
mod sockets;

use std::{collections::HashMap, future::pending, io, net::SocketAddr, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::*;
use crate::{ConnectError, ProbeResult};

/// How a target reacts to a connect.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Accepts after this many milliseconds.
    Accept(u64),
    Refuse,
    Hang,
    /// Our own machine fails.
    NoFiles,
    Panic,
}

/// A network without sockets: the reaction of each target, and the connects it observed.
#[derive(Clone)]
struct Network(Arc<Mutex<Targets>>);

struct Targets {
    origin: Instant,
    acts: HashMap<IpAddr, Act>,
    /// Target and time of each connect.
    starts: Vec<(IpAddr, Duration)>,
    open: HashMap<IpAddr, usize>,
    most_open: usize,
}

impl Network {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Targets {
            origin: Instant::now(),
            acts: HashMap::new(),
            starts: Vec::new(),
            open: HashMap::new(),
            most_open: 0,
        })))
    }

    fn set(&self, targets: impl IntoIterator<Item = u16>, act: Act) {
        self.0
            .lock()
            .acts
            .extend(targets.into_iter().map(|target| (addr(target), act)));
    }

    /// Times of the connects to a target.
    fn starts(&self, target: u16) -> Vec<Duration> {
        let world = self.0.lock();
        let of = world.starts.iter().filter(|(to, _)| *to == addr(target));
        of.map(|(_, at)| *at).collect()
    }

    fn now(&self) -> Duration {
        self.0.lock().origin.elapsed()
    }

    fn open(&self) -> usize {
        self.0.lock().open.values().sum()
    }
}

/// A connect in flight.
struct Open(Network, IpAddr);

impl Drop for Open {
    fn drop(&mut self) {
        *self.0.0.lock().open.get_mut(&self.1).unwrap() -= 1;
    }
}

impl Connector for Network {
    async fn connect(&self, to: SocketAddr) -> Result<(), ConnectError> {
        let to = to.ip();
        let act = {
            let world = &mut *self.0.lock();
            world.starts.push((to, world.origin.elapsed()));
            let here = world.open.entry(to).or_default();
            *here += 1;
            assert_eq!(*here, 1, "two probes of {to} in flight");
            world.most_open = world.most_open.max(world.open.values().sum());
            world.acts.get(&to).copied().unwrap_or(Act::Accept(0))
        };
        let _open = Open(self.clone(), to);
        match act {
            Act::Accept(after) => {
                tokio::time::sleep(Duration::from_millis(after)).await;
                Ok(())
            }
            Act::Refuse => Err(ConnectError::Remote(
                io::ErrorKind::ConnectionRefused.into(),
            )),
            Act::Hang => pending().await,
            Act::NoFiles => Err(ConnectError::Local(io::Error::from_raw_os_error(
                nix::errno::Errno::EMFILE as i32,
            ))),
            Act::Panic => panic!("a connector that panics"),
        }
    }
}

/// An observer that records its calls.
#[derive(Default)]
struct Recorder {
    probes: Mutex<Vec<(ProbeResult, Duration)>>,
    lags: Mutex<Vec<Duration>>,
    changes: Mutex<Vec<bool>>,
}

impl Recorder {
    fn results(&self) -> HashMap<&'static str, usize> {
        let mut counts = HashMap::new();
        for (result, _) in self.probes.lock().iter() {
            *counts.entry(result.as_label()).or_default() += 1;
        }
        counts
    }

    fn greatest_lag(&self) -> Duration {
        self.lags.lock().iter().copied().max().unwrap_or_default()
    }
}

impl Observer for Recorder {
    fn probe(&self, result: ProbeResult, duration: Duration) {
        self.probes.lock().push((result, duration));
    }

    fn lag(&self, lag: Duration) {
        self.lags.lock().push(lag);
    }

    fn verdict_changed(&self, ready: bool) {
        self.changes.lock().push(ready);
    }
}

fn addr(target: u16) -> IpAddr {
    let [high, low] = target.to_be_bytes();
    [127, 77, high, low].into()
}

fn targets(range: impl IntoIterator<Item = u16>, ready: bool) -> Vec<Target> {
    range
        .into_iter()
        .map(|n| Target::new(format!("uid-{n}"), addr(n), ready))
        .collect()
}

fn check() -> HealthCheck {
    HealthCheck::new(Some(80), None, None, None, None)
        .unwrap()
        .unwrap()
}

fn check_of(success: i64, failure: i64, period: i64, timeout: i64) -> HealthCheck {
    HealthCheck::new(
        Some(80),
        Some(success),
        Some(failure),
        Some(period),
        Some(timeout),
    )
    .unwrap()
    .unwrap()
}

fn start(max_in_flight: usize) -> (Prober, VerdictChanges, Network, Arc<Recorder>) {
    let network = Network::new();
    let recorder = Arc::new(Recorder::default());
    let settings = Settings { max_in_flight };
    let observer = Arc::clone(&recorder) as Arc<dyn Observer>;
    let (prober, changes) = Prober::start_with(settings, observer, network.clone());
    (prober, changes, network, recorder)
}

async fn sleep_ms(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// A core that does not get to the tasks is given no more of them than one pass starts.
#[tokio::test(start_paused = true)]
async fn hc_5_no_more_tasks_wait_than_one_pass_starts() {
    use std::sync::atomic::Ordering::Relaxed;

    let settings = Settings {
        max_in_flight: 10_000,
    };
    let shared = shared::Shared::new(settings, Arc::new(()));
    let check = HealthCheck::new(Some(80), None, None, Some(5), None);
    let check = check.unwrap().unwrap();
    let target = |n: u32| {
        let addr = IpAddr::from(std::net::Ipv4Addr::from(0x0a00_0000 + n));
        Target::new(format!("t{n}"), addr, true)
    };
    let targets = (0..2_000).map(target).collect();
    shared.change(|registry, cancelled| {
        registry.set_group(Duration::ZERO, &"g".into(), check, targets, cancelled);
    });
    tokio::time::advance(Duration::from_mins(1)).await;
    let taken = || {
        let mut launches = Vec::new();
        assert!(shared.take_due(&mut launches).is_ok());
        launches.len()
    };
    assert_eq!((taken(), taken()), (600, 0));
    shared.queued.fetch_sub(150, Relaxed);
    assert_eq!((taken(), taken()), (150, 0));
}
