//! DHCP leases of load balancers of VM type (DHC-1, DHC-3, DHC-4): their records, and what the Services show.

use harvester_lb_api::{Condition, Phase, keys};
use harvester_lb_object::Key;

use crate::finding::{Finding, ObjectRef, Report, describe, must};
use crate::kinds;
use crate::meta::{annotation, asked, is_ours, name_of};
use crate::objects::{Lb, Objects};
use crate::records::is_announced_still;

/// Reason of the condition `Ready` of a load balancer without a lease.
const WAITING: &str = "WaitingForLease";

/// `spec.loadBalancerIP` of the Service of a load balancer that uses DHCP: the leased address, or 0.0.0.0 for kube-vip. `None`: it is
/// not to have a Service, and waits.
pub(crate) fn wanted<'a>(objects: &'a Objects<'_>, lb: &Lb<'_>) -> Option<&'a str> {
    let record = objects.leases.of(lb.uid);
    let bound = record.filter(|record| record.spec.phase == Phase::Bound);
    let bound = bound.map(|record| &*record.spec.address);
    let service = objects.services.get(&lb.key);
    let slice = objects.slices.get(&lb.key);
    let is_foreign = service.is_some_and(|it| !is_ours(&it.metadata))
        || slice.is_some_and(|it| !is_ours(&it.metadata));
    if is_foreign {
        // SVC-1: it gets none of its own, with a lease or without; which of the two it is told depends on the mode.
        let ready = lb.condition("Ready").and_then(|it| it.reason.as_deref());
        return (!says_waiting(lb, ready)).then(|| bound.unwrap_or(keys::DHCP_ADDRESS));
    }
    match (bound, service.map(|service| asked(service))) {
        // What the mode of the operator is, the objects do not say: kube-vip's Service is as good as none.
        (_, Some(keys::DHCP_ADDRESS)) => Some(keys::DHCP_ADDRESS),
        (bound, Some(_)) => Some(bound.unwrap_or_default()),
        // It may have expired (DHC-3).
        (_, None) => None,
    }
}

/// Whether this is the reason of a load balancer that waits for a lease. SHR-1: one that asks for the address of another one is told that
/// instead.
fn says_waiting(lb: &Lb<'_>, reason: Option<&str>) -> bool {
    let is_sharing = annotation(&lb.object.metadata, keys::ANNOTATION_PRIMARY).is_some();
    reason == Some(WAITING) || (is_sharing && reason == Some("InvalidPrimary"))
}

/// DHC-1, DHC-3: a load balancer without a Service, because it has no lease.
pub(crate) fn waits(lb: &Lb<'_>, ready: &Condition) -> Result<(), Finding> {
    must!(
        "DHC-1",
        CONDITION_MISMATCH,
        lb,
        says_waiting(lb, ready.reason.as_deref()),
        "uses DHCP and has no Service, and the condition Ready is {}",
        describe(ready)
    );
    must!(
        "DHC-3",
        STATUS_ADDRESS_MISMATCH,
        lb,
        lb.address().is_empty(),
        "waits for a lease, and status.address is {:?}",
        lb.address()
    );
    Ok(())
}

/// DHC-4: leases of load balancers that are gone.
pub(crate) fn check_leftovers(objects: &Objects<'_>, report: &mut Report) {
    let exists = |uid: &str| objects.lbs.values().any(|lb| lb.uid == uid);
    let left = objects.leases.all().filter(|record| {
        let owner = &record.spec.owner;
        let key = Key::new(&*owner.namespace, &*owner.name);
        // It is given back once no Service has the address.
        let is_in_use = is_announced_still(objects, &key, &record.spec.address);
        !objects.unknown.lbs.contains(&key) && !exists(&owner.uid) && !is_in_use
    });
    for record in left {
        let owner = &record.spec.owner;
        let text = format!(
            "is the DHCP lease of LoadBalancer {}/{}, which does not exist",
            owner.namespace, owner.name
        );
        let object = ObjectRef::cluster("IPAllocation", name_of(record));
        let finding = Finding::new(&kinds::LEASE_NOT_RELEASED, "DHC-4", object, text);
        report.findings.push(finding);
    }
}
