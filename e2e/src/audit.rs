//! The auditor: looks at everything in the API server at one quiet moment and names every wrong.

use std::collections::{BTreeMap, HashMap};

use harvester_lb_api::{IPPool, LoadBalancer, Phase};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::ListParams;

use crate::world::{World, allocated};

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

/// Audits namespaces (all, if none is given): no address is held twice, none leaked, none unserved; every counter is
/// right; every Service and EndpointSlice has its load balancer.
pub async fn audit(world: &World, pools: &[&str]) -> anyhow::Result<Findings> {
    let everything = ListParams::default();
    let records = world.records().list(&everything).await?;
    let all_lbs: Api<LoadBalancer> = Api::all(world.client());
    let lbs = all_lbs.list(&everything).await?;
    let all_services: Api<Service> = Api::all(world.client());
    let ours = ListParams::default().labels("loadbalancer.harvesterhci.io/servicelb=true");
    let services = all_services.list(&ours).await?;
    let all_slices: Api<EndpointSlice> = Api::all(world.client());
    let slices = all_slices.list(&ours).await?;
    let mut found = Findings {
        load_balancers: lbs.items.len(),
        ..Findings::default()
    };

    let by_uid: HashMap<&str, &LoadBalancer> = lbs
        .iter()
        .filter_map(|lb| Some((lb.metadata.uid.as_deref()?, lb)))
        .collect();
    let mut held_by: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut bound_in: BTreeMap<&str, BTreeMap<String, String>> = BTreeMap::new();
    for record in &records {
        let spec = &record.spec;
        let id = format!("{}/{}", spec.owner.namespace, spec.owner.name);
        match spec.phase {
            Phase::Released => found.released += 1,
            Phase::Bound => {
                found.bound += 1;
                held_by
                    .entry(&spec.owner.uid)
                    .or_default()
                    .push(&spec.address);
                bound_in
                    .entry(&spec.pool)
                    .or_default()
                    .insert(spec.address.clone(), id.clone());
                match by_uid.get(&*spec.owner.uid) {
                    None => found
                        .wrongs
                        .push(format!("leaked: {} of {id}, which is gone", spec.address)),
                    Some(lb) if allocated(lb).as_deref() != Some(&*spec.address) => {
                        found.wrongs.push(format!(
                            "{} is held for {id}, whose status says {:?}",
                            spec.address,
                            allocated(lb)
                        ));
                    }
                    Some(_) => {}
                }
            }
        }
    }
    for (uid, addresses) in held_by {
        if addresses.len() > 1 {
            found.wrongs.push(format!("{uid} holds {addresses:?}"));
        }
    }
    let mut seen: HashMap<String, String> = HashMap::new();
    for lb in &lbs {
        let id = id(&lb.metadata);
        match allocated(lb).filter(|ip| ip != "0.0.0.0") {
            None => found.wrongs.push(format!("unserved: {id}")),
            Some(ip) => {
                if let Some(other) = seen.insert(ip.clone(), id.clone()) {
                    found
                        .wrongs
                        .push(format!("twice: {ip} of {other} and {id}"));
                }
            }
        }
    }
    for (kind, metas) in [
        (
            "Service",
            services.iter().map(|s| &s.metadata).collect::<Vec<_>>(),
        ),
        (
            "EndpointSlice",
            slices.iter().map(|s| &s.metadata).collect(),
        ),
    ] {
        for meta in metas {
            if !lbs.iter().any(|lb| id(&lb.metadata) == id(meta)) {
                found
                    .wrongs
                    .push(format!("{kind} {} has no load balancer", id(meta)));
            }
        }
    }
    let all_pools: Api<IPPool> = world.pools();
    for name in pools {
        let status = all_pools.get(name).await?.status.unwrap_or_default();
        let bound = bound_in.remove(*name).unwrap_or_default();
        let available = status.total - i64::try_from(bound.len())?;
        if status.available != available {
            found.wrongs.push(format!(
                "pool {name}: available is {}, {} of {} are held",
                status.available,
                bound.len(),
                status.total
            ));
        }
        if status.allocated.unwrap_or_default() != bound {
            found.wrongs.push(format!(
                "pool {name}: status.allocated differs from the records"
            ));
        }
    }
    Ok(found)
}

fn id(meta: &kube::api::ObjectMeta) -> String {
    format!(
        "{}/{}",
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default()
    )
}
