//! What a load balancer is to have, after its spec is validated and its address allocated.

use std::net::Ipv4Addr;

use harvester_lb_api::{AllocatedAddress, LoadBalancer, WorkloadType, keys};
use harvester_lb_ipam::{AddressConflict, Grant, Record, Standing, WaitReason, addr};
use harvester_lb_object::Key;

use crate::backends::DiscoveredBackends;
use crate::details;
use crate::dhcp::serving::Handed;
use crate::plan::health::CheckSource;
use crate::plan::step::{Next, SeenLease, SeenPool};
use crate::readiness;
use crate::sharing::telling::Shared;
use crate::spec::{self, Refusal, VmSpec};
use crate::spec_annotations;
use crate::status::{self, FieldUpdate, Readiness, StatusUpdate};
use crate::unsupported::Unsupported;

/// What a load balancer is to have.
#[derive(Clone, Debug)]
pub enum Goal {
    /// VM type with an address: EndpointSlice, Service, health checks.
    Serve(Box<VmSpec>, Address),
    /// Cluster type with an address: the address and nothing else (REC-1).
    AddressOnly(Address),
    /// No address, so no Service and no EndpointSlice either. The spec is that of VM type.
    Wait(Option<Box<VmSpec>>, Waiting),
    /// What it has. Only its existing endpoints follow the world (BE-6).
    Keep(Keep),
}

/// The address of a load balancer.
#[derive(Clone, Debug)]
pub struct Address {
    /// `status.allocatedAddress` (ALC-6).
    pub allocated: AllocatedAddress,
    /// `spec.loadBalancerIP` of the Service: the address, or 0.0.0.0 for DHCP.
    pub load_balancer_ip: String,
    /// Further records of the load balancer's name, to be released once no Service shows their addresses.
    pub extra_records: Vec<Record>,
    /// Another address that the status named and that is not this load balancer's.
    pub address_conflict: Option<AddressConflict>,
    /// Whether its pool still has the address to allocate (IPA-7, EXC-3).
    pub standing: Standing,
    /// Why the load balancer cannot have the address that it requests instead (REQ-4).
    pub unserved: Option<String>,
    /// How it is shared, or why it is not (SHR-3); `None` if nobody asks for that.
    pub shared: Option<Shared>,
    /// Where it comes from.
    pub origin: Origin,
}

/// Where the address of a load balancer comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A pool.
    Pool,
    /// The DHCP client of kube-vip, or for cluster type that of the guest (OPS-3).
    KubeVip {
        /// What kube-vip's is to ask for (DHC-6).
        handed: Option<Handed>,
        /// The record of a lease of the DHCP process, or its absence, from which that is decided; `None` for cluster type.
        seen: Option<SeenLease>,
    },
    /// The DHCP process: the record of the lease (DHC-1).
    Lease(SeenLease),
}

impl Address {
    /// A granted address of a pool.
    pub fn granted(lb: &LoadBalancer, grant: Grant, extra_records: Vec<Record>) -> Self {
        Self {
            allocated: allocated_address(lb, &grant),
            load_balancer_ip: grant.addr.to_string(),
            extra_records,
            address_conflict: grant.address_conflict,
            standing: grant.standing,
            unserved: grant
                .unserved
                .map(|why| spec_annotations::unavailable(&lb.metadata, &why)),
            shared: None,
            origin: Origin::Pool,
        }
    }

