//! The records of DHCP leases (DHC-1).

use std::collections::BTreeMap;
use std::net::IpAddr;

use harvester_lb_api::{IPAllocation, Phase, keys};

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

    /// Whether a load balancer has a lease that cannot be read: it is left alone.
    pub(crate) fn is_unreadable(&self, uid: &str) -> bool {
        matches!(self.0.get(uid), Some(None))
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
    let has_address = record.spec.address.parse::<IpAddr>().is_ok();
    record.spec.lease.is_some() && (record.spec.phase == Phase::Pending || has_address)
}
