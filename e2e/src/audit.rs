//! Reads all objects from the API server, for the auditor to judge.

use harvester_lb_api::kubevirt::VirtualMachineInstance;
use harvester_lb_api::{LoadBalancer, keys};
use harvester_lb_audit::{Cluster, Report, Snapshot};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::ListParams;

use crate::world::World;

/// Reads all objects. The kinds are read one by one: the result is consistent only while nothing is written.
pub async fn read(world: &World) -> anyhow::Result<Snapshot> {
    let everything = ListParams::default();
    let lbs: Api<LoadBalancer> = Api::all(world.client());
    let services: Api<Service> = Api::all(world.client());
    let slices: Api<EndpointSlice> = Api::all(world.client());
    let machines: Api<VirtualMachineInstance> = Api::all(world.client());
    let nodes: Api<Node> = Api::all(world.client());
    Ok(Snapshot {
        load_balancers: lbs.list(&everything).await?.items,
        pools: world.pools().list(&everything).await?.items,
        records: world.records().list(&everything).await?.items,
        services: services.list(&everything).await?.items,
        slices: slices
            .list(&everything)
            .await?
            .items
            .into_iter()
            .filter(|slice| !is_of_control_plane(slice))
            .collect(),
        cluster: Some(Cluster {
            machines: machines.list(&everything).await?.items,
            nodes: nodes.list(&everything).await?.items,
            denied: Vec::new(),
        }),
        // Tests of such objects do not audit.
        undecodable: Vec::new(),
        // Few tests announce addresses.
        announcing: false,
    })
}

/// Reads all objects and audits them.
pub async fn audit(world: &World) -> anyhow::Result<Report> {
    Ok(harvester_lb_audit::audit(&read(world).await?))
}

/// Whether the control plane has made an EndpointSlice for a Service to which somebody has given a selector: with the Service's labels,
/// and deleted by its garbage collector some time after it.
fn is_of_control_plane(slice: &EndpointSlice) -> bool {
    let labels = slice.metadata.labels.as_ref();
    let manager = labels.and_then(|it| it.get(keys::LABEL_MANAGED_BY));
    manager.is_some_and(|it| it == "endpointslice-controller.k8s.io")
}
