//! The subcommand `check` with 10,000 load balancers, half of them of VM type, in 1,000 pools: time, memory, requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::json;

use super::driver::{
    AS_SHIPPED, LIMIT, at_rest, clients, cluster_lb, count_until, create_lb, operator, spread,
};
use super::machine::{machines, vm_lb};
use super::report::{Report, Row};
use super::scale::kill;
use harvester_lb_e2e::read::allocated;
use harvester_lb_e2e::requests;
use harvester_lb_e2e::world::World;

const COUNT: usize = 10_000;
const POOLS: usize = 1_000;
const MACHINES: usize = 1_000;
const NODE: &str = "node1";
const ROUNDS: usize = 3;
/// ServiceAccount of the command, so that its requests can be told from others.
const USER: &str = "check";

/// The rows.
pub(crate) async fn run(world: &Arc<World>, report: &mut Report) -> anyhow::Result<()> {
    let driver = clients(world).await?;
    let pools = Arc::clone(world);
    spread(&driver, POOLS, move |_, number| {
        let world = Arc::clone(&pools);
        async move {
            // 29 addresses each.
            let subnet = format!(
                "10.{}.{}.{}/27",
                64 + number / 2_048,
                number / 8 % 256,
                number % 8 * 32
            );
            let ranges = json!({"ranges": [{"subnet": subnet}]});
            world.pool(&pool_of(number), ranges).await
        }
    })
    .await?;
    machines(world, MACHINES, |number| format!("app-{number}")).await?;
    let operator = operator(world, NODE).await?;
    let done = count_until(&world.client(), COUNT, |lb| allocated(lb).is_some());
    spread(&driver, COUNT, |client, number| async move {
        let name = format!("lb-{number}");
        let mut lb = if number % 2 == 0 {
            cluster_lb(&name)?
        } else {
            vm_lb(&name, &format!("app-{}", number % MACHINES))?
        };
        lb.spec.ip_pool = Some(pool_of(number));
        create_lb(&client, &lb).await.map(|_| ())
    })
    .await?;
    done.await??;
    at_rest(world, NODE).await?;

    let kubeconfig = user(world).await?;
    let (mut seconds, mut peaks) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let (took, peak) = check(world, &kubeconfig, round).await?;
        seconds.push(took.as_secs_f64());
        peaks.push(peak);
    }
    let all = requests::of(world, &format!("system:serviceaccount:kube-system:{USER}"))?;
    let of = |is: fn(&requests::Request) -> bool| all.iter().filter(|it| is(it)).count() / ROUNDS;
    let (lists, writes) = (of(|it| it.verb == "list"), of(requests::Request::writes));
    ensure!(writes == 0, "check has written");
    let what = "check with 10,000 LBs, half of VM type, and 1,000 pools";
    report.row(Row::of(what, "s", seconds).note("one read, nothing found"));
    report.row(Row::of("the same, peak RSS", "MiB", peaks));
    let number = f64::from(u32::try_from(of(|_| true))?);
    report.row(
        Row::one("the same, requests", "", number).note(format!("{lists} lists, 500 objects each")),
    );
    kill(&operator).await
}

fn pool_of(number: usize) -> String {
    format!("pool-{}", number % POOLS)
}

/// A user with all permissions.
async fn user(world: &World) -> anyhow::Result<String> {
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": "kube-system", "name": USER},
    });
    world.cluster.apply(&account).await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": USER},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "kube-system", "name": USER}],
    });
    world.cluster.apply(&binding).await?;
    let account = world
        .cluster
        .service_account_kubeconfig("kube-system", USER);
    let path = account.await?;
    Ok(path.to_str().context("no text")?.to_owned())
}

/// Runs the command: its duration, and its peak memory in MiB.
async fn check(world: &World, kubeconfig: &str, round: usize) -> anyhow::Result<(Duration, f64)> {
    let program = world.binary().to_str().context("no text")?;
    let env = [AS_SHIPPED, &[("KUBECONFIG", kubeconfig)]].concat();
    let began = Instant::now();
    let log = format!("check-{round}");
    let process = world.cluster.spawn(NODE, program, &["check"], &env, &log)?;
    let status = format!("/proc/{}/status", process.pid());
    let mut peak = 0.0_f64;
    // The kernel keeps the highest value; it is gone with the process.
    while process.is_running() {
        if let Ok(text) = std::fs::read_to_string(&status)
            && let Some(line) = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))
        {
            let kib: u32 = line.trim().trim_end_matches(" kB").parse()?;
            peak = f64::from(kib) / 1024.0;
        }
        ensure!(began.elapsed() < LIMIT, "check does not end");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let took = began.elapsed();
    let ended = process.wait(LIMIT).await?;
    ensure!(ended.success(), "{ended}: {}", process.log());
    Ok((took, peak))
}
