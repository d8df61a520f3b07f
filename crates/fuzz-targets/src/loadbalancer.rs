//! A LoadBalancer from a watch: its request to the ledger, its desired objects, and its status.

use harvester_lb_api::LoadBalancer;
use harvester_lb_api::meta;
use harvester_lb_core::backends::DiscoveredBackends;
use harvester_lb_core::cached::Lb;
use harvester_lb_core::desired;
use harvester_lb_core::merge_patch::difference;
use harvester_lb_core::readiness::{self, ReadinessInput};
use harvester_lb_core::spec::{self, Source};
use harvester_lb_core::status::{self, FieldUpdate, Readiness, StatusUpdate};
use harvester_load_balancer::controllers::invalid_object;

use crate::common::{Bystander, address, object};

/// Runs an input; returns whether it got past the decoder.
pub fn run(data: &[u8]) -> bool {
    let Some(decoded) = object::<LoadBalancer>(data) else {
        return false;
    };
    let lb = match Lb::from_watch(decoded) {
        Lb::Valid(lb) => lb,
        Lb::Invalid(meta, error) => {
            let key = meta::key(&meta);
            let limit = 600 + key.to_string().len();
            assert!(invalid_object::message("LoadBalancer", &key, &error).len() < limit);
            return true;
        }
    };
    let key = meta::key(&lb.metadata);
    if (&*key.namespace, &*key.name) == ("calm", "holds") {
        // The bystander itself; no other object has its name.
        return true;
    }
    let mut bystander = Bystander::default();
    let mut report = StatusUpdate::only(Readiness::ready());
    match spec::check(&lb) {
        Err(error) => {
            report.readiness = Readiness::not(error.reason(), format!("{key}: {error}"));
        }
        Ok(checked) => {
            if let Source::Pool(request) = &checked.source {
                let decision = bystander.allocate(request, 10);
                let text = address(&decision)
                    .map(|a| a.to_string())
                    .unwrap_or_default();
                report.address = FieldUpdate::Set(Some(text));
            }
            if let Some(vm) = &checked.vm {
                let found = DiscoveredBackends::default();
                let service = desired::service(&lb, None, &vm.ports, "10.200.0.3");
                let again = desired::service(&lb, Some(&service), &vm.ports, "10.200.0.3");
                assert_eq!(service, again);
                let slice = desired::endpoint_slice(&lb, None, &vm.ports, &[]);
                assert_eq!(slice.endpoints.len(), 1);
                report.readiness = readiness::readiness(&ReadinessInput {
                    key: &key,
                    vm,
                    found: &found,
                    wanted: "10.200.0.3",
                    external: readiness::external_ip(&service).as_deref(),
                    healthy: 0,
                    probed: 0,
                    before: status::conditions(&lb),
                });
            }
        }
    }
    let after = status::apply(&lb, &report, "2026-06-01T00:00:00Z");
    let again = status::apply(&after, &report, "2026-06-02T00:00:00Z");
    assert_eq!(difference(&after, &again), None, "never at rest");
    bystander.check();
    true
}
