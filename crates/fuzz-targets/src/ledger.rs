//! The ledger: steps from bytes, and the invariants after each of them.
//!
//! The test also keeps the state that the API server would store; no proposal may touch another owner's part of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arbitrary::{Result, Unstructured};
use harvester_lb_ipam::{
    AllocationReason, Decision, Evidence, Ledger, Micros, Owner, OwnerId, Phase, PoolRanges,
    PoolSpec, Record, RecordSpec, Request, Settings, StatusAddress, Uid, addr,
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
    Ok(request)
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
                    1 => self.ledger.dequeue(id),
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

    fn decide(&mut self, request: &Request) {
        let id = &request.owner.id;
        let now = Micros(self.now);
        let decision = self.ledger.decide(request, now);
        let again = self.ledger.decide(request, Micros(self.now + 1));
        assert_eq!(
            core(&decision),
            core(&again),
            "the same question, another answer"
        );
        let stood = self.proposed.get(&request.owner).map(|spec| spec.addr);
        self.proposed.retain(|owner, _| owner.id != *id);
        match decision {
            Decision::Held { grant, .. } => {
                let record = &self.records[&grant.addr];
                assert_eq!(
                    (record.spec.phase, &record.spec.owner),
                    (Phase::Bound, &request.owner)
                );
            }
            Decision::Adopt { record, .. } => {
                let before = &self.records[&record.spec.addr];
                assert_eq!(
                    (before.spec.phase, &before.spec.owner.id),
                    (Phase::Bound, id)
                );
                assert_eq!(
                    (before.version, &record.spec.owner),
                    (record.version, &request.owner)
                );
            }
            Decision::Take {
                spec,
                replaces,
                reason,
                stale,
                ..
            } => {
                let addr = spec.addr;
                assert_eq!(replaces, self.records.get(&addr).map(|r| r.version));
                let bound = self
                    .records
                    .get(&addr)
                    .filter(|r| r.spec.phase == Phase::Bound);
                assert!(bound.is_none(), "{addr} is held by {bound:?}");
                assert!(
                    !self.blocked.contains_key(&addr),
                    "{addr} has a record that cannot be read"
                );
                let others = self.proposed.iter().find(|(_, other)| other.addr == addr);
                assert!(others.is_none(), "{addr} is proposed to {others:?}");
                let usable = self
                    .pools
                    .get(&*spec.pool)
                    .and_then(|pool| pool.ranges.as_ref().ok())
                    .is_some_and(|ranges| ranges.usable(addr));
                assert!(
                    usable || reason == AllocationReason::Recorded,
                    "{addr} is none of {}",
                    spec.pool
                );
                // A proposal made before another object showed the address stands.
                if reason != AllocationReason::Recorded && stood != Some(addr) {
                    let shown = self
                        .shown
                        .iter()
                        .find(|(owner, all)| *owner != id && all.contains(&addr));
                    assert!(shown.is_none(), "{addr} is shown by {shown:?}");
                }
                for record in stale {
                    assert_eq!(self.records[&record.spec.addr].spec.phase, Phase::Released);
                }
                self.proposed.insert(request.owner.clone(), spec);
            }
            Decision::Wait { explanation, .. } => assert!(explanation.to_string().len() < 16_384),
        }
    }

    fn check(&self) {
        let counts = self.ledger.counts();
        let bound = self
            .records
            .values()
            .filter(|r| r.spec.phase == Phase::Bound)
            .count();
        assert_eq!(
            (counts.bound, counts.released),
            (bound, self.records.len() - bound)
        );
        assert_eq!(counts.pools, self.pools.len());
        assert_eq!(counts.blocked, self.blocked.len());
        for (name, pool) in &self.pools {
            let view = self.ledger.projection(name).unwrap();
            let of = |phase: Phase| {
                let own = |r: &&Record| *r.spec.pool == **name && r.spec.phase == phase;
                self.records
                    .values()
                    .filter(own)
                    .map(|r| r.spec.addr)
                    .collect::<Vec<_>>()
            };
            assert_eq!(
                view.allocated().map(|(a, _)| a).collect::<Vec<_>>(),
                of(Phase::Bound)
            );
            assert_eq!(
                view.history().map(|(a, ..)| a).collect::<Vec<_>>(),
                of(Phase::Released)
            );
            assert_eq!(view.allocated_len, of(Phase::Bound).len());
            assert_eq!(view.history_len, of(Phase::Released).len());
            let total = pool.ranges.as_ref().map_or(0, PoolRanges::total);
            let usable = |addr: &IpAddr| {
                pool.ranges
                    .as_ref()
                    .is_ok_and(|ranges| ranges.usable(*addr))
            };
            let held = |r: &&Record| r.spec.phase == Phase::Bound && usable(&r.spec.addr);
            let taken = self.records.values().filter(held).count();
            assert_eq!(view.total, total);
            // An address that is claimed, shown or blocked is not available either (ALC-11).
            let most = (total - i64::try_from(taken).unwrap()).max(0);
            assert!((0..=most).contains(&view.available));
        }
    }
}

/// The part of an answer that must be the same when the request is repeated.
fn core(decision: &Decision) -> String {
    match decision {
        Decision::Held { grant, .. } => format!("held {} {}", grant.addr, grant.pool),
        Decision::Adopt { record, .. } => format!("adopt {record:?}"),
        Decision::Take {
            spec,
            replaces,
            reason,
            ..
        } => format!("take {spec:?} {replaces:?} {reason:?}"),
        Decision::Wait {
            reason,
            explanation,
            ..
        } => format!("wait {} {explanation}", reason.as_str()),
    }
}
