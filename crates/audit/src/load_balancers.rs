//! Load balancers: the address of each, or why it has none (sections 5, 6 and 9).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use harvester_lb_api::loadbalancer::{HealthCheck, Listener};
use harvester_lb_api::{Condition, Ipam, Phase, WorkloadType, keys};

use crate::finding::{Finding, ObjectRef, Report, describe, must};
use crate::kinds;
use crate::later::excludes;
use crate::meta::{asked, is_ours};
use crate::objects::{Lb, Objects, Pool};
use crate::ranges::Ranges;
use crate::{backends, details, owned_objects};

/// Condition reasons of an invalid spec: its address and endpoints stay as they are (BE-6, ALC-10).
const REFUSED: [&str; 3] = ["InvalidListener", "InvalidSelector", "InvalidHealthCheck"];
/// Number of pools that a message names.
const POOLS_NAMED: usize = 8;
/// Bytes of a message that is not cut: names and reasons may be longer than the whole message may be.
const MESSAGE: usize = 1_000;

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
            Spec::Unknown => true,
        },
        "its spec is {spec:?}, and the condition Ready is {}",
        describe(ready)
    );
    if spec == Spec::WithoutListeners || REFUSED.contains(&reason) {
        return backends::check_kept_endpoints(objects, lb).map(|()| waiting);
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
        return owned_objects::check(objects, lb, ready).map(|()| None);
    }
    match held(objects, lb)[..] {
        [] => waits(objects, lb, ready).map(|()| Some(reason)),
        [(address, pool)] => {
            holds(objects, lb, address, pool)?;
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

/// No two load balancers have the same address (ALC-8), and no two Services request it (REL-3).
pub(crate) fn check_pairs(objects: &Objects<'_>, report: &mut Report) {
    // The address of a load balancer with an invalid spec may have been released by hand.
    check_addresses(objects, report, |lb| Spec::of(lb) == Spec::Valid);
    check_service_addresses(objects, report);
}

/// As [`check_pairs`], before the import: every status claims its address.
pub(crate) fn check_claims(objects: &Objects<'_>, report: &mut Report) {
    check_addresses(objects, report, |_| true);
    check_service_addresses(objects, report);
}

/// ALC-8, for the load balancers whose status `counts`.
fn check_addresses(objects: &Objects<'_>, report: &mut Report, counts: impl Fn(&Lb<'_>) -> bool) {
    let mut given: BTreeMap<&str, &Lb<'_>> = BTreeMap::new();
    for lb in objects.lbs.values() {
        // Load balancers that share an address all name it (IPA-9).
        let aside = objects.is_left_alone(lb) || !counts(lb);
        if lb.given.is_empty() || lb.given == keys::DHCP_ADDRESS || aside {
            continue;
        }
        if let Some(other) = given.insert(lb.given, lb) {
            let text = format!(
                "has address {}, as has LoadBalancer {}",
                lb.given, other.key
            );
            let kind = &kinds::DUPLICATE_ADDRESS;
            report
                .findings
                .push(Finding::new(kind, "ALC-8", lb.object(), text));
        }
    }
}

/// REL-3: no two Services of the operator request one address.
fn check_service_addresses(objects: &Objects<'_>, report: &mut Report) {
    let mut shown: BTreeMap<&str, ObjectRef> = BTreeMap::new();
    for (key, service) in &objects.services {
        let address = asked(service);
        if address.is_empty() || address == keys::DHCP_ADDRESS || !is_ours(&service.metadata) {
            continue;
        }
        let id = ObjectRef::namespaced("Service", key);
        if let Some(other) = shown.insert(address, id.clone()) {
            let text = format!("spec.loadBalancerIP is {address}, as that of {other}");
            let kind = &kinds::DUPLICATE_SERVICE_ADDRESS;
            report.findings.push(Finding::new(kind, "REL-3", id, text));
        }
    }
}

/// Address and pool of the records Bound to a load balancer, of any uid. Not those that it does not need and others may
/// share.
fn held<'a>(objects: &Objects<'a>, lb: &Lb<'_>) -> Vec<(&'a str, &'a str)> {
    let records = objects.bound_of(&lb.key).filter(|record| {
        let own = record.address == lb.given && record.uid == lb.uid;
        own || !objects.may_be_shared(record.address, &lb.key)
    });
    records
        .map(|record| (record.address, record.pool))
        .collect()
}

/// Validity of a spec, as far as it is known without the operator's validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spec {
    /// Certainly valid.
    Valid,
    /// Of VM type without a listener (WV-1): certainly invalid.
    WithoutListeners,
    /// Valid or not.
    Unknown,
}

