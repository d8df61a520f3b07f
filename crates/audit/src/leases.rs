//! DHCP leases of load balancers of VM type (DHC-1, DHC-3, DHC-4): their records, and what the Services show.

use std::collections::BTreeMap;
use std::net::IpAddr;

use harvester_lb_api::{Condition, IPAllocation, Phase, keys};

use crate::finding::{Finding, ObjectRef, Report, describe, must};
use crate::kinds;
use crate::meta::{asked, is_ours, name_of};
use crate::objects::{Lb, Objects};
use crate::snapshot::Snapshot;

/// Reason of the condition `Ready` of a load balancer without a lease.
const WAITING: &str = "WaitingForLease";

/// The leases by the uid of the load balancer; `None`: one that cannot be read (IPA-9).
pub(crate) struct Leases<'a>(BTreeMap<&'a str, Option<&'a IPAllocation>>);

impl<'a> Leases<'a> {
    pub(crate) fn read(snapshot: &'a Snapshot) -> Self {
        let unknown = snapshot.undecodable.iter();
        let unknown = unknown
            .filter(|object| object.kind == "IPAllocation")
            .map(|object| (&*object.name, None));
        let known = snapshot.records.iter();
        let known =
            known.map(|record| (name_of(record), Some(record).filter(|it| is_readable(it))));
        let all = known.chain(unknown).filter_map(|(name, record)| {
            let uid = name.strip_prefix(keys::LEASE_RECORD_PREFIX)?;
            Some((uid, record))
        });
        Self(all.collect())
    }

    /// Whether a load balancer has a lease that cannot be read: it is left alone.
    pub(crate) fn is_unreadable(&self, uid: &str) -> bool {
        matches!(self.0.get(uid), Some(None))
    }

    /// The record of a load balancer.
    fn of(&self, uid: &str) -> Option<&'a IPAllocation> {
        self.0.get(uid).copied().flatten()
    }

    /// DHC-5: the leased addresses, which count as taken.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let all = self.0.values().flatten();
        all.filter(|record| matches!(record.spec.phase, Phase::Bound | Phase::Releasing))
            .filter_map(|record| record.spec.address.parse().ok())
    }
}

/// Whether a record says what its phase needs.
fn is_readable(record: &IPAllocation) -> bool {
    let has_address = record.spec.address.parse::<IpAddr>().is_ok();
    record.spec.lease.is_some() && (record.spec.phase == Phase::Pending || has_address)
}

/// `spec.loadBalancerIP` of the Service of a load balancer that uses DHCP: the leased address, or 0.0.0.0 for kube-vip. `None`: it is
/// not to have a Service, and waits.
pub(crate) fn wanted<'a>(objects: &'a Objects<'_>, lb: &Lb<'_>) -> Option<&'a str> {
    let record = objects.leases.of(lb.uid);
    let bound = record.filter(|record| record.spec.phase == Phase::Bound);
    let bound = bound.map(|record| &*record.spec.address);
    let service = objects
        .services
        .get(&lb.key)
        .filter(|it| is_ours(&it.metadata));
    match (bound, service.map(|service| asked(service))) {
        // What the mode of the operator is, the objects do not say: kube-vip's Service is as good as none.
        (_, Some(keys::DHCP_ADDRESS)) => Some(keys::DHCP_ADDRESS),
        (bound, Some(_)) => Some(bound.unwrap_or_default()),
        // It may have expired (DHC-3).
        (_, None) => None,
    }
}

/// DHC-1, DHC-3: a load balancer without a Service, because it has no lease.
pub(crate) fn waits(lb: &Lb<'_>, ready: &Condition) -> Result<(), Finding> {
    must!(
        "DHC-1",
        CONDITION_MISMATCH,
        lb,
        ready.reason.as_deref() == Some(WAITING),
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
    let records = objects.leases.0.values().flatten();
    let left = records.filter(|record| {
        let owner = &record.spec.owner;
        let of_unknown = objects.unknown.lbs.contains(&harvester_lb_object::Key::new(
            &*owner.namespace,
            &*owner.name,
        ));
        !of_unknown && !exists(&owner.uid)
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
