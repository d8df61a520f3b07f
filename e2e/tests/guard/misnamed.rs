//! An IPAllocation whose owner no request can name: it is no failure that outlives it.

use std::sync::Arc;

use harvester_lb_api::API_VERSION;
use harvester_lb_e2e::World;
use harvester_lb_e2e::quiet::{quiet, reset};
use harvester_lb_e2e::world::PATIENT_LEASE;
use harvester_lb_fixtures::{record, subnet, with};
use kube::api::DeleteParams;
use serde_json::json;

use crate::support::RuleHelpers;

pub async fn ipa_3_an_owner_that_is_no_name_is_given_up(world: Arc<World>) -> anyhow::Result<()> {
    reset(&world).await?;
    world.ranges("calm", &[subnet("10.200.0.0/24")]).await?;
    let owner = ("<a>", "web", "u-web");
    let types = json!({"apiVersion": API_VERSION, "kind": "IPAllocation"});
    let record = with(record("10.200.0.77", "calm", "Bound", owner), types);
    world.cluster.apply(&record).await?;
    let operator = world
        .start_operator_with("node1", &PATIENT_LEASE, &[])
        .await?;
    // It has taken over, and has seen the record.
    world.served("default", "other", "calm").await?;
    let delete = DeleteParams::default();
    world.records().delete("10.200.0.77", &delete).await?;
    quiet(&world, "node1").await?;
    operator.end().await?;
    reset(&world).await
}
