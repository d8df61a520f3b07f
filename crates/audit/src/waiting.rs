//! Load balancers that wait for an address: why they have none, and that nothing is left of an earlier one (sections 5, 6
//! and 9).

use std::net::IpAddr;

use harvester_lb_api::{Condition, Phase, WorkloadType};

use crate::finding::{Finding, describe, must};
use crate::meta::{is_ours, requested};
use crate::objects::{Lb, Objects, Pool};
use crate::ranges::Ranges;
use crate::{backends, details};

/// Number of pools that a message names.
const POOLS_NAMED: usize = 8;
/// Bytes of a message that is not cut: names and reasons may be longer than the whole message may be.
const MESSAGE: usize = 1_000;

/// ALC-5, SEL-7, REL-4: checks a load balancer without a Bound record.
pub(crate) fn waits(objects: &Objects<'_>, lb: &Lb<'_>, ready: &Condition) -> Result<(), Finding> {
    let given = lb.given.parse().ok();
    if given.is_some_and(|address| objects.unknown.records.contains(&address)) {
        return Ok(());
    }
    if objects.may_be_held_back(lb) {
        return backends::check_kept_endpoints(objects, lb);
    }
    let held_back = objects.held_back(lb).is_some();
    must!(
        "ALC-5",
        ADDRESS_WITHOUT_IP_ALLOCATION,
        lb,
        held_back || lb.given.is_empty(),
        "has no Bound IPAllocation, and status.allocatedAddress is {}{}",
        lb.given,
        record_of(objects, lb.given)
    );
    if held_back {
        backends::check_kept_endpoints(objects, lb)?;
    } else {
        has_nothing_left(objects, lb)?;
    }
    let named = lb
        .object
        .spec
        .ip_pool
        .as_deref()
        .filter(|name| !name.is_empty());
    let unknown = &objects.unknown.pools;
    if named.map_or(!unknown.is_empty(), |name| unknown.contains(name)) {
        return Ok(());
    }
    if let Some(Ok(address)) = requested(lb.object)
        && !held_back
    {
        is_unavailable(objects, lb, address)?;
        return waits_for(lb, ready, address);
    }
    let name = named.or_else(|| objects.selected(lb));
    let pool = name.and_then(|name| objects.pools.get(name));
    let (expected, says) = match (name, pool) {
        (None, _) => ("NoMatchedPool", no_pool(objects)),
        (Some(name), None) => ("PoolNotFound", vec![format!("pool {name}: does not exist")]),
        (Some(name), Some(pool)) => {
            let Some((reason, why)) = exhausted(objects, lb, pool, ready)? else {
                return Ok(());
            };
            (reason, vec![format!("pool {name}: {why}")])
        }
    };
    must!(
        "section 9",
        CONDITION_MISMATCH,
        lb,
        ready.reason.as_deref() == Some(expected),
        "waits for an address; the condition Ready is {}, expected reason {expected}",
        describe(ready)
    );
    let message = ready.message.as_deref().unwrap_or_default();
    must!(
        "SEL-7",
        CONDITION_MISMATCH,
        lb,
        // A longer message is cut.
        message.len() > MESSAGE || says.iter().all(|part| message.contains(part)),
        "waits for an address; the message of the condition Ready is {message:?}, and lacks some of {says:?}"
    );
    // What is held back keeps the conditions that it has.
    if held_back {
        return Ok(());
    }
    details::of_waiting(lb, ready)
}

/// REQ-3, REQ-4: the pool that a load balancer names does not have the address that it requests, or somebody else has it, or asks for
/// it too. Of one that names no pool it is not known here which would serve it.
pub(crate) fn is_unavailable(
    objects: &Objects<'_>,
    lb: &Lb<'_>,
    address: IpAddr,
) -> Result<(), Finding> {
    let named = lb.object.spec.ip_pool.as_deref().unwrap_or_default();
    let Some(pool) = objects.pools.get(named) else {
        return Ok(());
    };
    let fits = lb.object.spec.workload() == WorkloadType::Cluster || address.is_ipv4();
    let ranges = pool.ranges.plain();
    let is_allocatable = fits
        && !pool.has_invalid_list
        && !objects.unknown.pools.contains(named)
        && ranges.is_some_and(|ranges| ranges.contains(address));
    must!(
        "REQ-3",
        FREE_ADDRESS_NOT_ALLOCATED,
        lb,
        !is_allocatable || objects.is_held_or_wanted(lb, address),
        "requests {address} of {pool}, which is free"
    );
    Ok(())
}

