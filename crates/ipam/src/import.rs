//! The import at the first start: addresses that the pools' maps and the load balancers' statuses
//! name and no IPAllocation does, after an upgrade from the Go operator or a loss of IPAllocations
//! (IPA-1, IPA-2).
//!
//! The plan consists of claims, which the ledger stores until the decision about each load balancer
//! turns them into records (ALC-7), and of Released records, which the caller creates.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::addr;
use crate::ledger::{Evidence, Ledger, StatusAddress};
use crate::types::{Micros, Owner, OwnerId, Phase, PoolName, RecordSpec, Uid};

/// The maps of a pool's status. Pass them only if another writer changed them: if they do not match
/// the digest in the projection annotation.
#[derive(Clone, Debug)]
pub struct PoolMaps {
    /// The pool.
    pub name: PoolName,
    /// Its creation time: of two pools that list one address the older wins.
    pub created: Micros,
    /// `status.allocated`
    pub allocated: Vec<(String, String)>,
    /// `status.allocatedHistory`
    pub history: Vec<(String, String)>,
}

/// A load balancer that exists.
#[derive(Clone, Debug)]
pub struct ExistingLb {
    /// The load balancer.
    pub owner: Owner,
    /// Its creation time.
    pub created: Micros,
    /// `status.allocatedAddress`, if it names an address.
    pub status: Option<StatusAddress>,
    /// Whether it requests an address of a pool.
    pub wants: bool,
}

/// An address to claim for a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewClaim {
    /// The address.
    pub addr: IpAddr,
    /// The load balancer that has it.
    pub owner: Owner,
    /// The source of this information.
    pub evidence: Evidence,
}

/// IPA-2: a load balancer that shares an address with another and does not keep it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loser {
    /// The load balancer that gets another address.
    pub owner: Owner,
    /// The address that it loses.
    pub addr: IpAddr,
    /// The load balancer that keeps it.
    pub keeper: OwnerId,
}

/// One of the two maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapField {
    /// `status.allocated`
    Allocated,
    /// `status.allocatedHistory`
    History,
}

/// Why an entry of a map is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// The key is not the text of an address.
    NotAnAddress,
    /// The value is not `namespace/name`.
    NotAnOwner,
    /// It would become history, but the pool cannot allocate the address (POOL-1).
    OutOfRange,
    /// It would become history, but the limits of the settings are reached.
    HistoryFull,
}

/// An entry of a map that is skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The pool.
    pub pool: PoolName,
    /// The map.
    pub field: MapField,
    /// The key.
    pub key: String,
    /// The value.
    pub value: String,
    /// Why.
    pub reason: SkipReason,
}

/// What to do at the start, once the ledger knows pools, records and the addresses that Services show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// To pass to [`Ledger::claim`].
    pub claims: Vec<NewClaim>,
    /// To report by an Event and a condition.
    pub losers: Vec<Loser>,
    /// To create. Their uid is unknown and so empty, their `bound_at` unknown and so 0.
    pub released: Vec<RecordSpec>,
    /// To log.
    pub skipped: Vec<Skipped>,
}

/// A valid entry of a map.
struct Entry {
    pool: PoolName,
    field: MapField,
    addr: IpAddr,
    id: OwnerId,
}

/// Plans the import (IPA-1, IPA-2).
///
/// An address with a Bound record is not imported: its owner keeps it, and other load balancers
/// that name it lose it (ALC-7). The contenders for any other address are the load balancers whose
/// status names it, and the one that a map names unless its status names another address. Among
/// several the one in the map keeps it, else the oldest.
pub fn plan(ledger: &Ledger, maps: &[PoolMaps], existing: &[ExistingLb], now: Micros) -> Plan {
    let mut plan = Plan::default();
    let entries = read_maps(maps, &mut plan.skipped);
    let mut allocated: BTreeMap<IpAddr, Vec<&Entry>> = BTreeMap::new();
    for entry in entries
        .iter()
        .filter(|entry| entry.field == MapField::Allocated)
    {
        allocated.entry(entry.addr).or_default().push(entry);
    }
    let by_id: FxHashMap<&OwnerId, &ExistingLb> = existing
        .iter()
        .filter(|lb| lb.wants)
        .map(|lb| (&lb.owner.id, lb))
        .collect();
    let mut by_status: BTreeMap<IpAddr, Vec<&ExistingLb>> = BTreeMap::new();
    for lb in by_id.values() {
        if let Some(status) = &lb.status {
            by_status.entry(status.addr).or_default().push(lb);
        }
    }

    let mut assigned: FxHashSet<&OwnerId> = FxHashSet::default();
    let addrs: BTreeSet<IpAddr> = allocated.keys().chain(by_status.keys()).copied().collect();
    for addr in addrs {
        let named = by_status.get(&addr).map_or(&[][..], Vec::as_slice);
        let listed = allocated.get(&addr).map_or(&[][..], Vec::as_slice);
        let bound = ledger
            .record(addr)
            .filter(|record| record.spec.phase == Phase::Bound);
        if let Some(record) = bound {
            plan.lose(addr, &record.spec.owner.id, named.iter().copied());
            continue;
        }
        let held =
            |lb: &ExistingLb| assigned.contains(&lb.owner.id) || has_record(ledger, &lb.owner.id);
        let elsewhere =
            |lb: &ExistingLb| lb.status.as_ref().is_some_and(|status| status.addr != addr);
        let from_map = listed
            .iter()
            .filter_map(|entry| by_id.get(&entry.id).copied())
            .filter(|lb| !elsewhere(lb));
        let mut contenders: Vec<&ExistingLb> = named
            .iter()
            .copied()
            .chain(from_map)
            .filter(|lb| !held(lb))
            .collect();
        contenders.sort_by_key(|lb| (lb.created, &lb.owner));
        contenders.dedup_by_key(|lb| &lb.owner);
        let in_map = |lb: &ExistingLb| listed.iter().position(|entry| entry.id == lb.owner.id);
        let keeper = contenders
            .iter()
            .min_by_key(|lb| (in_map(lb).unwrap_or(usize::MAX), lb.created, &lb.owner));
        if let Some(keeper) = keeper {
            assigned.insert(&keeper.owner.id);
            plan.claims.push(NewClaim {
                addr,
                owner: keeper.owner.clone(),
                evidence: evidence(keeper, listed),
            });
            plan.lose(addr, &keeper.owner.id, contenders.iter().copied());
        }
    }
    let claimed = plan.claims.iter().map(|claim| claim.addr).collect();
    plan.remember(ledger, &entries, claimed, now);
    plan
}