impl Spec {
    fn of(lb: &Lb<'_>) -> Self {
        let spec = &lb.object.spec;
        if spec.workload() == WorkloadType::Cluster {
            return Self::Valid;
        }
        let listeners = spec.listeners.as_deref().unwrap_or_default();
        let selector = spec.backend_server_selector.iter().flatten();
        if listeners.is_empty() {
            Self::WithoutListeners
        } else if are_plain(listeners)
            && selector
                .map(|(_, values)| values)
                .all(|values| !values.is_empty())
            && spec.health_check.as_ref().is_none_or(is_plain)
        {
            Self::Valid
        } else {
            Self::Unknown
        }
    }
}

/// Whether the names and ports of the listeners are valid in a Service, and unique.
fn are_plain(listeners: &[Listener]) -> bool {
    let mut names = BTreeSet::new();
    let mut ports = BTreeSet::new();
    listeners.iter().all(|listener| {
        let name = listener.name.as_deref().unwrap_or_default();
        let letters = name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let is_port = |port: i64| (1..=65_535).contains(&port);
        letters
            && (1..=15).contains(&name.len())
            && name.bytes().any(|b| b.is_ascii_lowercase())
            && names.insert(name)
            && matches!(&*listener.protocol, "TCP" | "UDP")
            && is_port(listener.port)
            && is_port(listener.backend_port)
            && ports.insert((&*listener.protocol, listener.port))
    })
}

/// Whether port and numbers of a health check are in range.
fn is_plain(check: &HealthCheck) -> bool {
    let numbers = [
        check.success_threshold,
        check.failure_threshold,
        check.period_seconds,
        check.timeout_seconds,
    ];
    let is_plain = |most: i64, number: Option<i64>| number.is_none_or(|n| (0..=most).contains(&n));
    is_plain(65_535, check.port) && numbers.into_iter().all(|number| is_plain(3_600, number))
}

/// BE-7: whether a load balancer can use this address.
fn suits(lb: &Lb<'_>, address: &str) -> bool {
    lb.object.spec.workload() != WorkloadType::Vm || !address.contains(':')
}

/// ALC-6, REL-4, IPA-7: checks a load balancer with a Bound record.
fn holds(objects: &Objects<'_>, lb: &Lb<'_>, address: &str, of: &str) -> Result<(), Finding> {
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
    must!(
        "REL-4",
        POOL_MISMATCH,
        lb,
        named.is_empty() || named == of,
        "spec.ipPool is {named}, and its address {address} is of IPPool {of}"
    );
    if objects.unknown.pools.contains(of) {
        return Ok(());
    }
    let outside = match objects.pools.get(of).map(|pool| &pool.ranges) {
        None => true,
        Some(Ranges::Invalid) => false,
        Some(Ranges::Unknown) => return Ok(()),
        Some(Ranges::Plain(ranges)) => address
            .parse()
            .is_ok_and(|address: IpAddr| !ranges.contains(address)),
    };
    let told = lb.has_true_condition("AddressOutOfPool");
    must!(
        "IPA-7",
        CONDITION_MISMATCH,
        lb,
        outside == told,
        "has {address} of IPPool {of}; outside of its ranges: {outside}, condition AddressOutOfPool: {told}"
    );
    Ok(())
}

/// ALC-5, SEL-7, REL-4: checks a load balancer without a Bound record.
fn waits(objects: &Objects<'_>, lb: &Lb<'_>, ready: &Condition) -> Result<(), Finding> {
    let given = lb.given.parse().ok();
    if given.is_some_and(|address| objects.unknown.records.contains(&address)) {
        return Ok(());
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

/// What the IPAllocation of an address says, for the text about an address that is not Bound to its load balancer.
fn record_of(objects: &Objects<'_>, address: &str) -> String {
    let record = objects.record_of_address(address);
    record.map_or_else(String::new, |record| {
        let spec = &record.spec;
        let phase = match spec.phase {
            Phase::Bound => "Bound to",
            Phase::Released => "Released by",
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
    if excludes(pool.object) {
        let why = "this version does not support its annotation";
        return Ok(Some(("UnsupportedAnnotation", why)));
    }
    let ranges = match &pool.ranges {
        Ranges::Unknown => return Ok(None),
        Ranges::Invalid => return Ok(Some(("PoolInvalid", "its ranges are invalid"))),
        Ranges::Plain(ranges) => ranges,
    };
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
    } else {
        "all addresses are taken"
    };
    Ok(Some(("NoAvailableIP", why)))
}