/// REQ-2, REQ-3: one that waits for the address that it requests says which.
fn waits_for(lb: &Lb<'_>, ready: &Condition, address: IpAddr) -> Result<(), Finding> {
    let message = ready.message.as_deref().unwrap_or_default();
    let says = message.len() > MESSAGE
        || message.contains(&address.to_string())
        || message.contains("pool ")
        || message == "there are no pools";
    must!(
        "REQ-3",
        CONDITION_MISMATCH,
        lb,
        ready.reason.as_deref() == Some("RequestedAddressUnavailable") && says,
        "waits for {address}; the condition Ready is {}",
        describe(ready)
    );
    details::of_waiting(lb, ready)
}

/// What the IPAllocation of an address says, for the text about an address that is not Bound to its load balancer.
fn record_of(objects: &Objects<'_>, address: &str) -> String {
    let record = objects.record_of_address(address);
    record.map_or_else(String::new, |record| {
        let spec = &record.spec;
        let phase = match spec.phase {
            Phase::Bound => "Bound to",
            Phase::Released => "Released by",
            Phase::Pending => "asked for by",
            Phase::Releasing => "being released by",
        };
        let (namespace, name) = (&spec.owner.namespace, &spec.owner.name);
        format!(", which is {phase} LoadBalancer {namespace}/{name}")
    })
}

/// REL-4: a load balancer without an address has no Service, EndpointSlice or `status.address`.
fn has_nothing_left(objects: &Objects<'_>, lb: &Lb<'_>) -> Result<(), Finding> {
    if lb.object.spec.workload() == WorkloadType::Vm {
        must!(
            "REL-4",
            SERVED_WITHOUT_ADDRESS,
            lb,
            lb.address().is_empty(),
            "waits for an address, and status.address is {}",
            lb.address()
        );
    }
    let service = objects.services.get(&lb.key).map(|it| &it.metadata);
    let slice = objects.slices.get(&lb.key).map(|it| &it.metadata);
    for (kind, meta) in [("Service", service), ("EndpointSlice", slice)] {
        must!(
            "REL-4",
            SERVED_WITHOUT_ADDRESS,
            lb,
            !meta.is_some_and(is_ours),
            "waits for an address, and its {kind} exists"
        );
    }
    Ok(())
}

/// Texts of the condition message of a load balancer that no pool matches.
fn no_pool(objects: &Objects<'_>) -> Vec<String> {
    if objects.pools.is_empty() {
        return vec!["there are no pools".to_owned()];
    }
    let pools = objects.pools.keys();
    if pools.len() > POOLS_NAMED {
        return Vec::new();
    }
    pools.map(|name| format!("pool {name}: ")).collect()
}

/// Why a pool has no address for a load balancer: the condition reason, and the text about the pool. None if unknown.
fn exhausted(
    objects: &Objects<'_>,
    lb: &Lb<'_>,
    pool: &Pool<'_>,
    ready: &Condition,
) -> Result<Option<(&'static str, &'static str)>, Finding> {
    let ranges = match &pool.ranges {
        Ranges::Unknown => return Ok(None),
        Ranges::Invalid => return Ok(Some(("PoolInvalid", "its ranges are invalid"))),
        Ranges::Plain(ranges) => ranges,
    };
    if pool.has_invalid_list {
        return Ok(Some((
            "InvalidExclude",
            "its annotation exclude is invalid",
        )));
    }
    let (size, v4) = (
        ranges.size(false),
        lb.object.spec.workload() == WorkloadType::Vm,
    );
    if v4 && size > 0 && ranges.size(true) == 0 {
        return Ok(Some(("AddressFamilyMismatch", "has only IPv6 addresses")));
    }
    let free = objects.free(pool, v4);
    must!(
        "ALC-5",
        FREE_ADDRESS_NOT_ALLOCATED,
        lb,
        free.is_none(),
        "waits for an address ({}), and {} of {pool} is free",
        describe(ready),
        free.map(|free| free.to_string()).unwrap_or_default()
    );
    let why = if v4 && ranges.size(true) < size {
        "all IPv4 addresses are taken"
    } else if size == 0 && ranges.has_exclusions() {
        "its annotation exclude leaves no address"
    } else {
        "all addresses are taken"
    };
    Ok(Some(("NoAvailableIP", why)))
}
