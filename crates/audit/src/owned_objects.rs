//! Service, EndpointSlice and the rest of the status of a load balancer that has an address (sections 8 and 9).

use harvester_lb_api::{Condition, WorkloadType, keys};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::announcement;
use crate::backends;
use crate::details;
use crate::finding::{Finding, describe, first_few, must};
use crate::kinds;
use crate::meta::{announced, asked, is_ours, is_owned_by};
use crate::objects::{Lb, Objects};
use crate::spec::are_usable;
use crate::{leases, sharing};

/// Checks the owned objects of one load balancer, and the rest of its status.
pub(crate) fn check(objects: &Objects<'_>, lb: &Lb<'_>, ready: &Condition) -> Result<(), Finding> {
    let service = objects.services.get(&lb.key);
    let slice = objects.slices.get(&lb.key);
    if objects.unknown.owned.contains(&lb.key) {
        return Ok(());
    }
    if lb.object.spec.workload() == WorkloadType::Cluster {
        return of_cluster(
            lb,
            ready,
            service.copied(),
            slice.map(|slice| &slice.metadata),
        );
    }
    let reason = ready.reason.as_deref().unwrap_or_default();
    let foreign = service.is_some_and(|service| !is_ours(&service.metadata));
    let foreign_slice = slice.is_some_and(|slice| !is_ours(&slice.metadata));
    if foreign || foreign_slice {
        must!(
            "SVC-1",
            CONDITION_MISMATCH,
            lb,
            reason == "NameConflict",
            "has a foreign Service or EndpointSlice, and the condition Ready is {}",
            describe(ready)
        );
        must!(
            "SVC-1",
            FOREIGN_SERVICE_WITH_ENDPOINT_SLICE,
            lb,
            !foreign || slice.is_none_or(|slice| !is_ours(&slice.metadata)),
            "has an EndpointSlice beside a foreign Service"
        );
        return Ok(());
    }
    let Some(service) = service else {
        let text = format!(
            "has address {} and no Service; the condition Ready is {}",
            lb.given,
            describe(ready)
        );
        let kind = &kinds::SERVICE_MISSING;
        return Err(Finding::new(kind, "REC-4", lb.object(), text));
    };
    the_service(objects, lb, service, reason)?;
    let announced = announced(service);
    let wanted = wanted(objects, lb);
    announcement::check(objects, lb, service, wanted)?;
    if reason == "PortConflict" {
        must!(
            "SHR-2",
            CONDITION_MISMATCH,
            lb,
            sharing::wants_a_port_of_another(objects, lb, &lb.key),
            "is Ready False PortConflict, and no other load balancer has one of its ports"
        );
        return Ok(());
    }
    let Some(slice) = slice else {
        let text = "has no EndpointSlice".to_owned();
        let kind = &kinds::ENDPOINT_SLICE_MISSING;
        return Err(Finding::new(kind, "REC-4", lb.object(), text));
    };
    must!(
        "section 8.3",
        ENDPOINTS_MISMATCH,
        lb,
        is_owned_by(&slice.metadata, lb.uid) && is_ours(&slice.metadata),
        "the ownerReferences of its EndpointSlice are {}",
        owners(&slice.metadata)
    );
    let may_differ = announcement::may_differ(wanted, service);
    details::of_served(lb, wanted, announced, may_differ)?;
    backends::check(objects, lb, ready, slice, !announced.is_empty())
}

/// REC-1: a guest cluster has its own data path.
fn of_cluster(
    lb: &Lb<'_>,
    ready: &Condition,
    service: Option<&Service>,
    slice: Option<&ObjectMeta>,
) -> Result<(), Finding> {
    must!(
        "REC-1",
        CONDITION_MISMATCH,
        lb,
        ready.reason.as_deref() == Some("Ready"),
        "has address {}, and the condition Ready is {}",
        lb.given,
        describe(ready)
    );
    must!(
        "REC-1",
        UNEXPECTED_SERVICE,
        lb,
        !service.is_some_and(|service| is_ours(&service.metadata)),
        "is of cluster type and has a Service"
    );
    must!(
        "REC-1",
        UNEXPECTED_SERVICE,
        lb,
        !slice.is_some_and(is_ours),
        "is of cluster type and has an EndpointSlice"
    );
    must!(
        "REC-1",
        STATUS_MISMATCH,
        lb,
        lb.given == keys::DHCP_ADDRESS || !lb.address().is_empty(),
        "has address {}, and status.address is empty",
        lb.given
    );
    details::of_cluster(lb)
}

