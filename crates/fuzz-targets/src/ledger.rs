//! The ledger: steps from bytes. `judge` has the invariants of each decision, and those after each step.
//!
//! The test also keeps the state that the API server would store; no proposal may touch another owner's part of it.

mod judge;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arbitrary::{Result, Unstructured};
use harvester_lb_ipam::{
    Evidence, Exclusions, Ledger, Micros, Owner, OwnerId, Phase, PoolSpec, Record, RecordSpec,
    Request, Settings, StatusAddress, Uid, Withheld, addr,
};
use harvester_lb_object::Version;

use crate::common::{pool, range, request};

const POOLS: [&str; 3] = ["p", "q", ""];
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const SUBNETS: [&str; 12] = [
    "10.0.0.0/29",
    "10.0.0.0/30",
    "10.0.0.4/30",
    "10.0.0.8/29",
    "10.0.0.2/32",
    "10.0.0.6/31",
    "fd00::/125",
    "::/0",
    "255.255.255.248/29",
    "bad",
    "10.0.0.0/28",
    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff8/125",
];

/// Lists of exclusions: within ranges, at their ends, all of them, none that is valid.
const EXCLUDED: [&str; 8] = [
    "10.0.0.5",
    "10.0.0.2-10.0.0.6",
    "10.0.0.0/29, 10.0.0.9",
    "0.0.0.0/0,::/0",
    "255.255.255.255,ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff8/125",
    "fd00::3-fd00::5,fd00::4",
    "",
    "10.0.0.9-10.0.0.1",
];

/// Runs an input; returns whether it got past the decoder.
pub fn run(data: &[u8]) -> bool {
    let mut input = Unstructured::new(data);
    let mut world = Model::new();
    for _ in 0..300 {
        if input.is_empty() || world.step(&mut input).is_err() {
            break;
        }
        world.check();
    }
    true
}

struct Model {
    ledger: Ledger,
    pools: BTreeMap<String, PoolSpec>,
    records: BTreeMap<IpAddr, Record>,
    /// The resource version of the unreadable IPAllocation.
    blocked: BTreeMap<IpAddr, u64>,
    shown: BTreeMap<OwnerId, BTreeSet<IpAddr>>,
    /// The last proposal by owner.
    proposed: BTreeMap<Owner, RecordSpec>,
    version: u64,
    now: i64,
}

fn any_addr(input: &mut Unstructured<'_>) -> Result<IpAddr> {
    let n = input.int_in_range(0..=15u8)?;
    Ok(match input.int_in_range(0..=5u8)? {
        0 => Ipv6Addr::from_bits((0xfd00 << 112) + u128::from(n)).into(),
        1 => Ipv4Addr::from_bits(u32::MAX - u32::from(n)).into(),
        2 => Ipv6Addr::from_bits(u128::MAX - u128::from(n)).into(),
        _ => Ipv4Addr::new(10, 0, 0, n).into(),
    })
}

fn any_request(input: &mut Unstructured<'_>) -> Result<Request> {
    let name = *input.choose(&NAMES)?;
    let uid = format!("{name}{}", input.int_in_range(0..=1u8)?);
    let pool = *input.choose(&[Some("p"), Some("p"), Some("q"), None])?;
    let mut request = request(name, &uid, pool);
    request.created = Micros(i64::from(input.int_in_range(0..=3u8)?));
    if input.ratio(1, 4)? {
        let pool = input.choose(&POOLS)?;
        let addr = any_addr(input)?;
        request.status = Some(StatusAddress {
            pool: Some((*pool).into()),
            addr,
        });
    }
    if input.ratio(1, 4)? {
        request.requested = Some(any_addr(input)?);
    }
    Ok(request)
}

/// Adds a list of exclusions to a pool; one that is invalid withholds it (EXC-1).
fn exclude(spec: &mut PoolSpec, list: &str) {
    match Exclusions::parse(list) {
        Err(error) => spec.withheld = Some(Withheld::InvalidExclude(error)),
        Ok(excluded) => spec.ranges = spec.ranges.clone().map(|ranges| ranges.without(&excluded)),
    }
}

fn any_time(input: &mut Unstructured<'_>) -> Result<Micros> {
    // The minimum stands for no time at all.
    let odd = [0, 1, 5, i64::MAX, i64::MAX - 1, i64::MIN + 1, -1];
    Ok(Micros(*input.choose(&odd)?))
}

impl Model {
    fn new() -> Self {
        Self {
            ledger: Ledger::new(Settings::default()),
            pools: BTreeMap::new(),
            records: BTreeMap::new(),
            blocked: BTreeMap::new(),
            shown: BTreeMap::new(),
            proposed: BTreeMap::new(),
            version: 0,
            now: 0,
        }
    }

