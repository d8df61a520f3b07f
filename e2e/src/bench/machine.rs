//! 200 LoadBalancers of VM type with three VirtualMachineInstances each, until all are ready.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use harvester_lb_api::LoadBalancer;
use harvester_lb_fixtures::{endpoint, endpoint_slice, owned_by, service, vm_spec, with};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::driver::{
    NAMESPACE, Watches, address, at_rest, clean, clients, count_until, create_lb, operator, pool,
    ready_status, replay_record, replay_status, spread,
};
use super::report::{Report, Row};
use harvester_lb_e2e::fake_kube_vip::{FakeKubeVip, announce};
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::read::ready;
use harvester_lb_e2e::world::World;

const COUNT: usize = 200;
const MACHINES: usize = 3;
/// Rounds of the operator and of the bare client, alternating.
const ROUNDS: usize = 3;
const NODE: &str = "node1";

/// A LoadBalancer of VM type without a health check: a benchmark of writes, not of probes.
pub(crate) fn vm_lb(name: &str, app: &str) -> anyhow::Result<LoadBalancer> {
    Ok(serde_json::from_value(json!({
        "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": with(vm_spec(app), json!({"ipPool": "bench"})),
    }))?)
}

/// VirtualMachineInstances with a label, at addresses from 10.99.0.1 on.
pub(crate) async fn machines(
    world: &Arc<World>,
    count: usize,
    app: fn(usize) -> String,
) -> anyhow::Result<()> {
    let driver = clients(world).await?;
    let world = Arc::clone(world);
    spread(&driver, count, move |_, number| {
        let world = Arc::clone(&world);
        async move {
            let ip = format!("10.99.{}.{}", number / 250, 1 + number % 250);
            world
                .fake_vmi(
                    NAMESPACE,
                    &format!("vm-{number}"),
                    json!({"app": app(number)}),
                    Some(&ip),
                )
                .await?;
            Ok(())
        }
    })
    .await?;
    Ok(())
}

/// The rows.
pub(crate) async fn run(world: &Arc<World>, report: &mut Report) -> anyhow::Result<()> {
    // A first, uncounted round of each warms up the API server.
    with_operator(world, COUNT / 4).await?;
    replay(world, COUNT / 4).await?;
    let (mut took, mut limit, mut writes) = (Vec::new(), Vec::new(), Vec::new());
    let mut kinds = String::new();
    for _ in 0..ROUNDS {
        limit.push(replay(world, COUNT).await?.as_secs_f64());
        let (time, by_kind) = with_operator(world, COUNT).await?;
        took.push(time.as_secs_f64());
        let all = u32::try_from(by_kind.values().sum::<u64>())?;
        writes.push(f64::from(all) / f64::from(u32::try_from(COUNT)?));
        kinds = format!("{by_kind:?}");
    }
    report.row(
        Row::of(
            "200 VM-type LBs with 3 VMIs each, until all are ready",
            "s",
            took,
        )
        .limits(limit)
        .at_most_times(1.5),
    );
    report.row(
        Row::of(
            "writes per VM-type LB, pool's status and Events left out",
            "",
            writes,
        )
        .at_most(5.0)
        .note(kinds.replace(['{', '}', '"'], "")),
    );
    Ok(())
}

/// With the operator: the duration, and the operator's writes.
async fn with_operator(
    world: &Arc<World>,
    count: usize,
) -> anyhow::Result<(Duration, BTreeMap<String, u64>)> {
    pool(world, "bench", "10.60.0.0/16").await?;
    machines(world, count * MACHINES, |n| format!("app-{}", n / MACHINES)).await?;
    let operator = operator(world, NODE).await?;
    let before = MetricsSnapshot::read(world, NODE).await?;
    let fake_kube_vip = FakeKubeVip::start(&world.client());
    let driver = clients(world).await?;
    let done = count_until(&world.client(), count, |lb| {
        ready(lb).is_some_and(|(s, ..)| s == "True")
    });
    let started = Instant::now();
    spread(&driver, count, |client, number| async move {
        create_lb(
            &client,
            &vm_lb(&format!("lb-{number}"), &format!("app-{number}"))?,
        )
        .await
        .map(|_| ())
    })
    .await?;
    let took = done.await??.duration_since(started);
    // Writes after all are ready count too.
    at_rest(world, NODE).await?;
    let mut writes = MetricsSnapshot::read(world, NODE)
        .await?
        .writes_since(&before);
    writes.retain(|what, _| {
        !what.ends_with(" leases") && !what.ends_with(" events") && what != "patch ippools"
    });
    drop(fake_kube_vip);
    operator.end().await?;
    clean(world).await?;
    Ok((took, writes))
}

/// The same requests by a bare client: LoadBalancer, IPAllocation, status, EndpointSlice, Service, its announcement,
/// status.
async fn replay(world: &Arc<World>, count: usize) -> anyhow::Result<Duration> {
    pool(world, "bench", "10.60.0.0/16").await?;
    let (driver, hands) = (clients(world).await?, clients(world).await?);
    let _watches = Watches::open(&world.client());
    let announcing = world.client();
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let done = count_until(&world.client(), count, |lb| {
        let backends = lb.status.as_ref().and_then(|s| s.backend_servers.as_ref());
        backends.is_some_and(|all| !all.is_empty())
    });
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel::<LoadBalancer>();
    let receiver = Arc::new(tokio::sync::Mutex::new(receiver));
    let started = Instant::now();
    let making = spread(&driver, count, move |client, number| {
        let sender = sender.clone();
        async move {
            let name = format!("lb-{number}");
            let _ = sender.send(create_lb(&client, &vm_lb(&name, &name)?).await?);
            Ok(())
        }
    });
    let handling = spread(&hands, count, move |client, number| {
        let (receiver, announcing) = (Arc::clone(&receiver), announcing.clone());
        async move {
            let Some(lb) = receiver.lock().await.recv().await else {
                return Ok(());
            };
            let name = lb.metadata.name.clone().unwrap_or_default();
            let ip = address(number);
            replay_record(&client, &lb, &ip).await?;
            let version = lb.metadata.resource_version.as_deref();
            let lb = replay_status(&client, &name, version, ready_status(&ip)).await?;
            let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), NAMESPACE);
            slices
                .create(&PostParams::default(), &serde_json::from_value(slice(&lb))?)
                .await?;
            let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
            let service = serde_json::from_value(service(&meta(&lb), &ip))?;
            let service = services.create(&PostParams::default(), &service).await?;
            announce(&announcing, &service).await?;
            let version = lb.metadata.resource_version.as_deref();
            let mut done = ready_status(&ip);
            done["backendServers"] = json!(["10.99.0.1", "10.99.0.2", "10.99.0.3"]);
            replay_status(&client, &name, version, done).await?;
            Ok(())
        }
    });
    tokio::try_join!(making, handling)?;
    let took = done.await??.duration_since(started);
    clean(world).await?;
    Ok(took)
}

fn meta(lb: &LoadBalancer) -> Value {
    let (name, uid) = (&lb.metadata.name, &lb.metadata.uid);
    owned_by(
        NAMESPACE,
        name.as_deref().unwrap_or_default(),
        uid.as_deref().unwrap_or_default(),
    )
}

fn slice(lb: &LoadBalancer) -> Value {
    let of = |n: usize| {
        let (address, name) = (format!("10.99.0.{n}"), format!("vm-{n}"));
        endpoint(
            &address,
            NAMESPACE,
            &name,
            "00000000-0000-0000-0000-000000000000",
        )
    };
    endpoint_slice(&meta(lb), &(1..=MACHINES).map(of).collect::<Vec<_>>())
}
