//! Each permission is missing once: the operator names all that are missing, writes nothing, and continues by itself once the last
//! one is granted.

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
const AT_A_TIME: usize = 5;
/// Permissions that one of them lacks. They are granted one by one, and it waits for the last one too.
const LACKING: usize = 4;

pub async fn section_1_each_right_that_lacks_is_named_and_waited_for(
    world: Arc<World>,
) -> anyhow::Result<()> {
    reset(&world).await?;
    furnish(&world, NS, "10.92.0.0/24").await?;
    // Pending work.
    world.lb(NS, "work", cluster_spec()).await?;
    let all = permissions::all()?;
    let began = Instant::now();
    let groups: Vec<Vec<Permission>> = all.chunks(LACKING).map(<[_]>::to_vec).collect();
    stream::iter(groups.into_iter().enumerate())
        .map(|(number, lacking)| {
            let (world, all) = (&world, &all);
            async move {
                let names: Vec<_> = lacking.iter().map(ToString::to_string).collect();
                some(world, number, &lacking, all)
                    .await
                    .with_context(|| names.join(", "))
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

async fn some(
    world: &World,
    number: usize,
    lacking: &[Permission],
    all: &[Permission],
) -> anyhow::Result<()> {
    let but = |lacking: &[Permission]| -> Vec<Permission> {
        let there = all.iter().filter(|right| !lacking.contains(right));
        there.cloned().collect()
    };
    let user = User::create(world, &format!("lacks-{number}"), &but(lacking)).await?;
    let port = 9100 + u16::try_from(number)?;
    let operator = Operator::spawn(world, &user.kubeconfig, port, &[], "debug")?;
    let complaint = |right: &Permission| format!("no right to {right}: add it to the ClusterRole");
    for granted in 0..lacking.len() {
        let left = &lacking[granted..];
        if granted > 0 {
            user.may(world, &but(left)).await?;
        }
        eventually("/readyz names them", SOON, || async {
            let (code, text) = operator.get("/readyz").await?;
            ensure!(code == 503, "{code}, {text}");
            for right in left {
                ensure!(text.contains(&complaint(right)), "not {right}: {text}");
            }
            let lines = text.lines().filter(|l| l.starts_with("- ")).count();
            ensure!(lines == left.len(), "it names others too: {text}");
            Ok(Some(()))
        })
        .await?;
        let (code, _) = operator.get("/healthz").await?;
        ensure!(code == 200, "/healthz is {code}");
        let (_, figures) = operator.get("/metrics").await?;
        ensure!(!figures.contains("\nharvester_lb_leader 1\n"), "it leads");
    }
    for right in lacking {
        operator.says(&complaint(right)).await?;
    }
    let written: Vec<_> = requests::of(world, &user.name)?
        .into_iter()
        .filter(requests::Request::writes)
        .collect();
    ensure!(written.is_empty(), "it has written: {written:#?}");

    user.may(world, all).await?;
    operator.ready().await.context("once they are granted")?;
    // Once for each set of those that are missing.
    for (at, right) in lacking.iter().enumerate() {
        let said = operator.process.log().matches(&complaint(right)).count();
        ensure!(
            said == at + 1,
            "it says {said} times that it may not {right}"
        );
    }
    operator.stop().await
}
