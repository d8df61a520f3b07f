//! 200 load balancers of VM type with three machines each, until all are ready.

use std::sync::Arc;
use std::time::{Duration, Instant};

use harvester_lb_api::LoadBalancer;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::driver::{
    NAMESPACE, Watches, address, clean, clients, count_until, create_lb, pool, ready_status,
    replay_record, replay_status, spread,
};
use super::report::Report;
use crate::announcer::{Announcer, announce};
use crate::figures::Figures;
use crate::world::{World, ready};

const COUNT: usize = 200;
const MACHINES: usize = 3;
const NODE: &str = "node1";

/// A load balancer of VM type without a health check: a benchmark of writes, not of probes.
pub fn vm_lb(name: &str, app: &str) -> anyhow::Result<LoadBalancer> {
    Ok(serde_json::from_value(json!({
        "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": {
            "ipPool": "bench",
            "listeners": [{"name": "http", "port": 80, "protocol": "TCP", "backendPort": 8080}],
            "backendServerSelector": {"app": [app]},
        },
    }))?)
}

/// Machines that carry a label, at addresses from 10.99.0.1 on.
pub async fn machines(
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
pub async fn run(world: &Arc<World>, report: &mut Report) -> anyhow::Result<()> {
    let limit = replay(world).await?;
    pool(world, "bench", "10.60.0.0/16").await?;
    machines(world, COUNT * MACHINES, |n| format!("app-{}", n / MACHINES)).await?;
    let operator = world.start_operator(NODE).await?;
    let before = Figures::read(world, NODE).await?;
    let announcer = Announcer::start(&world.client());
    let driver = clients(world).await?;
    let done = count_until(&world.client(), COUNT, |lb| {
        ready(lb).is_some_and(|(s, ..)| s == "True")
    });
    let started = Instant::now();
    spread(&driver, COUNT, |client, number| async move {
        create_lb(
            &client,
            &vm_lb(&format!("lb-{number}"), &format!("app-{number}"))?,
        )
        .await
        .map(|_| ())
    })
    .await?;
    let took = done.await??.duration_since(started);
    report.against(
        "200 VM-type LBs with 3 VMIs each, until all are ready",
        "s",
        took.as_secs_f64(),
        limit.as_secs_f64(),
    );
    let after = Figures::read(world, NODE).await?;
    let writes = |f: &Figures| {
        f.sum("harvester_lb_api_requests_total", |s| {
            matches!(s.label("verb"), "create" | "patch" | "delete")
                && !matches!(s.label("resource"), "ippools" | "events" | "leases")
        })
    };
    let count = f64::from(u32::try_from(COUNT)?);
    report.figure(
        "writes per VM-type LB, pool status left out",
        "",
        (writes(&after) - writes(&before)) / count,
    );
    drop(announcer);
    operator.term()?;
    operator.wait(Duration::from_secs(20)).await?;
    clean(world).await
}

/// The same requests by a bare client: load balancer, record, status, slice, Service, its announcement, status.
async fn replay(world: &Arc<World>) -> anyhow::Result<Duration> {
    pool(world, "bench", "10.60.0.0/16").await?;
    let (driver, hands) = (clients(world).await?, clients(world).await?);
    let _watches = Watches::open(&world.client());
    let announcing = world.client();
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel::<LoadBalancer>();
    let receiver = Arc::new(tokio::sync::Mutex::new(receiver));
    let started = Instant::now();
    let making = spread(&driver, COUNT, move |client, number| {
        let sender = sender.clone();
        async move {
            let name = format!("lb-{number}");
            let _ = sender.send(create_lb(&client, &vm_lb(&name, &name)?).await?);
            Ok(())
        }
    });
    let handling = spread(&hands, COUNT, move |client, number| {
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
            let service = serde_json::from_value(service(&lb, &ip))?;
            let service = services.create(&PostParams::default(), &service).await?;
            announce(&announcing, &service).await?;
            let version = lb.metadata.resource_version.as_deref();
            let mut done = ready_status(&ip);
            done["backendServers"] = json!(["10.99.0.1", "10.99.0.2", "10.99.0.3"]);
            replay_status(&client, &name, version, done).await?;
            Ok(())
        }
    });
    let (made, handled) = tokio::join!(making, handling);
    made?;
    handled?;
    let took = started.elapsed();
    clean(world).await?;
    Ok(took)
}

fn meta(lb: &LoadBalancer) -> Value {
    json!({
        "namespace": NAMESPACE, "name": lb.metadata.name,
        "labels": {
            "loadbalancer.harvesterhci.io/servicelb": "true",
            "kubernetes.io/service-name": lb.metadata.name,
            "endpointslice.kubernetes.io/managed-by": "harvester-load-balancer",
        },
        "ownerReferences": [{
            "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer",
            "name": lb.metadata.name, "uid": lb.metadata.uid,
        }],
    })
}

fn slice(lb: &LoadBalancer) -> Value {
    let endpoint = |n: usize| {
        json!({
            "addresses": [format!("10.99.0.{n}")], "conditions": {"ready": true},
            "targetRef": {
                "kind": "VirtualMachineInstance", "namespace": NAMESPACE, "name": format!("vm-{n}"),
                "uid": "00000000-0000-0000-0000-000000000000",
            },
        })
    };
    json!({
        "metadata": meta(lb), "addressType": "IPv4",
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
        "endpoints": (1..=MACHINES).map(endpoint).collect::<Vec<_>>(),
    })
}

fn service(lb: &LoadBalancer, ip: &str) -> Value {
    json!({
        "metadata": meta(lb),
        "spec": {
            "type": "LoadBalancer", "loadBalancerIP": ip, "allocateLoadBalancerNodePorts": false,
            "ports": [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080}],
        },
    })
}
