//! A LoadBalancer from a watch: its request to the ledger or to share an address, its desired objects, and its status.

use harvester_lb_api::{LoadBalancer, keys, meta};
use harvester_lb_core::backends::DiscoveredBackends;
use harvester_lb_core::cached::Lb;
use harvester_lb_core::desired;
use harvester_lb_core::dhcp::claim::LbView;
use harvester_lb_core::kube_vip_annotations::{Interfaces, Source, Wanted, copy};
use harvester_lb_core::merge_patch::difference;
use harvester_lb_core::readiness::{self, ReadinessInput};
use harvester_lb_core::sharing::group::Role;
use harvester_lb_core::sharing::index::named_group;
use harvester_lb_core::sharing::snapshot::{Party, Snapshot};
use harvester_lb_core::sharing::telling;
use harvester_lb_core::spec::{self, Source as AddressSource};
use harvester_lb_core::status::{self, FieldUpdate, Readiness, StatusUpdate};
use harvester_lb_object::Key;
use harvester_load_balancer::controllers::invalid_object;

use crate::common::{Bystander, address, object};

/// A load balancer whose address others may ask to share.
const PRIMARY: &str = r#"{"metadata":{"name":"a","uid":"u-a","creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"listeners":[{"port":80,"backendPort":1,"protocol":"TCP"}],"backendServerSelector":{"app":["web"]}}}"#;

/// Asks to share the address of [`PRIMARY`], or of none if it names another one. Returns why it may not.
fn share(lb: &Lb, key: &Key) -> Option<(&'static str, String)> {
    let group = named_group(key, lb.meta())?;
    let primary = Lb::valid(serde_json::from_str(PRIMARY).unwrap());
    let exists = &*group.name == "a";
    let parties = [&primary, lb].into_iter().skip(usize::from(!exists));
    let parties = parties.map(|lb| Party {
        lb,
        slice: None,
        secondary: None,
        is_left_alone: false,
        names_others: false,
    });
    let snapshot = Snapshot::of(&group, parties.collect(), None, &[]);
    let holds = Role::Member { is_holder: true };
    assert!(
        !exists || snapshot.roles["a"] == holds,
        "the primary is harmed"
    );
    telling::refusal(&group.name, snapshot.roles.get(&*key.name)?)
}

/// Copies kube-vip's annotations to a Service that has none; no interface is allowed (KVA-2).
fn pass_on(lb: &Lb) {
    let source = Source::Own(Wanted::of(lb.meta(), &Interfaces::default()));
    let mut service = lb.meta().clone();
    service.annotations = None;
    copy(&mut service, &source);
    let copied = service.clone();
    copy(&mut service, &source);
    assert_eq!(service, copied, "never at rest");
    let interface = meta::annotation(&service, keys::ANNOTATION_KUBE_VIP_INTERFACE);
    assert_eq!(interface.unwrap_or_default(), "");
}

/// Runs an input; returns whether it got past the decoder.
pub fn run(data: &[u8]) -> bool {
    let Some(decoded) = object::<LoadBalancer>(data) else {
        return false;
    };
    let cached = Lb::from_watch(decoded);
    let key = meta::key(cached.meta());
    let refusal = share(&cached, &key);
    pass_on(&cached);
    let lb = match &cached {
        Lb::Valid(lb) => lb,
        Lb::Invalid(_, error) => {
            let limit = 600 + key.to_string().len();
            assert!(invalid_object::message("LoadBalancer", &key, error).len() < limit);
            return true;
        }
    };
    LbView::of(lb);
    if (&*key.namespace, &*key.name) == ("calm", "holds") {
        // The bystander itself; no other object has its name.
        return true;
    }
    let mut bystander = Bystander::default();
    let mut report = StatusUpdate::only(Readiness::ready());
    match spec::check(lb) {
        Err(error) => {
            report.readiness = Readiness::not(error.reason(), format!("{key}: {error}"));
        }
        Ok(checked) => {
            if let AddressSource::Pool(request) = &checked.source {
                let decision = bystander.allocate(request, 10);
                // REQ-3, REQ-4: the requested one, or the one that it has.
                let may_have =
                    |addr| request.names(addr) || request.requested.is_none_or(|it| it == addr);
                assert!(address(&decision).is_none_or(may_have), "{decision:?}");
                let text = address(&decision)
                    .map(|a| a.to_string())
                    .unwrap_or_default();
                report.address = FieldUpdate::Set(Some(text));
            }
            if let Some(vm) = &checked.vm {
                let found = DiscoveredBackends::default();
                let service = desired::service(lb, None, &vm.ports, "10.200.0.3");
                let again = desired::service(lb, Some(&service), &vm.ports, "10.200.0.3");
                assert_eq!(service, again);
                let slice = desired::endpoint_slice(lb, None, &vm.ports, &[]);
                assert_eq!(slice.endpoints.len(), 1);
                report.readiness = readiness::readiness(&ReadinessInput {
                    key: &key,
                    vm,
                    found: &found,
                    wanted: "10.200.0.3",
                    external: readiness::external_ip(&service).as_deref(),
                    healthy: 0,
                    probed: 0,
                    before: status::conditions(lb),
                });
            }
        }
    }
    if let Some((reason, message)) = refusal {
        report.readiness = Readiness::not(reason, message);
    }
    let after = status::apply(lb, &report, "2026-06-01T00:00:00Z");
    let again = status::apply(&after, &report, "2026-06-02T00:00:00Z");
    assert_eq!(difference(&after, &again), None, "never at rest");
    bystander.check();
    true
}
