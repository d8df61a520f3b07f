//! One leader at a time: how it ends, how the next one takes over, and what a paused one can still do (section 1,
//! IPA-5).

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_api::keys;
use harvester_lb_e2e::World;
use harvester_lb_e2e::history_checker::HistoryChecker;
use harvester_lb_e2e::metrics_snapshot::{MetricsSnapshot, leader};
use harvester_lb_e2e::quiet::audited;
use harvester_lb_e2e::world::{PATIENT_LEASE, QUICK_LEASE, SOON};
use harvester_lb_fixtures::{subnet, vm_spec, with};
use harvester_lb_testkit::{Process, eventually};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::back::holder;
use crate::stage::{becomes_leader, cluster, pool, set};

fn range() -> Value {
    subnet("10.74.0.0/24")
}

/// The node of the leader, and the other one.
async fn roles(world: &World) -> anyhow::Result<(&'static str, &'static str)> {
    let standby = |leader| if leader == "node1" { "node2" } else { "node1" };
    let leader = leader(world, &["node1", "node2"]).await?;
    Ok((leader, standby(leader)))
}

/// The operators on the two nodes, which have the same host name, both ready.
async fn two(world: &World) -> anyhow::Result<[Arc<Process>; 2]> {
    let first = world
        .start_operator_with("node1", &QUICK_LEASE, &[])
        .await?;
    let second = world
        .start_operator_with("node2", &QUICK_LEASE, &[])
        .await?;
    Ok([first, second])
}

async fn serves(world: &World, ns: &str, prefix: &str, count: usize) -> anyhow::Result<()> {
    for n in 0..count {
        cluster(world, ns, &format!("{prefix}{n}")).await?;
    }
    for n in 0..count {
        world.lb_address(ns, &format!("{prefix}{n}")).await?;
    }
    Ok(())
}

pub async fn section_1_only_the_leader_writes(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "lead";
    set(&world, ns).await?;
    pool(&world, ns, &[range()]).await?;
    let history = HistoryChecker::start(&world.client());
    let operators = two(&world).await?;
    let (leader, standby) = roles(&world).await?;
    let before = holder(&world).await?;
    serves(&world, ns, "a", 40).await?;
    audited(&world, leader, &[ns]).await?;
    let mut writes = MetricsSnapshot::read(&world, standby).await?.writes();
    writes.remove("create selfsubjectrulesreviews");
    ensure!(writes.is_empty(), "the standby has written: {writes:?}");

    // Terminated gracefully: the Lease is free at once.
    let [leading, waiting] = if leader == "node1" {
        operators
    } else {
        let [one, two] = operators;
        [two, one]
    };
    leading.end().await?;
    let began = Instant::now();
    becomes_leader(&world, standby).await?;
    let took = began.elapsed();
    eprintln!("after SIGTERM of the leader the other led within {took:.1?}");
    let after = holder(&world).await?;
    ensure!(before != after, "both are {after}");
    let host = |identity: &str| identity.split_once('_').map(|(host, _)| host.to_owned());
    ensure!(host(&before) == host(&after), "{before} and {after}");
    serves(&world, ns, "b", 20).await?;
    audited(&world, standby, &[ns]).await?;

    // Killed: the Lease has to expire.
    let again = world.start_operator_with(leader, &QUICK_LEASE, &[]).await?;
    waiting.kill9()?;
    let began = Instant::now();
    becomes_leader(&world, leader).await?;
    eprintln!(
        "after SIGKILL of the leader the other led within {:.1?}, its Lease stands for 3 s",
        began.elapsed()
    );
    serves(&world, ns, "c", 20).await?;
    let found = audited(&world, leader, &[ns]).await?;
    ensure!(found.bound == 80, "{found:?}");
    let findings = history.findings(&world).await?;
    ensure!(findings.is_empty(), "{findings:#?}");
    again.end().await
}

/// A separate user for an operator, so that the audit log shows its writes.
async fn user(world: &World, name: &str) -> anyhow::Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(world.client(), "kube-system");
    let account = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    accounts.create(&PostParams::default(), &account).await?;
    let bindings: Api<ClusterRoleBinding> = Api::all(world.client());
    let binding = serde_json::from_value(json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "kube-system", "name": name}],
    }))?;
    bindings.create(&PostParams::default(), &binding).await?;
    let path = world
        .cluster
        .service_account_kubeconfig("kube-system", name)
        .await?;
    Ok(path.to_str().context("no text")?.to_owned())
}

