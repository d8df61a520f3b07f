//! A listener stops behind many LoadBalancers: how soon no EndpointSlice has a ready backend, and how far apart the
//! writes of each are by the API server's audit log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use harvester_lb_testkit::{Farm, Fault};
use jiff::Timestamp;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::json;

use super::driver::{NAMESPACE, at_rest, clean, clients, create_lb, operator, pool, seen, spread};
use super::machine::{machines, vm_lb};
use super::report::{Report, Row};
use harvester_lb_e2e::fake_kube_vip::FakeKubeVip;
use harvester_lb_e2e::requests::{self, Request};
use harvester_lb_e2e::world::World;

const NODE: &str = "node1";
const LOAD_BALANCERS: usize = 50;
const BACKENDS_OF_EACH: usize = 100;

/// The rows. The world's test cluster must have an audit log.
pub(crate) async fn run(world: &Arc<World>, report: &mut Report) -> anyhow::Result<()> {
    let operator = operator(world, NODE).await?;
    let farm = Farm::start(&world.cluster, &[8080])?;
    pool(world, "bench", "10.60.0.0/16").await?;
    machines(world, LOAD_BALANCERS * BACKENDS_OF_EACH, |n| {
        format!("app-{}", n / BACKENDS_OF_EACH)
    })
    .await?;
    let fake_kube_vip = FakeKubeVip::start(&world.client());
    let healthy = slices_with(world, BACKENDS_OF_EACH);
    let driver = clients(world).await?;
    spread(&driver, LOAD_BALANCERS, |client, number| async move {
        let mut lb = vm_lb(&format!("lb-{number}"), &format!("app-{number}"))?;
        lb.spec.health_check = serde_json::from_value(json!({"port": 8080}))?;
        create_lb(&client, &lb).await.map(|_| ())
    })
    .await?;
    // All backends, not just the first of each.
    healthy.await??;
    at_rest(world, NODE).await?;

    let dead = slices_with(world, 0);
    let (stopped, started) = (Timestamp::now(), Instant::now());
    farm.fault(Fault::Refuse, "10.99.0.0-10.99.255.255")?;
    let took = dead.await??.duration_since(started);
    report.row(
        Row::one(
            "listener killed to not ready in every slice, 50 LBs x 100 backends, 3 x 5 s",
            "s",
            took.as_secs_f64(),
        )
        .at_most(19.0),
    );
    at_rest(world, NODE).await?;
    let all = requests::about(world, "endpointslices")?;
    let writes: Vec<Request> = all
        .into_iter()
        .filter(|request| request.writes() && request.received >= stopped)
        .collect();
    let least = least_apart(&writes).context("no EndpointSlice was written twice")?;
    let count = f64::from(u32::try_from(writes.len())?);
    let each = count / f64::from(u32::try_from(LOAD_BALANCERS)?);
    report.row(
        Row::one(
            "... least time between two writes of a slice, from the answer to the next request",
            "ms",
            least.as_secs_f64() * 1e3,
        )
        .at_least(200.0)
        .note(format!("{each:.1} writes of each slice in all")),
    );
    drop(fake_kube_vip);
    clean(world).await?;
    operator.end().await
}

/// Least time from the answer to a write to the arrival of the next one of the same object; zero if they overlap. None if
/// no object was written twice.
fn least_apart(writes: &[Request]) -> Option<Duration> {
    let mut answered: BTreeMap<(&str, &str), Timestamp> = BTreeMap::new();
    let mut least = None;
    for write in writes {
        let object = (write.namespace.as_str(), write.name.as_str());
        if let Some(before) = answered.insert(object, write.answered) {
            let apart = write.received.duration_since(before);
            let apart = Duration::try_from(apart).unwrap_or_default();
            least = Some(least.map_or(apart, |least: Duration| least.min(apart)));
        }
    }
    least
}

/// Waits until every EndpointSlice has this number of ready backends.
fn slices_with(world: &World, backends: usize) -> tokio::task::JoinHandle<anyhow::Result<Instant>> {
    seen(world.slices(NAMESPACE), LOAD_BALANCERS, move |slice| {
        ready_backends(slice) == backends
    })
}

/// Ready endpoints without the dummy endpoint.
fn ready_backends(slice: &EndpointSlice) -> usize {
    slice
        .endpoints
        .iter()
        .filter(|e| {
            let target = e.target_ref.as_ref().and_then(|t| t.kind.as_deref());
            target == Some("VirtualMachineInstance")
        })
        .filter(|e| e.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(name: &str, received: i64, answered: i64) -> Request {
        let at = |ms| Timestamp::from_millisecond(ms).unwrap();
        Request {
            verb: "patch".to_owned(),
            group: "discovery.k8s.io".to_owned(),
            resource: "endpointslices".to_owned(),
            subresource: String::new(),
            namespace: NAMESPACE.to_owned(),
            name: name.to_owned(),
            code: 200,
            received: at(received),
            answered: at(answered),
        }
    }

    #[test]
    fn the_closest_writes_of_one_object_are_found() {
        let ms = Duration::from_millis;
        assert_eq!(least_apart(&[]), None);
        assert_eq!(least_apart(&[write("a", 0, 10), write("b", 11, 12)]), None);
        let mut writes = vec![
            write("a", 0, 10),
            write("b", 5, 10),
            write("a", 260, 270),
            write("a", 471, 480),
        ];
        assert_eq!(least_apart(&writes), Some(ms(201)));
        writes.push(write("b", 130, 140));
        assert_eq!(least_apart(&writes), Some(ms(120)));
        writes.push(write("a", 475, 485));
        assert_eq!(least_apart(&writes), Some(ms(0)), "they overlap");
    }
}
