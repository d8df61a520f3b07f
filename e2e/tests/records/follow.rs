//! Serving LoadBalancers that could not be set up again still follow changes, also after a restart (BE-6).

use std::sync::Arc;

use anyhow::ensure;
use harvester_lb_e2e::World;
use harvester_lb_e2e::fake_kube_vip::FakeKubeVip;
use harvester_lb_e2e::read::endpoints;
use harvester_lb_fixtures::{subnet, vm_spec, with};
use kube::api::DeleteParams;
use serde_json::json;

use crate::stage::{pool, set, start};

const DUMMY: &str = "10.52.0.255";

pub async fn be_6_endpoints_follow_after_a_restart(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "follow";
    set(&world, ns).await?;
    pool(&world, ns, &[subnet("10.76.0.0/24")]).await?;
    let _fake_kube_vip = FakeKubeVip::start(&world.client());
    let [a, b] = ["10.176.0.1", "10.176.0.2"];
    for (name, address) in [("a", a), ("b", b)] {
        let labels = json!({"app": "web"});
        world.fake_vmi(ns, name, labels, Some(address)).await?;
    }
    let operator = start(&world).await?;
    for name in ["broken", "unread"] {
        let spec = with(vm_spec("web"), json!({"ipPool": ns}));
        world.lb(ns, name, spec).await?;
        world.lb_reason(ns, name, "Ready").await?;
        world.ready_endpoints(ns, name, &[a, b]).await?;
    }
    let record = world.lb_address(ns, "unread").await?;
    operator.end().await?;

    // No backend answers this check, and nothing else in the spec identifies its machines.
    let check =
        json!({"port": 8080, "failureThreshold": 2, "periodSeconds": 1, "timeoutSeconds": 1});
    let broken = json!({"spec": {"healthCheck": check, "backendServerSelector": {"app": []}}});
    world.merge(&world.lbs(ns), "broken", broken).await?;
    let unreadable = json!({"spec": {"address": "none"}});
    world.merge(&world.records(), &record, unreadable).await?;
    let operator = start(&world).await?;
    world.lb_reason(ns, "broken", "InvalidSelector").await?;
    world.lb_reason(ns, "unread", "RecordUnreadable").await?;
    let slice = world.ready_endpoints(ns, "broken", &[DUMMY]).await?;
    ensure!(endpoints(&slice, false) == [a, b], "{:?}", slice.endpoints);
    world.vmis(ns).delete("a", &DeleteParams::default()).await?;
    world.ready_endpoints(ns, "unread", &[b]).await?;
    let repaired = json!({"spec": {"address": record}});
    world.merge(&world.records(), &record, repaired).await?;
    world.lb_reason(ns, "unread", "Ready").await?;
    operator.end().await
}
