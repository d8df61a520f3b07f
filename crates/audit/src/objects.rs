//! The snapshot, indexed for look-ups.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use harvester_lb_api::{
    Condition, IPAllocation, IPPool, Ipam, LoadBalancer, Phase, WorkloadType, condition, keys,
};
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::exclusions::excluded;
use crate::finding::ObjectRef;
use crate::lease_records::Leases;
use crate::machines::Machines;
use crate::meta::{
    address_of_name, annotation, asked, given, is_misnamed, is_ours, key_of, name_of, requested,
    shown,
};
use crate::ranges::{self, Ranges};
use crate::selection::Selections;
use crate::snapshot::Snapshot;
use crate::unknown::Unknown;

/// A LoadBalancer.
pub(crate) struct Lb<'a> {
    pub(crate) key: Key,
    pub(crate) uid: &'a str,
    pub(crate) object: &'a LoadBalancer,
    /// `status.allocatedAddress.ip`; empty if there is none.
    pub(crate) given: &'a str,
}

/// An IPPool.
pub(crate) struct Pool<'a> {
    pub(crate) name: &'a str,
    pub(crate) object: &'a IPPool,
    pub(crate) ranges: Ranges,
    /// Nothing is allocated from it, because its list of exclusions is invalid (EXC-1).
    pub(crate) has_invalid_list: bool,
    /// The first free address, and the first free IPv4 address; computed when first asked for.
    free: [OnceCell<Option<IpAddr>>; 2],
}

/// A Bound IPAllocation.
pub(crate) struct Bound<'a> {
    name: &'a str,
    pub(crate) address: &'a str,
    pub(crate) pool: &'a str,
    pub(crate) owner: Key,
    pub(crate) uid: &'a str,
    /// The group whose address it has, if that is not its owner's (SHR-5).
    pub(crate) group: Option<&'a str>,
}

/// The snapshot by namespace and name.
pub(crate) struct Objects<'a> {
    pub(crate) lbs: BTreeMap<Key, Lb<'a>>,
    pub(crate) pools: BTreeMap<&'a str, Pool<'a>>,
    /// IPAllocations that are named after an address (IPA-8), and whose name is right.
    pub(crate) records: Vec<&'a IPAllocation>,
    /// The same by address.
    record_of_address: BTreeMap<&'a str, &'a IPAllocation>,
    /// The same by pool.
    records_of_pool: BTreeMap<&'a str, Vec<&'a IPAllocation>>,
    pub(crate) bound: Vec<Bound<'a>>,
    /// Indexes into `bound`.
    by_owner: BTreeMap<Key, Vec<usize>>,
    pub(crate) services: BTreeMap<Key, &'a Service>,
    pub(crate) slices: BTreeMap<Key, &'a EndpointSlice>,
    pub(crate) machines: Option<Machines<'a>>,
    pub(crate) announcing: bool,
    /// Objects that exist and cannot be decoded.
    pub(crate) unknown: Unknown<'a>,
    /// Addresses of Services and IPAllocations, which no backend may have (BE-8).
    pub(crate) reserved: BTreeSet<&'a str>,
    /// Taken addresses: of Bound IPAllocations, and those that Services request.
    pub(crate) taken: BTreeSet<IpAddr>,
    /// Addresses that are not available: of Bound and unreadable IPAllocations, those that Services of the operator
    /// show, and those that are held back (ALC-11).
    pub(crate) occupied: BTreeSet<IpAddr>,
    /// The result of [`held_back`](Self::held_back).
    held_back: BTreeMap<Key, IpAddr>,
    /// DHCP leases.
    pub(crate) leases: Leases<'a>,
    /// The pools that were selected so far (section 5), for load balancers with the same requirement.
    selections: Selections<'a>,
    /// For each pool those with addresses in common.
    overlaps: BTreeMap<&'a str, BTreeSet<&'a str>>,
}

