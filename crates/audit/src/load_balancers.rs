//! Load balancers: the address of each (sections 6 and 9).

use std::net::IpAddr;

use harvester_lb_api::{Ipam, WorkloadType, keys};

use crate::finding::{Finding, describe, must};
use crate::meta::requested;
use crate::objects::{Lb, Objects};
use crate::ranges::Ranges;
use crate::sharing::{self, Part};
use crate::spec::{REFUSED, Spec, are_usable};
use crate::waiting::{self, waits};
use crate::{backends, kinds, leases, owned_objects};

/// Checks one load balancer. Returns the reason if it has no address, in accordance with the rules.
pub(crate) fn check<'a>(objects: &Objects<'_>, lb: &Lb<'a>) -> Result<Option<&'a str>, Finding> {
    if lb.object.metadata.deletion_timestamp.is_some() {
        return backends::check_kept_endpoints(objects, lb).map(|()| None);
    }
    let Some(ready) = lb.condition("Ready") else {
        let text = "has no condition Ready".to_owned();
        let kind = &kinds::NOT_RECONCILED;
        return Err(Finding::new(kind, "section 9", lb.object(), text));
    };
    let reason = ready.reason.as_deref().unwrap_or_default();
    let waiting = lb.given.is_empty().then_some(reason);
    must!(
        "section 9",
        CONDITION_MISMATCH,
        lb,
        (ready.status == "True") == (reason == "Ready"),
        "status and reason of the condition Ready differ: {}",
        describe(ready)
    );
    if objects.is_left_alone(lb) {
        must!(
            "IPA-9",
            CONDITION_MISMATCH,
            lb,
            reason == "UnsupportedAnnotation",
            "is unsupported by this version, and the condition Ready is {}",
            describe(ready)
        );
        return Ok(waiting);
    }
    let spec = Spec::of(lb);
    must!(
        "section 9",
        CONDITION_MISMATCH,
        lb,
        match spec {
            Spec::Valid => !REFUSED.contains(&reason),
            Spec::WithoutListeners => reason == "InvalidListener",
            Spec::BadRequest => reason == "InvalidRequestedAddress",
            Spec::Unknown => true,
        },
        "its spec is {spec:?}, and the condition Ready is {}",
        describe(ready)
    );
    let listeners = lb.object.spec.listeners.as_deref().unwrap_or_default();
    let has_refused_name = reason == "ApiError" && !are_usable(listeners);
    if REFUSED.contains(&reason) || has_refused_name {
        return backends::check_kept_endpoints(objects, lb).map(|()| waiting);
    }
    match sharing::part(objects, lb, reason) {
        Part::None => {}
        Part::Secondary => return sharing::shares(objects, lb, ready).map(|()| None),
        Part::Refused(why) => {
            sharing::is_refused(objects, lb, why)?;
            return sharing::waits(lb, ready).map(|()| Some(reason));
        }
        Part::NameTaken => return sharing::waits(lb, ready).map(|()| Some(reason)),
        Part::Apart(why) => sharing::is_refused(objects, lb, why)?,
    }
    if lb.object.spec.address_source() == Ipam::Dhcp {
        let held = held(objects, lb);
        must!(
            "OPS-3",
            ADDRESS_MISMATCH,
            lb,
            lb.given == keys::DHCP_ADDRESS,
            "uses DHCP, and status.allocatedAddress is {:?}",
            lb.given
        );
        must!(
            "OPS-3",
            IP_ALLOCATION_UNUSED,
            lb,
            held.is_empty(),
            "uses DHCP, and has {} Bound IPAllocations",
            held.len()
        );
        if lb.object.spec.workload() == WorkloadType::Vm && leases::wanted(objects, lb).is_none() {
            return leases::waits(lb, ready).map(|()| Some(reason));
        }
        return owned_objects::check(objects, lb, ready).map(|()| None);
    }
    match held(objects, lb)[..] {
        [] => waits(objects, lb, ready).map(|()| Some(reason)),
        // SHR-5: its address is that of others too, and stays until it can move.
        [(address, pool)]
            if lb.given == address
                && !of_named(lb, pool)
                && reason != "Ready"
                && sharing::has_others(objects, lb) =>
        {
            backends::check_kept_endpoints(objects, lb).map(|()| None)
        }
        [(address, pool)] => {
            holds(objects, lb, address, pool, reason)?;
            if suits(lb, address) {
                return owned_objects::check(objects, lb, ready).map(|()| None);
            }
            must!(
                "BE-7",
                CONDITION_MISMATCH,
                lb,
                reason == "AddressFamilyMismatch",
                "has {address}, which a VM-type load balancer cannot use, and the condition Ready is {}",
                describe(ready)
            );
            backends::check_kept_endpoints(objects, lb).map(|()| None)
        }
        ref held => {
            let all: Vec<&str> = held.iter().map(|(address, _)| *address).collect();
            Err(Finding::new(
                &kinds::SEVERAL_IP_ALLOCATIONS,
                "ALC-1",
                lb.object(),
                format!("has several Bound IPAllocations: {}", all.join(", ")),
            ))
        }
    }
}

