//! Selection of a load balancer's backends and their addresses (section 8.4). Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use harvester_lb_object::Key;

use crate::backend_addresses::{AddressVerdict, Refusal};
use crate::cached::{Vmi, VmiState};

/// Largest number of backends of a load balancer: the API server's limit of 1,000 endpoints in an EndpointSlice, less one
/// for the stand-in (EPS-2).
pub const MAX_BACKENDS: usize = 999;

/// A valid `spec.backendServerSelector`: every key must match, with one of its values (BE-1). Empty: no backends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(BTreeMap<String, Vec<String>>);

impl Selector {
    /// Checks the raw selector (BE-1). An absent one is empty.
    ///
    /// # Errors
    /// The first key, by name, that has no values.
    pub fn new(spec: Option<&BTreeMap<String, Vec<String>>>) -> Result<Self, String> {
        let spec = spec.cloned().unwrap_or_default();
        match spec.iter().find(|(_, values)| values.is_empty()) {
            Some((key, _)) => Err(key.clone()),
            None => Ok(Self(spec)),
        }
    }

    /// Whether the labels of a VirtualMachineInstance match (BE-1).
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        matches(&self.0, labels)
    }
}

/// Whether labels have every key of a raw selector, with one of its values. An empty selector and a key without values match
/// nothing (BE-1).
pub fn matches(
    selector: &BTreeMap<String, Vec<String>>,
    labels: &BTreeMap<String, String>,
) -> bool {
    !selector.is_empty()
        && selector.iter().all(|(key, values)| {
            labels
                .get(key)
                .is_some_and(|label| values.iter().any(|value| value == label))
        })
}

/// A VirtualMachineInstance that serves a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Name of the VirtualMachineInstance; its namespace is the load balancer's (BE-4).
    pub name: Arc<str>,
    /// Uid of the VirtualMachineInstance. A restarted one has another uid and is a new endpoint (EPS-1).
    pub uid: String,
    /// Its address (BE-2).
    pub address: Ipv4Addr,
    /// Its state as far as that concerns traffic (BE-5).
    pub state: VmiState,
}

/// A VirtualMachineInstance that matches and is no backend because of its address (BE-8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedBackend {
    /// Name of the VirtualMachineInstance.
    pub name: Arc<str>,
    /// The address that it reports.
    pub address: Ipv4Addr,
    /// Why the address is not usable.
    pub why: Refusal,
}

/// The discovered backends of a load balancer. Fill it with [`DiscoveredBackends::add_if_selected`] or
/// [`DiscoveredBackends::retain_endpoint`], then call [`DiscoveredBackends::apply_address_rules`] once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveredBackends {
    /// Number of VirtualMachineInstances that match, with or without an address (BE-1).
    pub matched: usize,
    /// Those with a usable address, sorted by name (REC-5). After [`DiscoveredBackends::apply_address_rules`] at most
    /// [`MAX_BACKENDS`].
    pub backends: Vec<Backend>,
    /// Number of backends above [`MAX_BACKENDS`], which are not served.
    pub left_out: usize,
    /// Those that are left out because of their address (BE-8).
    pub refused: Vec<RefusedBackend>,
    /// Name and address of the backends whose address is also reported in another namespace; they are served (BE-8).
    pub shared: Vec<(Arc<str>, Ipv4Addr)>,
}

impl DiscoveredBackends {
    /// Adds a VirtualMachineInstance if it matches (BE-1). Call it in the order of their names (REC-5).
    pub fn add_if_selected(&mut self, selector: &Selector, key: &Key, vmi: &Vmi) {
        if vmi.deleting || !selector.matches(&vmi.labels) {
            return;
        }
        self.matched += 1;
        let Some(address) = vmi.address else { return };
        self.backends.push(Backend {
            name: Arc::clone(&key.name),
            uid: vmi.uid.clone(),
            address,
            state: vmi.state,
        });
    }

    /// Keeps an endpoint that is served already, if the cached VirtualMachineInstance of its name (`now`) has the same uid
    /// and address and is not being deleted (BE-6).
    pub fn retain_endpoint(&mut self, endpoint: Backend, now: Option<&Vmi>) {
        if let Some(vmi) = now
            && vmi.uid == endpoint.uid
            && vmi.address == Some(endpoint.address)
            && !vmi.deleting
        {
            self.backends.push(Backend {
                state: vmi.state,
                ..endpoint
            });
        }
    }

    /// Drops backends whose address is not usable (BE-8), terminated ones whose address another backend has and paused ones whose
    /// address a running one has (BE-5), and those above [`MAX_BACKENDS`].
    pub fn apply_address_rules(&mut self, address_verdict: impl Fn(Ipv4Addr) -> AddressVerdict) {
        // kube-proxy would take either of two endpoints with one address, also the one that is not ready.
        let mut best: BTreeMap<Ipv4Addr, VmiState> = BTreeMap::new();
        for backend in &self.backends {
            let state = best.entry(backend.address).or_insert(backend.state);
            *state = backend.state.min(*state);
        }
        let mut terminated = BTreeSet::new();
        self.backends.retain(|b| {
            let best = best.get(&b.address).copied().unwrap_or(b.state);
            if best.has_terminated() {
                // Of several the first stays.
                terminated.insert(b.address)
            } else {
                b.state == best
            }
        });
        let (refused, shared) = (&mut self.refused, &mut self.shared);
        self.backends.retain(|backend| {
            let AddressVerdict {
                refusal,
                shared: is_shared,
            } = address_verdict(backend.address);
            let (name, address) = (Arc::clone(&backend.name), backend.address);
            if let Some(why) = refusal {
                refused.push(RefusedBackend { name, address, why });
                return false;
            }
            if is_shared {
                shared.push((name, address));
            }
            true
        });
        self.left_out = self.backends.len().saturating_sub(MAX_BACKENDS);
        self.backends.truncate(MAX_BACKENDS);
    }
}

/// The `ready` of each endpoint, in the same order, from its state and its health check verdict (BE-5): a terminated one is
/// never ready, a paused one only while no running one is.
pub fn ready(backends: &[(VmiState, bool)]) -> Vec<bool> {
    let runs_ready = backends.contains(&(VmiState::Running, true));
    backends
        .iter()
        .map(|(state, verdict)| match state {
            VmiState::Running => *verdict,
            VmiState::Paused => *verdict && !runs_ready,
            VmiState::Succeeded | VmiState::Failed => false,
        })
        .collect()
}

#[cfg(test)]
mod tests;
