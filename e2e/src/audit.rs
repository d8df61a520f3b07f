//! The auditor: looks at everything in the API server at one quiet moment and names every wrong.

use std::collections::{BTreeMap, HashMap};

use harvester_lb_api::{IPAllocation, IPPool, LoadBalancer, Phase, WorkloadType, keys, projection};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{ListParams, ObjectMeta};

use crate::world::{World, allocated, ready};

/// Most records of the past in one pool, and in all (6.5).
const HISTORY_OF_A_POOL: usize = 1_024;
const HISTORY: usize = 16_384;

/// What an audit has found.
#[derive(Debug, Default)]
pub struct Findings {
    /// One line for each wrong; none: all is well.
    pub wrongs: Vec<String>,
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

struct Everything {
    records: Vec<IPAllocation>,
    lbs: Vec<LoadBalancer>,
    services: Vec<Service>,
    slices: Vec<EndpointSlice>,
    pools: Vec<IPPool>,
}

impl Everything {
    async fn read(world: &World) -> anyhow::Result<Self> {
        let everything = ListParams::default();
        let ours = ListParams::default().labels("loadbalancer.harvesterhci.io/servicelb=true");
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

    fn held(&self, uid: &str) -> impl Iterator<Item = &IPAllocation> {
        self.records
            .iter()
            .filter(move |r| r.spec.phase == Phase::Bound && r.spec.owner.uid == uid)
    }
}

/// Audits everything: no address is held twice, none leaked, none unserved; every Service and EndpointSlice has its
/// load balancer and shows its address. Of the given pools, which must not overlap others, every figure is right.
pub async fn audit(world: &World, pools: &[&str]) -> anyhow::Result<Findings> {
    let all = Everything::read(world).await?;
    let mut found = Findings {
        load_balancers: all.lbs.len(),
        ..Findings::default()
    };
    records(&all, &mut found);
    load_balancers(&all, &mut found);
    children(&all, &mut found);
    for name in pools {
        match all
            .pools
            .iter()
            .find(|p| p.metadata.name.as_deref() == Some(name))
        {
            Some(pool) => figures(&all, name, pool, &mut found)?,
            None => found.wrong(format!("there is no pool {name}")),
        }
    }
    Ok(found)
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
            if !all
                .pools
                .iter()
                .any(|p| p.metadata.name.as_ref() == Some(&spec.pool))
            {
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
    for lb in &all.lbs {
        let id = id(&lb.metadata);
        let Some(ip) = allocated(lb) else {
            found.wrong(format!("unserved: {id}, {:?}", ready(lb)));
            continue;
        };
        if ip == keys::DHCP_ADDRESS {
            continue;
        }
        if let Some(other) = seen.insert(ip.clone(), id.clone()) {
            found.wrong(format!("twice: {ip} of {other} and {id}"));
        }
        let held: Vec<&IPAllocation> = all
            .held(lb.metadata.uid.as_deref().unwrap_or_default())
            .collect();
        match held.as_slice() {
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
        let excused = ready(lb)
            .is_some_and(|(_, reason, _)| ["NameConflict", "ApiError"].contains(&&*reason));
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

fn figures(
    all: &Everything,
    name: &str,
    pool: &IPPool,
    found: &mut Findings,
) -> anyhow::Result<()> {
    let status = pool.status.clone().unwrap_or_default();
    let of = |phase: Phase| -> BTreeMap<String, String> {
        all.records
            .iter()
            .map(|r| &r.spec)
            .filter(|s| s.pool == name && s.phase == phase)
            .map(|s| {
                let id = format!("{}/{}", s.owner.namespace, s.owner.name);
                (s.address.clone(), id)
            })
            .collect()
    };
    let bound = of(Phase::Bound);
    let available = status.total - i64::try_from(bound.len())?;
    if status.available != available {
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
    Ok(())
}

fn id(meta: &ObjectMeta) -> String {
    format!(
        "{}/{}",
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default()
    )
}
