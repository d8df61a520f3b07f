//! The status of pools, recalculated (POOL-1, POOL-3, ALC-11, IPA-4, IPA-7).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use harvester_lb_api::{Phase, keys, projection};

use crate::finding::{Finding, Report, describe, first_few, must};
use crate::kinds;
use crate::objects::{Objects, Pool};
use crate::ranges::Ranges;

/// POOL-3: bytes that both maps together may take in the object.
const MAPS: usize = 1_000_000;
/// Bytes of the longest entry of a map: an address, a namespace and a name.
const ENTRY: usize = 400;

/// Reports that the maps of a pool are incomplete (POOL-3).
pub(crate) fn check_truncated(pool: &Pool<'_>, report: &mut Report) {
    if let Some(condition) = pool.condition("AllocatedMapTruncated")
        && condition.status == "True"
    {
        let kind = &kinds::ALLOCATED_MAP_TRUNCATED;
        let text = condition.message.clone().unwrap_or_default();
        report
            .findings
            .push(Finding::new(kind, "POOL-3", pool.object(), text));
    }
}

/// Checks one pool.
pub(crate) fn check(objects: &Objects<'_>, pool: &Pool<'_>) -> Result<(), Finding> {
    let status = pool.object.status.clone().unwrap_or_default();
    counts(objects, pool, status.total, status.available)?;
    let held = by_address(objects, pool, Phase::Bound);
    let history = by_address(objects, pool, Phase::Released);
    let says = status.allocated.clone().unwrap_or_default();
    let remembers = status.allocated_history.clone().unwrap_or_default();
    // Maps that do not fit are incomplete, the history first.
    let is_full = size(&held) + size(&history) > MAPS;
    must!(
        "POOL-3",
        POOL_STATUS_OUTDATED,
        pool,
        agrees(&says, &held, is_full && size(&held) > MAPS - ENTRY),
        "status.allocated differs from the IPAllocations: {}",
        difference(&says, &held)
    );
    must!(
        "POOL-3",
        POOL_STATUS_OUTDATED,
        pool,
        agrees(&remembers, &history, is_full),
        "status.allocatedHistory differs from the IPAllocations: {}",
        difference(&remembers, &history)
    );
    let digest = projection::digest(Some(&says), Some(&remembers));
    let annotated = pool.annotation(keys::ANNOTATION_PROJECTION);
    must!(
        "IPA-1",
        POOL_STATUS_OUTDATED,
        pool,
        annotated == Some(&digest),
        "the digest of its maps is {annotated:?}, expected {digest}"
    );
    // It may be outside of the ranges: these may have changed since that allocation.
    let last = &status.last_allocated;
    must!(
        "ALC-3",
        POOL_STATUS_OUTDATED,
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
            POOL_STATUS_OUTDATED,
            pool,
            strays.is_empty(),
            "status.allocatedHistory has {}, outside of its ranges",
            first_few(&strays)
        );
        let is_excluded =
            |address: &&String| address.parse().is_ok_and(|a: IpAddr| ranges.excludes(a));
        let strays = held.keys().filter(outside);
        let (excluded, strays): (Vec<&String>, Vec<&String>) = strays.partition(is_excluded);
        must!(
            "IPA-7",
            CONDITION_MISMATCH,
            pool,
            pool.condition("AddressOutOfPool").is_some() != strays.is_empty(),
            "addresses outside of its ranges: {}; the condition AddressOutOfPool does not match",
            first_few(&strays)
        );
        must!(
            "EXC-3",
            CONDITION_MISMATCH,
            pool,
            pool.condition("AddressExcluded").is_some() != excluded.is_empty(),
            "excluded addresses in use: {}; the condition AddressExcluded does not match",
            first_few(&excluded)
        );
    }
    the_conditions(objects, pool)
}

/// Whether so many addresses of a pool can be taken besides those that are known to be.
fn may_be_more(objects: &Objects<'_>, pool: &Pool<'_>, more: i64) -> bool {
    more == 0
        || (more > 0 && {
            let lbs = objects.lbs.values();
            let lbs = lbs.filter(|lb| objects.may_be_held_back(lb));
            let held: BTreeSet<IpAddr> = lbs.filter_map(|lb| lb.given.parse().ok()).collect();
            let ranges = pool.ranges.plain();
            let open = held.iter().filter(|addr| {
                !objects.occupied.contains(*addr) && ranges.is_some_and(|it| it.contains(**addr))
            });
            usize::try_from(more).is_ok_and(|more| more <= open.count())
        })
}