impl<'a> Objects<'a> {
    pub(crate) fn sort(snapshot: &'a Snapshot) -> Self {
        let lbs: BTreeMap<Key, Lb<'a>> = snapshot
            .load_balancers
            .iter()
            .map(|object| {
                let key = key_of(&object.metadata);
                (key.clone(), Lb::new(key, object))
            })
            .collect();
        let services: BTreeMap<Key, &Service> = snapshot
            .services
            .iter()
            .map(|service| (key_of(&service.metadata), service))
            .collect();
        let slices = snapshot.slices.iter();
        let slices = slices
            .map(|slice| (key_of(&slice.metadata), slice))
            .collect();
        let pools = snapshot.pools.iter().map(Pool::new);
        let pools: BTreeMap<&str, Pool<'a>> = pools.map(|pool| (pool.name, pool)).collect();
        let plain = pools.values();
        let plain = plain.filter_map(|pool| Some((pool.name, pool.ranges.plain()?)));
        let overlaps = ranges::overlaps(plain);
        let is_usable = |record: &&IPAllocation| {
            address_of_name(name_of(record)).is_some() && !is_misnamed(record)
        };
        let records: Vec<&IPAllocation> = snapshot.records.iter().filter(is_usable).collect();
        let record_of_address = records.iter();
        let record_of_address = record_of_address
            .map(|record| (&*record.spec.address, *record))
            .collect();
        let mut records_of_pool: BTreeMap<&str, Vec<&IPAllocation>> = BTreeMap::new();
        for record in &records {
            let of_pool = records_of_pool.entry(&record.spec.pool);
            of_pool.or_default().push(record);
        }
        let bound: Vec<Bound<'a>> = records.iter().filter_map(|r| Bound::read(r)).collect();
        let mut by_owner: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
        for (at, record) in bound.iter().enumerate() {
            by_owner.entry(record.owner.clone()).or_default().push(at);
        }
        let mut objects = Self {
            reserved: reserved(snapshot),
            pools,
            overlaps,
            records,
            record_of_address,
            records_of_pool,
            bound,
            by_owner,
            services,
            slices,
            machines: snapshot.cluster.as_ref().map(Machines::index),
            announcing: snapshot.announcing,
            unknown: Unknown::read(snapshot),
            taken: BTreeSet::new(),
            occupied: BTreeSet::new(),
            held_back: BTreeMap::new(),
            leases: Leases::read(snapshot),
            selections: Selections::default(),
            lbs,
        };
        objects.held_back = objects.all_held_back();
        objects.taken = objects.all_taken();
        objects.occupied = objects.all_occupied();
        objects
    }

    fn all_held_back(&self) -> BTreeMap<Key, IpAddr> {
        if !self.pools.values().any(|pool| pool.has_invalid_list) {
            return BTreeMap::new();
        }
        let lbs = self.lbs.values();
        lbs.filter_map(|lb| Some((lb.key.clone(), self.find_held_back(lb)?)))
            .collect()
    }

    fn all_taken(&self) -> BTreeSet<IpAddr> {
        let held = self.bound.iter().map(|record| record.address);
        let asked = self.services.values().map(|service| asked(service));
        // The address that a load balancer left alone names is taken too, with a record or without.
        let lbs = self.lbs.values().filter(|lb| self.is_left_alone(lb));
        let texts = held.chain(asked).chain(lbs.map(|lb| lb.given));
        // Who waits for an address by name gets it, and nobody else.
        let requested = self
            .lbs
            .values()
            .filter_map(|lb| requested(lb.object)?.ok());
        texts
            .filter_map(|text| text.parse().ok())
            .chain(self.held_back.values().copied())
            .chain(self.unknown.records.iter().copied())
            .chain(self.leases.addresses())
            .chain(requested)
            .collect()
    }

    fn all_occupied(&self) -> BTreeSet<IpAddr> {
        // An address that an owned Service shows is taken too, even if its record was released by hand.
        let services = self.services.values();
        let services = services.filter(|service| is_ours(&service.metadata));
        let shown = services.flat_map(|service| shown(service));
        let held = self.bound.iter().map(|record| record.address);
        held.chain(shown)
            .filter_map(|text| text.parse().ok())
            .chain(self.leases.addresses())
            .chain(self.held_back.values().copied())
            .chain(self.unknown.records.iter().copied())
            .collect()
    }

    /// The address that only the status of a load balancer names, in a pool with an invalid list of exclusions, which cannot
    /// confirm it:
    /// the load balancer keeps it, and no other gets it. None if there is no such address.
    pub(crate) fn held_back(&self, lb: &Lb<'_>) -> Option<IpAddr> {
        self.held_back.get(&lb.key).copied()
    }

