//! Owns the tour of shared addresses: a second load balancer joins while requests go on, the first one is deleted, the last one leaves
//! nothing behind (SHR-1 to SHR-5).

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use harvester_lb_api::{LoadBalancer, Phase, condition};
use harvester_lb_e2e::read::allocated;
use harvester_lb_e2e::world::{SOON, repository};
use harvester_lb_testkit::{Traffic, Vm, eventually};
use tokio::time::Instant;

use crate::scene::{NAME, NAMESPACE, PORT, Scene, show};
use crate::screen::{Screen, seconds};

/// Name of the example's second load balancer.
const SECOND: &str = "db";
/// Its port, and that of its virtual machine.
const SECOND_PORT: u16 = 5432;
/// The example, of which the first document is like the load balancer of the scene.
const EXAMPLE: &str = "loadbalancer-shared.yaml";
/// Time between two requests of the client.
const INTERVAL: Duration = Duration::from_millis(20);

/// Shows what happens to an address that two load balancers share.
pub(crate) async fn run(screen: &mut Screen, scene: &Scene) -> anyhow::Result<()> {
    let _vm = join(screen, scene).await.context("a second one joins")?;
    leave(screen, scene).await.context("the first one goes")?;
    end(screen, scene).await.context("the last one goes")?;
    ensure!(scene.operator.is_running(), "the operator has ended");
    Ok(())
}

/// The part of the example that is about the second load balancer.
fn second() -> anyhow::Result<String> {
    let path = repository().join("docs/examples").join(EXAMPLE);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let (_, second) = text
        .split_once("\n---\n")
        .context("there is one document")?;
    Ok(second.to_owned())
}

async fn join(screen: &mut Screen, scene: &Scene) -> anyhow::Result<Vm> {
    screen.step("A second load balancer on the same address");
    screen.say(&format!(
        "The client goes on, a request to {}:{PORT} every {} ms.",
        scene.vip,
        INTERVAL.as_millis()
    ));
    let world = &scene.world;
    let labels = [("app", SECOND)];
    let vm = world.vm(NAMESPACE, "db1", &labels, SECOND_PORT).await?;
    let traffic = Traffic::start(&world.cluster, scene.vip, PORT, INTERVAL);
    let text = second()?;
    let began = Instant::now();
    world.cluster.apply_yaml(&text).await?;
    let file = format!("kubectl apply -f docs/examples/{EXAMPLE}");
    screen.command(&file, &text);
    let lb = world.lb_reason(NAMESPACE, SECOND, "Ready").await?;
    let took = began.elapsed();
    ensure!(
        allocated(&lb) == Some(scene.vip.to_string()),
        "another address"
    );
    world.answered_by(scene.vip, SECOND_PORT, &["db1"]).await?;
    for args in [
        &["get", "lb"][..],
        &["get", "service"],
        &[
            "get",
            "endpointslice",
            "-o",
            "custom-columns=NAME:.metadata.name,SERVICE:.metadata.labels.kubernetes\\.io/service-name,PORTS:.ports[*].name",
        ],
    ] {
        show(screen, world, args).await?;
    }
    none_failed(traffic, PORT).await?;
    screen.proven(format!(
        "{SECOND} shares {} and was Ready after {}; no request to port {PORT} failed",
        scene.vip,
        seconds(took)
    ));
    Ok(vm)
}

async fn none_failed(traffic: Traffic, port: u16) -> anyhow::Result<()> {
    let failures = traffic.into_failures().await;
    match failures.first() {
        None => Ok(()),
        Some(first) => bail!(
            "{} requests to port {port} failed: {:?}",
            failures.len(),
            first.outcome
        ),
    }
}

async fn leave(screen: &mut Screen, scene: &Scene) -> anyhow::Result<()> {
    screen.step("The first load balancer is deleted");
    screen.say(&format!("The client asks for port {SECOND_PORT} now."));
    let world = &scene.world;
    let uid = world.services(NAMESPACE).get(NAME).await?.metadata.uid;
    let traffic = Traffic::start(&world.cluster, scene.vip, SECOND_PORT, INTERVAL);
    world.delete_lb(NAMESPACE, NAME).await?;
    world.gone(&world.lbs(NAMESPACE), NAME).await?;
    let holds = |lb: &LoadBalancer| {
        let status = lb.status.as_ref();
        let all = status.and_then(|status| status.conditions.as_deref());
        let told = condition::find(all.unwrap_or_default(), "AddressShared");
        told.is_some_and(|it| it.reason.as_deref() == Some("Holder"))
    };
    world
        .lb_until(NAMESPACE, SECOND, "it holds the address", holds)
        .await?;
    for args in [&["get", "lb"][..], &["get", "service"], &["get", "ipalloc"]] {
        show(screen, world, args).await?;
    }
    none_failed(traffic, SECOND_PORT).await?;
    let record = world.records().get(&scene.vip.to_string()).await?.spec;
    ensure!(
        record.phase == Phase::Bound && record.owner.name == SECOND,
        "the record is {record:?}"
    );
    let now = world.services(NAMESPACE).get(NAME).await?.metadata.uid;
    ensure!(now == uid, "the Service is another one");
    screen.proven(format!(
        "{} stays, and belongs to {SECOND}; no request to port {SECOND_PORT} failed",
        scene.vip
    ));
    Ok(())
}

async fn end(screen: &mut Screen, scene: &Scene) -> anyhow::Result<()> {
    screen.step("The last load balancer is deleted");
    let world = &scene.world;
    world.delete_lb(NAMESPACE, SECOND).await?;
    world.gone(&world.services(NAMESPACE), NAME).await?;
    world.gone(&world.slices(NAMESPACE), SECOND).await?;
    let vip = scene.vip.to_string();
    eventually(&format!("record {vip}: Released"), SOON, || async {
        let record = world.records().get(&vip).await?.spec;
        ensure!(record.phase == Phase::Released, "it is {:?}", record.phase);
        Ok(Some(()))
    })
    .await?;
    show(screen, world, &["get", "ipalloc"]).await?;
    screen.proven("nothing is left of the shared address but its history");
    Ok(())
}
