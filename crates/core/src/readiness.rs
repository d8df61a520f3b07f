//! Readiness and extra conditions of a load balancer, from its observed state (section 9). Pure.

use harvester_lb_api::condition::{self, Condition, READY};
use harvester_lb_ipam::{AddressConflict, Standing};
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;

use crate::backends::{self, DiscoveredBackends};
use crate::cached::VmiState;
use crate::sharing::telling::Shared;
use crate::spec::VmSpec;
use crate::status::{self, ExtraCondition, Readiness};
use crate::wording::says_the_same;

/// Number of virtual machines that a message names at most.
const NAMED: usize = 5;

/// The observed state of a load balancer of VM type whose Service exists.
#[derive(Clone, Copy, Debug)]
pub struct ReadinessInput<'a> {
    /// Its namespace and name.
    pub key: &'a Key,
    /// Its checked spec.
    pub vm: &'a VmSpec,
    /// Its discovered backends.
    pub found: &'a DiscoveredBackends,
    /// `spec.loadBalancerIP` of its Service.
    pub wanted: &'a str,
    /// The address in the ingress of its Service, see [`external_ip`].
    pub external: Option<&'a str>,
    /// Number of ready endpoints, without the stand-in.
    pub healthy: usize,
    /// Number of backends with at least one health check result since this process started.
    pub probed: usize,
    /// The stored conditions.
    pub before: &'a [Condition],
}

/// Not ready: the Service has no ingress address yet (REC-2).
pub fn waiting_for_external_ip(wanted: &str) -> Readiness {
    Readiness::not(
        status::WAITING_FOR_EXTERNAL_IP,
        format!("waiting for kube-vip to announce {wanted}"),
    )
}

/// The readiness of a load balancer whose Service exists. Checks in the order of section 9: external address, backends,
/// their addresses, their health (REC-2, HC-4, BE-5).
pub fn readiness(input: &ReadinessInput<'_>) -> Readiness {
    let ReadinessInput { key, found, .. } = input;
    if input.external.is_none() {
        return waiting_for_external_ip(input.wanted);
    }
    if let Some(none) = no_backends(key, found) {
        return none;
    }
    let backends = found.backends.len();
    if input.healthy > 0 {
        return Readiness::ready();
    }
    let states = states(found);
    let Some(check) = input.vm.check else {
        let message = format!("none of {backends} backends takes traffic{states}");
        return Readiness::not(status::BACKENDS_UNHEALTHY, message);
    };
    let port = check.port();
    let failing =
        format!("none of {backends} backends passes the health check on port {port}{states}");
    let all_over = found.backends.iter().all(|b| b.state.has_terminated());
    if input.probed > 0 || all_over {
        return Readiness::not(status::BACKENDS_UNHEALTHY, failing);
    }
    let first = format!(
        "the first health checks of {backends} backends on port {port} are under way{states}"
    );
    if !status::was_unhealthy(input.before) {
        return Readiness::first_checks(first);
    }
    // An earlier process has probed the backends, and this one has no result yet. A version without the condition
    // FirstHealthChecks may have stored the message about the first health checks: that message stays.
    let stored = condition::find(input.before, READY).and_then(|c| c.message.as_deref());
    let message = if stored.is_some_and(|stored| says_the_same(stored, &first)) {
        first
    } else {
        failing
    };
    Readiness::not(status::BACKENDS_UNHEALTHY, message)
}

/// Why a load balancer has no backend; `None` if it has one (BE-1, BE-2, BE-8).
pub fn no_backends(key: &Key, found: &DiscoveredBackends) -> Option<Readiness> {
    if found.matched == 0 {
        return Some(Readiness::not(
            status::NO_BACKEND,
            format!(
                "no running virtual machine in namespace {} matches spec.backendServerSelector",
                key.namespace
            ),
        ));
    }
    if !found.backends.is_empty() {
        return None;
    }
    let message = if found.refused.is_empty() {
        format!(
            "none of the {} virtual machines that match reports an IPv4 address; the QEMU guest agent may be missing",
            found.matched
        )
    } else {
        format!(
            "none of the {} virtual machines that match reports an IPv4 address that a backend may have; see the condition {}",
            found.matched,
            status::BACKEND_ADDRESS_REFUSED
        )
    };
    Some(Readiness::not(status::BACKENDS_WITHOUT_IP, message))
}

/// The end of a message: how many backends are paused or terminated (BE-5).
fn states(found: &DiscoveredBackends) -> String {
    let named: Vec<String> = [
        (VmiState::Paused, "paused"),
        (VmiState::Succeeded, "Succeeded"),
        (VmiState::Failed, "Failed"),
    ]
    .into_iter()
    .filter_map(|(state, name)| {
        let count = found.backends.iter().filter(|b| b.state == state).count();
        (count > 0).then(|| format!("{count} {name}"))
    })
    .collect();
    if named.is_empty() {
        return String::new();
    }
    format!("; of these virtual machines {}", named.join(", "))
}

