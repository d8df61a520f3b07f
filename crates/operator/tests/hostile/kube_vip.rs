//! kube-vip's annotations: what a load balancer may pass on to its Service, what stays on a Service that others have edited, and what
//! the DHCP process reads of both (KVA-1, KVA-2, DHC-1, DHC-6).

use harvester_lb_api::{LoadBalancer, keys};
use harvester_lb_core::cached::CachedService;
use harvester_lb_core::dhcp::claim::{Claim, LbView, ServiceView};
use harvester_lb_core::kube_vip_annotations::{COPIED, Interfaces, Source, Wanted, copy, warnings};
use harvester_lb_core::reasons::INVALID_HARDWARE_ADDRESS;
use harvester_lb_core::sharing::membership::fault_of;
use harvester_lb_core::spec::{self, Checked};
use harvester_lb_ipam::dhcp::HardwareAddress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The interface that load balancers may name.
const ALLOWED: &str = "mgmt-br";

/// Checks what is passed on from a load balancer to its Service. Returns whether its interface is refused.
pub(crate) fn is_passed_on(lb: &ObjectMeta, service: Option<&ObjectMeta>) -> bool {
    let allowed: Interfaces = ALLOWED.parse().unwrap();
    let wanted = Wanted::of(lb, &allowed);
    let condition = wanted.condition();
    let told = warnings(lb, &allowed).count();
    for source in [Source::Own(wanted.clone()), Source::Heir(wanted)] {
        let before = service.cloned().unwrap_or_default();
        let mut after = before.clone();
        copy(&mut after, &source);
        let value = |of: &ObjectMeta, key: &str| {
            let annotations = of.annotations.as_ref();
            annotations.and_then(|all| all.get(key).cloned())
        };
        for (key, stood) in before.annotations.iter().flatten() {
            let is_ours = COPIED.contains(&&**key) || key == keys::ANNOTATION_COPIED;
            assert!(
                is_ours || value(&after, key).as_ref() == Some(stood),
                "{key} is another one's"
            );
        }
        let interface = value(&after, keys::ANNOTATION_KUBE_VIP_INTERFACE);
        let stood = value(&before, keys::ANNOTATION_KUBE_VIP_INTERFACE);
        assert!(
            interface.is_none()
                || interface == stood
                || interface
                    .as_deref()
                    .is_some_and(|name| name.is_empty() || name == ALLOWED),
            "{interface:?}"
        );
        let mut again = after.clone();
        copy(&mut again, &source);
        assert_eq!(again, after, "never at rest");
    }
    let is_refused = condition.message.is_some();
    assert!(told >= usize::from(is_refused));
    is_refused
}

/// Checks what the DHCP process reads of a load balancer: it asks for no lease with a hardware address that the operator refuses.
pub(crate) fn is_claim_sound(lb: &LoadBalancer) {
    let checked = spec::check(lb);
    // Nobody shares a leased address.
    let is_unusable = |checked: &Checked| {
        let vm = checked.vm.as_ref();
        vm.is_some_and(|vm| vm.unusable_name.is_some())
    };
    let is_refused = checked.as_ref().map_or(true, is_unusable);
    let refusal = checked.err().map(|refusal| refusal.reason());
    match LbView::of(lb).claim {
        Claim::Lease {
            hardware: Err(_), ..
        } => assert!(refusal.is_some()),
        Claim::Lease {
            hardware: Ok(_), ..
        } => assert!(!is_refused, "{refusal:?}"),
        Claim::None => assert_ne!(refusal, Some(INVALID_HARDWARE_ADDRESS)),
        Claim::Unchanged => {
            let is_deleting = lb.metadata.deletion_timestamp.is_some();
            assert!(is_deleting || is_refused || fault_of(lb).is_some());
        }
    }
}

/// The metadata of a load balancer with each annotation that is copied.
pub(crate) fn asks_for_everything() -> ObjectMeta {
    ObjectMeta {
        uid: Some("u-web".to_owned()),
        annotations: Some(
            COPIED
                .map(|key| (key.to_owned(), ALLOWED.to_owned()))
                .into(),
        ),
        ..ObjectMeta::default()
    }
}

/// Checks what the DHCP process reads of a Service: addresses and a hardware address that its server can give (DHC-6).
pub(crate) fn is_read(service: &CachedService) {
    let Some(view) = ServiceView::from_watch(service) else {
        return;
    };
    assert!(
        view.kube_vip_address
            .is_none_or(|address| !address.is_unspecified())
    );
    assert!(view.kube_vip_hardware.is_none_or(HardwareAddress::is_host));
    assert!(view.shown.iter().all(|address| view.may_serve(*address)));
}
