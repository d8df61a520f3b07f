//! The prober on its own single-threaded runtime, as in the operator.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use harvester_lb_prober::{
    ConnectError, Connector, HealthCheck, Observer, ProbeResult, Prober, Settings, Target,
    TcpConnector,
};
use nix::sys::resource::{Resource, getrlimit};

use crate::targets::{Load, TIMEOUT_SECONDS};
use crate::usage;

/// Targets per group: the backends of one LoadBalancer.
const GROUP: u32 = 40;
/// Consecutive failures that make a target not ready.
const FAILURES: u32 = 3;

/// Durations by the millisecond; the last bucket holds all longer ones.
struct Histogram(Vec<AtomicU64>);

impl Histogram {
    fn new() -> Self {
        Self((0..60_000).map(|_| AtomicU64::new(0)).collect())
    }

    fn add(&self, duration: Duration) {
        let ms = usize::try_from(duration.as_millis()).unwrap_or(usize::MAX);
        self.0[ms.min(self.0.len() - 1)].fetch_add(1, Relaxed);
    }

    fn reset(&self) {
        self.0.iter().for_each(|count| count.store(0, Relaxed));
    }

    /// The quantile `permille`, in milliseconds.
    fn within(&self, permille: u64) -> usize {
        let total: u64 = self.0.iter().map(|count| count.load(Relaxed)).sum();
        let mut seen = 0;
        for (ms, count) in self.0.iter().enumerate() {
            seen += count.load(Relaxed);
            if seen * 1000 >= total * permille {
                return ms + 1;
            }
        }
        self.0.len()
    }

    /// p50, p99 and the maximum, as JSON.
    fn json(&self) -> String {
        format!(
            r#"{{"p50":{},"p99":{},"max":{}}}"#,
            self.within(500),
            self.within(990),
            self.within(1000)
        )
    }
}

/// What the observer counted.
struct Seen {
    results: [AtomicU64; ProbeResult::ALL.len()],
    lags: Histogram,
    /// Number of verdicts that became not ready.
    failed: AtomicU64,
}

impl Observer for Seen {
    fn probe(&self, result: ProbeResult, _: Duration) {
        if let Some(at) = ProbeResult::ALL.iter().position(|each| *each == result) {
            self.results[at].fetch_add(1, Relaxed);
        }
    }

    fn lag(&self, lag: Duration) {
        self.lags.add(lag);
    }

    fn verdict_changed(&self, ready: bool) {
        self.failed.fetch_add(u64::from(!ready), Relaxed);
    }
}

/// The real connector; it also records the time between two probes of each target that answers.
#[derive(Clone)]
struct RecordingConnector(Arc<Recorded>);

struct Recorded {
    load: Load,
    origin: Instant,
    /// Milliseconds since the origin of the last probe of each target; 0: not probed yet.
    last: Vec<AtomicU32>,
    gaps: Histogram,
}

impl Connector for RecordingConnector {
    async fn connect(&self, addr: SocketAddr) -> Result<(), ConnectError> {
        let recorded = &self.0;
        if addr.port() == recorded.load.port
            && let Some(n) = Load::number(addr.ip())
            && let Some(last) = recorded.last.get(n as usize)
        {
            let now = u32::try_from(recorded.origin.elapsed().as_millis()).unwrap_or(u32::MAX);
            let before = last.swap(now, Relaxed);
            if before > 0 {
                recorded
                    .gaps
                    .add(Duration::from_millis(now.saturating_sub(before).into()));
            }
        }
        TcpConnector.connect(addr).await
    }
}

fn group(at: u32) -> String {
    format!("ns-{}/lb-{at}", at % 50)
}

/// Groups of healthy targets, then groups of dead ones.
fn groups(load: Load) -> impl Iterator<Item = (String, u16, std::ops::Range<u32>)> {
    let living = load.targets - load.dead;
    let split = |from: u32, to: u32| {
        (from..to)
            .step_by(GROUP as usize)
            .map(move |at| at..to.min(at + GROUP))
    };
    let all = split(0, living).chain(split(living, load.targets));
    (0..)
        .zip(all)
        .map(move |(at, range)| (group(at), load.port_of(range.start), range))
}

