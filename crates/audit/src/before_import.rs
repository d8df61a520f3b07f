//! The objects of the Go operator, before this operator imports its addresses (IPA-1): what is wrong with them already,
//! and what this operator treats differently. There are no IPAllocations yet, so the statuses count.

use harvester_lb_api::{IPPool, Ipam, LoadBalancer, WorkloadType, keys, projection};

use crate::announcement;
use crate::finding::{Finding, Report, first_few, must};
use crate::kinds;
use crate::leader::Leader;
use crate::meta::{annotation, announced, given, is_ours};
use crate::objects::{Lb, Objects, Pool};
use crate::owned_objects::requests_address;
use crate::ranges::Ranges;
use crate::snapshot::Snapshot;

/// Whether the IPAllocations are the truth about addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// They are: this operator wrote the objects last.
    Imported,
    /// They are not yet: the Go operator wrote the objects last, and the next start of this operator imports the address
    /// maps of the pools and the statuses of the load balancers.
    NotImported,
}

impl State {
    /// The state of the objects. Without a leader they tell: a pool whose maps this operator did not write, or an address
    /// while there is no IPAllocation at all.
    pub fn of(snapshot: &Snapshot, leader: &Leader) -> Self {
        let is_foreign = match leader {
            Leader::This(_) => false,
            Leader::Go(_) => true,
            Leader::None => {
                snapshot.pools.iter().any(has_foreign_maps)
                    || snapshot.records.is_empty()
                        && snapshot.load_balancers.iter().any(has_address)
            }
        };
        if is_foreign {
            Self::NotImported
        } else {
            Self::Imported
        }
    }
}

/// IPA-1: whether another writer than this operator wrote the maps of a pool.
fn has_foreign_maps(pool: &IPPool) -> bool {
    let status = pool.status.as_ref();
    let allocated = status.and_then(|status| status.allocated.as_ref());
    let history = status.and_then(|status| status.allocated_history.as_ref());
    let digest = projection::digest(allocated, history);
    let is_empty = digest == projection::digest(None, None);
    !is_empty && annotation(&pool.metadata, keys::ANNOTATION_PROJECTION) != Some(&digest)
}

fn has_address(lb: &LoadBalancer) -> bool {
    lb.spec.address_source() == Ipam::Pool && !given(lb).is_empty()
}

/// Checks one load balancer. The reason of its condition Ready is returned if it has no address.
pub(crate) fn check<'a>(
    objects: &Objects<'_>,
    lb: &Lb<'a>,
    report: &mut Report,
) -> Option<&'a str> {
    if lb.object.metadata.deletion_timestamp.is_some() || objects.is_left_alone(lb) {
        return None;
    }
    let known = !objects.unknown.owned.contains(&lb.key);
    if lb.object.spec.workload() == WorkloadType::Vm && known && !lb.given.is_empty() {
        report.findings.extend(check_service(objects, lb).err());
        report.findings.extend(check_endpoints(objects, lb).err());
    }
    let ready = lb.condition("Ready");
    let reason = ready.and_then(|ready| ready.reason.as_deref());
    lb.given.is_empty().then(|| reason.unwrap_or_default())
}

fn check_service(objects: &Objects<'_>, lb: &Lb<'_>) -> Result<(), Finding> {
    let service = objects.services.get(&lb.key);
    let slice = objects.slices.get(&lb.key);
    let foreign = [
        service.map(|service| ("Service", &service.metadata)),
        slice.map(|slice| ("EndpointSlice", &slice.metadata)),
    ];
    for (kind, meta) in foreign.into_iter().flatten() {
        must!(
            "SVC-1",
            FOREIGN_SERVICE,
            lb,
            is_ours(meta),
            "has a {kind} without the label {} and without its ownerReference",
            keys::LABEL_SERVICELB
        );
    }
    let Some(service) = service else {
        let text = format!("has address {} and no Service", lb.given);
        let kind = &kinds::SERVICE_MISSING;
        return Err(Finding::new(kind, "REC-4", lb.object(), text));
    };
    requests_address(lb, lb.given, service)?;
    let announced = announced(service);
    must!(
        "REL-4",
        ANNOUNCED_ADDRESS_MISMATCH,
        lb,
        announcement::may_differ(lb.given, service)
            || announced.is_empty()
            || announced == lb.given,
        "has address {}, announced is {announced:?}",
        lb.given
    );
    must!(
        "REC-2",
        STATUS_MISMATCH,
        lb,
        lb.address() == announced,
        "status.address is {:?}, announced is {announced:?}",
        lb.address()
    );
    Ok(())
}

/// Endpoints with an address that no virtual machine of the namespace reports.
fn check_endpoints(objects: &Objects<'_>, lb: &Lb<'_>) -> Result<(), Finding> {
    let (Some(machines), Some(slice)) = (&objects.machines, objects.slices.get(&lb.key)) else {
        return Ok(());
    };
    if objects.unknown.machines.contains(&*lb.key.namespace) {
        return Ok(());
    }
    let is_known = |address: &str| {
        let address = address.parse();
        address.is_ok_and(|address| machines.is_reported(&lb.key.namespace, address))
    };
    let addresses = slice
        .endpoints
        .iter()
        .flat_map(|endpoint| &endpoint.addresses);
    let stale: Vec<&String> = addresses
        .filter(|address| **address != keys::DUMMY_ENDPOINT_ADDRESS && !is_known(address))
        .collect();
    must!(
        "BE-3",
        STALE_ENDPOINT_BEFORE_IMPORT,
        lb,
        stale.is_empty(),
        "has endpoints that no VirtualMachineInstance reports: {}",
        first_few(&stale)
    );
    Ok(())
}

/// POOL-2, EXC-1, IPA-4: checks one pool.
pub(crate) fn check_pool(objects: &Objects<'_>, pool: &Pool<'_>) -> Result<(), Finding> {
    must!(
        "POOL-2",
        POOL_INVALID,
        pool,
        !matches!(pool.ranges, Ranges::Invalid),
        "its ranges are invalid"
    );
    must!(
        "EXC-1",
        POOL_INVALID,
        pool,
        !pool.has_invalid_list,
        "its annotation {} is invalid",
        keys::ANNOTATION_EXCLUDE
    );
    // Of two that overlap the second by name is reported.
    let mut others = objects.overlapping(pool);
    let other = others.find(|other| other.name < pool.name);
    must!(
        "IPA-4",
        POOLS_OVERLAP,
        pool,
        other.is_none(),
        "overlaps IPPool {}",
        other.map_or("", |other| other.name)
    );
    Ok(())
}