    /// What the conditions say about it.
    pub fn present(&self) -> readiness::Present<'_> {
        readiness::Present {
            address: &self.load_balancer_ip,
            standing: self.standing,
            unserved: self.unserved.as_deref(),
            shared: self.shared.as_ref(),
        }
    }

    /// The address of a load balancer whose DHCP client is kube-vip (OPS-3). Records of a pool that it still has become extra
    /// records.
    pub fn by_dhcp(
        extra_records: Vec<Record>,
        seen: Option<SeenLease>,
        handed: Option<Handed>,
    ) -> Self {
        let origin = Origin::KubeVip { handed, seen };
        Self::of_dhcp(keys::DHCP_ADDRESS.to_owned(), origin, extra_records)
    }

    /// An address that the DHCP process has leased (DHC-1); `extra_records` as for [`Address::by_dhcp`].
    pub fn leased(address: Ipv4Addr, lease: SeenLease, extra_records: Vec<Record>) -> Self {
        Self::of_dhcp(address.to_string(), Origin::Lease(lease), extra_records)
    }

    fn of_dhcp(load_balancer_ip: String, origin: Origin, extra_records: Vec<Record>) -> Self {
        Self {
            allocated: by_dhcp(),
            load_balancer_ip,
            extra_records,
            address_conflict: None,
            standing: Standing::InPool,
            unserved: None,
            shared: None,
            origin,
        }
    }

    /// Whether kube-vip, or the guest, obtains it by DHCP: it is not known here.
    pub const fn is_by_dhcp(&self) -> bool {
        matches!(self.origin, Origin::KubeVip { .. })
    }

    /// The record of a lease, if there is one, from which it was decided that this is the address (DHC-1, DHC-6).
    pub fn lease(&self) -> Option<&SeenLease> {
        match &self.origin {
            Origin::Lease(lease) => Some(lease),
            Origin::KubeVip { seen, .. } => seen.as_ref().filter(|seen| seen.version.is_some()),
            Origin::Pool => None,
        }
    }

    /// What kube-vip's DHCP client is to ask for (DHC-6).
    pub const fn handed(&self) -> Option<Handed> {
        match self.origin {
            Origin::KubeVip { handed, .. } => handed,
            Origin::Pool | Origin::Lease(_) => None,
        }
    }

    /// Whether it is an IPv6 address, which only load balancers of cluster type and those of an earlier version have (BE-7).
    pub fn is_ipv6(&self) -> bool {
        addr::parse(&self.load_balancer_ip).is_some_and(|address| address.is_ipv6())
    }
}

/// `status.allocatedAddress` of a load balancer with `ipam: dhcp` (OPS-3), whoever leases the address (DHC-1).
pub fn by_dhcp() -> AllocatedAddress {
    AllocatedAddress {
        ip: Some(keys::DHCP_ADDRESS.to_owned()),
        ..AllocatedAddress::default()
    }
}

/// `status.allocatedAddress` of a granted address (ALC-6, ALC-9). Mask and gateway that the pool no longer has stay as they are
/// in the status (IPA-7).
fn allocated_address(lb: &LoadBalancer, grant: &Grant) -> AllocatedAddress {
    let ip = grant.addr.to_string();
    let before = lb
        .status
        .as_ref()
        .and_then(|s| s.allocated_address.as_ref())
        .filter(|a| a.ip.as_deref() == Some(&*ip));
    if grant.mask.is_none()
        && let Some(before) = before
    {
        return AllocatedAddress {
            ip_pool: Some(grant.pool.to_string()),
            // The Go operator writes `<nil>` if there is no gateway (ALC-6, ALC-9).
            gateway: before.gateway.clone().filter(|text| text != "<nil>"),
            ..before.clone()
        };
    }
    AllocatedAddress {
        ip_pool: Some(grant.pool.to_string()),
        ip: Some(ip),
        mask: grant.mask.clone(),
        gateway: grant.gateway.map(|g| g.to_string()),
    }
}

/// A load balancer without an address.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// The reason.
    pub readiness: Readiness,
    /// An address that the status names and that is not this load balancer's.
    pub address_conflict: Option<AddressConflict>,
    /// Records of its name, to be released once no Service shows their addresses.
    pub extra_records: Vec<Record>,
    /// The pool that it names, as it was before the allocation was decided.
    pub pool: Option<SeenPool>,
    /// The record of its DHCP lease, or its absence, from which that is decided (DHC-3).
    pub lease: Option<SeenLease>,
    /// The Service and the EndpointSlice of its name are those of others that share an address (SHR-6).
    pub is_name_taken: bool,
}

impl Waiting {
    /// One that waits for no pool.
    pub fn because(reason: &'static str, message: String, extra_records: Vec<Record>) -> Self {
        Self {
            readiness: Readiness::not(reason, message),
            address_conflict: None,
            extra_records,
            pool: None,
            lease: None,
            is_name_taken: false,
        }
    }
}

/// A load balancer that stays as it is.
#[derive(Clone, Debug)]
pub struct Keep {
    /// The source of verdicts on its endpoints.
    pub check: CheckSource,
    /// Its status; `None`: it is not written.
    pub status: Option<StatusUpdate>,
    /// Whether the condition `BackendsHealthy` follows too.
    pub tells_health: bool,
    /// Records of its name, to be released once no Service shows their addresses.
    pub extra_records: Vec<Record>,
    /// When it is planned again.
    pub next: Next,
    /// The group that it has left, whose Service its EndpointSlice still names: another load balancer may have one of its ports there by
    /// now (SHR-2, SHR-7).
    pub left: Option<Key>,
    /// The address of another one that it goes on sharing: what the status says of that follows too, as the other one may move
    /// (SHR-3, REL-4).
    pub shared: Option<Box<Address>>,
}

