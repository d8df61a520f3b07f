//! The status of pools, recalculated (POOL-1, POOL-3, ALC-11, IPA-4, IPA-7).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use harvester_lb_api::{IPAllocation, Phase, keys, projection};

use crate::finding::{Finding, describe, must};
use crate::later::excludes;
use crate::meta::{is_ours, shown};
use crate::objects::{Objects, Pool};
use crate::ranges::Ranges;

/// Checks one pool.
pub(crate) fn check(objects: &Objects<'_>, pool: &Pool<'_>) -> Result<(), Finding> {
    let status = pool.object.status.clone().unwrap_or_default();
    counts(objects, pool, status.total, status.available)?;
    let held = by_address(objects, pool, Phase::Bound);
    let says = status.allocated.clone().unwrap_or_default();
    must!(
        "POOL-3",
        pool,
        says == held,
        "status.allocated differs from the IPAllocations: {}",
        difference(&says, &held)
    );
    let history = by_address(objects, pool, Phase::Released);
    let says = status.allocated_history.clone().unwrap_or_default();
    must!(
        "POOL-3",
        pool,
        says == history,
        "status.allocatedHistory differs from the IPAllocations: {}",
        difference(&says, &history)
    );
    let digest = projection::digest(Some(&held), Some(&history));
    let says = pool.annotation(keys::ANNOTATION_PROJECTION);
    must!(
        "IPA-1",
        pool,
        says == Some(&digest),
        "the digest of its maps is {says:?}, expected {digest}"
    );
    // It may be outside of the ranges: these may have changed since that allocation.
    let last = &status.last_allocated;
    must!(
        "ALC-3",
        pool,
        last.is_empty() || last.parse::<IpAddr>().is_ok(),
        "status.lastAllocated is {last:?}"
    );
    if let Some(ranges) = pool.ranges.plain() {
        let outside =
            |address: &&String| address.parse().is_ok_and(|a: IpAddr| !ranges.contains(a));
        let strays: Vec<&String> = history.keys().filter(outside).collect();
        must!(
            "POOL-1",
            pool,
            strays.is_empty(),
            "status.allocatedHistory has {strays:?}, outside of its ranges"
        );
        let strays: Vec<&String> = held.keys().filter(outside).collect();
        must!(
            "IPA-7",
            pool,
            pool.condition("AddressOutOfPool").is_some() != strays.is_empty(),
            "addresses outside of its ranges: {strays:?}; the condition AddressOutOfPool does not match"
        );
    }
    the_conditions(objects, pool)
}

/// RNG-10, ALC-11.
fn counts(
    objects: &Objects<'_>,
    pool: &Pool<'_>,
    total: i64,
    available: i64,
) -> Result<(), Finding> {
    let addresses = match &pool.ranges {
        Ranges::Unknown => return Ok(()),
        Ranges::Invalid => BTreeSet::new(),
        Ranges::Plain(ranges) => match ranges.addresses() {
            Some(addresses) => addresses,
            None => return Ok(()),
        },
    };
    must!(
        "POOL-1",
        pool,
        usize::try_from(total) == Ok(addresses.len()),
        "status.total is {total}, its ranges have {} addresses",
        addresses.len()
    );
    // An address that an owned Service shows is taken too, even if its record was released by hand.
    let services = objects.services.values();
    let services = services.filter(|service| is_ours(&service.metadata));
    let shown = services.flat_map(|service| shown(service));
    let held = objects.bound.iter().map(|record| record.address);
    let taken: BTreeSet<IpAddr> = held
        .chain(shown)
        .filter_map(|text| text.parse().ok())
        .chain(objects.all_held_back())
        .filter(|address| addresses.contains(address))
        .collect();
    must!(
        "ALC-11",
        pool,
        usize::try_from(available) == Ok(addresses.len() - taken.len()),
        "status.available is {available}, {} of {total} addresses are taken",
        taken.len()
    );
    Ok(())
}

/// Owner by address of the pool's records in this phase.
fn by_address(objects: &Objects<'_>, pool: &Pool<'_>, phase: Phase) -> BTreeMap<String, String> {
    let own = |r: &&IPAllocation| r.spec.pool == *pool.name && r.spec.phase == phase;
    let records = objects.records.iter().filter(own);
    records
        .map(|record| {
            let owner = &record.spec.owner;
            let id = format!("{}/{}", owner.namespace, owner.name);
            (record.spec.address.clone(), id)
        })
        .collect()
}

/// The first five differences of two maps, as text.
fn difference(says: &BTreeMap<String, String>, is: &BTreeMap<String, String>) -> String {
    let differs = |address: &&String| says.get(*address) != is.get(*address);
    let all: BTreeSet<&String> = says.keys().chain(is.keys()).collect();
    let first: Vec<String> = all
        .into_iter()
        .filter(differs)
        .take(5)
        .map(|address| {
            let of = |map: &BTreeMap<String, String>| map.get(address).cloned();
            format!("{address}: {:?}, expected {:?}", of(says), of(is))
        })
        .collect();
    first.join("; ")
}

fn the_conditions(objects: &Objects<'_>, pool: &Pool<'_>) -> Result<(), Finding> {
    let expected = match &pool.ranges {
        Ranges::Unknown => None,
        Ranges::Invalid => Some("InvalidRanges"),
        Ranges::Plain(_) if excludes(pool.object) => Some("UnsupportedAnnotation"),
        Ranges::Plain(_) => Some("Ready"),
    };
    if let Some(expected) = expected {
        let ready = pool.condition("Ready").cloned().unwrap_or_default();
        must!(
            "POOL-2",
            pool,
            ready.reason.as_deref() == Some(expected),
            "the condition Ready is {}, expected reason {expected}",
            describe(&ready)
        );
    }
    let age = |pool: &Pool<'_>| {
        let created = pool.object.metadata.creation_timestamp.clone();
        (created.map(|time| time.0), pool.name.to_owned())
    };
    if let Some(ranges) = pool.ranges.plain() {
        let overlapped = objects.pools.values().any(|older| {
            let older_ranges = older.ranges.plain();
            age(older) < age(pool) && older_ranges.is_some_and(|older| older.overlaps_any(ranges))
        });
        must!(
            "IPA-4",
            pool,
            pool.condition("Overlaps").is_some() == overlapped,
            "overlaps an older IPPool: {overlapped}; the condition Overlaps does not match"
        );
    }
    must!(
        "section 6.4",
        pool,
        pool.annotation(keys::ANNOTATION_MANUALLY_RELEASE_IP)
            .is_none_or(str::is_empty),
        "the annotation of a manual release is not processed"
    );
    Ok(())
}
