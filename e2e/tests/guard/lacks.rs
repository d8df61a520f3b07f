//! Each permission is missing in turn: the operator names it, writes nothing, and continues by itself once it is
//! granted.

use std::sync::Arc;

use anyhow::{Context, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use harvester_lb_e2e::World;
use harvester_lb_e2e::permissions::{self, Permission, User};
use harvester_lb_e2e::quiet::reset;
use harvester_lb_e2e::requests;
use harvester_lb_e2e::world::SOON;
use harvester_lb_fixtures::cluster_spec;
use harvester_lb_testkit::eventually;
use tokio::time::Instant;

use crate::stage::{Operator, furnish};

const NS: &str = "lacks";
/// Concurrent operators.
const AT_A_TIME: usize = 8;

pub async fn section_1_each_right_that_lacks_is_named_and_waited_for(
    world: Arc<World>,
) -> anyhow::Result<()> {
    reset(&world).await?;
    furnish(&world, NS, "10.92.0.0/24").await?;
    // Pending work.
    world.lb(NS, "work", cluster_spec()).await?;
    let all = permissions::all()?;
    let began = Instant::now();
    stream::iter(all.clone().into_iter().enumerate())
        .map(|(number, permission)| {
            let (world, all) = (&world, &all);
            async move {
                one(world, number, &permission, all)
                    .await
                    .with_context(|| permission.to_string())
            }
        })
        .buffer_unordered(AT_A_TIME)
        .try_collect::<Vec<()>>()
        .await?;
    eprintln!(
        "{} rights, each once not there, in {:.1?}",
        all.len(),
        began.elapsed()
    );
    // Any of them may have been leader, or none for long enough.
    let operator = world.start_operator("node1").await?;
    world.lb_reason(NS, "work", "Ready").await?;
    operator.end().await
}

async fn one(
    world: &World,
    number: usize,
    lacking: &Permission,
    all: &[Permission],
) -> anyhow::Result<()> {
    let rest: Vec<Permission> = all.iter().filter(|r| *r != lacking).cloned().collect();
    let user = User::create(world, &format!("lacks-{number}"), &rest).await?;
    let port = 9100 + u16::try_from(number)?;
    let operator = Operator::spawn(world, &user.kubeconfig, port, &[], "debug")?;
    let complaint = format!("no right to {lacking}: add it to the ClusterRole");
    eventually("/readyz names it", SOON, || async {
        let (code, text) = operator.get("/readyz").await?;
        ensure!(code == 503 && text.contains(&complaint), "{code}, {text}");
        let lines = text.lines().filter(|l| l.starts_with("- ")).count();
        ensure!(lines == 1, "it names others too: {text}");
        Ok(Some(()))
    })
    .await?;
    operator.says(&complaint).await?;
    let (code, _) = operator.get("/healthz").await?;
    ensure!(code == 200, "/healthz is {code}");
    let (_, figures) = operator.get("/metrics").await?;
    ensure!(!figures.contains("\nharvester_lb_leader 1\n"), "it leads");
    let written: Vec<_> = requests::of(world, &user.name)?
        .into_iter()
        .filter(requests::Request::writes)
        .collect();
    ensure!(written.is_empty(), "it has written: {written:#?}");

    user.may(world, all).await?;
    operator.ready().await.context("once it is granted")?;
    let said = operator.process.log().matches(&complaint).count();
    ensure!(said == 1, "it says so {said} times");
    operator.stop().await
}
