//! Two operators on one host, distinguished by their pods: one is resumed during its work, one renews its Lease too
//! late.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_api::{LoadBalancer, keys};
use harvester_lb_e2e::World;
use harvester_lb_e2e::history_checker::HistoryChecker;
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::quiet::{audited, reset};
use harvester_lb_e2e::read::ready;
use harvester_lb_e2e::world::{QUICK_LEASE, SOON};
use harvester_lb_fixtures::{cluster_spec, subnet};
use harvester_lb_testkit::proxy::{Match, Moment, Proxy, Verb};
use harvester_lb_testkit::{Process, eventually};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::ListParams;

use crate::stage::becomes_leader;

/// Two operators of one host and two pods: the first is leader, through a proxy; the second waits.
async fn two(world: &World, proxy: &Proxy) -> anyhow::Result<[Arc<Process>; 2]> {
    let path = proxy.kubeconfig("admin")?;
    let path = path.to_str().context("no text")?;
    let flags = [&QUICK_LEASE[..], &["--threadiness=64"]].concat();
    let env = [("KUBECONFIG", path), ("POD_UID", "first")];
    let first = world.start_operator_with("node2", &flags, &env).await?;
    becomes_leader(world, "node2").await?;
    let env = [("POD_UID", "second")];
    let second = world.start_operator_with("node1", &flags, &env).await?;
    Ok([first, second])
}

async fn stands_by(world: &World, node: &str) -> anyhow::Result<()> {
    eventually(&format!("{node} stands by"), SOON, || async {
        let is_leader = MetricsSnapshot::read(world, node).await?.is_leader();
        Ok((!is_leader).then_some(()))
    })
    .await
}

/// Ends both, the one that is not leader first.
async fn end(operators: [Arc<Process>; 2]) -> anyhow::Result<()> {
    for operator in operators {
        ensure!(operator.is_running(), "it has ended");
        operator.end().await?;
    }
    Ok(())
}

async fn holder(world: &World) -> anyhow::Result<String> {
    let api: Api<Lease> = Api::namespaced(world.client(), keys::LEASE_NAMESPACE);
    let spec = api.get(keys::LEASE_NAME).await?.spec;
    spec.and_then(|s| s.holder_identity).context("nobody")
}

async fn furnish(world: &World, ns: &str) -> anyhow::Result<()> {
    reset(world).await?;
    world.namespace(ns).await?;
    world.pool_for(ns, ns, &[subnet("10.110.0.0/24")]).await
}

pub async fn section_1_a_late_renewal_of_the_lease(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "late-lease";
    furnish(&world, ns).await?;
    let proxy = Proxy::start(&world.cluster).await?;
    let [first, second] = two(&world, &proxy).await?;
    let before = holder(&world).await?;
    let mut hold = proxy.holds(Match::of(Verb::Update, "leases"), Moment::Before, 8);
    let mut late = vec![hold.arrived().await?];
    // It cannot renew, and is standby from then on (RUN-5).
    stands_by(&world, "node2").await?;
    becomes_leader(&world, "node1").await?;
    let after = holder(&world).await?;
    let parts = |identity: &str| {
        let (host, pod) = identity.split_once('_').unwrap_or_default();
        (host.to_owned(), pod.to_owned())
    };
    let (one, two) = (parts(&before), parts(&after));
    ensure!(
        one.0 == two.0 && one.1 == "first" && two.1 == "second",
        "{before}, {after}"
    );
    while let Some(more) = hold.try_arrived() {
        late.push(more);
    }
    for held in late {
        let code = held.release().await?;
        eprintln!("a late renewal: {code}");
        ensure!(code == 409, "{code}");
    }
    ensure!(holder(&world).await? == after, "the Lease was taken back");
    world.lb(ns, "a", cluster_spec()).await?;
    world.lb_address(ns, "a").await?;
    audited(&world, "node1", &[ns]).await?;
    end([first, second]).await
}

pub async fn ipa_5_resumed_amid_its_work(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, count) = ("resumed-lease", 24);
    furnish(&world, ns).await?;
    let history = HistoryChecker::start(&world.client());
    let proxy = Proxy::start(&world.cluster).await?;
    let [first, second] = two(&world, &proxy).await?;
    // When it is paused, some of its work is done, some is in flight.
    let mut creations = proxy.holds(Match::of(Verb::Create, "ipallocations"), Moment::Before, 8);
    let mut commits = proxy.holds(Match::of(Verb::Patch, "loadbalancers"), Moment::Before, 8);
    let mut answers = proxy.holds(Match::of(Verb::Create, "ipallocations"), Moment::After, 4);
    for n in 0..count {
        world.lb(ns, &format!("l{n}"), cluster_spec()).await?;
    }
    let mut late = Vec::new();
    for _ in 0..8 {
        late.push(creations.arrived().await?);
    }
    for _ in 0..4 {
        late.push(answers.arrived().await?);
    }
    for _ in 0..8 {
        late.push(commits.arrived().await?);
    }
    the_rest_is_done(&world, ns, late.len()).await?;
    first.stop()?;
    becomes_leader(&world, "node1").await?;
    for n in 0..count {
        world.lb_address(ns, &format!("l{n}")).await?;
    }
    for n in 0..count / 2 {
        let name = format!("l{n}");
        world.delete_lb(ns, &name).await?;
        world.gone(&world.lbs(ns), &name).await?;
        if n % 2 == 0 {
            world.lb(ns, &name, cluster_spec()).await?;
        }
    }
    audited(&world, "node1", &[ns]).await?;
    let before = writes(&proxy);
    first.cont()?;
    stands_by(&world, "node2").await?;
    let after = writes(&proxy);
    ensure!(
        before == after,
        "it wrote after it was resumed: {before:?} and {after:?}"
    );
    let mut codes = Vec::new();
    for held in late {
        codes.push(held.release().await?);
    }
    codes.sort_unstable();
    eprintln!("resumed; what it had on its way was answered {codes:?}");
    let found = audited(&world, "node1", &[ns]).await?;
    ensure!(found.bound == count - count / 4, "{found:?}");
    let findings = history.findings(&world).await?;
    ensure!(findings.is_empty(), "{findings:#?}");
    end([first, second]).await
}

/// Waits until an operator has done all that it can without the answers about `held` LoadBalancers: the others are
/// ready, and the pool's status shows all IPAllocations. A request that it was allowed to send, and has not sent when it
/// is paused, is sent when it is resumed.
async fn the_rest_is_done(world: &World, ns: &str, held: usize) -> anyhow::Result<()> {
    eventually("the rest is done", SOON, || async {
        let all = ListParams::default();
        let lbs = world.lbs(ns).list(&all).await?.items;
        let is_ready = |lb: &&LoadBalancer| ready(lb).is_some_and(|(status, ..)| status == "True");
        let served = lbs.iter().filter(is_ready).count();
        let records = world.records().list(&all).await?.items.len();
        let status = world.pools().get(ns).await?.status.unwrap_or_default();
        let shown = status.allocated.map_or(0, |allocated| allocated.len());
        ensure!(
            served == lbs.len() - held && shown == records,
            "{served} of {} are ready, the pool shows {shown} of {records}",
            lbs.len()
        );
        Ok(Some(()))
    })
    .await
}

/// Write requests by verb and resource, without the Lease.
fn writes(proxy: &Proxy) -> BTreeMap<(Verb, String), u64> {
    let mut counts = proxy.counts();
    counts.retain(|(verb, resource), _| verb.is_write() && resource != "leases");
    counts
}