/// Address and pool of the records Bound to a load balancer, of any uid, without that of a group.
fn held<'a>(objects: &Objects<'a>, lb: &Lb<'_>) -> Vec<(&'a str, &'a str)> {
    let records = objects
        .bound_of(&lb.key)
        .filter(|record| record.group.is_none());
    records
        .map(|record| (record.address, record.pool))
        .collect()
}

/// Whether a pool is the one that a load balancer names, or it names none.
fn of_named(lb: &Lb<'_>, pool: &str) -> bool {
    let named = lb.object.spec.ip_pool.as_deref().unwrap_or_default();
    named.is_empty() || named == pool
}

/// BE-7: whether a load balancer can use this address.
fn suits(lb: &Lb<'_>, address: &str) -> bool {
    lb.object.spec.workload() != WorkloadType::Vm || !address.contains(':')
}

/// ALC-6, REL-4, IPA-7: checks a load balancer with a Bound record, whose condition Ready has this reason.
fn holds(
    objects: &Objects<'_>,
    lb: &Lb<'_>,
    address: &str,
    of: &str,
    reason: &str,
) -> Result<(), Finding> {
    must!(
        "ALC-6",
        ADDRESS_MISMATCH,
        lb,
        lb.given == address,
        "has the IPAllocation of {address}, and status.allocatedAddress is {:?}",
        lb.given
    );
    let status = lb.object.status.as_ref();
    let allocated = status.and_then(|status| status.allocated_address.as_ref());
    let says = allocated.and_then(|allocated| allocated.ip_pool.as_deref());
    must!(
        "ALC-6",
        POOL_MISMATCH,
        lb,
        says == Some(of),
        "has {address} of IPPool {of}, and status.allocatedAddress.ipPool is {:?}",
        says.unwrap_or_default()
    );
    let named = lb.object.spec.ip_pool.as_deref().unwrap_or_default();
    let of_named = of_named(lb, of);
    // REQ-4: while what it requests cannot be had, it keeps what it has.
    let has_another =
        requested(lb.object).is_some_and(|it| it.ok() != address.parse().ok() || !of_named);
    must!(
        "REL-4",
        POOL_MISMATCH,
        lb,
        of_named || has_another,
        "spec.ipPool is {named}, and its address {address} is of IPPool {of}"
    );
    if objects.unknown.pools.contains(of) {
        return Ok(());
    }
    let (outside, excluded) = match objects.pools.get(of).map(|pool| &pool.ranges) {
        None => (true, false),
        Some(Ranges::Invalid) => (false, false),
        Some(Ranges::Unknown) => return Ok(()),
        Some(Ranges::Plain(ranges)) => {
            let parsed: Option<IpAddr> = address.parse().ok();
            let excluded = parsed.is_some_and(|address| ranges.excludes(address));
            let inside = parsed.is_none_or(|address| ranges.contains(address));
            (!inside && !excluded, excluded)
        }
    };
    let told = lb.has_true_condition("AddressOutOfPool");
    must!(
        "IPA-7",
        CONDITION_MISMATCH,
        lb,
        outside == told,
        "has {address} of IPPool {of}; outside of its ranges: {outside}, condition AddressOutOfPool: {told}"
    );
    let condition = lb.condition("RequestedAddress");
    must!(
        "REQ-4",
        CONDITION_MISMATCH,
        lb,
        // While the API server refuses its new IPAllocation, the conditions are those of before.
        reason == "ApiError" || condition.is_some_and(|it| it.status == "False") == has_another,
        "has {address}; has not what it requests: {has_another}, and the condition RequestedAddress is {condition:?}"
    );
    if let Some(Ok(requested)) = requested(lb.object)
        && has_another
        && reason != "ApiError"
    {
        waiting::is_unavailable(objects, lb, requested)?;
    }
    let told = lb.has_true_condition("AddressExcluded");
    must!(
        "EXC-3",
        CONDITION_MISMATCH,
        lb,
        excluded == told,
        "has {address} of IPPool {of}; excluded: {excluded}, condition AddressExcluded: {told}"
    );
    Ok(())
}