    fn step(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        self.now += 1;
        match input.int_in_range(0..=17u8)? {
            0 | 1 => {
                let name = *input.choose(&POOLS)?;
                let mut ranges = Vec::new();
                for _ in 0..input.int_in_range(0..=3u8)? {
                    ranges.push(range(input.choose(&SUBNETS)?));
                }
                let mut spec = pool(name, &ranges);
                spec.created = any_time(input)?;
                if input.ratio(1, 4)? {
                    spec.last_allocated = Some((any_addr(input)?, any_time(input)?));
                }
                if input.ratio(1, 2)? {
                    let any = harvester_lb_ipam::Tuple::new("*", "calm", "*");
                    spec.selector.scope = vec![any];
                }
                if input.ratio(1, 3)? {
                    exclude(&mut spec, input.choose(&EXCLUDED)?);
                }
                self.pools.insert(name.to_owned(), spec.clone());
                self.ledger.set_pool(spec);
            }
            2 => {
                let name = *input.choose(&POOLS)?;
                self.pools.remove(name);
                self.ledger.remove_pool(name);
            }
            3..=7 => {
                let request = any_request(input)?;
                self.decide(&request);
            }
            8 | 9 => {
                let owners: Vec<Owner> = self.proposed.keys().cloned().collect();
                if !owners.is_empty() {
                    let owner = input.choose(&owners)?;
                    let spec = self.proposed.remove(owner).unwrap();
                    self.store(spec);
                }
            }
            10 => {
                let request = any_request(input)?;
                let phase = *input.choose(&[Phase::Bound, Phase::Released])?;
                let spec = RecordSpec {
                    addr: any_addr(input)?,
                    pool: (*input.choose(&POOLS)?).into(),
                    owner: request.owner,
                    phase,
                    bound_at: any_time(input)?,
                    released_at: if phase == Phase::Released {
                        Some(any_time(input)?)
                    } else {
                        None
                    },
                    group: None,
                };
                self.store(spec);
            }
            11 => {
                let addr = any_addr(input)?;
                let old = input.ratio(1, 4)?;
                self.version += 1;
                let version = if old { 0 } else { self.version };
                if self
                    .records
                    .get(&addr)
                    .is_none_or(|r| r.version.0 <= version)
                {
                    self.records.remove(&addr);
                }
                if self.blocked.get(&addr).is_some_and(|at| *at <= version) {
                    self.blocked.remove(&addr);
                }
                self.ledger.forget(addr, Version(version));
            }
            12 => {
                let addr = any_addr(input)?;
                let name = addr::record_name(addr);
                assert_eq!(addr::parse_record_name(&name), Some(addr));
                self.version += 1;
                assert!(self.ledger.block_name(&name, Version(self.version)));
                let twice = self.ledger.block_name(&name, Version(self.version));
                assert!(!twice, "the same twice is no news");
                self.blocked.insert(addr, self.version);
                self.proposed.retain(|_, spec| spec.addr != addr);
            }
            13 => {
                let id = any_request(input)?.owner.id;
                let mut addrs = BTreeSet::new();
                for _ in 0..input.int_in_range(0..=3u8)? {
                    addrs.insert(any_addr(input)?);
                }
                let list: Vec<IpAddr> = addrs.iter().copied().collect();
                self.ledger.set_shown(&id, &list);
                self.shown.insert(id, addrs);
            }
            14 => {
                let request = any_request(input)?;
                let evidence = if input.ratio(1, 2)? {
                    Evidence::Status
                } else {
                    Evidence::Trusted((*input.choose(&POOLS)?).into())
                };
                // Claims come before any proposal.
                let addr = any_addr(input)?;
                if !self.proposed.values().any(|spec| spec.addr == addr) {
                    self.ledger.claim(addr, request.owner, evidence);
                }
            }
            15 => {
                let request = any_request(input)?;
                let id = &request.owner.id;
                match input.int_in_range(0..=3u8)? {
                    0 => {
                        self.ledger.withdraw(id);
                        self.proposed.retain(|owner, _| owner.id != *id);
                    }
                    1 => {
                        self.ledger.dequeue(&request.owner);
                        let is_void = |owner: &Owner| owner.id == *id && *owner != request.owner;
                        self.proposed.retain(|owner, _| !is_void(owner));
                    }
                    2 => self.ledger.enlist(request),
                    _ => {
                        if let Some(spec) = self.proposed.remove(&request.owner) {
                            self.ledger.abandon(id, spec.addr);
                        }
                    }
                }
            }
            16 => {
                let addr = any_addr(input)?;
                let uid = Uid::new(&format!(
                    "{}{}",
                    input.choose(&NAMES)?,
                    input.int_in_range(0..=1u8)?
                ));
                if let Ok(released) = self.ledger.may_release(addr, &uid, Micros(self.now)) {
                    let before = &self.records[&addr];
                    assert!(before.spec.phase == Phase::Bound && before.spec.owner.uid == uid);
                    let owner = &before.spec.owner.id;
                    assert!(
                        !self
                            .shown
                            .get(owner)
                            .is_some_and(|shown| shown.contains(&addr))
                    );
                    self.store(released.spec);
                }
            }
            _ => {
                let mut seen = BTreeSet::new();
                for id in self.ledger.take_wakes() {
                    assert!(seen.insert(id), "woken twice");
                }
                for record in self.ledger.history_excess(8) {
                    assert_eq!(record.spec.phase, Phase::Released);
                    assert_eq!(self.records[&record.spec.addr], record);
                }
            }
        }
        Ok(())
    }

    /// The API server stores an IPAllocation, and the ledger observes it.
    fn store(&mut self, spec: RecordSpec) {
        self.version += 1;
        let record = Record {
            version: Version(self.version),
            spec,
        };
        let addr = record.spec.addr;
        self.records.insert(addr, record.clone());
        self.blocked.remove(&addr);
        if record.spec.phase == Phase::Bound {
            self.proposed.retain(|_, spec| spec.addr != addr);
        }
        assert!(self.ledger.observe(record.clone()));
        assert!(!self.ledger.observe(record), "the same twice is no news");
    }
}
