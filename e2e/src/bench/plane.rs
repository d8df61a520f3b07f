//! The control planes of the benchmarks: each group of rows has its own, which ends with it.

use std::sync::Arc;

use harvester_lb_e2e::world::World;
use harvester_lb_testkit::TestClusterOptions;

use super::driver::NAMESPACE;

/// A control plane without history, with the namespace of all objects. `audit`: the API server writes its audit log.
pub(crate) async fn fresh(audit: bool) -> anyhow::Result<Arc<World>> {
    let world = World::start(TestClusterOptions {
        kube_vip: false,
        audit,
        ..TestClusterOptions::default()
    })
    .await?;
    world.namespace(NAMESPACE).await?;
    Ok(Arc::new(world))
}