/// Successful writes of a user, in order: verb and object.
fn written_by(world: &World, user: &str) -> anyhow::Result<Vec<String>> {
    let log = std::fs::read_to_string(world.cluster.audit())?;
    let mut written = Vec::new();
    for line in log.lines() {
        // The last line may be incomplete.
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let text = |pointer: &str| {
            let value = event.pointer(pointer).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        let code = event
            .pointer("/responseStatus/code")
            .and_then(Value::as_i64)
            .unwrap_or(0);
        let verb = text("/verb");
        if text("/user/username").ends_with(&format!(":{user}"))
            && ["create", "update", "patch", "delete"].contains(&&*verb)
            && (200..300).contains(&code)
            && !text("/objectRef/resource").starts_with("selfsubject")
        {
            let (resource, name) = (text("/objectRef/resource"), text("/objectRef/name"));
            written.push(format!("{verb} {resource} {name}"));
        }
    }
    Ok(written)
}

pub async fn ipa_5_a_leader_that_was_paused_breaks_nothing(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let ns = "paused";
    set(&world, ns).await?;
    pool(&world, ns, &[range()]).await?;
    let old_user = user(&world, "paused-old").await?;
    let new_user = user(&world, "paused-new").await?;
    let history = HistoryChecker::start(&world.client());
    let old = world
        .start_operator_with("node1", &QUICK_LEASE, &[("KUBECONFIG", &old_user)])
        .await?;
    becomes_leader(&world, "node1").await?;
    let new = world
        .start_operator_with("node2", &QUICK_LEASE, &[("KUBECONFIG", &new_user)])
        .await?;
    // Paused during the creation of sixty, half of which are deleted before it resumes.
    let creating = {
        let world = Arc::clone(&world);
        tokio::spawn(async move {
            for n in 0..60 {
                cluster(&world, ns, &format!("a{n}")).await?;
            }
            anyhow::Ok(())
        })
    };
    world.lb_address(ns, "a5").await?;
    old.stop()?;
    creating.await??;
    becomes_leader(&world, "node2").await?;
    for n in 0..60 {
        world.lb_address(ns, &format!("a{n}")).await?;
    }
    for n in 0..30 {
        world.delete_lb(ns, &format!("a{n}")).await?;
    }
    serves(&world, ns, "b", 60).await?;
    audited(&world, "node2", &[ns]).await?;
    let before = written_by(&world, "paused-old")?;
    old.cont()?;
    stands_by(&world, "node1").await?;
    let found = audited(&world, "node2", &[ns]).await?;
    ensure!(found.bound == 90, "{found:?}");
    let findings = history.findings(&world).await?;
    ensure!(findings.is_empty(), "{findings:#?}");
    let after = written_by(&world, "paused-old")?;
    let late = after.get(before.len()..).unwrap_or_default();
    eprintln!(
        "it wrote {} times before and {} times after it was paused: {late:?}",
        before.len(),
        late.len()
    );
    ensure!(!before.is_empty(), "the audit log does not tell who wrote");
    // The fence is asked before a request is sent: one Event can be on its way when the process is stopped. It alters no object.
    let is_on_its_way = late.len() <= 1 && late.iter().all(|it| it.contains(" events "));
    ensure!(is_on_its_way, "it wrote after it was paused: {late:?}");

    // The same process leads again when its turn comes (RUN-5).
    new.end().await?;
    becomes_leader(&world, "node1").await?;
    serves(&world, ns, "c", 20).await?;
    let found = audited(&world, "node1", &[ns]).await?;
    ensure!(found.bound == 110, "{found:?}");
    let findings = history.findings(&world).await?;
    ensure!(findings.is_empty(), "{findings:#?}");
    old.end().await
}

/// Waits until the operator on a node is not leader and has stopped all work of its term.
async fn stands_by(world: &World, node: &str) -> anyhow::Result<()> {
    eventually(&format!("{node} stands by"), SOON, || async {
        let figures = MetricsSnapshot::read(world, node).await?;
        let targets = figures.sum("harvester_lb_probe_targets", |_| true);
        ensure!(
            !figures.is_leader() && figures.idle() && targets < 0.5,
            "leads {}, idle {}, probes {targets}",
            figures.is_leader(),
            figures.idle()
        );
        Ok(Some(()))
    })
    .await
}

pub async fn run_5_who_has_lost_the_lease_to_another_probes_no_more(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let ns = "terms";
    set(&world, ns).await?;
    pool(&world, ns, &[range()]).await?;
    let labels = json!({"app": "web"});
    world.fake_vmi(ns, "vm", labels, Some("10.81.0.1")).await?;
    let web = with(vm_spec("web"), json!({"healthCheck": {"port": 8080}}));
    world.lb(ns, "web", web).await?;
    let operators = two(&world).await?;
    for _ in 0..2 {
        let (old, new) = roles(&world).await?;
        let [of_old, of_new] = if old == "node1" {
            [&operators[0], &operators[1]]
        } else {
            [&operators[1], &operators[0]]
        };
        probes(&world, old).await?;
        of_old.stop()?;
        becomes_leader(&world, new).await?;
        probes(&world, new).await?;
        of_old.cont()?;
        stands_by(&world, old).await?;
        ensure!(of_old.is_running() && of_new.is_running());
    }
    let [first, second] = operators;
    second.end().await?;
    first.end().await
}

/// Waits until the operator on a node probes the one backend.
async fn probes(world: &World, node: &str) -> anyhow::Result<()> {
    eventually(&format!("{node} probes"), SOON, || async {
        let figures = MetricsSnapshot::read(world, node).await?;
        let targets = figures.sum("harvester_lb_probe_targets", |_| true);
        Ok((figures.is_leader() && targets > 0.5).then_some(()))
    })
    .await
}

pub async fn section_1_work_met_by_a_closed_fence_is_still_owed(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let ns = "fence";
    set(&world, ns).await?;
    pool(&world, ns, &[range()]).await?;
    let history = HistoryChecker::start(&world.client());
    let operator = world
        .start_operator_with("node1", &QUICK_LEASE, &[])
        .await?;
    becomes_leader(&world, "node1").await?;
    let mut paused = 0;
    for round in 0..2 {
        let creating = {
            let world = Arc::clone(&world);
            tokio::spawn(async move {
                for n in 0..30 {
                    cluster(&world, ns, &format!("r{round}n{n}")).await?;
                }
                anyhow::Ok(())
            })
        };
        world.lb_address(ns, &format!("r{round}n3")).await?;
        // Past its own deadline of 2 s and short of the Lease's 3 s: it resumes with a closed fence, and renews or
        // starts a new term.
        operator.stop()?;
        tokio::time::sleep(Duration::from_millis(2_200)).await;
        operator.cont()?;
        creating.await??;
        paused += 1;
        for n in 0..30 {
            world.lb_address(ns, &format!("r{round}n{n}")).await?;
        }
        audited(&world, "node1", &[ns]).await?;
    }
    eprintln!("paused past its deadline {paused} times and led on");
    let findings = history.findings(&world).await?;
    ensure!(findings.is_empty(), "{findings:#?}");
    operator.end().await
}

pub async fn section_1_the_same_pod_takes_over_at_once(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "samepod";
    set(&world, ns).await?;
    pool(&world, ns, &[range()]).await?;
    let env = [("POD_UID", "one-pod")];
    let first = world
        .start_operator_with("node1", &PATIENT_LEASE, &env)
        .await?;
    becomes_leader(&world, "node1").await?;
    serves(&world, ns, "a", 5).await?;
    first.kill9()?;
    let began = Instant::now();
    let second = world
        .start_operator_with("node1", &PATIENT_LEASE, &env)
        .await?;
    becomes_leader(&world, "node1").await?;
    eprintln!(
        "started again in the same pod it led after {:.1?}",
        began.elapsed()
    );
    serves(&world, ns, "b", 5).await?;
    audited(&world, "node1", &[ns]).await?;
    // A third pod waits.
    let third = world
        .start_operator_with("node2", &PATIENT_LEASE, &[("POD_UID", "another")])
        .await?;
    second.kill9()?;
    ensure!(
        !MetricsSnapshot::read(&world, "node2").await?.is_leader(),
        "another pod leads"
    );
    third.kill9()?;
    Ok(())
}

/// Writes the Lease as the Go operator does.
async fn go_lease(world: &World, duration: i32) -> anyhow::Result<()> {
    let api: Api<Lease> = Api::namespaced(world.client(), keys::LEASE_NAMESPACE);
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": keys::LEASE_NAME},
        "spec": {
            "holderIdentity": "harvester-node-0", "leaseDurationSeconds": duration, "leaseTransitions": 3,
            "acquireTime": "2025-03-01T08:00:00.000000Z",
            "renewTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
        },
    });
    let params = PatchParams::apply("go").force();
    api.patch(keys::LEASE_NAME, &params, &Patch::Apply(lease))
        .await?;
    Ok(())
}

