//! How many probes this machine can do: many loopback targets, their rate, lag, memory and cost, compared with a bare
//! epoll loop that makes the same connects.
//!
//! `cargo run --release -p harvester-lb-prober --example load -- prober|bare [targets] [seconds] [period] [dead]`
//! (default: 40000 targets for 15 s at a period of 5 s, none dead). The last `dead` targets never answer: their SYNs
//! are dropped. The listener runs in a separate process on the last core; the measured side runs on the first. The CPU
//! time includes the kernel's share of the loopback. The last line of the output is JSON.
#![allow(clippy::print_stdout, reason = "what the program is for")]

mod alone;
mod bare;
mod listener;
mod targets;
mod usage;

use std::error::Error;

use listener::Listener;
use targets::Load;

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
