//! Parsing of an IPPool spec for the ledger. Pure.

use harvester_lb_api::meta::annotation;
use harvester_lb_api::{IPPoolSpec, keys};
use harvester_lb_ipam::{
    ExcludeError, Exclusions, Micros, PoolName, PoolRanges, PoolSpec, RangeSpec, Selector, Tuple,
    Withheld, addr,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cached::Pool;
use crate::time;

/// The ledger's view of a cached pool. `now` is the time as of which `status.lastAllocated` of another writer counts.
/// Invalid ranges, an invalid list of exclusions and an undecodable spec are part of the result, no errors (POOL-2, EXC-1).
pub fn pool_spec(name: &PoolName, pool: &Pool, now: Micros) -> PoolSpec {
    // Empty, thus invalid, for a pool that cannot be decoded.
    let ranges = pool.spec.as_ref().map(ranges_of).unwrap_or_default();
    let ranges = PoolRanges::parse(&ranges);
    let (ranges, withheld) = match (&pool.spec, exclusions_of(&pool.meta)) {
        (Err(error), _) => (ranges, Some(Withheld::Undecodable(error.clone()))),
        (Ok(_), Err(error)) => (ranges, Some(Withheld::InvalidExclude(error))),
        (Ok(_), Ok(excluded)) => (ranges.map(|ranges| ranges.without(&excluded)), None),
    };
    let selector = pool.spec.as_ref().ok().and_then(|s| s.selector.as_ref());
    // Our own status lags behind the records; another writer's has allocations that no record has.
    let as_of = if pool.is_our_projection() {
        Micros::MIN
    } else {
        now
    };
    let last_allocated = pool
        .counters
        .as_ref()
        .and_then(|(_, _, last)| addr::parse(last))
        .map(|addr| (addr, as_of));
    PoolSpec {
        name: name.clone(),
        created: time::created(&pool.meta),
        ranges,
        selector: selector.map(selector_of).unwrap_or_default(),
        withheld,
        last_allocated,
    }
}

/// The addresses that a pool must not allocate, by its annotation `exclude` (EXC-1).
///
/// # Errors
/// The list is invalid; nothing new is allocated from the pool then.
pub fn exclusions_of(meta: &ObjectMeta) -> Result<Exclusions, ExcludeError> {
    annotation(meta, keys::ANNOTATION_EXCLUDE)
        .map_or_else(|| Ok(Exclusions::default()), Exclusions::parse)
}

/// Whether two copies of a pool are the same to the ledger: spec and exclusions.
pub fn is_same_spec(one: &Pool, other: &Pool) -> bool {
    let [exclude, other_exclude] =
        [one, other].map(|pool| annotation(&pool.meta, keys::ANNOTATION_EXCLUDE));
    one.spec == other.spec && exclude == other_exclude
}

/// The raw ranges of a pool in the order of `spec.ranges` (RNG-10), not validated.
pub fn ranges_of(spec: &IPPoolSpec) -> Vec<RangeSpec> {
    let ranges = spec.ranges.iter();
    ranges
        .map(|r| RangeSpec {
            subnet: r.subnet.clone(),
            start: r.range_start.clone(),
            end: r.range_end.clone(),
            gateway: r.gateway.clone(),
        })
        .collect()
}

/// The selector of a pool (section 5). Absent fields are empty, an absent priority is 0.
pub fn selector_of(selector: &harvester_lb_api::Selector) -> Selector {
    Selector {
        // The schema admits 0 to 2,147,483,647; a value outside, stored before the schema, becomes the nearest u32.
        priority: u32::try_from(selector.priority.unwrap_or(0).max(0)).unwrap_or(u32::MAX),
        network: selector.network.clone().unwrap_or_default(),
        scope: selector
            .scope
            .iter()
            .flatten()
            .map(|t| Tuple {
                project: t.project.clone().unwrap_or_default(),
                namespace: t.namespace.clone().unwrap_or_default(),
                guest_cluster: t.guest_cluster.clone().unwrap_or_default(),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests;