impl Keep {
    /// Only its endpoints follow the world; no status is written. `lb`: for the health check in its spec.
    pub fn endpoints(lb: &LoadBalancer) -> Self {
        Self::checked_by(CheckSource::of(spec::health_check(lb)))
    }

    /// One that cannot be decoded: its health check is unknown.
    pub fn undecodable() -> Self {
        Self::checked_by(CheckSource::Unchanged)
    }

    fn checked_by(check: CheckSource) -> Self {
        Self {
            check,
            status: None,
            tells_health: false,
            extra_records: Vec::new(),
            next: Next::AwaitChange,
            left: None,
            shared: None,
        }
    }

    /// One that this version leaves alone (IPA-9).
    pub fn unsupported(key: &Key, lb: &LoadBalancer, why: &Unsupported) -> Self {
        let message = format!("LoadBalancer {key}: {why}");
        let readiness = Readiness::not(status::UNSUPPORTED_ANNOTATION, message);
        Self {
            status: Some(StatusUpdate::only(readiness)),
            ..Self::endpoints(lb)
        }
    }

    /// One whose spec is refused: it keeps its address and gets no new one (ALC-10).
    pub fn refused(key: &Key, lb: &LoadBalancer, why: &Refusal) -> Self {
        let message = format!("LoadBalancer {key}: {why}");
        let readiness = Readiness::not(why.reason(), message);
        Self::until(lb, readiness, Next::AwaitChange)
    }

    /// One that keeps what it has, and is not ready for this reason.
    pub fn until(lb: &LoadBalancer, readiness: Readiness, next: Next) -> Self {
        Self {
            status: Some(StatusUpdate::only(readiness)),
            tells_health: true,
            next,
            ..Self::endpoints(lb)
        }
    }

    /// The same, with this address in its status.
    #[must_use]
    pub fn naming(mut self, address: Address) -> Self {
        if let Some(status) = &mut self.status {
            status.allocated = FieldUpdate::Set(Some(address.allocated));
        }
        self
    }

    /// The same of one that keeps nothing: the address in its status was that of another one, which it shares no longer (SHR-7).
    #[must_use]
    pub fn without_address(mut self, lb: &LoadBalancer) -> Self {
        self.tells_health = false;
        if let Some(status) = &mut self.status {
            status.allocated = FieldUpdate::Set(None);
            // For cluster type the guest writes the others (REC-1).
            if lb.spec.workload() == WorkloadType::Vm {
                status.address = FieldUpdate::Set(None);
                status.backend_servers = FieldUpdate::Set(None);
            }
            status.extras = readiness::extras(None, None, &DiscoveredBackends::default());
            status.details = details::waiting(status.readiness.reason);
        }
        self
    }

    /// The same of one whose lease is lost (DHC-3): its address may be somebody else's by now. Its endpoints stay, and their health.
    #[must_use]
    pub fn without_lease(mut self) -> Self {
        if let Some(status) = &mut self.status {
            status.address = FieldUpdate::Set(None);
            let mut details = details::waiting(status.readiness.reason);
            details.retain(|it| it.type_ != details::BACKENDS_HEALTHY);
            status.details = details;
        }
        self
    }

    /// One of VM type with an IPv6 address of an earlier version: it keeps the address and an existing Service, and nothing is
    /// created (BE-7).
    pub fn ipv6(lb: &LoadBalancer, address: Address) -> Self {
        let message = format!(
            "{} of pool {} is an IPv6 address, and the endpoints of a load balancer of workload type vm have IPv4 addresses: name a pool with IPv4 addresses",
            address.load_balancer_ip,
            address.allocated.ip_pool.as_deref().unwrap_or_default()
        );
        let readiness = Readiness::not(WaitReason::AddressFamilyMismatch.as_str(), message);
        let mut keep = Self::until(lb, readiness, Next::AwaitChange);
        if let Some(update) = &mut keep.status {
            let (conflict, present) = (address.address_conflict.as_ref(), address.present());
            let nothing = DiscoveredBackends::default();
            update.extras = readiness::extras(conflict, Some(present), &nothing);
            let pool = address.allocated.ip_pool.as_deref().unwrap_or_default();
            let ip = &address.load_balancer_ip;
            update.details.push(details::allocated_from_pool(ip, pool));
            update.allocated = FieldUpdate::Set(Some(address.allocated));
        }
        keep.extra_records = address.extra_records;
        keep
    }
}
