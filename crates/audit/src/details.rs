//! The conditions beside `Ready` that say what works: `AddressAllocated` and `Announced`. A status of an earlier version has
//! none of them. `BackendsHealthy` is written late on purpose, and is not checked.

use harvester_lb_api::{Condition, keys};

use crate::finding::{Finding, describe, must};
use crate::objects::Lb;

/// Checks a load balancer of VM type with an address. `wanted`: what its Service requests; `announced`: the ingress address of its Service; `may_differ`: that need
/// not be the allocated one.
pub(crate) fn of_served(
    lb: &Lb<'_>,
    wanted: &str,
    announced: &str,
    may_differ: bool,
) -> Result<(), Finding> {
    let address = if wanted == keys::DHCP_ADDRESS {
        announced
    } else {
        wanted
    };
    if let Some(told) = lb.condition("AddressAllocated") {
        let message = told.message.as_deref().unwrap_or_default();
        must!(
            "section 9",
            CONDITION_MISMATCH,
            lb,
            (told.status == "True") != address.is_empty() && message.contains(address),
            "has address {address:?}, and the condition AddressAllocated is {}",
            describe(told)
        );
    }
    if let Some(told) = lb.condition("Announced") {
        let is_announced = !announced.is_empty() && (announced == wanted || may_differ);
        must!(
            "section 9",
            CONDITION_MISMATCH,
            lb,
            (told.status == "True") == is_announced,
            "has address {wanted}, announced is {announced:?}, and the condition Announced is {}",
            describe(told)
        );
    }
    Ok(())
}

/// Checks a load balancer of cluster type with an address: it has no data path of ours.
pub(crate) fn of_cluster(lb: &Lb<'_>) -> Result<(), Finding> {
    if let Some(told) = lb.condition("AddressAllocated") {
        must!(
            "section 9",
            CONDITION_MISMATCH,
            lb,
            told.status == "True",
            "has address {}, and the condition AddressAllocated is {}",
            lb.given,
            describe(told)
        );
    }
    without_data_path(lb)
}

/// Checks a load balancer that waits for an address.
pub(crate) fn of_waiting(lb: &Lb<'_>, ready: &Condition) -> Result<(), Finding> {
    if let Some(told) = lb.condition("AddressAllocated") {
        must!(
            "section 9",
            CONDITION_MISMATCH,
            lb,
            told.status == "False" && told.reason == ready.reason,
            "waits for an address, and the condition AddressAllocated is {}",
            describe(told)
        );
    }
    without_data_path(lb)
}

fn without_data_path(lb: &Lb<'_>) -> Result<(), Finding> {
    for type_ in ["Announced", "BackendsHealthy"] {
        must!(
            "section 9",
            CONDITION_MISMATCH,
            lb,
            lb.condition(type_).is_none(),
            "has no Service, and the condition {type_}"
        );
    }
    Ok(())
}
