//! How many probes this machine can do: many loopback targets, their rate, lag, memory and cost, beside a bare epoll loop
//! that makes the same connects.
//!
//! `cargo run --release -p harvester-lb-prober --example load -- prober|bare [targets] [seconds] [period] [dead]`
//! (default: 40000 targets for 15 s at a period of 5 s, none dead). The last `dead` targets never answer: their SYNs are
//! dropped. The listener runs in a process of its own, on the last core; what is measured runs on the first. The CPU time
//! given includes the kernel's share of the loopback. The last line of the output is JSON.
#![allow(clippy::print_stdout, reason = "what the program is for")]

mod alone;
mod bare;
mod listener;
mod usage;

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};

use listener::Listener;

/// Seconds after which a connect without an answer has failed.
const TIMEOUT_SECONDS: u32 = 3;

/// What to connect to, and how often.
#[derive(Clone, Copy)]
struct Load {
    targets: u32,
    /// For how long it is measured.
    seconds: u32,
    /// Seconds from one connect to a target to the next.
    period: u32,
    /// How many of the targets, the last ones, never answer.
    dead: u32,
    /// Port of those that answer.
    port: u16,
    /// Port of those that never answer.
    dead_port: u16,
}

impl Load {
    /// The address of a target; all are this machine's.
    fn addr(n: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(0x7f01_0000 + n)
    }

    /// The number of a target.
    fn number(addr: IpAddr) -> Option<u32> {
        match addr {
            IpAddr::V4(addr) => addr.to_bits().checked_sub(0x7f01_0000),
            IpAddr::V6(_) => None,
        }
    }

    fn is_dead(self, n: u32) -> bool {
        n >= self.targets - self.dead
    }

    fn port_of(self, n: u32) -> u16 {
        if self.is_dead(n) {
            self.dead_port
        } else {
            self.port
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_else(|| "prober".to_owned());
    if what == "listen" {
        return listener::serve();
    }
    let mut number = |default: u32| args.next().map_or(Ok(default), |arg| arg.parse());
    let (targets, seconds, period) = (number(40_000)?, number(15)?, number(5)?);
    let dead = number(0)?.min(targets);

    let listener = Listener::start()?;
    usage::pin(usage::Core::First)?;
    let load = Load {
        targets,
        seconds: seconds.max(1),
        period: period.max(1),
        dead,
        port: listener.port,
        dead_port: listener.dead_port,
    };
    match what.as_str() {
        "prober" => alone::run(load),
        "bare" => bare::run(load),
        other => Err(format!("{other:?} is neither prober nor bare").into()),
    }
}