    fn find_held_back(&self, lb: &Lb<'_>) -> Option<IpAddr> {
        let (pool, given) = self.unconfirmed(lb)?;
        let is_requested = requested(lb.object) == Some(Ok(given));
        (!is_requested && pool.ranges.plain()?.contains(given)).then_some(given)
    }

    /// The same for a pool whose addresses are unknown, or invalid: it cannot be told from the objects whether the load balancer
    /// keeps the address.
    pub(crate) fn may_be_held_back(&self, lb: &Lb<'_>) -> bool {
        // REQ-2: the pool of one that requests this very address is another choice than that of section 5.
        let requests_it = requested(lb.object).is_some_and(|it| it.ok() == lb.given.parse().ok());
        if requests_it && self.pools.values().any(|pool| pool.has_invalid_list) {
            return !lb.given.is_empty() && !self.by_owner.contains_key(&lb.key);
        }
        let found = self.unconfirmed(lb);
        found.is_some_and(|(pool, _)| pool.ranges.plain().is_none())
    }

    /// The address that only the status of a load balancer names, and the pool with an invalid list that serves it.
    fn unconfirmed(&self, lb: &Lb<'_>) -> Option<(&Pool<'a>, IpAddr)> {
        let spec = &lb.object.spec;
        let named = spec.ip_pool.as_deref().filter(|name| !name.is_empty());
        let pool = self.pools.get(named.or_else(|| self.selected(lb))?)?;
        let given: IpAddr = lb.given.parse().ok()?;
        let record = self.record_of_address(lb.given);
        let is_held = record.is_some_and(|record| record.spec.phase == Phase::Bound)
            || self.by_owner.contains_key(&lb.key);
        let pooled = spec.address_source() != Ipam::Dhcp && !self.is_left_alone(lb);
        (pool.has_invalid_list && !is_held && pooled).then_some((pool, given))
    }

    /// The name of the pool that section 5 selects for a load balancer that names none.
    pub(crate) fn selected(&self, lb: &Lb<'_>) -> Option<&'a str> {
        let pools = self.pools.values().map(|pool| (pool.name, pool.object));
        self.selections.selected(lb.object, &pools)
    }

    /// The record of an address.
    pub(crate) fn record_of_address(&self, address: &str) -> Option<&'a IPAllocation> {
        self.record_of_address.get(address).copied()
    }

    /// The other pools that have addresses in common with a pool (IPA-4).
    pub(crate) fn overlapping(&self, pool: &Pool<'_>) -> impl Iterator<Item = &Pool<'a>> {
        let names = self.overlaps.get(pool.name).into_iter().flatten();
        names.filter_map(|name| self.pools.get(name))
    }

    /// The records of a pool.
    pub(crate) fn records_of(&self, pool: &str) -> &[&'a IPAllocation] {
        self.records_of_pool.get(pool).map_or(&[], Vec::as_slice)
    }

    /// The first free address of a pool, or its first free IPv4 address.
    pub(crate) fn free(&self, pool: &Pool<'_>, v4: bool) -> Option<IpAddr> {
        let ranges = pool.ranges.plain()?;
        *pool.free[usize::from(v4)].get_or_init(|| ranges.first_free(&self.taken, v4))
    }

    /// Whether an address is taken, apart from by this load balancer's request, or may be: an IPAllocation, a Service or another
    /// load balancer names it.
    pub(crate) fn is_held_or_wanted(&self, lb: &Lb<'_>, address: IpAddr) -> bool {
        let names = |text: &str| text.parse() == Ok(address);
        let mut lbs = self.lbs.values().filter(|it| it.key != lb.key);
        let mut services = self.services.values();
        self.occupied.contains(&address)
            || services.any(|service| shown(service).any(names))
            || lbs.any(|it| names(it.given) || requested(it.object) == Some(Ok(address)))
    }

    /// The records Bound to a load balancer of this name, of any uid.
    pub(crate) fn bound_of(&self, owner: &Key) -> impl Iterator<Item = &Bound<'a>> {
        let places = self.by_owner.get(owner).into_iter().flatten();
        places.map(|at| &self.bound[*at])
    }

