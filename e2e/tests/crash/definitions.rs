//! Each upgrade of Harvester applies its own definitions of LoadBalancer and IPPool again, and the conversion webhook that
//! they name may have nobody behind it. Everything works on them, and on the way from one definition to the other (API-1).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_api::{IPPool, condition};
use harvester_lb_e2e::World;
use harvester_lb_e2e::check::passes;
use harvester_lb_e2e::definitions::{Definitions, change};
use harvester_lb_e2e::lives::below;
use harvester_lb_e2e::quiet::audited;
use harvester_lb_e2e::stage::{NODE, OTHERS, PROBED, Stage, cluster, until_accepted};
use harvester_lb_e2e::world::SOON;
use harvester_lb_fixtures::{listener, subnet};
use harvester_lb_testkit::eventually;
use kube::ResourceExt;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How often both definitions are replaced.
const ROUNDS: usize = 3;
/// Concurrent clients that create and delete, each with a few names.
const CLIENTS: usize = 6;
const NAMES: usize = 5;
/// Longest pause of a client, in milliseconds.
const PAUSE: u64 = 60;

/// Clients that create and delete LoadBalancers until they are told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    requests: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<anyhow::Result<BTreeSet<String>>>>,
}

impl Load {
    fn start(world: &Arc<World>, ns: &'static str) -> Self {
        let (stop, requests) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let clients = (0..CLIENTS).map(|client| {
            let (world, stop, requests) = (Arc::clone(world), stop.clone(), requests.clone());
            tokio::spawn(async move {
                let mut rng = fastrand::Rng::with_seed(client as u64);
                let mut exist = BTreeSet::new();
                while !stop.load(Ordering::Relaxed) {
                    let name = format!("c{client}-{}", rng.usize(0..NAMES));
                    if exist.remove(&name) {
                        let delete = || async { world.delete_lb(ns, &name).await };
                        until_accepted("delete", delete).await?;
                    } else {
                        until_accepted("create", || cluster(&world, ns, &name)).await?;
                        exist.insert(name);
                    }
                    requests.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(below(&mut rng, PAUSE)).await;
                }
                Ok(exist)
            })
        });
        let clients = clients.collect();
        Self {
            stop,
            requests,
            clients,
        }
    }

    /// Waits until the clients have done some more requests.
    async fn goes_on(&self) -> anyhow::Result<()> {
        let before = self.requests.load(Ordering::Relaxed);
        eventually("the clients' requests are done", SOON, || async {
            let now = self.requests.load(Ordering::Relaxed);
            Ok((now >= before + 4 * CLIENTS).then_some(()))
        })
        .await
    }

    /// The names of the LoadBalancers that must exist at the end.
    async fn end(self) -> anyhow::Result<(BTreeSet<String>, usize)> {
        self.stop.store(true, Ordering::Relaxed);
        let mut exist = BTreeSet::new();
        for client in self.clients {
            exist.extend(client.await??);
        }
        Ok((exist, self.requests.load(Ordering::Relaxed)))
    }
}

/// What users, guest clusters and kube-vip do is done under the definitions of the moment: a new LoadBalancer is served,
/// listeners and ranges follow an edit, and the address that a guest writes by a plain update stays.
async fn all_work(stage: &Stage, number: usize) -> anyhow::Result<()> {
    let (world, ns) = (&stage.world, stage.ns);
    let name = format!("phase{number}");
    until_accepted("create", || cluster(world, ns, &name)).await?;
    world.lb_address(ns, &name).await?;

    let port = 8_000 + i64::try_from(number)?;
    let listeners = [
        listener("http", "TCP", 80, 8080),
        listener("more", "TCP", port, 8080),
    ];
    let edit = json!({"spec": {"listeners": listeners}});
    until_accepted("edit", || async {
        let lbs = world.lbs(ns);
        world.merge(&lbs, PROBED, edit.clone()).await.map(|_| ())
    })
    .await?;
    let services = world.services(ns);
    eventually("the Service follows", SOON, || async {
        let spec = services.get(PROBED).await?.spec.unwrap_or_default();
        let mut ports = spec.ports.into_iter().flatten();
        Ok(ports.any(|it| i64::from(it.port) == port).then_some(()))
    })
    .await?;

    let (lbs, address) = (world.lbs(ns), format!("192.0.2.{}", number + 1));
    eventually("a guest writes its address", SOON, || async {
        let mut lb = lbs.get("old0").await?;
        let status = lb.status.as_mut().context("no status")?;
        status.address = Some(address.clone());
        lbs.replace("old0", &PostParams::default(), &lb).await?;
        Ok(Some(()))
    })
    .await?;
    let stored = lbs.get("old0").await?.status.context("no status")?;
    ensure!(stored.address.as_ref() == Some(&address), "{stored:?}");

    let ranges: Vec<Value> = (0..=number + 1)
        .map(|n| subnet(&format!("10.80.{n}.0/24")))
        .collect();
    let total = i64::try_from(253 * ranges.len())?;
    let edit = json!({"spec": {"ranges": ranges}});
    until_accepted("edit of the pool", || async {
        let pools = world.pools();
        world.merge(&pools, ns, edit.clone()).await.map(|_| ())
    })
    .await?;
    let has_total = |pool: &IPPool| pool.status.as_ref().is_some_and(|it| it.total == total);
    world.pool_until(ns, "its total follows", has_total).await?;
    Ok(())
}

