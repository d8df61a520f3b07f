//! The virtual machines behind a VM-type load balancer, and its condition about them (sections 8.3, 8.4 and 9). Health
//! check results are stored only in the EndpointSlice, so they are taken from there unchecked.

use std::net::Ipv4Addr;

use harvester_lb_api::kubevirt::{Interface, VirtualMachineInstance};
use harvester_lb_api::{Condition, keys};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

use crate::finding::{Finding, describe, must};
use crate::meta::key_of;
use crate::objects::{Lb, Objects};
use crate::snapshot::Cluster;

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

/// Checks the endpoints of one load balancer, and its condition.
pub(crate) fn check(
    objects: &Objects<'_>,
    lb: &Lb<'_>,
    ready: &Condition,
    slice: &EndpointSlice,
    is_announced: bool,
) -> Result<(), Finding> {
    let Some(cluster) = objects.cluster else {
        return Ok(());
    };
    let matching: Vec<&VirtualMachineInstance> = matching(lb, cluster);
    if matching.len() > MOST {
        return Ok(());
    }
    let all: Vec<Backend> = matching.iter().filter_map(|vmi| Backend::of(vmi)).collect();
    let (refused, backends): (Vec<Backend>, Vec<Backend>) = unlike(&all)
        .into_iter()
        .partition(|backend| is_refused(objects, cluster, backend.address));
    must!(
        "BE-8",
        lb,
        lb.has_true_condition("BackendAddressRefused") != refused.is_empty(),
        "refused backends: {refused:?}; the condition BackendAddressRefused does not match"
    );
    let shared = |backend: &&Backend| {
        let others = cluster.machines.iter();
        let mut others = others.filter(|vmi| *key_of(&vmi.metadata).namespace != *lb.key.namespace);
        others.any(|vmi| address_of(vmi) == Some(backend.address))
    };
    let shared: Vec<&Backend> = backends.iter().filter(shared).collect();
    must!(
        "BE-8",
        lb,
        lb.has_true_condition("BackendAddressShared") != shared.is_empty(),
        "backends whose address is used in another namespace: {shared:?}; the condition BackendAddressShared does not match"
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
    must!(
        "BE-3",
        lb,
        endpoints == expected,
        "endpoints are {endpoints:?}, expected {expected:?}"
    );
    let status = lb.object.status.as_ref();
    let listed = status.and_then(|status| status.backend_servers.clone());
    let listed = listed.unwrap_or_default();
    let addresses: Vec<String> = backends.iter().map(|b| b.address.to_string()).collect();
    must!(
        "BE-3",
        lb,
        listed == addresses,
        "status.backendServers is {listed:?}, expected {addresses:?}"
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
        lb,
        ready.reason.as_deref() == Some(expected),
        "the condition Ready is {}, expected reason {expected}",
        describe(ready)
    );
    Ok(())
}

/// BE-6: the endpoints that stay published of a load balancer that is not reconciled still exist.
pub(crate) fn check_kept_endpoints(objects: &Objects<'_>, lb: &Lb<'_>) -> Result<(), Finding> {
    let (Some(slice), Some(cluster)) = (objects.slices.get(&lb.key), objects.cluster) else {
        return Ok(());
    };
    for endpoint in slice
        .endpoints
        .iter()
        .filter(|endpoint| !is_stand_in(endpoint))
    {
        let target = endpoint.target_ref.clone().unwrap_or_default();
        let vmi = cluster.machines.iter().find(|vmi| {
            let key = key_of(&vmi.metadata);
            key.namespace == lb.key.namespace && Some(&*key.name) == target.name.as_deref()
        });
        let (address, ready) = read(endpoint);
        let stands = vmi.is_some_and(|vmi| {
            let here = address_of(vmi);
            vmi.metadata.uid == target.uid
                && here.is_some_and(|here| {
                    here.to_string() == address && !is_refused(objects, cluster, here)
                })
                && (state(vmi) != State::Over || !ready)
        });
        must!(
            "BE-6",
            lb,
            stands,
            "keeps the endpoint {address} of VirtualMachineInstance {:?}, which is gone or must not be served",
            target.name
        );
    }
    Ok(())
}

/// BE-1: the virtual machines of the namespace that match the whole selector, by name.
fn matching<'a>(lb: &Lb<'_>, cluster: &'a Cluster) -> Vec<&'a VirtualMachineInstance> {
    let selector = lb.object.spec.backend_server_selector.as_ref();
    let Some(selector) = selector.filter(|selector| !selector.is_empty()) else {
        return Vec::new();
    };
    let matches = |vmi: &&VirtualMachineInstance| {
        let labels = vmi.metadata.labels.as_ref();
        *key_of(&vmi.metadata).namespace == *lb.key.namespace
            && vmi.metadata.deletion_timestamp.is_none()
            && selector.iter().all(|(key, values)| {
                let label = labels.and_then(|labels| labels.get(key));
                label.is_some_and(|label| values.contains(label))
            })
    };
    let mut all: Vec<_> = cluster.machines.iter().filter(matches).collect();
    all.sort_by_key(|vmi| vmi.metadata.name.clone());
    all
}

impl Backend {
    fn of(vmi: &VirtualMachineInstance) -> Option<Self> {
        Some(Self {
            address: address_of(vmi)?,
            state: state(vmi),
        })
    }
}

/// BE-2: the first usable IPv4 address; named interfaces first.
fn address_of(vmi: &VirtualMachineInstance) -> Option<Ipv4Addr> {
    let interfaces = vmi.status.as_ref()?.interfaces.as_deref()?;
    let named = |interface: &&Interface| interface.name.as_ref().is_some_and(|n| !n.is_empty());
    let (named, others): (Vec<&Interface>, Vec<&Interface>) = interfaces.iter().partition(named);
    let texts = named.into_iter().chain(others).flat_map(|interface| {
        let more = interface.ip_addresses.iter().flatten();
        interface.ip_address.iter().chain(more)
    });
    texts
        .filter_map(|text| text.parse().ok())
        .find(|address: &Ipv4Addr| {
            !address.is_unspecified()
                && !address.is_loopback()
                && !address.is_link_local()
                && !address.is_multicast()
                && !address.is_broadcast()
        })
}

fn state(vmi: &VirtualMachineInstance) -> State {
    let status = vmi.status.clone().unwrap_or_default();
    let paused = status.conditions.iter().flatten().any(|condition| {
        condition.type_.as_deref() == Some("Paused")
            && condition.status.as_deref() == Some("True")
            && condition.reason.as_deref() != Some("PausedByMigrationMonitor")
    });
    match status.phase.as_deref() {
        Some("Succeeded" | "Failed") => State::Over,
        _ if paused => State::Paused,
        _ => State::Running,
    }
}

/// BE-5: a finished machine is left out if another has its address; of several finished ones the first stays.
fn unlike(all: &[Backend]) -> Vec<Backend> {
    let is_left_out = |at: usize, backend: &Backend| {
        let others = all.iter().enumerate();
        let mut others = others.filter(|(_, other)| other.address == backend.address);
        backend.state == State::Over
            && others.any(|(nth, other)| other.state != State::Over || nth < at)
    };
    let kept = all.iter().enumerate();
    let kept = kept.filter(|(at, backend)| !is_left_out(*at, backend));
    kept.map(|(_, backend)| backend.clone()).collect()
}

/// BE-8: whether the address is one of a Node or Service, has an IPAllocation, or is denied.
fn is_refused(objects: &Objects<'_>, cluster: &Cluster, address: Ipv4Addr) -> bool {
    let text = address.to_string();
    let of_node = |node: &Node| {
        let status = node.status.as_ref();
        let mut all = status
            .iter()
            .flat_map(|status| status.addresses.iter().flatten());
        all.any(|of_node| of_node.address == text)
    };
    let is_denied = |(network, prefix): &(Ipv4Addr, u8)| {
        let mask = u32::MAX.checked_shl(32 - u32::from(*prefix)).unwrap_or(0);
        (address.to_bits() ^ network.to_bits()) & mask == 0
    };
    objects.reserved.contains(&*text)
        || cluster.nodes.iter().any(of_node)
        || cluster.denied.iter().any(is_denied)
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
