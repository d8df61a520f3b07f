//! The auditor: looks at everything in the API server at one quiet moment and names every wrong.
//!
//! Reading is apart from judging, so that the judge can be shown wrongs that were planted (`tests`).

mod exported;
mod ranges;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;

use harvester_lb_api::{IPAllocation, IPPool, LoadBalancer, Phase, WorkloadType, keys, projection};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::ListParams;

use crate::figures::Figures;
use crate::world::{OURS, World, allocated, id, ready};

/// Most records of the past in one pool, and in all (6.5).
const HISTORY_OF_A_POOL: usize = 1_024;
const HISTORY: usize = 16_384;
/// Reasons of a load balancer of VM type whose Service or EndpointSlice cannot be as it should be.
const HINDERED: [&str; 2] = ["NameConflict", "ApiError"];
/// Reasons of one whose spec is refused: what it had before is left to it.
const REFUSED: [&str; 2] = ["InvalidListener", "InvalidSelector"];

/// What an audit has found.
#[derive(Debug, Default)]
pub struct Findings {
    /// One line for each wrong; none: all is well.
    pub wrongs: Vec<String>,
    /// Load balancers that have no address because the pool that they name has none left: no wrong by itself.
    pub waiting: Vec<String>,
    /// Records that are held.
    pub bound: usize,
    /// Records that are remembered.
    pub released: usize,
    /// Load balancers.
    pub load_balancers: usize,
}

impl Findings {
    fn wrong(&mut self, text: String) {
        self.wrongs.push(text);
    }
}

/// Everything of ours that the API server holds at one moment.
#[derive(Debug, Default)]
pub struct Everything {
    /// Records.
    pub records: Vec<IPAllocation>,
    /// Load balancers.
    pub lbs: Vec<LoadBalancer>,
    /// Services with our label.
    pub services: Vec<Service>,
    /// EndpointSlices with our label.
    pub slices: Vec<EndpointSlice>,
    /// Pools.
    pub pools: Vec<IPPool>,
}

impl Everything {
    /// Reads it. Kinds are read one after the other: they belong together only while nobody writes.
    pub async fn read(world: &World) -> anyhow::Result<Self> {
        let everything = ListParams::default();
        let ours = ListParams::default().labels(OURS);
        let lbs: Api<LoadBalancer> = Api::all(world.client());
        let services: Api<Service> = Api::all(world.client());
        let slices: Api<EndpointSlice> = Api::all(world.client());
        Ok(Self {
            records: world.records().list(&everything).await?.items,
            lbs: lbs.list(&everything).await?.items,
            services: services.list(&ours).await?.items,
            slices: slices.list(&ours).await?.items,
            pools: world.pools().list(&everything).await?.items,
        })
    }

    /// Names every wrong: no address is held twice, none leaked, none unserved; every Service and EndpointSlice has its
    /// load balancer and shows its address; who has all that it needs is Ready. Of the given pools, which must not overlap
    /// others, every figure is right.
    pub fn audit(&self, pools: &[&str]) -> Findings {
        let mut found = Findings {
            load_balancers: self.lbs.len(),
            ..Findings::default()
        };
        records(self, &mut found);
        load_balancers(self, &mut found);
        children(self, &mut found);
        readiness(self, &mut found);
        for name in pools {
            match self.pool(name) {
                Some(pool) => figures(self, name, pool, &mut found),
                None => found.wrong(format!("there is no pool {name}")),
            }
        }
        found
    }

    /// Names every figure that the leader exports and that is not what is stored (OPS-1).
    pub fn exported(&self, figures: &Figures, pools: &[&str]) -> Vec<String> {
        exported::wrongs(self, figures, pools)
    }

    fn pool(&self, name: &str) -> Option<&IPPool> {
        self.pools
            .iter()
            .find(|p| p.metadata.name.as_deref() == Some(name))
    }

    /// Records of a pool in a phase.
    fn of(&self, pool: &str, phase: Phase) -> impl Iterator<Item = &IPAllocation> {
        self.records
            .iter()
            .filter(move |r| r.spec.pool == pool && r.spec.phase == phase)
    }

    /// Whether a load balancer has no address because the pool that it names has none left.
    fn waits(&self, lb: &LoadBalancer) -> bool {
        let full = |name: &str| {
            let status = self.pool(name).and_then(|p| p.status.as_ref());
            status.is_some_and(|s| count(self.of(name, Phase::Bound).count()) >= s.total)
        };
        ready(lb).is_some_and(|(_, reason, _)| reason == "NoAvailableIP")
            && lb.spec.ip_pool.as_deref().is_some_and(full)
    }
}

/// Reads everything and audits it.
pub async fn audit(world: &World, pools: &[&str]) -> anyhow::Result<Findings> {
    Ok(Everything::read(world).await?.audit(pools))
}

