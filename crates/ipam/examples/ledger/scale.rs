//! Ledgers of a given size, and work in them that concerns only a small part.

use std::error::Error;
use std::hint::black_box;

use harvester_lb_ipam::range::PoolRanges;
use harvester_lb_ipam::{
    Decision, Ledger, Micros, Owner, PoolSpec, RangeSpec, Record, Request, Requirement, Selector,
    Settings, Tuple, Workload,
};
use harvester_lb_object::Version;

/// Number of pool edits.
const EDITS: usize = 200;

/// Creates a ledger of a size, and does the work in it or not. Returns the number of operations of the work.
pub(crate) fn run(kind: &str, size: usize, work: bool) -> Result<usize, Box<dyn Error>> {
    match kind {
        "edit" => Ok(edit(size, work)),
        "wake" => wake(size, work),
        "project" => project(size, work),
        other => Err(format!("there is no {other:?}; there are edit, wake, project").into()),
    }
}

fn pool(name: &str, subnet: &str, start: Option<String>) -> PoolSpec {
    let range = RangeSpec {
        subnet: subnet.into(),
        start,
        ..RangeSpec::default()
    };
    PoolSpec {
        name: name.into(),
        created: Micros(0),
        ranges: PoolRanges::parse(&[range]),
        selector: Selector {
            scope: vec![Tuple::new("*", "*", "*")],
            ..Selector::default()
        },
        withheld: None,
        last_allocated: None,
    }
}

fn request(n: usize) -> Request {
    Request {
        owner: Owner::new(
            "shop",
            &format!("lb-{n:06}"),
            &format!("5d2f7e61-0000-4000-8000-{n:012x}"),
        ),
        created: Micros(0),
        pool: Some("large".into()),
        requirement: Requirement::default(),
        workload: Workload::Cluster,
        status: None,
    }
}

/// The calls that the leader makes after each change.
fn drain(ledger: &mut Ledger) {
    black_box(ledger.take_wakes());
    black_box(ledger.take_overlap_changes());
    black_box(ledger.take_recounted());
    black_box(ledger.may_have_outdated());
}

/// Decides, and observes the record of the decision.
fn ask(ledger: &mut Ledger, n: usize) -> Result<(), Box<dyn Error>> {
    let at = i64::try_from(n)? + 1;
    if let Decision::Take { spec, .. } = ledger.decide(&request(n), Micros(at)) {
        drain(ledger);
        let version = Version(u64::try_from(at)?);
        ledger.observe(Record { spec, version });
    }
    drain(ledger);
    Ok(())
}

/// Edits single pools of `pools` neighbouring ones.
fn edit(pools: usize, work: bool) -> usize {
    let mut ledger = Ledger::new(Settings::default());
    let one = |n: usize, start: usize| {
        let net = format!("10.{}.{}", n / 250, n % 250);
        let start = Some(format!("{net}.{start}"));
        pool(&format!("pool-{n}"), &format!("{net}.0/24"), start)
    };
    for n in 0..pools {
        ledger.set_pool(one(n, 10));
        drain(&mut ledger);
    }
    for edit in 0..if work { EDITS } else { 0 } {
        // An odd factor, so that the edits cover all pools.
        ledger.set_pool(one(edit * 37 % pools, 11 + edit / pools));
        drain(&mut ledger);
    }
    EDITS
}

/// Adds a pool with room for all of `waiting` load balancers that wait for it.
fn wake(waiting: usize, work: bool) -> Result<usize, Box<dyn Error>> {
    let mut ledger = Ledger::new(Settings::default());
    for n in 0..waiting {
        ask(&mut ledger, n)?;
    }
    if work {
        ledger.set_pool(pool("large", "10.20.0.0/15", None));
        let woken = ledger.take_wakes();
        if woken.len() != waiting {
            return Err(format!("{} of {waiting} are woken", woken.len()).into());
        }
        for n in 0..waiting {
            ask(&mut ledger, n)?;
        }
    }
    Ok(waiting)
}

/// The data that is copied, under the leader's lock, for the status of a pool with `records` records.
fn project(records: usize, work: bool) -> Result<usize, Box<dyn Error>> {
    let mut ledger = Ledger::new(Settings::default());
    ledger.set_pool(pool("large", "10.20.0.0/15", None));
    for n in 0..records {
        ask(&mut ledger, n)?;
    }
    if work {
        let view = ledger.projection("large").ok_or("no pool")?;
        let held = view.allocated().map(|(addr, id)| (addr, id.clone()));
        black_box(held.collect::<Vec<_>>());
        let past = view.remembered().map(|(addr, id)| (addr, id.clone()));
        black_box(past.collect::<Vec<_>>());
    }
    Ok(records)
}
