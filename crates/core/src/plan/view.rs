//! What a plan is made from: copies of the objects of one load balancer, and the state of its health checks, taken before it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use harvester_lb_api::LoadBalancer;
use harvester_lb_ipam::Owner;
use harvester_lb_object::Key;
use harvester_lb_prober::{HealthCheck, Target, TargetView};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::backends::DiscoveredBackends;
use crate::cached::{CachedService, is_lb};
use crate::desired::{self, Ownership};
use crate::kube_vip_annotations::{Interfaces, Wanted};
use crate::plan::step::Probes;
use crate::sharing::naming::Observed;
use crate::sharing::ports::Contested;
use crate::sharing::service::Others;

/// The objects of a load balancer's name.
#[derive(Clone, Copy, Debug)]
pub struct Objects<'a> {
    /// Namespace and name.
    pub key: &'a Key,
    /// The Service, by any owner.
    pub service: Option<&'a CachedService>,
    /// The EndpointSlice with our label.
    pub slice: Option<&'a EndpointSlice>,
}

/// With whom a load balancer shares its address (SHR-3).
#[derive(Clone, Debug, Default)]
pub enum Sharing<'a> {
    /// With nobody.
    #[default]
    Alone,
    /// It is the primary of others, or the names of its ports are still those of a shared Service.
    Primary(Box<Primary>),
    /// The address is that of another one.
    Secondary(Secondary<'a>),
}

/// What a primary is served with.
#[derive(Clone, Debug)]
pub struct Primary {
    /// The parts of the others in the Service.
    pub others: Others,
    /// They, for live reads of their copies.
    pub members: Vec<Key>,
    /// The names of its ports, and how long they have been those.
    pub names: Observed,
    /// The present time on the clock of these.
    pub now: Duration,
    /// Why it gets none of its ports (SHR-2).
    pub contested: Option<Contested>,
}

/// What a secondary is served with.
#[derive(Clone, Debug)]
pub struct Secondary<'a> {
    /// Name of the group and of its Service.
    pub group: &'a str,
    /// The Service, if it is ours and can be decoded.
    pub service: Option<&'a Service>,
    /// The owner of the record: the address is not that of anybody else as long as it exists.
    pub holder: &'a Owner,
    /// Somebody else has a Service of the group's name (SVC-1).
    pub is_name_taken: bool,
    /// The names of ports in EndpointSlices of others of that Service.
    pub elsewhere: BTreeSet<String>,
    /// Why that Service lacks ports of it, as far as the API server refuses them.
    pub refused: Option<String>,
}

/// The observed state of one load balancer.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// Its copy. Only the metadata is known of one that cannot be decoded.
    pub lb: &'a LoadBalancer,
    /// The Service and EndpointSlice of its name.
    pub objects: Objects<'a>,
    /// With whom it shares its address.
    pub sharing: Sharing<'a>,
    /// Its annotations for kube-vip (KVA-1).
    pub annotations: Wanted,
    /// There is an EndpointSlice of its name that is not in [`View::objects`]: its creation failed, and a live read found that it
    /// is another owner's.
    pub has_foreign_slice: bool,
    /// Its backends: those that it selects, or, for a load balancer that stays as it is, those in its EndpointSlice that are
    /// still there.
    pub found: DiscoveredBackends,
    /// Its health checks.
    pub checks: Checks,
    /// How long an EndpointSlice write that changes only verdicts has to wait.
    pub verdict_pause: Duration,
}

