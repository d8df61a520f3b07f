//! Killed with SIGKILL amid creations and deletions, again and again.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use harvester_lb_api::LoadBalancer;
use harvester_lb_e2e::World;
use harvester_lb_e2e::announcer::Announcer;
use harvester_lb_e2e::quiet::{audited, wipe};
use harvester_lb_e2e::supervised::Supervised;
use harvester_lb_e2e::witness::Witness;
use harvester_lb_e2e::world::allocated;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::time::Instant;

use crate::plan::{self, Life, Round, Step};

const NS: &str = "crash";
const FLAGS: [&str; 6] = [
    "--lease-duration=3s",
    "--lease-renew-deadline=2s",
    "--lease-retry-period=500ms",
    "--threadiness=16",
    "--loglevel=info",
    "--backend-metrics-limit=0",
];

/// 512 addresses for at most 224 load balancers at a time.
pub fn pool() -> serde_json::Value {
    json!({
        "ranges": [{"subnet": "10.80.0.0/24"}, {"subnet": "10.80.1.0/24"}],
        "selector": {"scope": [{"project": "*", "namespace": "*", "guestCluster": "*"}]},
    })
}

pub async fn alc_8_killed_amid_creations_and_deletions(world: Arc<World>) -> anyhow::Result<()> {
    wipe(&world).await?;
    world.namespace(NS).await?;
    world.pool("crash", pool()).await?;
    world
        .fake_vmi(NS, "vm", json!({"app": "web"}), Some("10.81.0.1"))
        .await?;
    let _announcer = Announcer::start(&world.client());
    let witness = Witness::start(&world.client());
    for seed in plan::seeds() {
        let round = plan::round(seed);
        eprintln!(
            "HLB_SEED={seed}: kills {:?}, same pod: {}",
            round.kills, round.same_pod
        );
        play(&world, &witness, &round)
            .await
            .with_context(|| format!("HLB_SEED={seed}"))?;
    }
    wipe(&world).await
}

async fn play(world: &Arc<World>, witness: &Witness, round: &Round) -> anyhow::Result<()> {
    let began = Instant::now();
    let before = addresses(world).await?;
    let env: &[(&str, &str)] = if round.same_pod {
        &[("POD_UID", "crash")]
    } else {
        &[]
    };
    let operator = Supervised::start(world, "node1", &FLAGS, env)?;
    let work = tokio::spawn(live(Arc::clone(world), round.lives.clone()));
    for (lived, away) in &round.kills {
        // The moment of the kill is what is under test; there is no condition to wait for.
        tokio::time::sleep(*lived).await;
        operator.kill9(*away).await?;
    }
    work.await??;
    let worked = began.elapsed();
    let found = audited(world, "node1", &["crash"]).await?;
    let wrongs = witness.wrongs(world).await?;
    ensure!(wrongs.is_empty(), "{wrongs:#?}");
    // The same object has the same address.
    let after = addresses(world).await?;
    for (uid, (name, ip)) in &before {
        let now = after.get(uid).map(|(_, ip)| ip);
        ensure!(
            now.is_none_or(|now| now == ip),
            "{name} had {ip}, now {now:?}"
        );
    }
    eprintln!(
        "  {} load balancers, {} addresses held, {} remembered, {} given so far; worked {worked:.1?}, quiet after {:.1?}; ended by itself {} times",
        found.load_balancers,
        found.bound,
        found.released,
        witness.given(),
        began.elapsed(),
        operator.restarts(),
    );
    operator.finish().await
}

/// Addresses by uid, with the name.
async fn addresses(world: &World) -> anyhow::Result<BTreeMap<String, (String, String)>> {
    let all = world.lbs(NS).list(&ListParams::default()).await?;
    let addresses = all.iter().filter_map(|lb| {
        let uid = lb.metadata.uid.clone()?;
        Some((uid, (lb.name_any(), allocated(lb)?)))
    });
    Ok(addresses.collect())
}

/// Lives all lives, 24 at a time.
async fn live(world: Arc<World>, lives: Vec<Life>) -> anyhow::Result<()> {
    stream::iter(lives)
        .map(|life| {
            let api = world.lbs(NS);
            async move {
                for step in &life.steps {
                    match step {
                        Step::Make => make(&api, &life).await?,
                        Step::Delete => delete(&api, &life.name).await?,
                        Step::Wait(time) => tokio::time::sleep(*time).await,
                    }
                }
                anyhow::Ok(())
            }
        })
        .buffer_unordered(24)
        .try_collect::<Vec<()>>()
        .await
        .map(|_| ())
}

async fn make(api: &Api<LoadBalancer>, life: &Life) -> anyhow::Result<()> {
    let spec = if life.vm {
        json!({
            "listeners": [{"name": "http", "port": 80, "protocol": "TCP", "backendPort": 8080}],
            "backendServerSelector": {"app": ["web"]},
        })
    } else {
        json!({"workloadType": "cluster"})
    };
    let lb: LoadBalancer =
        serde_json::from_value(json!({"metadata": {"name": life.name}, "spec": spec}))?;
    match api.create(&PostParams::default(), &lb).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        other => Ok(other.map(|_| ())?),
    }
}

async fn delete(api: &Api<LoadBalancer>, name: &str) -> anyhow::Result<()> {
    match api.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => Ok(other.map(|_| ())?),
    }
}
