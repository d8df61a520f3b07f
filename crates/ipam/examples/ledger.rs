//! Benchmark of the ledger: operations per second, and memory per record, with 65,000 records.
//!
//! `cargo run --release -p harvester-lb-ipam --example ledger -- [records] [rounds]`
//!
//! `ledger scale edit|wake|project SIZE 0|1` creates a ledger of that size, then does the work (1) or not (0), and
//! prints the number of operations. The difference of the instruction counts of the two, measured by valgrind, is the
//! cost of the work: per operation it must not grow with the size (`make bench ROWS=ledger-scale`).
//!
//! The last line of the output is JSON. Each kind of operation is timed separately, over many load balancers, with the
//! ledger at its full size; the requests are created before the clock starts.
#![allow(clippy::print_stdout, reason = "what the program is for")]
#![allow(
    clippy::disallowed_methods,
    reason = "the crate is pure; this program is outside of it and measures time"
)]

#[path = "ledger/scale.rs"]
mod scale;

use std::error::Error;
use std::process::Command;
use std::time::Instant;

use harvester_lb_ipam::range::PoolRanges;
use harvester_lb_ipam::{
    Decision, Ledger, Micros, Owner, PoolSpec, RangeSpec, Record, RecordSpec, Request, Requirement,
    Selector, Settings, Tuple, Workload,
};
use harvester_lb_object::Version;

/// Number of operations of each kind that are timed in a round.
const TIMED: usize = 5_000;

/// The kinds of operation, in the order of a round.
const KINDS: [&str; 7] = [
    "take",
    "observe a new record",
    "ask for what is held",
    "release",
    "observe a release",
    "sticky re-take",
    "observe a record that is bound again",
];