pub(crate) fn run(load: Load) -> Result<(), Box<dyn Error>> {
    let seen = Arc::new(Seen {
        results: [const { AtomicU64::new(0) }; _],
        lags: Histogram::new(),
        failed: AtomicU64::new(0),
    });
    let recorded = Arc::new(Recorded {
        load,
        origin: Instant::now(),
        last: (0..load.targets).map(|_| AtomicU32::new(0)).collect(),
        gaps: Histogram::new(),
    });
    let settings = Settings::for_file_limit(getrlimit(Resource::RLIMIT_NOFILE)?.0);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let observer = Arc::clone(&seen) as Arc<dyn Observer>;
    let connector = RecordingConnector(Arc::clone(&recorded));
    let (prober, mut changes) =
        runtime.block_on(async { Prober::start_with(settings, observer, connector) });
    runtime.spawn(async move { while changes.next().await.is_some() {} });

    let before = usage::resident()?;
    for (name, port, members) in groups(load) {
        let check = HealthCheck::new(
            Some(port.into()),
            None,
            Some(FAILURES.into()),
            Some(load.period.into()),
            Some(TIMEOUT_SECONDS.into()),
        )?;
        let targets = members.map(|n| {
            let id = format!("5d2f7e61-0000-4000-8000-{n:012x}");
            Target::new(id, IpAddr::from(Load::addr(n)), true)
        });
        prober.set_group(name, check.ok_or("no port")?, targets.collect());
    }
    let added = usage::resident()? - before;

    // The first probes come within two periods. Dead targets are known as such after some more.
    let mut warm_up = Duration::from_secs(2 * u64::from(load.period) + 1);
    if load.dead > 0 {
        warm_up += Duration::from_secs(u64::from(FAILURES * 2 * (load.period + TIMEOUT_SECONDS)));
    }
    std::thread::sleep(warm_up);
    seen.results
        .iter()
        .for_each(|count| count.store(0, Relaxed));
    seen.lags.reset();
    recorded.gaps.reset();
    let (from, cpu_from) = (Instant::now(), usage::cpu()?);
    let (mut sockets, mut in_flight) = (0, 0);
    let time = Duration::from_secs(load.seconds.into());
    while from.elapsed() < time {
        std::thread::sleep(Duration::from_secs(1).min(time.saturating_sub(from.elapsed())));
        in_flight = in_flight.max(prober.snapshot().in_flight);
        sockets = sockets.max(usage::descriptors());
    }
    let seconds = from.elapsed().as_secs_f64();
    let cpu = usage::cpu()?.saturating_sub(cpu_from).as_secs_f64();

    let count = |wanted: fn(ProbeResult) -> bool| -> u64 {
        ProbeResult::ALL
            .iter()
            .zip(&seen.results)
            .filter(|(result, _)| wanted(**result))
            .map(|(_, count)| count.load(Relaxed))
            .sum()
    };
    // Each dead target has failed once, and no other target ever.
    let down = |wanted_port: u16| -> usize {
        groups(load)
            .filter(|(_, port, _)| *port == wanted_port)
            .filter_map(|(name, ..)| prober.group(&name))
            .flatten()
            .filter(|target| !target.ready)
            .count()
    };
    let (living_down, dead_down) = (down(load.port), down(load.dead_port));
    let wrong = seen
        .failed
        .load(Relaxed)
        .abs_diff(u64::try_from(dead_down)?)
        + u64::try_from(living_down)?;

    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let done = count(|_| true) as f64;
    let peak = usage::most_resident()?;
    println!(
        "prober: {:.0} probes/s, {:.3} cores, {:.0} probes per CPU second; lag ms {}; from one probe of a healthy target to the next ms {}; {:?}",
        done / seconds,
        cpu / seconds,
        done / cpu,
        seen.lags.json(),
        recorded.gaps.json(),
        prober.snapshot(),
    );
    for (result, count) in ProbeResult::ALL.iter().zip(&seen.results) {
        if count.load(Relaxed) > 0 {
            println!("  {} {}", result.as_label(), count.load(Relaxed));
        }
    }
    println!(
        concat!(
            r#"{{"per_second":{:.1},"cores":{:.4},"per_cpu_second":{:.0},"lag_ms":{},"gap_ms":{},"#,
            r#""answered":{},"timed_out":{},"other":{},"wrong_verdicts":{},"dead_known":{},"#,
            r#""bytes_per_target":{},"peak_bytes_per_target":{},"rss_kib":{},"most_in_flight":{},"#,
            r#""most_sockets":{},"bound":{}}}"#
        ),
        done / seconds,
        cpu / seconds,
        done / cpu,
        seen.lags.json(),
        recorded.gaps.json(),
        count(|r| r == ProbeResult::Success),
        count(|r| r == ProbeResult::Timeout),
        count(|r| !matches!(r, ProbeResult::Success | ProbeResult::Timeout)),
        wrong,
        dead_down,
        added * 1024 / u64::from(load.targets),
        (peak - before) * 1024 / u64::from(load.targets),
        peak,
        in_flight,
        sockets,
        settings.max_in_flight,
    );
    prober.shutdown();
    Ok(())
}