/// Section 8.2.
fn the_service(
    objects: &Objects<'_>,
    lb: &Lb<'_>,
    service: &Service,
    reason: &str,
) -> Result<(), Finding> {
    let meta = &service.metadata;
    let others = sharing::ports_of_others(objects, service, &lb.key);
    let mut owners_of = meta.owner_references.iter().flatten();
    must!(
        "section 8.2",
        SERVICE_MISMATCH,
        lb,
        is_owned_by(meta, lb.uid)
            || (others.is_some() && owners_of.any(|owner| owner.uid == lb.uid)),
        "the ownerReferences of its Service are {}",
        owners(meta)
    );
    let labels = meta.labels.as_ref();
    must!(
        "section 8.2",
        SERVICE_MISMATCH,
        lb,
        labels.is_some_and(|all| all.get(keys::LABEL_SERVICELB).is_some_and(|v| v == "true")),
        "its Service lacks the label {}",
        keys::LABEL_SERVICELB
    );
    requests_address(lb, wanted(objects, lb), service)?;
    let spec = service.spec.clone().unwrap_or_default();
    must!(
        "section 8.2",
        SERVICE_MISMATCH,
        lb,
        spec.selector
            .as_ref()
            .is_none_or(std::collections::BTreeMap::is_empty),
        "its Service has a selector"
    );
    let listeners = lb.object.spec.listeners.as_deref().unwrap_or_default();
    // One that has shared its address goes on with other names if it cannot have its own.
    let are_usable = are_usable(listeners);
    let shown = |name: Option<&str>| name.filter(|_| are_usable).unwrap_or_default().to_owned();
    let mut expected: Vec<String> = listeners
        .iter()
        .map(|listener| {
            let name = shown(listener.name.as_deref());
            let (port, target) = (listener.port, listener.backend_port);
            format!("{name} {port}/{} to {target}", listener.protocol)
        })
        .collect();
    let ports = spec.ports.iter().flatten();
    let mut ports: Vec<String> = ports
        .map(|port| {
            let name = if others.is_some() {
                port.name.clone().unwrap_or_default()
            } else {
                shown(port.name.as_deref())
            };
            let target = match &port.target_port {
                Some(IntOrString::Int(target)) => target.to_string(),
                Some(IntOrString::String(target)) => target.clone(),
                None => String::new(),
            };
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            format!("{name} {}/{protocol} to {target}", port.port)
        })
        .collect();
    let may_be_more = others.as_ref().is_some_and(|others| others.may_be_more);
    if let Some(others) = others {
        // SHR-2: of one whose ports others have the Service has none.
        let own = lb.object.spec.listeners.iter().flatten();
        let own = own.filter(|_| reason != "PortConflict");
        expected = sharing::as_shared(own.chain(others.ports));
        ports.sort();
    }
    must!(
        "section 8.2",
        SERVICE_MISMATCH,
        lb,
        ports == expected || (may_be_more && expected.iter().all(|it| ports.contains(it))),
        "has listeners {}, and its Service has ports {}",
        first_few(&expected),
        first_few(&ports)
    );
    Ok(())
}

/// The address that the Service of a load balancer is to request: the allocated one, or with DHCP by the lease (DHC-1).
fn wanted<'a>(objects: &'a Objects<'_>, lb: &'a Lb<'_>) -> &'a str {
    let leased = (lb.given == keys::DHCP_ADDRESS).then(|| leases::wanted(objects, lb));
    leased.flatten().unwrap_or(lb.given)
}

/// Section 8.2: the Service of a load balancer requests this address.
pub(crate) fn requests_address(
    lb: &Lb<'_>,
    wanted: &str,
    service: &Service,
) -> Result<(), Finding> {
    must!(
        "section 8.2",
        SERVICE_ADDRESS_MISMATCH,
        lb,
        asked(service) == wanted,
        "has address {wanted}, and spec.loadBalancerIP of its Service is {:?}",
        asked(service)
    );
    Ok(())
}

/// The owners of an object, as text.
fn owners(meta: &ObjectMeta) -> String {
    let owners = meta.owner_references.iter().flatten();
    let owners: Vec<String> = owners
        .map(|owner| format!("{} {} of uid {}", owner.kind, owner.name, owner.uid))
        .collect();
    format!("[{}]", first_few(&owners))
}