/// Lengths of `namespace/name`, the only part of a record without a fixed size.
const LENGTHS: [usize; 2] = [24, 40];

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).peekable();
    if args.next_if_eq("scale").is_some() {
        let args: [String; 3] = args
            .collect::<Vec<_>>()
            .try_into()
            .map_err(|_| "write it as scale KIND SIZE 0|1")?;
        let [kind, size, work] = args;
        println!("{}", scale::run(&kind, size.parse()?, work == "1")?);
        return Ok(());
    }
    let mut number = |default| args.next().map_or(Ok(default), |arg| arg.parse::<usize>());
    let (records, rounds) = (number(65_000)?.max(TIMED), number(7)?.max(1));

    // A separate process for each length: memory that one has freed would not be counted in the next.
    if let Some(length) = std::env::var_os("LEDGER_ID_LENGTH") {
        let length: usize = length.to_string_lossy().parse()?;
        println!("{}", memory(records, length)?);
        return Ok(());
    }
    let mut bytes = Vec::new();
    for length in LENGTHS {
        let output = Command::new(std::env::current_exe()?)
            .arg(records.to_string())
            .env("LEDGER_ID_LENGTH", length.to_string())
            .output()?;
        let each: usize = String::from_utf8(output.stdout)?.trim().parse()?;
        println!("{records} records, ids of {length} characters: {each} bytes each");
        bytes.push(format!(r#""{length}":{each}"#));
    }

    let mut rates: [Vec<u64>; KINDS.len()] = Default::default();
    for _ in 0..rounds {
        for (all, rate) in rates.iter_mut().zip(round(records)?) {
            all.push(rate);
        }
    }
    for (kind, all) in KINDS.iter().zip(&rates) {
        println!("{kind}: {all:?} per second");
    }
    let fields: Vec<String> = KINDS
        .iter()
        .zip(&rates)
        .map(|(kind, all)| format!("[{kind:?},{all:?}]"))
        .collect();
    println!(
        r#"{{"records":{records},"bytes_per_record":{{{}}},"per_second":[{}]}}"#,
        bytes.join(","),
        fields.join(",")
    );
    Ok(())
}

/// Bytes per record, by the growth of this process.
fn memory(records: usize, length: usize) -> Result<usize, Box<dyn Error>> {
    let before = resident()?;
    let mut world = Load::new();
    for n in 0..records {
        // Only what the ledger stores of the request stays in memory.
        let spec = world.take(&request(n, length))?;
        world.observe(spec)?;
    }
    Ok(resident()?.saturating_sub(before) / records)
}

/// A ledger, and the versions that an API server would assign to its records.
struct Load {
    ledger: Ledger,
    version: u64,
    now: i64,
}

impl Load {
    fn new() -> Self {
        let mut ledger = Ledger::new(Settings::default());
        ledger.set_pool(PoolSpec {
            name: "pool".into(),
            created: Micros(0),
            // 131,069 addresses: room for twice the records.
            ranges: PoolRanges::parse(&[RangeSpec {
                subnet: "10.20.0.0/15".into(),
                ..RangeSpec::default()
            }]),
            selector: Selector {
                scope: vec![Tuple::new("*", "*", "*")],
                ..Selector::default()
            },
            withheld: None,
            last_allocated: None,
        });
        ledger.take_wakes();
        Self {
            ledger,
            version: 0,
            now: 0,
        }
    }

    fn time(&mut self) -> Micros {
        self.now += 1;
        Micros(self.now)
    }

    fn take(&mut self, request: &Request) -> Result<RecordSpec, Box<dyn Error>> {
        let now = self.time();
        match self.ledger.decide(request, now) {
            Decision::Take { spec, .. } => Ok(spec),
            other => Err(format!("no address: {other:?}").into()),
        }
    }

    fn observe(&mut self, spec: RecordSpec) -> Result<(), Box<dyn Error>> {
        self.version += 1;
        let version = Version(self.version);
        if self.ledger.observe(Record { spec, version }) {
            return Ok(());
        }
        Err("the record is no news".into())
    }

    /// Observed records per second.
    fn observe_all(&mut self, specs: Vec<RecordSpec>) -> Result<u64, Box<dyn Error>> {
        timed(|| {
            for spec in specs {
                self.observe(spec)?;
            }
            Ok(())
        })
    }
}

/// The request of a load balancer whose `namespace/name` has this length.
fn request(n: usize, length: usize) -> Request {
    let name = format!("{n:0>width$}", width = length.saturating_sub(11));
    Request {
        owner: Owner::new(
            &format!("project-{:02}", n % 100),
            &name,
            &format!("5d2f7e61-0000-4000-8000-{n:012x}"),
        ),
        created: Micros(0),
        pool: Some("pool".into()),
        requirement: Requirement::default(),
        workload: Workload::Cluster,
        status: None,
        requested: None,
    }
}

/// Operations per second, by kind.
fn round(records: usize) -> Result<[u64; KINDS.len()], Box<dyn Error>> {
    let mut world = Load::new();
    for n in TIMED..records {
        let spec = world.take(&request(n, LENGTHS[0]))?;
        world.observe(spec)?;
    }
    let requests: Vec<Request> = (0..TIMED).map(|n| request(n, LENGTHS[0])).collect();

    let mut taken = Vec::with_capacity(TIMED);
    let take = timed(|| {
        for request in &requests {
            taken.push(world.take(request)?);
        }
        Ok(())
    })?;
    let bound = taken.clone();
    let observe = world.observe_all(taken)?;
    let held = timed(|| {
        for request in &requests {
            let now = world.time();
            if !matches!(world.ledger.decide(request, now), Decision::Held { .. }) {
                return Err("not held".into());
            }
        }
        Ok(())
    })?;
    let mut released = Vec::with_capacity(TIMED);
    let release = timed(|| {
        for spec in &bound {
            let now = world.time();
            let record = world.ledger.may_release(spec.addr, &spec.owner.uid, now)?;
            released.push(record.spec);
        }
        Ok(())
    })?;
    let observe_release = world.observe_all(released)?;
    let mut again = Vec::with_capacity(TIMED);
    let retake = timed(|| {
        for request in &requests {
            again.push(world.take(request)?);
        }
        Ok(())
    })?;
    let sticky = bound.iter().zip(&again).all(|(a, b)| a.addr == b.addr);
    if !sticky {
        return Err("another address than before".into());
    }
    let observe_again = world.observe_all(again)?;
    Ok([
        take,
        observe,
        held,
        release,
        observe_release,
        retake,
        observe_again,
    ])
}

/// Operations per second, where `work` does [`TIMED`] of them.
fn timed(work: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Result<u64, Box<dyn Error>> {
    let started = Instant::now();
    work()?;
    let nanos = u64::try_from(started.elapsed().as_nanos())?.max(1);
    Ok(u64::try_from(TIMED)? * 1_000_000_000 / nanos)
}

/// Resident memory of this process in bytes.
fn resident() -> Result<usize, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let text = line.unwrap_or_default().trim().trim_end_matches("kB");
    Ok(text.trim().parse::<usize>()? * 1024)
}
