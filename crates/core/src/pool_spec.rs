//! Parsing of an IPPool spec for the ledger. Pure.

use harvester_lb_api::IPPoolSpec;
use harvester_lb_ipam::{
    Micros, PoolName, PoolRanges, PoolSpec, RangeSpec, Selector, Tuple, Withheld, addr,
};

use crate::cached::Pool;
use crate::{time, unsupported};

/// The ledger's view of a cached pool. `now` is the time as of which `status.lastAllocated` of another writer counts.
/// Invalid ranges, an undecodable spec and unsupported annotations are part of the result, no errors (POOL-2, IPA-9).
pub fn pool_spec(name: &PoolName, pool: &Pool, now: Micros) -> PoolSpec {
    let ranges = pool.spec.as_ref().map(ranges_of).unwrap_or_default();
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
        // Empty, thus invalid, for a pool that cannot be decoded.
        ranges: PoolRanges::parse(&ranges),
        selector: selector.map(selector_of).unwrap_or_default(),
        withheld: match &pool.spec {
            Err(error) => Some(Withheld::Undecodable(error.clone())),
            Ok(_) => unsupported::of_pool(&pool.meta).map(Withheld::Unsupported),
        },
        last_allocated,
    }
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
