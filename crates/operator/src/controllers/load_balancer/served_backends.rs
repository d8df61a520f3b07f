//! The backends of a load balancer as they are in its EndpointSlice, and what its status says of them. Nothing is written here.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};

use harvester_lb_api::Condition;
use harvester_lb_core::backends::Backend;
use harvester_lb_core::details::{self, BackendHealth, DetailCondition};
use harvester_lb_object::Key;
use harvester_lb_prober::TargetView;

use crate::context::Context;

/// The backends in an EndpointSlice.
pub struct ServedBackends {
    /// The backends with their `ready`.
    pub backends: Vec<(Backend, bool)>,
    /// Whether they have a health check.
    pub is_checked: bool,
    /// The targets of the health check.
    pub targets: Vec<TargetView>,
    /// Whether the readiness of one of them has just changed.
    pub verdicts_changed: bool,
}

impl ServedBackends {
    /// These backends, as they are in the EndpointSlice now. `known`: the readiness in it before its write.
    pub fn new(
        ctx: &Context,
        key: &Key,
        backends: Vec<(Backend, bool)>,
        known: &BTreeMap<(String, Ipv4Addr), bool>,
    ) -> Self {
        let group = key.to_string();
        let changed = |(backend, ready): &(Backend, bool)| {
            let before = known.get(&(backend.uid.clone(), backend.address));
            before.is_some_and(|before| before != ready)
        };
        Self {
            verdicts_changed: backends.iter().any(changed),
            backends,
            is_checked: ctx.prober.check(&group).is_some(),
            targets: ctx.prober.group(&group).unwrap_or_default(),
        }
    }

    /// Number of ready backends.
    pub fn healthy(&self) -> usize {
        self.backends.iter().filter(|(_, ready)| *ready).count()
    }

    /// Number of backends with at least one health check result.
    pub fn probed(&self) -> usize {
        self.targets.iter().filter(|t| t.last.is_some()).count()
    }

    /// The condition `BackendsHealthy`; `None` if there are no backends. `before`: the stored conditions.
    pub fn condition(&self, before: &[Condition]) -> Option<DetailCondition> {
        if self.backends.is_empty() {
            return None;
        }
        let targets: HashMap<(&str, IpAddr), &TargetView> =
            self.targets.iter().map(|t| ((&*t.id, t.addr), t)).collect();
        let all: Vec<BackendHealth<'_>> = self
            .backends
            .iter()
            .map(|(backend, ready)| {
                let target = targets.get(&(&*backend.uid, backend.address.into()));
                BackendHealth::new(backend, *ready, target.copied())
            })
            .collect();
        Some(details::backends_healthy(&all, self.is_checked, before))
    }
}