/// The address that a load balancer has.
#[derive(Clone, Copy, Debug)]
pub struct Present<'a> {
    /// The address.
    pub address: &'a str,
    /// Whether its pool still has it to allocate (IPA-7, EXC-3).
    pub standing: Standing,
    /// Why the load balancer cannot have the address that it requests instead (REQ-4).
    pub unserved: Option<&'a str>,
    /// How it is shared, or why it is not (SHR-3).
    pub shared: Option<&'a Shared>,
}

/// The extra conditions of a load balancer. `address_conflict`: an address in its status that it may not have (IPA-2,
/// ALC-7). `present`: the address that it has. `found`: its discovered backends (BE-8).
pub fn extras(
    address_conflict: Option<&AddressConflict>,
    present: Option<Present<'_>>,
    found: &DiscoveredBackends,
) -> Vec<ExtraCondition> {
    let left_out = found.left_out;
    let left_out = (left_out > 0).then(|| {
        format!(
            "{left_out} more backends match than the {} that are served",
            backends::MAX_BACKENDS
        )
    });
    let mut extras = Vec::from(of_address(present));
    extras.push(ExtraCondition::new(status::BACKENDS_LEFT_OUT, left_out));
    extras.extend(backend_addresses(found));
    // Never cleared: it explains why the address has changed.
    if let Some(address_conflict) = address_conflict {
        let holder = match &address_conflict.holder {
            Some(holder) => format!("belongs to LoadBalancer {holder}"),
            None => "is not an address that this load balancer may have".to_owned(),
        };
        let now = present.map_or_else(String::new, |it| {
            format!("; {} was allocated instead", it.address)
        });
        let message = format!("{} {holder}{now}", address_conflict.addr);
        extras.push(ExtraCondition::new(status::ADDRESS_LOST, Some(message)));
    }
    extras
}

/// The extra conditions about the address that a load balancer has.
pub fn of_address(present: Option<Present<'_>>) -> [ExtraCondition; 4] {
    let stands = |standing: Standing, text: &str| {
        let present = present.filter(|it| it.standing == standing)?;
        Some(format!("{} {text}", present.address))
    };
    let out_of_pool = stands(
        Standing::OutOfPool,
        "is no longer an address of its pool; it stays allocated as long as a load balancer has it",
    );
    let excluded = stands(
        Standing::Excluded,
        "is excluded by its pool; it stays allocated as long as a load balancer has it, and is not allocated again",
    );
    let unserved = present.and_then(|it| {
        let why = it.unserved?;
        Some(format!("{} is served meanwhile: {why}", it.address))
    });
    let shared = present.and_then(|it| Some(it.shared?.condition(it.address)));
    let shared = shared.unwrap_or(ExtraCondition::new(status::ADDRESS_SHARED, None));
    [
        ExtraCondition::new(status::ADDRESS_OUT_OF_POOL, out_of_pool),
        ExtraCondition::new(status::ADDRESS_EXCLUDED, excluded),
        ExtraCondition::denied(
            status::REQUESTED_ADDRESS,
            status::REQUESTED_ADDRESS_UNAVAILABLE,
            unserved,
        ),
        shared,
    ]
}

/// The extra condition of a health check whose port is not the backend port of a TCP listener (HC-7). `None`: cluster type.
pub fn port_mismatch(vm: Option<&VmSpec>) -> ExtraCondition {
    let message = vm.and_then(|vm| Some(vm.mismatch.as_ref()?.to_string()));
    ExtraCondition::new(status::HEALTH_CHECK_PORT_MISMATCH, message)
}

/// The extra conditions about the addresses that virtual machines report (BE-8).
fn backend_addresses(found: &DiscoveredBackends) -> [ExtraCondition; 2] {
    let refused = found.refused.iter().map(|r| {
        let (name, address, why) = (&r.name, r.address, &r.why);
        format!("VirtualMachineInstance {name} reports {address}, {why}")
    });
    let shared = found
        .shared
        .iter()
        .map(|(name, address)| format!("VirtualMachineInstance {name} reports {address}"));
    let refused = listed(refused).map(|who| format!("excluded from the backends: {who}"));
    let shared = listed(shared).map(|who| {
        format!("a virtual machine of another namespace reports the same address: {who}")
    });
    [
        ExtraCondition::new(status::BACKEND_ADDRESS_REFUSED, refused),
        ExtraCondition::new(status::BACKEND_ADDRESS_SHARED, shared),
    ]
}

/// The first [`NAMED`] items as text, and the number of the others; `None` if there are no items.
fn listed(mut all: impl ExactSizeIterator<Item = String>) -> Option<String> {
    let named: Vec<String> = all.by_ref().take(NAMED).collect();
    let more = all.len();
    if named.is_empty() {
        return None;
    }
    let named = named.join("; ");
    Some(if more > 0 {
        format!("{named}; and {more} more")
    } else {
        named
    })
}

/// The `ip` of the first ingress entry of a Service; `None` if there is no entry, or its `ip` is absent or empty (REC-2).
pub fn external_ip(service: &Service) -> Option<String> {
    let ingress = service
        .status
        .as_ref()?
        .load_balancer
        .as_ref()?
        .ingress
        .as_ref()?;
    ingress.first()?.ip.clone().filter(|ip| !ip.is_empty())
}

#[cfg(test)]
mod tests;
