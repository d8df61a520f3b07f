//! Ledgers of a given size, and work in them that concerns only a small part.

use std::error::Error;
use std::hint::black_box;

use harvester_lb_ipam::range::PoolRanges;
use harvester_lb_ipam::{
    Decision, Evidence, ExcludeError, Ledger, Micros, Owner, Phase, PoolSpec, RangeSpec, Record,
    RecordSpec, Request, Requirement, Selector, Settings, StatusAddress, Tuple, Withheld, Workload,
};
use harvester_lb_object::Version;

/// Number of pool edits.
const EDITS: usize = 200;
/// Addresses of each pool with a record, and without one: as after a swap, until each is recorded.
const RECORDS: usize = 3;
const CLAIMS: usize = 10;

/// Creates a ledger of a size, and does the work in it or not. Returns the number of operations of the work.
pub(crate) fn run(kind: &str, size: usize, work: bool) -> Result<usize, Box<dyn Error>> {
    match kind {
        "edit" => edit(size, work),
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
        requested: None,
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

/// Edits single pools of `pools` neighbouring ones, all with records, claims and a reservation, and asks each time for the load
/// balancers that the edit concerns. As many load balancers wait for a withheld pool to confirm their address.
fn edit(pools: usize, work: bool) -> Result<usize, Box<dyn Error>> {
    let mut ledger = Ledger::new(Settings::default());
    let net = |n: usize| format!("10.{}.{}", n / 250, n % 250);
    let name = |n: usize| format!("pool-{n}");
    let one = |n: usize, start: usize| {
        let (net, start) = (net(n), Some(format!("{}.{start}", net(n))));
        pool(&name(n), &format!("{net}.0/24"), start)
    };
    ledger.set_pool(PoolSpec {
        withheld: Some(Withheld::InvalidExclude(ExcludeError::TooMany {
            count: 1025,
        })),
        ..pool("withheld", "10.200.0.0/16", None)
    });
    for n in 0..pools {
        ledger.set_pool(one(n, 10));
        drain(&mut ledger);
        for host in 0..RECORDS + CLAIMS {
            let addr = format!("{}.{}", net(n), 100 + host).parse()?;
            let owner = request(n * 100 + host).owner;
            if host >= RECORDS {
                ledger.claim(addr, owner, Evidence::Trusted(name(n).as_str().into()));
                continue;
            }
            let spec = RecordSpec {
                addr,
                pool: name(n).as_str().into(),
                owner,
                phase: Phase::Bound,
                bound_at: Micros(0),
                released_at: None,
                group: None,
            };
            let version = Version(1);
            ledger.observe(Record { spec, version });
        }
        let of_pool = |n: usize, pool: &str| Request {
            pool: Some(pool.into()),
            ..request(n * 100 + 99)
        };
        ledger.decide(&of_pool(n, &name(n)), Micros(1));
        let mut waits = of_pool(pools + n, "withheld");
        waits.status = Some(StatusAddress {
            addr: format!("10.200.{}.{}", n / 250, 1 + n % 250).parse()?,
            pool: Some("withheld".into()),
        });
        ledger.decide(&waits, Micros(1));
        drain(&mut ledger);
    }
    for edit in 0..if work { EDITS } else { 0 } {
        // An odd factor, so that the edits cover all pools.
        let n = edit * 37 % pools;
        ledger.set_pool(one(n, 11 + edit / pools));
        let holders = ledger.holders(&name(n)).len();
        if holders != RECORDS + 1 {
            return Err(format!("{holders} hold an address of a pool").into());
        }
        drain(&mut ledger);
    }
    Ok(EDITS)
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
