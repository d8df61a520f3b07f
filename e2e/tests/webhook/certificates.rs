//! Rotation of authority and certificate while requests are answered: none is refused.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_e2e::World;
use harvester_lb_e2e::webhook::{NAMESPACE, Replica, SERVICE, answers, endpoints};
use harvester_lb_fixtures::cluster_spec;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use tokio::time::Instant;

use crate::load::{DENSE, Load, SPARSE};
use crate::stage::{bare, finish};
use crate::tls::{address, bundle, connect, connector};

/// A third of a life before its end a certificate is renewed: authorities every 30 s, serving certificates every 12 s.
const LIVES: &str =
    "webhook-authority-life=45s,webhook-certificate-life=18s,webhook-settle=3s,webhook-retain=5s";
/// Long enough for two authorities after the first.
const TIME: Duration = Duration::from_secs(75);
const NODES: [&str; 2] = ["node1", "node2"];

pub async fn section_1_certificates_rotate_without_a_refused_request(
    world: Arc<World>,
) -> anyhow::Result<()> {
    bare(&world).await?;
    endpoints(&world, &NODES).await?;
    let replicas = [
        Replica::spawn(&world, "node1", LIVES).await?,
        Replica::spawn(&world, "node2", LIVES).await?,
    ];
    for replica in &replicas {
        replica.ready().await?;
        replica.registered().await?;
    }
    answers(&world).await?;
    world.namespace("rotation").await?;
    world.lb("rotation", "a", cluster_spec()).await?;
    let load = Load::start(&world, "rotation", "a", SPARSE).await?;
    let start = Instant::now();
    let (mut leaves, mut bundles) = (BTreeSet::new(), BTreeSet::new());
    while start.elapsed() < TIME {
        // A new connection each time, with the bundle that the API server has now: it keeps its own connections.
        let known = bundle(&world).await?;
        let connector = connector(&known)?;
        for node in NODES {
            let stream = connect(&connector, address(&world, node)?).await;
            let stream = stream.with_context(|| format!("{node} after {:?}", start.elapsed()))?;
            let (_, session) = stream.get_ref();
            let shown = session.peer_certificates().unwrap_or_default();
            leaves.insert(shown.first().context("no certificate")?.to_vec());
        }
        bundles.insert(known);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    load.no_failure_since(start)?;
    eprintln!(
        "{} requests, {} serving certificates, {} bundles",
        load.requests(),
        leaves.len(),
        bundles.len()
    );
    // A bundle with two authorities, and one with the new one alone, for each rotation.
    ensure!(
        leaves.len() >= 4 && bundles.len() >= 4,
        "{} {}",
        leaves.len(),
        bundles.len()
    );
    ensure!(load.requests() > 1_000);
    let mut authorities = 0.0;
    for replica in &replicas {
        authorities += replica
            .metric("harvester_lb_webhook_certificates_issued_total{certificate=\"authority\"}")
            .await?;
        let expiry = "harvester_lb_webhook_certificate_expiry_timestamp_seconds";
        for certificate in ["authority", "serving"] {
            let series = format!("{expiry}{{certificate=\"{certificate}\"}}");
            ensure!(replica.metric(&series).await? > 1.7e9, "{series}");
        }
    }
    // Of two replicas one makes each authority.
    ensure!(
        (2.0..=4.0).contains(&authorities),
        "{authorities} authorities"
    );
    drop(load);
    world.delete_lb("rotation", "a").await?;
    let [first, second] = &replicas;
    finish(&world, &[first, second]).await
}

/// Whoever deletes both Secrets, or restores another namespace over them: the replicas serve on what the API server knows.
pub async fn section_1_both_secrets_are_lost_without_a_refused_request(
    world: Arc<World>,
) -> anyhow::Result<()> {
    bare(&world).await?;
    endpoints(&world, &NODES).await?;
    let timings = "webhook-settle=3s,webhook-retain=3s";
    let replicas = [
        Replica::spawn(&world, "node1", timings).await?,
        Replica::spawn(&world, "node2", timings).await?,
    ];
    for replica in &replicas {
        replica.ready().await?;
        replica.registered().await?;
    }
    answers(&world).await?;
    world.namespace("lost").await?;
    world.lb("lost", "a", cluster_spec()).await?;
    let load = Load::start(&world, "lost", "a", DENSE).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let start = Instant::now();
    let names = ["ca", "tls"].map(|part| format!("{SERVICE}-{part}"));
    for name in &names {
        world
            .cluster
            .delete("v1", "Secret", Some(NAMESPACE), name)
            .await?;
    }
    while start.elapsed() < Duration::from_secs(10) {
        // A new connection each time, with the bundle that the API server has now.
        let connector = connector(&bundle(&world).await?)?;
        for node in NODES {
            let stream = connect(&connector, address(&world, node)?).await;
            stream.with_context(|| format!("{node} after {:?}", start.elapsed()))?;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let secrets: Api<Secret> = Api::namespaced(world.client(), NAMESPACE);
    for name in &names {
        secrets.get(name).await.context("it was not made again")?;
    }
    load.no_failure_since(start)?;
    eprintln!("{} requests", load.requests());
    drop(load);
    world.delete_lb("lost", "a").await?;
    let [first, second] = &replicas;
    finish(&world, &[first, second]).await
}
