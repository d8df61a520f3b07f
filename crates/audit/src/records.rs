//! IPAllocations: none is Bound to a load balancer that is gone or does not use it (REL-2, IPA-3). Also the leftovers
//! of deleted load balancers and pools (REL-3, POOL-1).

use std::collections::BTreeMap;

use harvester_lb_api::Phase;
use harvester_lb_object::Key;

use crate::finding::{Finding, ObjectRef, Report, must};
use crate::kinds;
use crate::meta::{announced, is_misnamed, is_ours, name_of};
use crate::objects::{Bound, Lb, Objects};
use crate::sharing::is_shared;
use crate::snapshot::Snapshot;

/// Limits of Released records per pool, and in all (section 6.5).
const HISTORY_OF_A_POOL: usize = 1_024;
const HISTORY: usize = 16_384;

/// Checks all IPAllocations.
pub(crate) fn check(objects: &Objects<'_>, report: &mut Report) {
    for record in &objects.bound {
        report.findings.extend(held(objects, record).err());
    }
    report.findings.extend(history(objects).err());
}

/// Section 6.5: IPAllocations whose name is another address than their own. Those of later kinds, whose name is no
/// address, are left alone (IPA-8).
pub(crate) fn check_names(snapshot: &Snapshot, report: &mut Report) {
    for record in snapshot.records.iter().filter(|record| is_misnamed(record)) {
        let object = ObjectRef::cluster("IPAllocation", name_of(record));
        let text = format!("spec.address is {}", record.spec.address);
        let finding = Finding::new(&kinds::IP_ALLOCATION_MISNAMED, "section 6.5", object, text);
        report.findings.push(finding);
    }
}

fn held(objects: &Objects<'_>, record: &Bound<'_>) -> Result<(), Finding> {
    let Bound {
        address,
        owner,
        uid,
        ..
    } = record;
    let lb = objects.lbs.get(owner);
    let left_alone = lb.is_some_and(|lb| objects.is_left_alone(lb));
    let unknown = objects.unknown.lbs.contains(owner);
    if left_alone || unknown {
        return Ok(());
    }
    let Some(lb) = lb else {
        let text = format!("is Bound to LoadBalancer {owner}, which does not exist");
        let kind = &kinds::IP_ALLOCATION_ORPHANED;
        return Err(Finding::new(kind, "REL-2", record.object(), text));
    };
    let refused = lb.is_unserved();
    must!(
        "IPA-3",
        IP_ALLOCATION_OF_OTHER_UID,
        record,
        lb.uid == *uid || is_announced_still(objects, owner, address),
        "is Bound to another uid than that of LoadBalancer {owner}"
    );
    must!(
        "REL-2",
        IP_ALLOCATION_UNUSED,
        record,
        // ALC-10: a load balancer with an invalid spec keeps its IPAllocation.
        refused || lb.given == *address,
        "is Bound to LoadBalancer {owner}, whose status.allocatedAddress is {:?}",
        lb.given
    );
    Ok(())
}

/// Whether kube-vip goes on announcing an address that an earlier load balancer of the name had: of one whose spec is refused the Service
/// is not made anew.
pub(crate) fn is_announced_still(objects: &Objects<'_>, owner: &Key, address: &str) -> bool {
    let lb = objects.lbs.get(owner);
    let service = objects.services.get(owner);
    let service = service.filter(|it| is_ours(&it.metadata));
    lb.is_some_and(Lb::is_unserved) && service.is_some_and(|service| announced(service) == address)
}

/// POOL-5: the history has limits.
fn history(objects: &Objects<'_>) -> Result<(), Finding> {
    let mut remembered: BTreeMap<&str, usize> = BTreeMap::new();
    for record in &objects.records {
        if record.spec.phase == Phase::Released {
            *remembered.entry(&record.spec.pool).or_default() += 1;
        }
    }
    let all: usize = remembered.values().sum();
    let most = remembered.values().copied().max().unwrap_or(0);
    if most <= HISTORY_OF_A_POOL && all <= HISTORY {
        return Ok(());
    }
    let kind = &kinds::RELEASED_IP_ALLOCATIONS_EXCESSIVE;
    let object = ObjectRef::cluster("IPAllocation", "(all)");
    let text = format!(
        "{all} are Released, {most} of one IPPool; the limits are {HISTORY} and {HISTORY_OF_A_POOL}"
    );
    Err(Finding::new(kind, "POOL-5", object, text))
}

/// Finds the leftovers of deleted objects.
pub(crate) fn check_leftovers(objects: &Objects<'_>, report: &mut Report) {
    check_owned_leftovers(objects, report);
    for record in &objects.records {
        let pool = &*record.spec.pool;
        let exists = objects.pools.contains_key(pool) || objects.unknown.pools.contains(pool);
        if record.spec.phase == Phase::Released && !exists {
            let kind = &kinds::RELEASED_IP_ALLOCATION_WITHOUT_POOL;
            let object = ObjectRef::cluster("IPAllocation", name_of(record));
            let text = format!("is Released in IPPool {pool}, which does not exist");
            report
                .findings
                .push(Finding::new(kind, "POOL-1", object, text));
        }
    }
}

/// Services and EndpointSlices of the operator whose LoadBalancer does not exist (REL-3).
pub(crate) fn check_owned_leftovers(objects: &Objects<'_>, report: &mut Report) {
    let services = objects.services.iter();
    let services = services.map(|(key, service)| {
        let kind = &kinds::SERVICE_ORPHANED;
        (kind, "Service", key, &service.metadata)
    });
    let slices = objects.slices.iter();
    let slices = slices.map(|(key, slice)| {
        let kind = &kinds::ENDPOINT_SLICE_ORPHANED;
        (kind, "EndpointSlice", key, &slice.metadata)
    });
    for (kind, of, key, meta) in services.chain(slices) {
        let exists = objects.lbs.contains_key(key) || objects.unknown.lbs.contains(key);
        if !exists && is_ours(meta) && !is_shared(meta) {
            let text = "belongs to a LoadBalancer that does not exist".to_owned();
            let object = ObjectRef::namespaced(of, key);
            report
                .findings
                .push(Finding::new(kind, "REL-3", object, text));
        }
    }
}
