//! Two objects with one address: load balancers (ALC-8) and Services (REL-3).

use std::collections::BTreeMap;

use harvester_lb_api::keys;

use crate::finding::{Finding, ObjectRef, Report};
use crate::kinds;
use crate::meta::{asked, is_ours};
use crate::objects::{Lb, Objects};
use crate::sharing;
use crate::spec::Spec;

/// No two load balancers have the same address (ALC-8), and no two Services request it (REL-3).
pub(crate) fn check(objects: &Objects<'_>, report: &mut Report) {
    // The address of a load balancer with an invalid spec may have been released by hand.
    check_addresses(objects, report, |lb| Spec::of(lb) == Spec::Valid);
    check_service_addresses(objects, report);
}

/// As [`check`], before the import: every status claims its address.
pub(crate) fn check_claims(objects: &Objects<'_>, report: &mut Report) {
    check_addresses(objects, report, |_| true);
    check_service_addresses(objects, report);
}

/// ALC-8, for the load balancers whose status `counts`.
fn check_addresses(objects: &Objects<'_>, report: &mut Report, counts: impl Fn(&Lb<'_>) -> bool) {
    let mut given: BTreeMap<&str, &Lb<'_>> = BTreeMap::new();
    for lb in objects.lbs.values() {
        // Load balancers that share an address all name it (SHR-3).
        let shares = sharing::primary(&lb.object.metadata).is_some();
        let aside = objects.is_left_alone(lb) || !counts(lb) || shares;
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
