//! The record of a DHCP lease: an IPAllocation `dhcp-<uid of the load balancer>` (DHC-1), read and written. Only the DHCP
//! process writes one.

use std::net::Ipv4Addr;

use harvester_lb_api::meta;
use harvester_lb_api::{DhcpLease, IPAllocation, IPAllocationSpec, Owner as ApiOwner, Phase, keys};
use harvester_lb_ipam::dhcp::{ClientId, HardwareAddress, Lease, LeaseTimes};
use harvester_lb_ipam::{Micros, Owner, Uid};
use harvester_lb_object::Version;

use crate::time;

/// How far a lease is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeasePhase {
    /// There is none, a DHCP server is asked for one.
    Pending,
    /// There is one: its address may be served until it expires.
    Bound(Lease),
    /// It is given back as soon as no Service has its address (DHC-4, DHC-6).
    Releasing(Lease),
    /// It was given back (DHC-6). The next client may ask for the same address.
    Released(Ipv4Addr),
}

impl LeasePhase {
    /// The lease that the server holds for the load balancer.
    pub const fn lease(&self) -> Option<&Lease> {
        match self {
            Self::Bound(lease) | Self::Releasing(lease) => Some(lease),
            Self::Pending | Self::Released(_) => None,
        }
    }
}

/// What the record of a lease says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseSpec {
    /// The load balancer.
    pub owner: Owner,
    /// How far the lease is.
    pub phase: LeasePhase,
    /// The interface on which it is asked for.
    pub interface: String,
    /// Whether somebody has chosen the interface.
    pub is_chosen: bool,
    /// The client's hardware address.
    pub hardware: HardwareAddress,
    /// The address to ask for while there is none.
    pub wanted: Option<Ipv4Addr>,
    /// Since when it is bound.
    pub bound_at: Option<Micros>,
}

/// A stored record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// What it says.
    pub spec: LeaseSpec,
    /// Its resource version.
    pub version: Version,
    /// The uid of the IPAllocation itself.
    pub uid: Uid,
}

/// The name of the record of the load balancer with this uid.
pub fn name(uid: &Uid) -> String {
    format!("{}{uid}", keys::LEASE_RECORD_PREFIX)
}

/// The uid of the load balancer whose lease has a record of this name.
pub fn owner_of(name: &str) -> Option<Uid> {
    let uid = name.strip_prefix(keys::LEASE_RECORD_PREFIX)?;
    (!uid.is_empty()).then(|| Uid::new(uid))
}

impl LeaseRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// The text says which field has which value, and what is wrong with it.
    pub fn read(object: &IPAllocation) -> Result<Self, String> {
        Ok(Self {
            spec: LeaseSpec::read(object)?,
            version: meta::version(&object.metadata),
            uid: Uid::new(object.metadata.uid.as_deref().unwrap_or_default()),
        })
    }
}

impl LeaseSpec {
    fn read(object: &IPAllocation) -> Result<Self, String> {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let spec = &object.spec;
        let owner = Owner::new(&spec.owner.namespace, &spec.owner.name, &spec.owner.uid);
        if owner_of(name).as_ref() != Some(&owner.uid) {
            return Err(format!(
                "spec.owner.uid {:?} requires the object name {}",
                spec.owner.uid,
                self::name(&owner.uid)
            ));
        }
        let lease = spec.lease.as_ref().ok_or("spec.lease is missing")?;
        let hardware = hardware("hardwareAddress", &lease.hardware_address)?;
        let phase = match spec.phase {
            Phase::Pending => LeasePhase::Pending,
            Phase::Bound => LeasePhase::Bound(read_lease(&spec.address, lease)?),
            Phase::Releasing => LeasePhase::Releasing(read_lease(&spec.address, lease)?),
            Phase::Released => LeasePhase::Released(address("spec.address", &spec.address)?),
        };
        Ok(Self {
            owner,
            phase,
            interface: lease.interface.clone(),
            is_chosen: lease.interface_chosen,
            hardware,
            wanted: optional_address("requestedAddress", lease.requested_address.as_deref())?,
            bound_at: spec.bound_at.as_deref().and_then(time::parse),
        })
    }

    /// Whether it is the record of this load balancer, whose uid is in its name (IPA-9).
    ///
    /// # Errors
    /// It names another load balancer: somebody has edited it.
    pub fn check_owner(&self, lb: &Owner) -> Result<(), String> {
        if self.owner == *lb {
            return Ok(());
        }
        let (named, lb) = (&self.owner.id, &lb.id);
        Err(format!(
            "spec.owner names load balancer {named}, its uid is that of {lb}"
        ))
    }