fn records(all: &Everything, found: &mut Findings) {
    let by_uid: HashMap<&str, &LoadBalancer> = all
        .lbs
        .iter()
        .filter_map(|lb| Some((lb.metadata.uid.as_deref()?, lb)))
        .collect();
    let mut remembered: BTreeMap<&str, usize> = BTreeMap::new();
    for record in &all.records {
        let spec = &record.spec;
        let owner = format!("{}/{}", spec.owner.namespace, spec.owner.name);
        // The form of names is another's rule; that of IPv4 addresses is the address.
        let name = record.metadata.name.as_deref().unwrap_or_default();
        if !spec.address.contains(':') && name != spec.address {
            found.wrong(format!("record {name} speaks of {}", spec.address));
        }
        if spec.phase == Phase::Released {
            found.released += 1;
            *remembered.entry(&spec.pool).or_default() += 1;
            if all.pool(&spec.pool).is_none() {
                found.wrong(format!("{name} is remembered for a pool that is gone"));
            }
            continue;
        }
        found.bound += 1;
        match by_uid.get(&*spec.owner.uid) {
            None => found.wrong(format!("leaked: {name} of {owner}, which is gone")),
            Some(lb) => {
                if id(&lb.metadata) != owner {
                    found.wrong(format!("{name} calls its owner {owner}"));
                }
                if allocated(lb).as_deref() != Some(&*spec.address) {
                    let says = allocated(lb);
                    found.wrong(format!(
                        "{name} is held for {owner}, whose status says {says:?}"
                    ));
                }
            }
        }
    }
    let most = remembered.values().copied().max().unwrap_or(0);
    if most > HISTORY_OF_A_POOL || found.released > HISTORY {
        found.wrong(format!("{remembered:?} addresses are remembered"));
    }
}

fn load_balancers(all: &Everything, found: &mut Findings) {
    let mut seen: HashMap<String, String> = HashMap::new();
    let mut by_owner: HashMap<&str, Vec<&IPAllocation>> = HashMap::new();
    for record in &all.records {
        if record.spec.phase == Phase::Bound {
            let uid = &*record.spec.owner.uid;
            by_owner.entry(uid).or_default().push(record);
        }
    }
    for lb in &all.lbs {
        let id = id(&lb.metadata);
        let Some(ip) = allocated(lb) else {
            if all.waits(lb) {
                found.waiting.push(id);
            } else {
                found.wrong(format!("unserved: {id}, {:?}", ready(lb)));
            }
            continue;
        };
        if ip == keys::DHCP_ADDRESS {
            continue;
        }
        if let Some(other) = seen.insert(ip.clone(), id.clone()) {
            found.wrong(format!("twice: {ip} of {other} and {id}"));
        }
        let uid = lb.metadata.uid.as_deref().unwrap_or_default();
        match by_owner.get(uid).map_or(&[][..], Vec::as_slice) {
            [] => found.wrong(format!("{id} uses {ip} without a record")),
            [record] => {
                let status = lb.status.as_ref();
                let pool = status.and_then(|s| s.allocated_address.as_ref()?.ip_pool.as_ref());
                if pool != Some(&record.spec.pool) {
                    let of = &record.spec.pool;
                    found.wrong(format!("{ip} is of {of}, {id} says {pool:?}"));
                }
            }
            many => {
                let held: Vec<&String> = many.iter().map(|r| &r.spec.address).collect();
                found.wrong(format!("{id} holds {held:?}"));
            }
        }
    }
}

fn children(all: &Everything, found: &mut Findings) {
    let lbs: HashMap<String, &LoadBalancer> =
        all.lbs.iter().map(|lb| (id(&lb.metadata), lb)).collect();
    let mut shown: HashMap<String, String> = HashMap::new();
    let services = all.services.iter().map(|s| ("Service", &s.metadata));
    let slices = all.slices.iter().map(|s| ("EndpointSlice", &s.metadata));
    for (kind, meta) in services.chain(slices) {
        let id = id(meta);
        let owner = meta.owner_references.iter().flatten().next();
        match lbs.get(&id) {
            None => found.wrong(format!("{kind} {id} has no load balancer")),
            Some(lb) if lb.spec.workload() == WorkloadType::Cluster => {
                found.wrong(format!("{kind} {id} is a guest cluster's"));
            }
            Some(lb) if owner.map(|o| &o.uid) != lb.metadata.uid.as_ref() => {
                found.wrong(format!("{kind} {id} has another owner: {owner:?}"));
            }
            Some(_) => {}
        }
    }
    for service in &all.services {
        let id = id(&service.metadata);
        let ip = service
            .spec
            .as_ref()
            .and_then(|s| s.load_balancer_ip.clone())
            .unwrap_or_default();
        if let Some(lb) = lbs.get(&id)
            && allocated(lb).as_deref() != Some(&*ip)
        {
            let given = allocated(lb);
            found.wrong(format!("Service {id} shows {ip}, not {given:?}"));
        }
        if ip != keys::DHCP_ADDRESS
            && let Some(other) = shown.insert(ip.clone(), id.clone())
        {
            found.wrong(format!("{ip} is shown by Services {other} and {id}"));
        }
    }
    for (id, lb) in lbs {
        // Somebody else's objects of that name, or ones that the API server refuses.
        let excused = ready(lb).is_some_and(|(_, reason, _)| HINDERED.contains(&&*reason));
        if lb.spec.workload() == WorkloadType::Vm && allocated(lb).is_some() && !excused {
            if !all.services.iter().any(|s| self::id(&s.metadata) == id) {
                found.wrong(format!("{id} has no Service"));
            }
            if !all.slices.iter().any(|s| self::id(&s.metadata) == id) {
                found.wrong(format!("{id} has no EndpointSlice"));
            }
        }
    }
}

