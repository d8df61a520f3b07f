//! What a load balancer of VM type is worth, from what was found and done (section 9). Pure.

use harvester_lb_api::condition::{self, Condition, READY};
use harvester_lb_ipam::AddressConflict;
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;

use crate::backends::{self, Found};
use crate::cached::State;
use crate::spec::VmSpec;
use crate::status::{self, ExtraCondition, Readiness};

/// How many virtual machines a message names at most.
const NAMED: usize = 5;

/// What is known of a load balancer whose Service exists.
#[derive(Clone, Copy, Debug)]
pub struct ReadinessInput<'a> {
    /// Its namespace and name.
    pub key: &'a Key,
    /// What it is to serve.
    pub vm: &'a VmSpec,
    /// What its selector has found.
    pub found: &'a Found,
    /// The address that its Service asks for.
    pub wanted: &'a str,
    /// The address that its Service shows.
    pub external: Option<&'a str>,
    /// How many backends take traffic.
    pub healthy: usize,
    /// How many backends have been probed at all since this process began.
    pub probed: usize,
    /// The conditions that are stored.
    pub before: &'a [Condition],
}

/// The Service shows no address yet.
pub fn waiting_for_external_ip(key: &Key, wanted: &str) -> Readiness {
    Readiness::not(
        status::WAITING_FOR_EXTERNAL_IP,
        format!("Service {key} has no external address yet; kube-vip is to announce {wanted}"),
    )
}

/// Readiness of a load balancer whose Service exists, in the order of section 9.
pub fn readiness(input: &ReadinessInput<'_>) -> Readiness {
    let ReadinessInput { key, found, .. } = input;
    if input.external.is_none() {
        return waiting_for_external_ip(key, input.wanted);
    }
    if found.matched == 0 {
        return Readiness::not(
            status::NO_BACKEND,
            format!(
                "no running virtual machine in namespace {} matches spec.backendServerSelector",
                key.namespace
            ),
        );
    }
    let backends = found.backends.len();
    if backends == 0 && !found.refused.is_empty() {
        return Readiness::not(
            status::BACKENDS_WITHOUT_IP,
            format!(
                "none of the {} virtual machines that match reports an IPv4 address that a backend may have; see the condition {}",
                found.matched,
                status::BACKEND_ADDRESS_REFUSED
            ),
        );
    }
    if backends == 0 {
        return Readiness::not(
            status::BACKENDS_WITHOUT_IP,
            format!(
                "none of the {} virtual machines that match reports an IPv4 address; the QEMU guest agent may be missing",
                found.matched
            ),
        );
    }
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
    let all_over = found.backends.iter().all(|b| b.state.is_over());
    if input.probed > 0 || all_over {
        return Readiness::not(status::BACKENDS_UNHEALTHY, failing);
    }
    let first = format!(
        "the first health checks of {backends} backends on port {port} are under way{states}"
    );
    if !status::was_judged_unhealthy(input.before) {
        return Readiness::first_checks(first);
    }
    // Another process has judged them, and nothing newer is known yet. Where it did not say in a condition of its own
    // that these were the first, its words stay as they are.
    let stored = condition::find(input.before, READY).and_then(|c| c.message.as_deref());
    let message = if stored == Some(&*first) {
        first
    } else {
        failing
    };
    Readiness::not(status::BACKENDS_UNHEALTHY, message)
}

/// The states of backends that keep them from answering (BE-5), as the end of a message.
fn states(found: &Found) -> String {
    let named: Vec<String> = [
        (State::Paused, "paused"),
        (State::Succeeded, "Succeeded"),
        (State::Failed, "Failed"),
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

/// The further conditions.
pub fn extras(
    lost: Option<&AddressConflict>,
    instead: Option<&str>,
    out_of_pool: bool,
    found: &Found,
) -> Vec<ExtraCondition> {
    let left_out = found.left_out;
    let mut extras = vec![
        ExtraCondition {
            type_: status::ADDRESS_OUT_OF_POOL,
            message: out_of_pool.then(|| {
                format!(
                    "{} is no longer an address of its pool; it is kept until the load balancer goes",
                    instead.unwrap_or_default()
                )
            }),
        },
        ExtraCondition {
            type_: status::BACKENDS_LEFT_OUT,
            message: (left_out > 0).then(|| {
                format!("{left_out} more backends match than the {} that are served", backends::MAX_BACKENDS)
            }),
        },
    ];
    extras.extend(backend_addresses(found));
    // Stays once it is set: it tells why the address is another than it was.
    if let Some(lost) = lost {
        let holder = match &lost.holder {
            Some(holder) => format!("belongs to LoadBalancer {holder}"),
            None => "is not an address that this load balancer may have".to_owned(),
        };
        let now = instead.map_or_else(String::new, |i| format!("; {i} was given instead"));
        extras.push(ExtraCondition {
            type_: status::ADDRESS_LOST,
            message: Some(format!("{} {holder}{now}", lost.addr)),
        });
    }
    extras
}

/// The further condition of a health check that no listener's backend port stands behind (HC-7).
pub fn port_mismatch(vm: Option<&VmSpec>) -> ExtraCondition {
    ExtraCondition {
        type_: status::HEALTH_CHECK_PORT_MISMATCH,
        message: vm.and_then(|vm| Some(vm.mismatch.as_ref()?.to_string())),
    }
}

/// The further conditions about the addresses that virtual machines report (BE-8).
fn backend_addresses(found: &Found) -> [ExtraCondition; 2] {
    let refused = found.refused.iter().map(|r| {
        let (name, address, why) = (&r.name, r.address, &r.why);
        format!("VirtualMachineInstance {name} reports {address}, {why}")
    });
    let shared = found
        .shared
        .iter()
        .map(|(name, address)| format!("VirtualMachineInstance {name} reports {address}"));
    [
        ExtraCondition {
            type_: status::BACKEND_ADDRESS_REFUSED,
            message: listed(refused).map(|who| format!("left out: {who}")),
        },
        ExtraCondition {
            type_: status::BACKEND_ADDRESS_SHARED,
            message: listed(shared).map(|who| {
                format!("a virtual machine of another namespace reports the same address: {who}")
            }),
        },
    ]
}

/// The first of a list, and how many more there are; `None` if there is none at all.
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

/// The address that a Service shows (REC-2): an entry without an address is none.
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