impl Objects<'_> {
    /// Who owns the Service; `None` if there is none.
    pub fn service_owner(&self) -> Option<Ownership> {
        let service = self.service?;
        Some(desired::ownership(&service.metadata, &self.key.name))
    }

    /// Whether the Service cannot be decoded; a live read could not decode it either.
    pub fn is_service_undecodable(&self) -> bool {
        self.service.is_some_and(|it| it.undecodable.is_some())
    }

    /// The metadata of the Service, if it is ours and not being deleted yet.
    pub fn deletable_service(&self) -> Option<&ObjectMeta> {
        let meta = &self.service?.metadata;
        self.is_deletable(meta).then_some(meta)
    }

    /// As [`Objects::deletable_service`], for the EndpointSlice.
    pub fn deletable_slice(&self) -> Option<&ObjectMeta> {
        let meta = &self.slice?.metadata;
        self.is_deletable(meta).then_some(meta)
    }

    /// The load balancers of other names that own the Service.
    pub fn other_owners(&self) -> Vec<Key> {
        let service = self.service.map(|it| it.metadata.owner_references.iter());
        let owners = service.into_iter().flatten().flatten();
        let others = owners.filter(|owner| is_lb(owner) && *owner.name != *self.key.name);
        others
            .map(|owner| Key::new(&self.key.namespace, &*owner.name))
            .collect()
    }

    /// Whether one of them belongs to a load balancer of this name with another uid. Then that of this uid was recreated, and
    /// the event of it is still to come (SVC-1).
    pub fn are_of_another(&self, uid: &str) -> bool {
        let of_another =
            |meta: &ObjectMeta| desired::is_owned_by_other_uid(meta, &self.key.name, uid);
        self.service.is_some_and(|it| of_another(&it.metadata))
            || self.slice.is_some_and(|it| of_another(&it.metadata))
    }

    fn is_deletable(&self, meta: &ObjectMeta) -> bool {
        meta.deletion_timestamp.is_none()
            && desired::ownership(meta, &self.key.name) == Ownership::Ours
    }
}

impl<'a> View<'a> {
    /// A view without backends, health checks and interfaces that it may name.
    pub fn of(lb: &'a LoadBalancer, objects: Objects<'a>) -> Self {
        Self {
            lb,
            objects,
            sharing: Sharing::Alone,
            annotations: Wanted::of(&lb.metadata, &Interfaces::default()),
            has_foreign_slice: false,
            found: DiscoveredBackends::default(),
            checks: Checks::default(),
            verdict_pause: Duration::ZERO,
        }
    }
}

/// The health checks of a load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// By what its backends are probed; `None` if they are not.
    pub check: Option<HealthCheck>,
    /// The probed targets, ordered by address and id as the prober returns them.
    pub targets: Vec<TargetView>,
}

impl Checks {
    /// The state of a target; `None` if it is not probed.
    pub fn target(&self, id: &str, addr: IpAddr) -> Option<&TargetView> {
        let order = |target: &TargetView| (target.addr, &*target.id).cmp(&(addr, id));
        let place = self.targets.binary_search_by(order).ok()?;
        self.targets.get(place)
    }

    /// The state immediately after a change of the targets, as the prober sets it: a known target keeps its verdict, and its
    /// results unless the check changes (HC-2).
    #[must_use]
    pub fn after(self, probes: &Probes) -> Self {
        let (check, targets) = match probes {
            Probes::Unchanged => return self,
            Probes::End => return Self::default(),
            Probes::Run(check, targets) => (*check, targets),
        };
        let restarts = self.check.is_some_and(|before| before != check);
        let view = |target: &Target| {
            let known = self.target(&target.id, target.addr).cloned();
            match known {
                Some(known) if !restarts => known,
                known => TargetView {
                    id: target.id.clone(),
                    addr: target.addr,
                    ready: known.map_or(target.ready, |known| known.ready),
                    last: None,
                    failure: None,
                    stale: false,
                },
            }
        };
        let mut targets: Vec<TargetView> = targets.iter().map(view).collect();
        targets.sort_by(|a, b| (a.addr, &a.id).cmp(&(b.addr, &b.id)));
        targets.dedup_by(|b, a| (a.addr, &a.id) == (b.addr, &b.id));
        Self {
            check: Some(check),
            targets,
        }
    }
}
