//! The records of DHCP leases (DHC-1).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use harvester_lb_api::{IPAllocation, Phase, keys};
use harvester_lb_object::Key;

use crate::meta::name_of;
use crate::snapshot::Snapshot;

/// The leases by the uid of the load balancer; `None`: one that cannot be read (IPA-9).
pub(crate) struct Leases<'a>(BTreeMap<&'a str, Option<&'a IPAllocation>>);

impl<'a> Leases<'a> {
    pub(crate) fn read(snapshot: &'a Snapshot) -> Self {
        let unknown = snapshot.undecodable.iter();
        let unknown = unknown
            .filter(|object| object.kind == "IPAllocation")
            .map(|object| (&*object.name, None));
        let known = snapshot.records.iter();
        let known =
            known.map(|record| (name_of(record), Some(record).filter(|it| is_readable(it))));
        let all = known.chain(unknown).filter_map(|(name, record)| {
            let uid = name.strip_prefix(keys::LEASE_RECORD_PREFIX)?;
            Some((uid, record))
        });
        Self(all.collect())
    }

    /// Whether a load balancer has a lease that cannot be read, or names another load balancer: it is left alone.
    pub(crate) fn is_unreadable(&self, lb: &Key, uid: &str) -> bool {
        let names = |record: &IPAllocation| {
            let owner = &record.spec.owner;
            *owner.namespace == *lb.namespace && *owner.name == *lb.name
        };
        self.0
            .get(uid)
            .is_some_and(|record| !record.is_some_and(names))
    }

    /// The record of a load balancer.
    pub(crate) fn of(&self, uid: &str) -> Option<&'a IPAllocation> {
        self.0.get(uid).copied().flatten()
    }

    /// The records that can be read.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'a IPAllocation> {
        self.0.values().copied().flatten()
    }

    /// DHC-5: the leased addresses, which count as taken.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let all = self.0.values().flatten();
        all.filter(|record| matches!(record.spec.phase, Phase::Bound | Phase::Releasing))
            .filter_map(|record| record.spec.address.parse().ok())
    }
}

/// Whether a record says what its phase needs.
fn is_readable(record: &IPAllocation) -> bool {
    let Some(lease) = &record.spec.lease else {
        return false;
    };
    let is_address = |text: &str| text.parse::<Ipv4Addr>().is_ok();
    let server = lease.server.as_deref().is_some_and(is_address);
    is_hardware_address(&lease.hardware_address)
        && match record.spec.phase {
            Phase::Pending => true,
            Phase::Bound | Phase::Releasing => is_address(&record.spec.address) && server,
            Phase::Released => is_address(&record.spec.address),
        }
}

/// Whether a text is a hardware address of one host, as the DHCP process writes it.
fn is_hardware_address(text: &str) -> bool {
    let parts: Vec<Option<u8>> = text
        .split(':')
        .map(|part| {
            u8::from_str_radix(part, 16)
                .ok()
                .filter(|_| part.len() == 2)
        })
        .collect();
    parts.len() == 6 && parts.iter().all(Option::is_some) && parts[0].is_some_and(|it| it & 1 == 0)
}