/// When the condition Ready of the probed LoadBalancer changed last.
async fn ready_since(stage: &Stage) -> anyhow::Result<Option<String>> {
    let lb = stage.world.lbs(stage.ns).get(PROBED).await?;
    let conditions = lb.status.and_then(|status| status.conditions);
    let conditions = conditions.unwrap_or_default();
    let ready = condition::find(&conditions, "Ready").context("no condition Ready")?;
    ensure!(ready.status == "True", "{ready:?}");
    Ok(ready.last_transition_time.clone())
}

pub async fn api_1_harvester_s_definitions_come_back_under_load(
    world: Arc<World>,
) -> anyhow::Result<()> {
    // Restarted in the same pod, it need not wait for the Lease.
    let env = [("POD_UID", "definitions")];
    let stage = Stage::set(&world, "definitions", &[], &env).await?;
    let ns = stage.ns;
    let (ours, theirs) = (
        Definitions::read(&world).await?,
        Definitions::of_harvester(),
    );
    let since = ready_since(&stage).await?;
    // As the Go operator's webhook has left it, which has ended.
    let service =
        json!({"namespace": "harvester-system", "name": "harvester-load-balancer-webhook"});
    let webhook = json!({"conversionReviewVersions": ["v1"], "clientConfig": {"service": service}});
    let conversion = json!({"strategy": "Webhook", "webhook": webhook});
    change(&world, "loadbalancers", json!({"conversion": conversion})).await?;

    let began = Instant::now();
    let load = Load::start(&world, ns);
    for round in 0..ROUNDS {
        for (number, definitions) in [&theirs, &ours].into_iter().enumerate() {
            load.goes_on().await?;
            definitions.apply(&world).await?;
            all_work(&stage, 2 * round + number).await?;
        }
    }
    theirs.apply(&world).await?;
    load.goes_on().await?;
    let (mut expected, requests) = load.end().await?;
    eprintln!(
        "{requests} creations and deletions while the definitions were replaced {} times, in {:.1?}",
        2 * ROUNDS + 1,
        began.elapsed()
    );
    audited(&world, NODE, &[ns]).await?;
    let lbs = world.lbs(ns).list(&ListParams::default()).await?;
    let stored: BTreeSet<String> = lbs.iter().map(ResourceExt::name_any).collect();
    expected.extend((0..2 * ROUNDS).map(|n| format!("phase{n}")));
    let kept = (0..OTHERS).map(|n| format!("old{n}"));
    expected.extend(kept.chain([PROBED.to_owned()]));
    ensure!(stored == expected, "{stored:?}, expected {expected:?}");
    ensure!(
        ready_since(&stage).await? == since,
        "it was not ready meanwhile"
    );

    // A start on them, and `check`.
    stage.operator.kill9(Duration::ZERO).await?;
    audited(&world, NODE, &[ns]).await?;
    ensure!(
        ready_since(&stage).await? == since,
        "not ready after the start"
    );
    let checked = passes(&world).await?;
    let named = checked.objects("CRDOfHarvester");
    ensure!(named.len() == 2, "{:#}", checked.json);
    let unused = checked.objects("ConversionUnreachableUnused");
    ensure!(unused.len() == 1, "{:#}", checked.json);

    let none = json!({"conversion": {"strategy": "None", "webhook": null}});
    change(&world, "loadbalancers", none).await?;
    ours.apply(&world).await?;
    all_work(&stage, 2 * ROUNDS).await?;
    let restarts = stage.judge().await?.1;
    ensure!(restarts == 0, "it has ended by itself");
    Ok(())
}
