//! The address that kube-vip announces for a load balancer (REC-2, REL-4).

use harvester_lb_api::keys;
use k8s_openapi::api::core::v1::Service;

use crate::finding::{Finding, must};
use crate::meta::{annotation, announced};
use crate::objects::{Lb, Objects};

/// REC-2, REL-4: the announced address is that of the load balancer, and its status says so.
pub(crate) fn check(
    objects: &Objects<'_>,
    lb: &Lb<'_>,
    service: &Service,
    wanted: &str,
) -> Result<(), Finding> {
    let announced = announced(service);
    must!(
        "REC-2",
        STATUS_ADDRESS_MISMATCH,
        lb,
        lb.address() == announced,
        "status.address is {:?}, announced is {announced:?}",
        lb.address()
    );
    must!(
        "REL-4",
        ANNOUNCED_ADDRESS_MISMATCH,
        lb,
        if announced.is_empty() {
            !objects.announcing
        } else {
            may_differ(wanted, service) || announced == wanted
        },
        "has address {wanted}, announced is {announced:?}"
    );
    Ok(())
}

/// Whether the announced address need not be the allocated one (section 8.2): an annotation of the Service overrides it, or
/// kube-vip leases it.
pub(crate) fn may_differ(wanted: &str, service: &Service) -> bool {
    let overridden = annotation(&service.metadata, keys::ANNOTATION_KUBE_VIP_ADDRESSES).is_some();
    overridden || wanted == keys::DHCP_ADDRESS
}
