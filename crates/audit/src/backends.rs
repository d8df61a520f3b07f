//! The virtual machines behind a VM-type load balancer, and its condition about them (sections 8.3, 8.4 and 9). Health
//! check results are stored only in the EndpointSlice, so they are taken from there unchecked.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

use harvester_lb_api::kubevirt::VirtualMachineInstance;
use harvester_lb_api::{Condition, keys};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

use crate::finding::{Finding, describe, first_few, must};
use crate::kinds;
use crate::machines::{Machines, address_of, reported};
use crate::objects::{Lb, Objects};

/// Maximum number of backends in an EndpointSlice; with more machines some are left out.
const MOST: usize = 999;

/// State of a virtual machine (BE-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Paused,
    Over,
}

/// A virtual machine with an address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Backend {
    address: Ipv4Addr,
    state: State,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// Checks the endpoints of one load balancer, and its condition.
pub(crate) fn check(
    objects: &Objects<'_>,
    lb: &Lb<'_>,
    ready: &Condition,
    slice: &EndpointSlice,
    is_announced: bool,
) -> Result<(), Finding> {
    let Some(machines) = machines_for(objects, lb) else {
        return Ok(());
    };
    let matching: Vec<&VirtualMachineInstance> = matching(lb, machines);
    if matching.len() > MOST {
        return Ok(());
    }
    let all: Vec<Backend> = matching.iter().filter_map(|vmi| Backend::of(vmi)).collect();
    let (refused, backends): (Vec<Backend>, Vec<Backend>) = unlike(&all)
        .into_iter()
        .partition(|backend| is_refused(objects, machines, backend.address));
    must!(
        "BE-8",
        CONDITION_MISMATCH,
        lb,
        lb.has_true_condition("BackendAddressRefused") != refused.is_empty(),
        "refused backends: [{}]; the condition BackendAddressRefused does not match",
        first_few(&refused)
    );
    let shared =
        |backend: &&Backend| machines.is_in_another_namespace(&lb.key.namespace, backend.address);
    let shared: Vec<&Backend> = backends.iter().filter(shared).collect();
    must!(
        "BE-8",
        CONDITION_MISMATCH,
        lb,
        lb.has_true_condition("BackendAddressShared") != shared.is_empty(),
        "backends whose address is used in another namespace: [{}]; the condition BackendAddressShared does not match",
        first_few(&shared)
    );
    let endpoints: Vec<(String, bool)> = slice.endpoints.iter().map(read).collect();
    let is_real = |endpoint: &&Endpoint| !is_stand_in(endpoint);
    let real = slice.endpoints.iter().filter(is_real);
    let any_ready = real.map(read).any(|(_, ready)| ready);
    let probed = is_probed(lb);
    let runs = backends
        .iter()
        .any(|backend| backend.state == State::Running);
    let mut expected: Vec<(String, bool)> = backends
        .iter()
        .enumerate()
        .map(|(at, backend)| {
            let may = match backend.state {
                State::Running => true,
                State::Over => false,
                // With a health check it is unknown here which of the others are ready.
                State::Paused => probed || !runs,
            };
            // The health check result, which is known only from the EndpointSlice.
            let verdict = endpoints.get(at).is_some_and(|(_, ready)| *ready);
            (backend.address.to_string(), may && (verdict || !probed))
        })
        .collect();
    // EPS-2.
    if !expected.iter().any(|(_, ready)| *ready) {
        expected.push((keys::DUMMY_ENDPOINT_ADDRESS.to_owned(), true));
    }
    if endpoints != expected {
        let known: Vec<Ipv4Addr> = matching.iter().flat_map(|vmi| reported(vmi)).collect();
        let is_stale = |(address, _): &(String, bool)| {
            address != keys::DUMMY_ENDPOINT_ADDRESS
                && !known.iter().any(|known| known.to_string() == *address)
        };
        let kind = if endpoints.iter().any(is_stale) {
            &kinds::STALE_ENDPOINT
        } else {
            &kinds::ENDPOINTS_MISMATCH
        };
        let text = difference(&endpoints, &expected);
        return Err(Finding::new(kind, "BE-3", lb.object(), text));
    }
    let status = lb.object.status.as_ref();
    let listed = status.and_then(|status| status.backend_servers.clone());
    let listed = listed.unwrap_or_default();
    let addresses: Vec<String> = backends.iter().map(|b| b.address.to_string()).collect();
    must!(
        "BE-3",
        STATUS_MISMATCH,
        lb,
        listed == addresses,
        "status.backendServers is [{}], expected [{}]",
        first_few(&listed),
        first_few(&addresses)
    );
    let expected = if !is_announced {
        "WaitingForExternalIP"
    } else if matching.is_empty() {
        "NoBackend"
    } else if backends.is_empty() {
        "BackendsWithoutIP"
    } else if any_ready {
        "Ready"
    } else {
        "BackendsUnhealthy"
    };
    must!(
        "section 9",
        CONDITION_MISMATCH,
        lb,
        ready.reason.as_deref() == Some(expected),
        "the condition Ready is {}, expected reason {expected}",
        describe(ready)
    );
    Ok(())
}