pub async fn section_1_the_lease_of_a_go_holder_is_honoured(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let ns = "golease";
    set(&world, ns).await?;
    pool(&world, ns, &[range()]).await?;
    cluster(&world, ns, "a").await?;
    let standing = 4;
    go_lease(&world, standing).await?;
    let operator = world
        .start_operator_with("node1", &QUICK_LEASE, &[])
        .await?;
    // It is alive: renewed each second for longer than the duration of our own Lease.
    let mut renewed = Instant::now();
    for _ in 0..4 {
        go_lease(&world, standing).await?;
        renewed = Instant::now();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let figures = MetricsSnapshot::read(&world, "node1").await?;
        ensure!(!figures.is_leader(), "two lead");
    }
    // It has died.
    becomes_leader(&world, "node1").await?;
    let took = renewed.elapsed();
    eprintln!(
        "a Go holder's Lease of {standing} s was taken over {took:.1?} after its last renewal"
    );
    ensure!(
        took.as_secs_f64() >= f64::from(standing) - 0.1,
        "taken over after {took:?}"
    );
    let lease: Api<Lease> = Api::namespaced(world.client(), keys::LEASE_NAMESPACE);
    let spec = lease.get(keys::LEASE_NAME).await?.spec.context("no spec")?;
    ensure!(spec.lease_transitions == Some(4), "{spec:?}");
    world.lb_address(ns, "a").await?;
    audited(&world, "node1", &[ns]).await?;
    operator.end().await
}
