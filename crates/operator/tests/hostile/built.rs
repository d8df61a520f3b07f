//! Computes everything that follows from a load balancer with an address: Service, EndpointSlice and status.

use std::time::Duration;

use harvester_lb_api::{LoadBalancer, meta};
use harvester_lb_core::backends::{Backend, DiscoveredBackends, MAX_BACKENDS};
use harvester_lb_core::desired::{self, DesiredPort};
use harvester_lb_core::details::{self, BackendHealth};
use harvester_lb_core::merge_patch::difference;
use harvester_lb_core::readiness::{self, ReadinessInput};
use harvester_lb_core::sharing;
use harvester_lb_core::sharing::naming::{self, Observed, SETTLE};
use harvester_lb_core::sharing::service::{Others, Part};
use harvester_lb_core::sharing::snapshot::served;
use harvester_lb_core::spec::VmSpec;
use harvester_lb_core::status::{self, FieldUpdate, StatusUpdate};
use harvester_lb_ipam::Standing;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::scene::HELD;

/// Computes everything that follows from a load balancer with an address; nothing may fail.
pub(crate) fn build_all(
    lb: &LoadBalancer,
    vm: &VmSpec,
    found: &DiscoveredBackends,
    service: Option<&Service>,
    slice: Option<&EndpointSlice>,
) -> StatusUpdate {
    let key = &meta::key(&lb.metadata);
    let known = desired::known_readiness(slice);
    let backends: Vec<(Backend, bool)> = found
        .backends
        .iter()
        .map(|b| {
            (
                b.clone(),
                known.get(&(b.uid.clone(), b.address)) == Some(&true),
            )
        })
        .collect();
    let wanted = desired::endpoint_slice(lb, slice, &vm.ports, &backends);
    let ready = backends.iter().filter(|(_, ready)| *ready).count();
    assert_eq!(
        wanted.endpoints.len(),
        backends.len() + usize::from(ready == 0)
    );
    assert_eq!(desired::real_endpoints(&wanted).count(), backends.len());
    assert!(wanted.endpoints.len() <= MAX_BACKENDS + 1);
    let again = desired::endpoint_slice(lb, Some(&wanted), &vm.ports, &backends);
    assert_eq!(difference(&wanted, &again), None, "never at rest");
    let wanted = desired::service(lb, service, &vm.ports, HELD);
    let again = desired::service(lb, Some(&wanted), &vm.ports, HELD);
    assert_eq!(difference(&wanted, &again), None, "never at rest");
    build_shared(lb, vm, service, slice);
    let external = service.and_then(readiness::external_ip);
    let readiness = readiness::readiness(&ReadinessInput {
        key,
        vm,
        found,
        wanted: HELD,
        external: external.as_deref(),
        healthy: ready,
        probed: backends.len(),
        before: status::conditions(lb),
    });
    let servers = backends
        .iter()
        .map(|(b, _)| b.address.to_string())
        .collect();
    let health: Vec<BackendHealth<'_>> = backends
        .iter()
        .map(|(backend, ready)| BackendHealth::new(backend, *ready, None))
        .collect();
    let healthy = details::backends_healthy(&health, vm.check.is_some(), status::conditions(lb));
    let present = readiness::Present {
        address: HELD,
        standing: Standing::OutOfPool,
        unserved: None,
        shared: None,
    };
    StatusUpdate {
        readiness,
        allocated: FieldUpdate::Unchanged,
        address: FieldUpdate::Set(external.clone()),
        backend_servers: FieldUpdate::Set(Some(servers)),
        extras: readiness::extras(None, Some(present), found),
        details: vec![
            details::allocated_from_pool(HELD, "p"),
            details::announced(external.as_deref(), HELD, false),
            healthy,
        ],
        verdicts_changed: true,
    }
}

/// Computes the Service of a primary with these objects, which another load balancer has joined: before and after kube-proxy has seen
/// the names of its ports.
fn build_shared(
    lb: &LoadBalancer,
    vm: &VmSpec,
    service: Option<&Service>,
    slice: Option<&EndpointSlice>,
) {
    let key = &meta::key(&lb.metadata);
    let stored = sharing::service::stored_names(&key.name, &vm.ports, service, slice);
    let observed = Observed::after(None, stored, Duration::ZERO);
    let wanted = sharing::service::wanted_names(&vm.ports, true);
    let joined = DesiredPort {
        name: "9-sctp".to_owned(),
        protocol: "SCTP",
        port: 9,
        target: IntOrString::Int(9),
    };
    let others = Others {
        secondaries: vec![Part {
            name: "joined".to_owned(),
            uid: "u-joined".to_owned(),
            is_owner: true,
            carried: vec![joined.clone()],
            added: Vec::new(),
        }],
        ..Others::default()
    };
    for now in [Duration::ZERO, SETTLE] {
        let names = naming::next(&wanted, &observed, now);
        let ports = vm.ports.iter().filter_map(|port| {
            let name = names.service.get(&served(port))?;
            Some(DesiredPort::named(port, name.clone()))
        });
        let primary = Part {
            name: key.name.to_string(),
            ..Part::default()
        };
        let ports: Vec<DesiredPort> = ports.collect();
        let primary = Some((&primary, &*ports));
        let (owners, ports) = sharing::service::assemble(primary, &others, service, |_| true);
        assert_eq!((owners.len(), ports.len()), (2, vm.ports.len() + 1));
        assert!(ports.contains(&joined));
        let wanted = desired::shared_service(key, service, &owners, &ports, HELD);
        let again = desired::shared_service(key, Some(&wanted), &owners, &ports, HELD);
        assert_eq!(difference(&wanted, &again), None, "never at rest");
        let mut owners = wanted.metadata.owner_references.iter().flatten();
        assert!(owners.any(|owner| owner.uid == "u-joined"));
    }
}