/// BE-6: the endpoints that stay published of a load balancer that is not reconciled still exist.
pub(crate) fn check_kept_endpoints(objects: &Objects<'_>, lb: &Lb<'_>) -> Result<(), Finding> {
    let (Some(slice), Some(machines)) = (objects.slices.get(&lb.key), machines_for(objects, lb))
    else {
        return Ok(());
    };
    for endpoint in slice
        .endpoints
        .iter()
        .filter(|endpoint| !is_stand_in(endpoint))
    {
        let target = endpoint.target_ref.clone().unwrap_or_default();
        let name = target.name.as_deref().unwrap_or_default();
        let vmi = machines.find(&lb.key.namespace, name);
        let (address, ready) = read(endpoint);
        let stands = vmi.is_some_and(|vmi| {
            let here = address_of(vmi);
            vmi.metadata.uid == target.uid
                && here.is_some_and(|here| {
                    here.to_string() == address && !is_refused(objects, machines, here)
                })
                && (state(vmi) != State::Over || !ready)
        });
        must!(
            "BE-6",
            STALE_ENDPOINT,
            lb,
            stands,
            "keeps the endpoint {address} of VirtualMachineInstance {name}, which is gone or must not be served"
        );
    }
    Ok(())
}

/// The virtual machines, if those of the load balancer's namespace are known.
fn machines_for<'o, 'a>(objects: &'o Objects<'a>, lb: &Lb<'_>) -> Option<&'o Machines<'a>> {
    let is_unknown = objects.unknown.machines.contains(&*lb.key.namespace);
    objects.machines.as_ref().filter(|_| !is_unknown)
}

/// BE-1: the virtual machines of the namespace that match the whole selector, by name.
fn matching<'a>(lb: &Lb<'_>, machines: &Machines<'a>) -> Vec<&'a VirtualMachineInstance> {
    let selector = lb.object.spec.backend_server_selector.as_ref();
    selector.map_or_else(Vec::new, |selector| {
        machines.matching(&lb.key.namespace, selector)
    })
}

impl Backend {
    fn of(vmi: &VirtualMachineInstance) -> Option<Self> {
        Some(Self {
            address: address_of(vmi)?,
            state: state(vmi),
        })
    }
}

fn state(vmi: &VirtualMachineInstance) -> State {
    let status = vmi.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let paused = conditions.into_iter().flatten().any(|condition| {
        condition.type_.as_deref() == Some("Paused")
            && condition.status.as_deref() == Some("True")
            && condition.reason.as_deref() != Some("PausedByMigrationMonitor")
    });
    match status.and_then(|status| status.phase.as_deref()) {
        Some("Succeeded" | "Failed") => State::Over,
        _ if paused => State::Paused,
        _ => State::Running,
    }
}

/// BE-5: a finished machine is left out if another has its address, and a paused one if a running one has it; of several finished ones
/// the first stays.
fn unlike(all: &[Backend]) -> Vec<Backend> {
    let is_left_out = |at: usize, backend: &Backend| {
        let others = all.iter().enumerate();
        let mut others = others.filter(|(_, other)| other.address == backend.address);
        match backend.state {
            State::Running => false,
            State::Paused => others.any(|(_, other)| other.state == State::Running),
            State::Over => others.any(|(nth, other)| other.state != State::Over || nth < at),
        }
    };
    let kept = all.iter().enumerate();
    let kept = kept.filter(|(at, backend)| !is_left_out(*at, backend));
    kept.map(|(_, backend)| backend.clone()).collect()
}

/// BE-8: whether the address is one of a Node or Service, has an IPAllocation, or is denied.
fn is_refused(objects: &Objects<'_>, machines: &Machines<'_>, address: Ipv4Addr) -> bool {
    objects.reserved.contains(&*address.to_string()) || machines.is_refused(address)
}

/// Whether a load balancer has a health check (section 8.5).
fn is_probed(lb: &Lb<'_>) -> bool {
    let check = lb.object.spec.health_check.as_ref();
    check.is_some_and(|check| check.port.is_some_and(|port| port != 0))
}

/// EPS-2: whether an endpoint is the stand-in endpoint.
fn is_stand_in(endpoint: &Endpoint) -> bool {
    endpoint.addresses.first().map(String::as_str) == Some(keys::DUMMY_ENDPOINT_ADDRESS)
}

/// Address and readiness of an endpoint.
fn read(endpoint: &Endpoint) -> (String, bool) {
    let address = endpoint.addresses.first().cloned().unwrap_or_default();
    let conditions = endpoint.conditions.as_ref();
    (address, conditions.and_then(|c| c.ready).unwrap_or(true))
}

/// How the endpoints, with their readiness, differ from the expected ones.
fn difference(endpoints: &[(String, bool)], expected: &[(String, bool)]) -> String {
    let state = |ready: bool| if ready { "ready" } else { "not ready" };
    let index = |all: &[(String, bool)]| -> BTreeMap<String, bool> {
        // Of equal addresses the first counts.
        all.iter().rev().cloned().collect()
    };
    let (index, expected_index) = (index(endpoints), index(expected));
    let of = |all: &BTreeMap<String, bool>, address: &str| {
        let found = all.get(address);
        found.map_or("absent", |ready| state(*ready))
    };
    let all = endpoints.iter().chain(expected);
    let mut addresses: Vec<&str> = all.map(|(address, _)| &**address).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let differences: Vec<String> = addresses
        .into_iter()
        .filter_map(|address| {
            let (is, should) = (of(&index, address), of(&expected_index, address));
            (is != should).then(|| format!("{address} is {is}, expected {should}"))
        })
        .collect();
    if differences.is_empty() {
        return format!(
            "endpoints differ in their order: {} of them, expected {}",
            endpoints.len(),
            expected.len()
        );
    }
    format!("endpoints differ: {}", first_few(&differences))
}
