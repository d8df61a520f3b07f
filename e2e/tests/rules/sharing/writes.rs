//! How much is written when many join (SHR-4).

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use anyhow::ensure;
use harvester_lb_api::{LoadBalancer, Phase};
use harvester_lb_e2e::World;
use harvester_lb_e2e::world::SOON;
use harvester_lb_testkit::eventually;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::changes::Changes;
use super::group::{layout, naming, on_ports, serves, slice_is, stage};
use crate::support::RuleHelpers;

/// The node of the operator.
const NODE: &str = "node1";
/// What the operator logs of a write that is refused because the object has changed (IPA-5).
const REFUSED: &str = "conflict, reading the object live";

/// How often each object of a namespace was changed in each way.
fn counts<K>(changes: &Changes<K>) -> BTreeMap<String, usize>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut counts = BTreeMap::new();
    for change in changes.map(|what, object| {
        let name = object.meta().name.clone().unwrap_or_default();
        format!("{name} {what}")
    }) {
        *counts.entry(change).or_default() += 1;
    }
    counts
}

/// Changes of a load balancer after another one of its namespace was added.
fn late(changes: &Changes<LoadBalancer>) -> Vec<String> {
    let mut newest = String::new();
    let mut late = Vec::new();
    for (what, name) in changes.map(|what, lb| (what, lb.metadata.name.clone().unwrap_or_default()))
    {
        if what == "added" {
            newest = name;
        } else if name != newest {
            late.push(format!("{name} {what} after {newest} was added"));
        }
    }
    late
}

/// The length of the operator's log now.
fn log_length(world: &World) -> anyhow::Result<usize> {
    let log = std::fs::metadata(world.operator_log(NODE))?;
    Ok(usize::try_from(log.len())?)
}

/// Writes of Services and EndpointSlices of a namespace that the API server has refused since the operator's log had this length,
/// because they were decided from a stale copy. They change nothing, so that no watch shows them; the operator's counter has those of
/// all tests that run meanwhile.
fn refused(world: &World, ns: &str, since: usize) -> anyhow::Result<Vec<String>> {
    let bytes = std::fs::read(world.operator_log(NODE))?;
    let log = String::from_utf8_lossy(bytes.get(since..).unwrap_or_default());
    let lines = log.lines().filter(|line| line.contains(REFUSED));
    let lines = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_of = |line: &Value| {
        let object = line["object"].as_str().and_then(|it| it.split_once('/'));
        let kind = line["kind"].as_str().unwrap_or_default();
        object.is_some_and(|(of, _)| of == ns) && ["Service", "EndpointSlice"].contains(&kind)
    };
    Ok(lines.filter(is_of).map(|line| line.to_string()).collect())
}

pub(super) async fn shr_4_fifty_join_with_two_writes_each(world: Arc<World>) -> anyhow::Result<()> {
    const ALL: u16 = 50;
    let ns = "shr4";
    stage(&world, ns, "10.250.0.0/24", &["web"]).await?;
    let address = world
        .announced(ns, "web", on_ports(ns, "web", &[80]))
        .await?;
    let join = |n: u16| {
        world.lb_with(
            naming(ns, &format!("s{n}"), "web"),
            on_ports(ns, "web", &[1000 + n]),
        )
    };
    join(0).await?;
    serves(&world, ns, "s0", &address).await?;
    // The names of the primary's ports have changed to the end.
    slice_is(&world, ns, "web", "web", &["80-tcp"]).await?;
    world
        .at_rest(ns, &[ns], std::time::Duration::from_secs(1))
        .await?;
    let services = Changes::watch(world.services(ns)).await?;
    let slices = Changes::watch(world.slices(ns)).await?;
    eventually("both slices are seen", SOON, || async {
        Ok((counts(&slices).len() == 2).then_some(()))
    })
    .await?;
    let records = Changes::watch(world.records()).await?;
    let of_record = || {
        counts(&records)
            .get(&format!("{address} modified"))
            .copied()
    };
    let of_record_before = of_record();
    let lbs = Changes::watch(world.lbs(ns)).await?;
    let before = counts(&services).values().sum::<usize>();
    let since = log_length(&world)?;
    for n in 1..ALL {
        join(n).await?;
        serves(&world, ns, &format!("s{n}"), &address).await?;
    }
    world
        .at_rest(ns, &[ns], std::time::Duration::from_secs(1))
        .await?;
    let service = world.services(ns).get("web").await?;
    assert_eq!(layout(&service).0.len(), usize::from(ALL) + 1);
    assert_eq!(layout(&service).1.len(), usize::from(ALL) + 1);
    let writes = counts(&services).values().sum::<usize>() - before;
    ensure!(writes < usize::from(ALL), "{writes} writes of the Service");
    let of_slices = counts(&slices);
    let others: Vec<_> = of_slices
        .iter()
        .filter(|(what, _)| !what.ends_with(" added"))
        .collect();
    ensure!(others.is_empty(), "writes of EndpointSlices: {others:?}");
    ensure!(of_slices.values().all(|count| *count == 1), "{of_slices:?}");
    assert_eq!(of_record(), of_record_before, "writes of the IPAllocation");
    // The status names the address, then says that it is served.
    let of_lbs = counts(&lbs);
    let many: Vec<_> = of_lbs.iter().filter(|(_, count)| **count > 2).collect();
    ensure!(many.is_empty(), "writes of statuses: {many:?}");
    let late = late(&lbs);
    ensure!(late.is_empty(), "writes of other load balancers: {late:?}");
    // Each object has one writer, which knows the answer to its last write.
    let refused = refused(&world, ns, since)?;
    ensure!(refused.is_empty(), "{refused:#?}");
    assert_eq!(world.phase(&address, Phase::Bound).await?, "shr4/web");
    // All go, in any order.
    world.delete_lb(ns, "web").await?;
    for n in (0..ALL).rev() {
        world.delete_lb(ns, &format!("s{n}")).await?;
    }
    world.phase(&address, Phase::Released).await?;
    world.collected(&world.services(ns), "web").await
}