    /// Whether the operator must leave a load balancer alone: its lease cannot be read (IPA-9).
    pub(crate) fn is_left_alone(&self, lb: &Lb<'_>) -> bool {
        self.leases.is_unreadable(&lb.key, lb.uid)
    }
}

/// Addresses of Services, and those with an IPAllocation.
fn reserved(snapshot: &Snapshot) -> BTreeSet<&str> {
    let records = snapshot.records.iter().map(|record| &*record.spec.address);
    let unknown = snapshot.undecodable.iter();
    let unknown = unknown.filter(|object| object.kind == "IPAllocation");
    let unknown = unknown.map(|object| &*object.name);
    let services = snapshot.services.iter().flat_map(|service| {
        let spec = service.spec.as_ref();
        let ip = spec.and_then(|spec| spec.cluster_ip.as_deref());
        let ips = spec.and_then(|spec| spec.cluster_ips.as_ref());
        let external = spec.and_then(|spec| spec.external_ips.as_ref());
        let status = service.status.as_ref();
        let ingress = status.and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
        let ingress = ingress.into_iter().flatten();
        let texts = ips
            .into_iter()
            .chain(external)
            .flatten()
            .map(String::as_str);
        ip.into_iter()
            .chain(texts)
            .chain(ingress.filter_map(|ingress| ingress.ip.as_deref()))
    });
    records
        .chain(unknown)
        .chain(services)
        .filter(|text| !text.is_empty())
        .collect()
}

impl<'a> Lb<'a> {
    pub(crate) fn object(&self) -> ObjectRef {
        ObjectRef::namespaced("LoadBalancer", &self.key)
    }

    /// Whether its spec is refused, as it has no listeners.
    pub(crate) fn is_unserved(&self) -> bool {
        let spec = &self.object.spec;
        spec.workload() == WorkloadType::Vm && spec.listeners.iter().flatten().next().is_none()
    }

    fn new(key: Key, object: &'a LoadBalancer) -> Self {
        Self {
            key,
            uid: object.metadata.uid.as_deref().unwrap_or_default(),
            object,
            given: given(object),
        }
    }

    pub(crate) fn condition(&self, type_: &str) -> Option<&'a Condition> {
        let status = self.object.status.as_ref()?;
        condition::find(status.conditions.as_deref()?, type_)
    }

    /// Whether a condition is True.
    pub(crate) fn has_true_condition(&self, type_: &str) -> bool {
        self.condition(type_).is_some_and(|c| c.status == "True")
    }

    /// `status.address`; empty if there is none.
    pub(crate) fn address(&self) -> &'a str {
        let status = self.object.status.as_ref();
        status
            .and_then(|status| status.address.as_deref())
            .unwrap_or_default()
    }
}

impl<'a> Pool<'a> {
    fn new(object: &'a IPPool) -> Self {
        let excluded = excluded(object);
        Self {
            name: object.metadata.name.as_deref().unwrap_or_default(),
            has_invalid_list: excluded.is_none(),
            ranges: Ranges::read(&object.spec.ranges, &excluded.unwrap_or_default()),
            object,
            free: Default::default(),
        }
    }

    pub(crate) fn object(&self) -> ObjectRef {
        ObjectRef::cluster("IPPool", self.name)
    }

    pub(crate) fn condition(&self, type_: &str) -> Option<&'a Condition> {
        let status = self.object.status.as_ref()?;
        condition::find(status.conditions.as_deref()?, type_)
    }

    pub(crate) fn annotation(&self, name: &str) -> Option<&'a str> {
        annotation(&self.object.metadata, name)
    }
}

impl fmt::Display for Pool<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IPPool {}", self.name)
    }
}

impl<'a> Bound<'a> {
    fn read(record: &'a IPAllocation) -> Option<Self> {
        let spec = &record.spec;
        (spec.phase == Phase::Bound).then(|| Self {
            name: name_of(record),
            address: &spec.address,
            pool: &spec.pool,
            owner: Key::new(&spec.owner.namespace, &spec.owner.name),
            uid: &spec.owner.uid,
            group: annotation(&record.metadata, keys::ANNOTATION_PRIMARY)
                .filter(|group| *group != spec.owner.name),
        })
    }

    pub(crate) fn object(&self) -> ObjectRef {
        ObjectRef::cluster("IPAllocation", self.name)
    }
}