    /// Whether the lease that its client has, or may have, is over for this client once the record becomes `next`, or is gone.
    pub fn is_over(&self, next: Option<&Self>) -> bool {
        let has_lease = |spec: &Self| spec.phase.lease().is_some();
        next.is_none_or(|next| !self.is_twin(next) || (has_lease(self) && !has_lease(next)))
    }

    /// Whether the clients of the two have the same hardware address on the same interface.
    pub fn is_twin(&self, other: &Self) -> bool {
        self.hardware == other.hardware && self.interface == other.interface
    }

    /// The name of the record.
    pub fn name(&self) -> String {
        name(&self.owner.uid)
    }

    /// The inverse of [`LeaseRecord::read`].
    pub fn to_api(&self) -> IPAllocationSpec {
        let lease = self.phase.lease();
        let address = match &self.phase {
            LeasePhase::Pending => None,
            LeasePhase::Bound(lease) | LeasePhase::Releasing(lease) => Some(lease.address),
            LeasePhase::Released(address) => Some(*address),
        };
        let text = |address: Option<Ipv4Addr>| address.map(|address| address.to_string());
        let time = |of: fn(&LeaseTimes) -> Micros| {
            lease
                .and_then(|lease| lease.times.as_ref())
                .map(|times| time::rfc3339_micros(of(times)))
        };
        IPAllocationSpec {
            address: text(address).unwrap_or_default(),
            pool: String::new(),
            owner: ApiOwner {
                namespace: self.owner.id.namespace().to_owned(),
                name: self.owner.id.name().to_owned(),
                uid: self.owner.uid.to_string(),
            },
            phase: match self.phase {
                LeasePhase::Pending => Phase::Pending,
                LeasePhase::Bound(_) => Phase::Bound,
                LeasePhase::Releasing(_) => Phase::Releasing,
                LeasePhase::Released(_) => Phase::Released,
            },
            bound_at: self.bound_at.map(time::rfc3339_micros),
            released_at: None,
            lease: Some(DhcpLease {
                interface: self.interface.clone(),
                interface_chosen: self.is_chosen,
                hardware_address: self.hardware.to_string(),
                client_id: ClientId::from_uid(&self.owner.uid).to_string(),
                requested_address: text(self.wanted),
                server: text(lease.map(|lease| lease.server)),
                server_hardware_address: lease
                    .and_then(|lease| lease.server_hardware)
                    .map(|hardware| hardware.to_string()),
                subnet_mask: text(lease.and_then(|lease| lease.mask)),
                router: text(lease.and_then(|lease| lease.router)),
                renew_at: time(|times| times.renew_at),
                rebind_at: time(|times| times.rebind_at),
                expires_at: time(|times| times.expires_at),
            }),
        }
    }
}

fn read_lease(text: &str, lease: &DhcpLease) -> Result<Lease, String> {
    let server = lease.server.as_deref().unwrap_or_default();
    Ok(Lease {
        address: address("spec.address", text)?,
        server: address("spec.lease.server", server)?,
        server_hardware: lease
            .server_hardware_address
            .as_deref()
            .map(|text| hardware("serverHardwareAddress", text))
            .transpose()?,
        mask: optional_address("subnetMask", lease.subnet_mask.as_deref())?,
        router: optional_address("router", lease.router.as_deref())?,
        times: read_times(lease)?,
    })
}

fn read_times(lease: &DhcpLease) -> Result<Option<LeaseTimes>, String> {
    let fields = [
        ("renewAt", lease.renew_at.as_deref()),
        ("rebindAt", lease.rebind_at.as_deref()),
        ("expiresAt", lease.expires_at.as_deref()),
    ];
    if fields.iter().all(|(_, text)| text.is_none()) {
        return Ok(None);
    }
    let read = |(field, text): (&str, Option<&str>)| {
        let text = text.unwrap_or_default();
        time::parse(text)
            .ok_or_else(|| format!("spec.lease.{field} {text:?} is not a time (RFC 3339)"))
    };
    let [renew_at, rebind_at, expires_at] = fields;
    Ok(Some(LeaseTimes {
        renew_at: read(renew_at)?,
        rebind_at: read(rebind_at)?,
        expires_at: read(expires_at)?,
    }))
}

fn hardware(field: &str, text: &str) -> Result<HardwareAddress, String> {
    HardwareAddress::parse(text).map_err(|error| format!("spec.lease.{field}: {error}"))
}

fn optional_address(field: &str, text: Option<&str>) -> Result<Option<Ipv4Addr>, String> {
    text.map(|text| address(&format!("spec.lease.{field}"), text))
        .transpose()
}

fn address(field: &str, text: &str) -> Result<Ipv4Addr, String> {
    text.parse()
        .map_err(|_| format!("{field} {text:?} is not an IPv4 address"))
}

#[cfg(test)]
mod tests;