/// Parses the maps, those of older pools first.
fn read_maps(maps: &[PoolMaps], skipped: &mut Vec<Skipped>) -> Vec<Entry> {
    let mut maps: Vec<_> = maps.iter().collect();
    maps.sort_by_key(|pool| (pool.created, &pool.name));
    let mut entries = Vec::new();
    for pool in maps {
        let fields = [
            (MapField::Allocated, &pool.allocated),
            (MapField::History, &pool.history),
        ];
        for (field, (key, value)) in fields
            .into_iter()
            .flat_map(|(field, map)| map.iter().map(move |entry| (field, entry)))
        {
            let entry = addr::parse(key)
                .ok_or(SkipReason::NotAnAddress)
                .and_then(|addr| {
                    let id = OwnerId::parse(value).ok_or(SkipReason::NotAnOwner)?;
                    Ok(Entry {
                        pool: pool.name.clone(),
                        field,
                        addr,
                        id,
                    })
                });
            match entry {
                Ok(entry) => entries.push(entry),
                Err(reason) => skipped.push(Skipped {
                    pool: pool.name.clone(),
                    field,
                    key: key.clone(),
                    value: value.clone(),
                    reason,
                }),
            }
        }
    }
    entries
}

/// Whether an address is already Bound to this id.
fn has_record(ledger: &Ledger, id: &OwnerId) -> bool {
    ledger
        .records_of(id)
        .iter()
        .any(|record| record.spec.phase == Phase::Bound)
}

/// A map, written by an operator, is better evidence than a status, which any tenant can write. If
/// several pools list the address for it, the one that its status names is preferred.
fn evidence(keeper: &ExistingLb, listed: &[&Entry]) -> Evidence {
    let named = keeper
        .status
        .as_ref()
        .and_then(|status| status.pool.as_ref());
    listed
        .iter()
        .filter(|entry| entry.id == keeper.owner.id)
        .min_by_key(|entry| Reverse(Some(&entry.pool) == named))
        .map_or(Evidence::Status, |entry| {
            Evidence::Trusted(entry.pool.clone())
        })
}

impl Plan {
    /// IPA-2: all of `lbs` but the keeper lose the address.
    fn lose<'a>(
        &mut self,
        addr: IpAddr,
        keeper: &OwnerId,
        lbs: impl Iterator<Item = &'a ExistingLb>,
    ) {
        let losers = lbs.filter(|lb| lb.owner.id != *keeper);
        self.losers.extend(losers.map(|lb| Loser {
            owner: lb.owner.clone(),
            addr,
            keeper: keeper.clone(),
        }));
    }

    /// The remaining entries become history: those of `allocated` whose owner is gone or has
    /// another address, then those of `allocatedHistory`; one record for each address.
    fn remember(
        &mut self,
        ledger: &Ledger,
        entries: &[Entry],
        mut done: FxHashSet<IpAddr>,
        now: Micros,
    ) {
        let settings = &ledger.settings;
        let mut total = ledger.counts().released;
        let mut per_pool: FxHashMap<&PoolName, usize> = FxHashMap::default();
        let (allocated, history): (Vec<_>, Vec<_>) = entries
            .iter()
            .partition(|entry| entry.field == MapField::Allocated);
        for entry in allocated.into_iter().chain(history) {
            if ledger.record(entry.addr).is_some() || done.contains(&entry.addr) {
                continue;
            }
            let in_pool = per_pool.entry(&entry.pool).or_insert_with(|| {
                ledger
                    .projection(&entry.pool)
                    .map_or(0, |view| view.history_len)
            });
            let reason = if !ledger.may_remember(&entry.pool, entry.addr) {
                SkipReason::OutOfRange
            } else if *in_pool >= settings.history_per_pool || total >= settings.history_total {
                SkipReason::HistoryFull
            } else {
                *in_pool += 1;
                total += 1;
                done.insert(entry.addr);
                self.released.push(RecordSpec {
                    addr: entry.addr,
                    pool: entry.pool.clone(),
                    owner: Owner {
                        id: entry.id.clone(),
                        uid: Uid::new(""),
                    },
                    phase: Phase::Released,
                    bound_at: Micros(0),
                    released_at: Some(now),
                    group: None,
                });
                continue;
            };
            self.skipped.push(Skipped {
                pool: entry.pool.clone(),
                field: entry.field,
                key: entry.addr.to_string(),
                value: entry.id.to_string(),
                reason,
            });
        }
    }
}

#[cfg(test)]
mod tests;
