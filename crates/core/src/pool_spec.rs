//! From what a user wrote into a pool to what the ledger needs to know of it.

use harvester_lb_api::IPPoolSpec;
use harvester_lb_ipam::{
    Micros, PoolName, PoolRanges, PoolSpec, RangeSpec, Selector, Tuple, Withheld, addr,
};

use crate::cached::Pool;
use crate::{time, unsupported};

/// What the ledger needs to know of a pool. `now` is the time as of which a status of somebody else's is believed.
pub fn pool_spec(name: &PoolName, pool: &Pool, now: Micros) -> PoolSpec {
    let ranges = pool.spec.as_ref().map(ranges_of).unwrap_or_default();
    let selector = pool.spec.as_ref().ok().and_then(|s| s.selector.as_ref());
    // A status of our own is behind the records; one of somebody else's tells what no record does.
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
        // Of a pool that cannot be decoded none are known.
        ranges: PoolRanges::parse(&ranges),
        selector: selector.map(selector_of).unwrap_or_default(),
        withheld: match &pool.spec {
            Err(error) => Some(Withheld::Undecodable(error.clone())),
            Ok(_) => unsupported::of_pool(&pool.meta).map(Withheld::Unsupported),
        },
        last_allocated,
    }
}

/// The ranges of a pool as they are written.
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

/// The selector of a pool.
pub fn selector_of(selector: &harvester_lb_api::Selector) -> Selector {
    Selector {
        // The schema admits 0 to 2,147,483,647; what got around it counts as the nearest.
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
