//! The status of a load balancer as the operator wrote it, so that a bare client writes objects of the same size.

use anyhow::Context;
use serde_json::Value;

use super::driver::NAMESPACE;
use harvester_lb_e2e::read::allocated;
use harvester_lb_e2e::world::World;

/// A status, and the address in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    address: String,
    status: String,
}

impl Sample {
    /// The status of a LoadBalancer that is served.
    pub(crate) async fn take(world: &World, name: &str) -> anyhow::Result<Self> {
        let lb = world.lbs(NAMESPACE).get(name).await?;
        let address = allocated(&lb).with_context(|| format!("{name} has no address"))?;
        Ok(Self {
            address,
            status: serde_json::to_string(&lb.status)?,
        })
    }

    /// The same with another address.
    pub(crate) fn with(&self, address: &str) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(
            &self.status.replace(&self.address, address),
        )?)
    }
}
