//! The baseline: an epoll loop that makes the same connects with the same timeouts, and nothing else. One thread, no
//! verdicts, no removal, no fairness.

use std::collections::VecDeque;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use socket2::{Domain, Socket, Type};

use crate::targets::{Load, TIMEOUT_SECONDS};
use crate::usage;

/// Time between two batches of connects, as in the prober.
const TICK: Duration = Duration::from_millis(10);
/// Connects between two looks at the answers, as in the prober. A loop that first makes every connect that is due
/// runs out of file descriptors after a pause on a machine whose core is nearly full.
const BATCH: u64 = 600;
/// Time before the measurement.
const WARM_UP: Duration = Duration::from_secs(4);

struct Loop {
    epoll: Epoll,
    /// By token; a token is reused only after its timeout has passed.
    open: Vec<Option<Socket>>,
    free: Vec<u32>,
    /// Tokens in the order in which their connects time out.
    timeouts: VecDeque<(Instant, u32)>,
    answered: u64,
    timed_out: u64,
    failed: u64,
    /// Milliseconds from the time at which a connect was due to its start, of each.
    lags: Vec<u32>,
}

pub(crate) fn run(load: Load) -> Result<(), Box<dyn Error>> {
    let mut all = Loop {
        epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
        open: Vec::new(),
        free: Vec::new(),
        timeouts: VecDeque::new(),
        answered: 0,
        timed_out: 0,
        failed: 0,
        lags: Vec::new(),
    };
    let started = Instant::now();
    all.until(load, started, started + WARM_UP, 0)?;
    let connects = due(load, WARM_UP);
    (all.answered, all.timed_out, all.failed) = (0, 0, 0);
    all.lags.clear();
    let cpu = usage::cpu()?;
    let time = Duration::from_secs(load.seconds.into());
    all.until(load, started, started + WARM_UP + time, connects)?;
    let cpu = usage::cpu()?.saturating_sub(cpu).as_secs_f64();
    let seconds = time.as_secs_f64();
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let done = (all.answered + all.timed_out + all.failed) as f64;
    all.lags.sort_unstable();
    let lag = all
        .lags
        .len()
        .checked_sub(1)
        .map_or(0, |last| all.lags[last * 99 / 100]);
    println!(
        "bare loop: {:.0} connects/s, {:.3} cores, {:.0} connects per CPU second; {} answered, {} timed out, {} failed; 99 % within {lag} ms",
        done / seconds,
        cpu / seconds,
        done / cpu,
        all.answered,
        all.timed_out,
        all.failed
    );
    println!(
        r#"{{"per_second":{:.1},"cores":{:.4},"per_cpu_second":{:.0},"answered":{},"timed_out":{},"failed":{},"lag_ms":{{"p99":{lag}}},"rss_kib":{}}}"#,
        done / seconds,
        cpu / seconds,
        done / cpu,
        all.answered,
        all.timed_out,
        all.failed,
        usage::resident()?,
    );
    Ok(())
}

/// Number of connects due within `time`: evenly spread, each target once per period.
fn due(load: Load, time: Duration) -> u64 {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    micros * u64::from(load.targets) / (u64::from(load.period) * 1_000_000)
}

/// The time at which connect `number` is due.
fn due_at(load: Load, number: u64) -> Duration {
    Duration::from_micros(number * u64::from(load.period) * 1_000_000 / u64::from(load.targets))
}

impl Loop {
    /// Runs until `end`; `next` connects have been made since `started`.
    fn until(
        &mut self,
        load: Load,
        started: Instant,
        end: Instant,
        mut next: u64,
    ) -> Result<(), Box<dyn Error>> {
        let mut events = vec![EpollEvent::empty(); 1024];
        loop {
            let pass = Instant::now();
            if pass >= end {
                return Ok(());
            }
            let all_due = due(load, pass - started);
            let due = all_due.min(next + BATCH);
            for number in next..due {
                let lag = (pass - started).saturating_sub(due_at(load, number));
                self.lags.push(u32::try_from(lag.as_millis())?);
                let n = u32::try_from(number % u64::from(load.targets))?;
                self.connect(SocketAddr::from((Load::addr(n), load.port_of(n))), pass)?;
            }
            next = next.max(due);
            // Behind schedule: the answers that are there, then the next batch at once.
            let tick = if due < all_due { Duration::ZERO } else { TICK };
            loop {
                let left = (pass + tick).saturating_duration_since(Instant::now());
                let found = match self.epoll.wait(&mut events, EpollTimeout::try_from(left)?) {
                    Err(Errno::EINTR) => 0,
                    found => found?,
                };
                for event in &events[..found] {
                    self.ended(u32::try_from(event.data())?);
                }
                if found == 0 && left < Duration::from_millis(1) {
                    break;
                }
            }
            self.expire();
        }
    }

    fn connect(&mut self, to: SocketAddr, now: Instant) -> Result<(), Box<dyn Error>> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking().cloexec(), None)?;
        socket.set_linger(Some(Duration::ZERO))?;
        match socket.connect(&to.into()) {
            Err(error) if error.raw_os_error() == Some(Errno::EINPROGRESS as i32) => {}
            outcome => {
                self.count(&outcome);
                return Ok(());
            }
        }
        let token = self.free.pop().unwrap_or_else(|| {
            self.open.push(None);
            u32::try_from(self.open.len() - 1).unwrap_or(u32::MAX)
        });
        let flags = EpollFlags::EPOLLOUT | EpollFlags::EPOLLONESHOT;
        self.epoll
            .add(&socket, EpollEvent::new(flags, u64::from(token)))?;
        self.open[token as usize] = Some(socket);
        let timeout = Duration::from_secs(TIMEOUT_SECONDS.into());
        self.timeouts.push_back((now + timeout, token));
        Ok(())
    }

    fn ended(&mut self, token: u32) {
        if let Some(socket) = self.open[token as usize].take() {
            let outcome = match socket.take_error() {
                Ok(None) => Ok(()),
                Ok(Some(error)) | Err(error) => Err(error),
            };
            self.count(&outcome);
        }
    }

    fn expire(&mut self) {
        let now = Instant::now();
        while let Some((at, token)) = self.timeouts.front().copied() {
            if at > now {
                break;
            }
            self.timeouts.pop_front();
            if self.open[token as usize].take().is_some() {
                self.timed_out += 1;
            }
            self.free.push(token);
        }
    }

    fn count(&mut self, outcome: &io::Result<()>) {
        match outcome {
            Ok(()) => self.answered += 1,
            Err(_) => self.failed += 1,
        }
    }
}
