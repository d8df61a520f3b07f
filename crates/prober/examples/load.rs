//! How many probes this machine can do: many loopback targets, their rate, lag and cost.
//!
//! `cargo run --release -p harvester-lb-prober --example load -- [targets] [seconds] [period]`
//! (default 40000 targets for 15 s at a period of 5 s). The listener runs in a process of its own,
//! so that the CPU time given is that of the prober, with the kernel's share of the loopback.
#![allow(clippy::print_stdout)]

use std::{
    error::Error,
    io::{BufRead, BufReader},
    net::{IpAddr, Ipv4Addr},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use harvester_lb_prober::{HealthCheck, Observer, ProbeResult, Prober, Settings, Target};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};

/// Counts, and lags by millisecond (the last bucket takes all the rest).
struct Counts {
    results: [AtomicU64; ProbeResult::ALL.len()],
    lags: Vec<AtomicU64>,
}

impl Counts {
    fn new() -> Self {
        Self {
            results: [const { AtomicU64::new(0) }; _],
            lags: (0..10_000).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn reset(&self) {
        self.results
            .iter()
            .chain(&self.lags)
            .for_each(|count| count.store(0, Relaxed));
    }

    fn total(&self) -> u64 {
        self.results.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// The lag in milliseconds that `permille` of the probes stay within.
    fn lag(&self, permille: u64) -> usize {
        let total: u64 = self.lags.iter().map(|count| count.load(Relaxed)).sum();
        let mut seen = 0;
        for (ms, count) in self.lags.iter().enumerate() {
            seen += count.load(Relaxed);
            if seen * 1000 >= total * permille {
                return ms + 1;
            }
        }
        self.lags.len()
    }
}

impl Observer for Counts {
    fn probe(&self, result: ProbeResult, _: Duration) {
        if let Some(at) = ProbeResult::ALL.iter().position(|each| *each == result) {
            self.results[at].fetch_add(1, Relaxed);
        }
    }

    fn lag(&self, lag: Duration) {
        let ms = usize::try_from(lag.as_millis()).unwrap_or(usize::MAX);
        self.lags[ms.min(self.lags.len() - 1)].fetch_add(1, Relaxed);
    }
}

fn listen() -> Result<(), Box<dyn Error>> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.bind(&std::net::SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())?;
    socket.listen(65_535)?;
    let listener = std::net::TcpListener::from(socket);
    println!("{}", listener.local_addr()?.port());
    loop {
        drop(listener.accept());
    }
}

fn cpu() -> Result<Duration, Box<dyn Error>> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let seconds = |time: nix::sys::time::TimeVal| -> Result<Duration, Box<dyn Error>> {
        Ok(Duration::from_secs(time.tv_sec().try_into()?)
            + Duration::from_micros(time.tv_usec().try_into()?))
    };
    Ok(seconds(usage.user_time())? + seconds(usage.system_time())?)
}

/// Resident memory in KiB.
fn resident() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap_or_default();
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).peekable();
    if args.next_if_eq("listen").is_some() {
        return listen();
    }
    let mut number = |default: u32| args.next().map_or(Ok(default), |arg| arg.parse());
    let (targets, seconds, period) = (number(40_000)?, number(15)?, number(5)?);

    let mut child = Command::new(std::env::current_exe()?)
        .arg("listen")
        .stdout(Stdio::piped())
        .spawn()?;
    let mut port = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut port)?;
    let outcome = measure(targets, seconds, period, port.trim().parse()?);
    child.kill()?;
    child.wait()?;
    outcome
}

fn measure(targets: u32, seconds: u32, period: u32, port: i64) -> Result<(), Box<dyn Error>> {
    let check = HealthCheck::new(Some(port), None, None, Some(period.into()), None)?;
    let check = check.ok_or("no port")?;
    let counts = Arc::new(Counts::new());
    let settings = Settings::for_file_limit(getrlimit(Resource::RLIMIT_NOFILE)?.0);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let observer = Arc::clone(&counts) as Arc<dyn Observer>;
    let (prober, mut edges) = runtime.block_on(async { Prober::start(settings, observer) });
    runtime.spawn(async move { while edges.next().await.is_some() {} });

    let before = resident()?;
    let groups = targets.div_ceil(40);
    for group in 0..groups {
        let members = (group * 40..targets.min(group * 40 + 40)).map(|n| {
            let addr = IpAddr::from(Ipv4Addr::from_bits(0x7f01_0000 + n));
            Target::new(format!("5d2f7e61-0000-4000-8000-{n:012x}"), addr, false)
        });
        prober.set_group(
            format!("ns-{}/lb-{group}", group % 50),
            check,
            members.collect(),
        );
    }
    let bytes = (resident()? - before) * 1024 / u64::from(targets);
    println!("{targets} targets in {groups} groups, {bytes} bytes each; {settings:?}");

    // The first probes come within two periods; one more until all have a verdict.
    std::thread::sleep(Duration::from_secs(2 * u64::from(period) + 1));
    counts.reset();
    let (from, cpu_from) = (Instant::now(), cpu()?);
    std::thread::sleep(Duration::from_secs(seconds.into()));
    let (time, cpu) = (
        from.elapsed().as_secs_f64(),
        cpu()?.saturating_sub(cpu_from).as_secs_f64(),
    );
    #[allow(clippy::cast_precision_loss)]
    let rate = counts.total() as f64 / time;
    println!(
        "{rate:.0} probes/s, {:.2} cores; lag p50 {} ms, p99 {} ms, p99.9 {} ms; {:?}; {} MiB",
        cpu / time,
        counts.lag(500),
        counts.lag(990),
        counts.lag(999),
        prober.snapshot(),
        resident()? / 1024,
    );
    for (result, count) in ProbeResult::ALL.iter().zip(&counts.results) {
        if count.load(Relaxed) > 0 {
            println!("  {} {}", result.as_label(), count.load(Relaxed));
        }
    }
    Ok(())
}
