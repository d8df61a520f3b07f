//! IPAllocations: none is Bound to a load balancer that is gone or does not use it (REL-2, IPA-3). Also the leftovers
//! of deleted load balancers and pools (REL-3, POOL-1).

use std::collections::BTreeMap;

use harvester_lb_api::{IPAllocation, Phase};

use crate::finding::{Finding, Report, must};
use crate::later::is_shared;
use crate::meta::is_ours;
use crate::objects::{Bound, Objects};

/// Limits of Released records per pool, and in all (section 6.5).
const HISTORY_OF_A_POOL: usize = 1_024;
const HISTORY: usize = 16_384;

/// Checks all IPAllocations.
pub(crate) fn check(objects: &Objects<'_>, report: &mut Report) {
    report.bound = objects.bound.len();
    report.released = objects.records.len() - objects.bound.len();
    for record in &objects.bound {
        report.findings.extend(held(objects, record).err());
    }
    for record in objects.records {
        report.findings.extend(named(record).err());
    }
    report.findings.extend(history(objects).err());
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
    if left_alone || objects.may_be_shared(address, owner) {
        return Ok(());
    }
    let Some(lb) = lb else {
        let text = format!("is Bound to LoadBalancer {owner}, which does not exist");
        return Err(Finding::new("REL-2", record.to_string(), text));
    };
    must!(
        "IPA-3",
        record,
        lb.uid == *uid,
        "is Bound to another uid than that of LoadBalancer {owner}"
    );
    let listeners = lb.object.spec.listeners.iter().flatten();
    let refused =
        lb.object.spec.workload() == harvester_lb_api::WorkloadType::Vm && listeners.count() == 0;
    must!(
        "REL-2",
        record,
        // ALC-10: a load balancer with an invalid spec keeps its IPAllocation.
        refused || lb.given == *address,
        "is Bound to LoadBalancer {owner}, whose status.allocatedAddress is {:?}",
        lb.given
    );
    Ok(())
}

/// Section 6.5: the name is the IPv4 address; the form of other names is not checked here.
fn named(record: &IPAllocation) -> Result<(), Finding> {
    let name = record.metadata.name.as_deref().unwrap_or_default();
    let spec = &record.spec;
    let of_address = name.parse::<std::net::Ipv4Addr>().is_ok();
    must!(
        "section 6.5",
        format!("IPAllocation {name}"),
        !of_address || name == spec.address,
        "spec.address is {}",
        spec.address
    );
    Ok(())
}

/// POOL-5: the history has limits.
fn history(objects: &Objects<'_>) -> Result<(), Finding> {
    let mut remembered: BTreeMap<&str, usize> = BTreeMap::new();
    for record in objects.records {
        if record.spec.phase == Phase::Released {
            *remembered.entry(&record.spec.pool).or_default() += 1;
        }
    }
    let all: usize = remembered.values().sum();
    let most = remembered.values().copied().max().unwrap_or(0);
    must!(
        "POOL-5",
        "IPAllocations",
        most <= HISTORY_OF_A_POOL && all <= HISTORY,
        "{all} are Released, {most} of one IPPool; the limits are {HISTORY} and {HISTORY_OF_A_POOL}"
    );
    Ok(())
}

/// Finds the leftovers of deleted objects.
pub(crate) fn check_leftovers(objects: &Objects<'_>, report: &mut Report) {
    let services = objects.services.iter();
    let services = services.map(|(key, service)| ("Service", key, &service.metadata));
    let slices = objects.slices.iter();
    let slices = slices.map(|(key, slice)| ("EndpointSlice", key, &slice.metadata));
    for (kind, key, meta) in services.chain(slices) {
        if !objects.lbs.contains_key(key) && is_ours(meta) && !is_shared(meta) {
            let text = "belongs to a LoadBalancer that does not exist".to_owned();
            report
                .findings
                .push(Finding::new("REL-3", format!("{kind} {key}"), text));
        }
    }
    for record in objects.records {
        let spec = &record.spec;
        if spec.phase == Phase::Released && !objects.pools.contains_key(&*spec.pool) {
            let object = format!("IPAllocation of {}", spec.address);
            let text = format!("is Released in IPPool {}, which does not exist", spec.pool);
            report.findings.push(Finding::new("POOL-1", object, text));
        }
    }
}
