//! kube-vip's annotations of a load balancer that change while no operator runs (KVA-1).

use std::sync::Arc;

use anyhow::ensure;
use harvester_lb_e2e::world::SOON;
use harvester_lb_e2e::{Test, World, tests};
use harvester_lb_testkit::eventually;
use serde_json::{Value, json};

use crate::operator::restarted;
use crate::vips::{lan, vm_spec};

/// All tests.
pub fn all() -> Vec<Test> {
    tests![kva_1_what_goes_while_no_operator_runs_is_taken_off_after_its_start]
}

const FLUSH: &str = "kube-vip.io/flush-conntrack";
const BROADCAST: &str = "kube-vip.io/dhcp-broadcast";
/// Never on a load balancer here.
const FOREIGN: &str = "kube-vip.io/forwardUPNP";

/// Waits for the values of the three annotations on a Service.
async fn has(world: &World, ns: &str, wanted: [Option<&str>; 3]) -> anyhow::Result<()> {
    eventually(&format!("{wanted:?} on the Service"), SOON, || async {
        let service = world.services(ns).get(ns).await?;
        let all = service.metadata.annotations.unwrap_or_default();
        let now = [FLUSH, BROADCAST, FOREIGN].map(|key| all.get(key).map(String::as_str));
        ensure!(now == wanted, "{all:?}");
        Ok(Some(()))
    })
    .await
}

fn annotations(all: &Value) -> Value {
    json!({"metadata": {"annotations": all}})
}

async fn kva_1_what_goes_while_no_operator_runs_is_taken_off_after_its_start(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let mut operator = restarted(&world).await?;
    let ns = "kva1-restart";
    world.namespace(ns).await?;
    world.pool_for(ns, ns, &[lan(150, 150)]).await?;
    let own = json!({ FLUSH: "true", BROADCAST: "true" });
    let metadata = json!({"namespace": ns, "name": ns, "annotations": own});
    world.lb_with(metadata, vm_spec(ns, ns)).await?;
    world.lb_address(ns, ns).await?;
    has(&world, ns, [Some("true"), Some("true"), None]).await?;
    let foreign = annotations(&json!({ FOREIGN: "false" }));
    world.merge(&world.services(ns), ns, foreign).await?;

    operator.kill().await?;
    let edit = annotations(&json!({ FLUSH: null, BROADCAST: "false" }));
    world.merge(&world.lbs(ns), ns, edit).await?;
    has(&world, ns, [Some("true"), Some("true"), Some("false")]).await?;
    operator.restart(&world).await?;
    has(&world, ns, [None, Some("false"), Some("false")]).await
}