/// A load balancer of cluster type needs its address (REC-1); one of VM type whose Service shows the address needs a
/// machine in its EndpointSlice. Whether a health check lets a machine count cannot be told from here.
fn readiness(all: &Everything, found: &mut Findings) {
    let services: HashMap<String, &Service> =
        all.services.iter().map(|s| (id(&s.metadata), s)).collect();
    let slices: HashMap<String, &EndpointSlice> =
        all.slices.iter().map(|s| (id(&s.metadata), s)).collect();
    for lb in &all.lbs {
        let id = id(&lb.metadata);
        let Some(ip) = allocated(lb) else { continue };
        let (status, reason, message) = ready(lb).unwrap_or_default();
        let due = if lb.spec.workload() == WorkloadType::Cluster {
            true
        } else {
            let announced = services.get(&id).and_then(|s| shown(s)) == Some(&*ip);
            let excused = HINDERED.contains(&&*reason) || REFUSED.contains(&&*reason);
            announced
                && slices.get(&id).is_some_and(|s| has_machine(s))
                && lb.spec.health_check.is_none()
                && !excused
        };
        if due && status != "True" {
            found.wrong(format!(
                "{id} has all that it needs and is not Ready: {reason}, {message}"
            ));
        }
    }
}

/// The address that is announced for a Service.
fn shown(service: &Service) -> Option<&str> {
    let status = service.status.as_ref()?.load_balancer.as_ref()?;
    status.ingress.as_ref()?.first()?.ip.as_deref()
}

/// Whether there is an endpoint beside the stand-in, which is no machine.
fn has_machine(slice: &EndpointSlice) -> bool {
    slice.endpoints.iter().any(|e| {
        let target = e.target_ref.as_ref().and_then(|t| t.kind.as_deref());
        target == Some("VirtualMachineInstance")
    })
}

fn figures(all: &Everything, name: &str, pool: &IPPool, found: &mut Findings) {
    let status = pool.status.clone().unwrap_or_default();
    let of = |phase: Phase| -> BTreeMap<String, String> {
        all.of(name, phase)
            .map(|r| {
                let owner = &r.spec.owner;
                let id = format!("{}/{}", owner.namespace, owner.name);
                (r.spec.address.clone(), id)
            })
            .collect()
    };
    let bound = of(Phase::Bound);
    if let Some(counted) = ranges::count(&pool.spec.ranges) {
        let (says, last) = (status.total, &status.last_allocated);
        if says != count(counted.addresses.len()) {
            found.wrong(format!(
                "pool {name}: total is {says}, its ranges have {}",
                counted.addresses.len()
            ));
        }
        let is_near = |ip: Ipv4Addr| counted.near.contains(&ip);
        if !last.is_empty() && !last.parse().is_ok_and(is_near) {
            found.wrong(format!(
                "pool {name}: lastAllocated is {last:?}, which it cannot have given"
            ));
        }
    }
    if status.available != status.total - count(bound.len()) {
        found.wrong(format!(
            "pool {name}: available is {}, {} of {} are held",
            status.available,
            bound.len(),
            status.total
        ));
    }
    if status.allocated.clone().unwrap_or_default() != bound {
        found.wrong(format!("pool {name}: status.allocated is not the records"));
    }
    if status.allocated_history.clone().unwrap_or_default() != of(Phase::Released) {
        found.wrong(format!(
            "pool {name}: status.allocatedHistory is not the records"
        ));
    }
    let digest = projection::digest(status.allocated.as_ref(), status.allocated_history.as_ref());
    let annotations = pool.metadata.annotations.as_ref();
    let says = annotations.and_then(|a| a.get(keys::ANNOTATION_PROJECTION));
    if says != Some(&digest) {
        found.wrong(format!("pool {name}: the maps' hash is {says:?}"));
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
