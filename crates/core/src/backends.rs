//! Which virtual machines stand behind a load balancer, and at which address (section 8.4). Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use harvester_lb_object::Key;

use crate::backend_addresses::{Refusal, Standing};
use crate::cached::{State, Vmi};

/// Endpoints that one EndpointSlice takes, less one for the stand-in (EPS-2).
pub const MAX_BACKENDS: usize = 999;

/// Labels of the virtual machines behind a load balancer: every key, with one of its values (BE-1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(BTreeMap<String, Vec<String>>);

impl Selector {
    /// Checks a selector: a key without values is an error (BE-1). The error names the key.
    pub fn new(spec: Option<&BTreeMap<String, Vec<String>>>) -> Result<Self, String> {
        let spec = spec.cloned().unwrap_or_default();
        match spec.iter().find(|(_, values)| values.is_empty()) {
            Some((key, _)) => Err(key.clone()),
            None => Ok(Self(spec)),
        }
    }

    /// Whether labels match (BE-1).
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        matches(&self.0, labels)
    }
}

/// Whether labels have every key of a selector, with one of its values. An empty selector matches nothing, and a key
/// without values nothing either (BE-1).
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

/// A virtual machine behind a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its name.
    pub name: Arc<str>,
    /// Its uid.
    pub uid: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// What it is at.
    pub state: State,
}

/// A virtual machine that is left out because of its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its name.
    pub name: Arc<str>,
    /// The address that it reports.
    pub address: Ipv4Addr,
    /// Why that is not usable.
    pub why: Refusal,
}

/// What a selector has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Virtual machines that match.
    pub matched: usize,
    /// Those with a usable address, by name (REC-5); [`MAX_BACKENDS`] at most once [`Found::judge`] was called.
    pub backends: Vec<Backend>,
    /// How many with an address were left out because of their number.
    pub left_out: usize,
    /// Those that are left out because of their address (BE-8).
    pub refused: Vec<Refused>,
    /// Those whose address a machine of another namespace reports too; they stay (BE-8).
    pub shared: Vec<(Arc<str>, Ipv4Addr)>,
}

impl Found {
    /// Takes a virtual machine into account. They come in the order of their names.
    pub fn look_at(&mut self, selector: &Selector, key: &Key, vmi: &Vmi) {
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

    /// Takes an endpoint that is served into account, with the machine of its name as it is now. It stays as long as it is
    /// that machine, at that address, and not on its way out (BE-6).
    pub fn stay(&mut self, endpoint: Backend, now: Option<&Vmi>) {
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

    /// Leaves out who reports an address that is not usable, whatever else it reports (BE-8), who is over and whose address is
    /// another's by now (BE-5), and what is more than one EndpointSlice takes.
    pub fn judge(&mut self, standing: impl Fn(Ipv4Addr) -> Standing) {
        let alive = self.backends.iter().filter(|b| !b.state.is_over());
        let mut taken: BTreeSet<Ipv4Addr> = alive.map(|b| b.address).collect();
        // Of several that are over the first stays.
        self.backends
            .retain(|b| !b.state.is_over() || taken.insert(b.address));
        let (refused, shared) = (&mut self.refused, &mut self.shared);
        self.backends.retain(|backend| {
            let Standing {
                refusal,
                shared: is_shared,
            } = standing(backend.address);
            let (name, address) = (Arc::clone(&backend.name), backend.address);
            if let Some(why) = refusal {
                refused.push(Refused { name, address, why });
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

/// Which of these take traffic, from their verdicts, in the same order: one that is over never does, and one that is paused
/// only while no other is ready (BE-5).
pub fn ready(backends: &[(State, bool)]) -> Vec<bool> {
    let runs_ready = backends.contains(&(State::Running, true));
    backends
        .iter()
        .map(|(state, verdict)| match state {
            State::Running => *verdict,
            State::Paused => *verdict && !runs_ready,
            State::Succeeded | State::Failed => false,
        })
        .collect()
}

#[cfg(test)]
mod tests;