/// RNG-10, ALC-11.
fn counts(
    objects: &Objects<'_>,
    pool: &Pool<'_>,
    total: i64,
    available: i64,
) -> Result<(), Finding> {
    let (size, taken) = match &pool.ranges {
        Ranges::Unknown => return Ok(()),
        Ranges::Invalid => (0, 0),
        Ranges::Plain(ranges) => (ranges.size(false), ranges.count(&objects.occupied)),
    };
    // RNG-8: a larger number does not fit into the field.
    let Ok(size) = i64::try_from(size) else {
        return Ok(());
    };
    must!(
        "POOL-1",
        POOL_STATUS_OUTDATED,
        pool,
        total == size,
        "status.total is {total}, its ranges have {size} addresses"
    );
    must!(
        "ALC-11",
        POOL_STATUS_OUTDATED,
        pool,
        i64::try_from(taken).is_ok_and(|taken| may_be_more(
            objects,
            pool,
            size - available - taken
        )),
        "status.available is {available}, {taken} of {total} addresses are taken"
    );
    Ok(())
}

/// Owner by address of the pool's records in this phase.
fn by_address(objects: &Objects<'_>, pool: &Pool<'_>, phase: Phase) -> BTreeMap<String, String> {
    let records = objects.records_of(pool.name).iter();
    records
        .filter(|record| record.spec.phase == phase)
        .map(|record| {
            let owner = &record.spec.owner;
            let id = format!("{}/{}", owner.namespace, owner.name);
            (record.spec.address.clone(), id)
        })
        .collect()
}

/// Whether a map of the status is that of the IPAllocations, or a part of it if it `may_lack` entries.
fn agrees(says: &BTreeMap<String, String>, is: &BTreeMap<String, String>, may_lack: bool) -> bool {
    let mut entries = says.iter();
    (may_lack || says.len() == is.len()) && entries.all(|(address, id)| is.get(address) == Some(id))
}

/// Bytes that a map takes in the object.
fn size(map: &BTreeMap<String, String>) -> usize {
    let entries = map.iter();
    // Quotes, colon and comma.
    entries
        .map(|(address, id)| address.len() + id.len() + 6)
        .sum()
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
            let of = |map: &BTreeMap<String, String>| {
                map.get(address).cloned().unwrap_or_else(|| "none".into())
            };
            format!("{address} is {}, expected {}", of(says), of(is))
        })
        .collect();
    first.join("; ")
}

fn the_conditions(objects: &Objects<'_>, pool: &Pool<'_>) -> Result<(), Finding> {
    let expected = match &pool.ranges {
        Ranges::Unknown => None,
        Ranges::Invalid => Some("InvalidRanges"),
        Ranges::Plain(_) if pool.has_invalid_list => Some("InvalidExclude"),
        Ranges::Plain(_) => Some("Ready"),
    };
    if let Some(expected) = expected {
        let ready = pool.condition("Ready").cloned().unwrap_or_default();
        must!(
            "POOL-2",
            CONDITION_MISMATCH,
            pool,
            ready.reason.as_deref() == Some(expected),
            "the condition Ready is {}, expected reason {expected}",
            describe(&ready)
        );
    }
    let age = |pool: &Pool<'_>| {
        let created = pool.object.metadata.creation_timestamp.as_ref();
        created.map(|time| time.0)
    };
    if pool.ranges.plain().is_some() {
        let overlapped = objects
            .overlapping(pool)
            .any(|other| (age(other), other.name) < (age(pool), pool.name));
        must!(
            "IPA-4",
            CONDITION_MISMATCH,
            pool,
            pool.condition("Overlaps").is_some() == overlapped,
            "overlaps an older IPPool: {overlapped}; the condition Overlaps does not match"
        );
    }
    must!(
        "section 6.4",
        MANUAL_RELEASE_PENDING,
        pool,
        pool.annotation(keys::ANNOTATION_MANUALLY_RELEASE_IP)
            .is_none_or(str::is_empty),
        "the annotation of a manual release is not processed"
    );
    Ok(())
}
