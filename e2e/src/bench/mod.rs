//! Benchmarks on a real control plane: the rows, in the order in which they are run.

pub mod cluster;
pub mod driver;
pub mod events;
pub mod machine;
pub mod report;
pub mod scale;

use std::sync::Arc;

use harvester_lb_testkit::BedOptions;

use crate::world::World;
use report::Report;

/// Runs the rows of these names, or all.
pub async fn run(wanted: &[String]) -> anyhow::Result<()> {
    let mut report = Report::new();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|w| w == name);
    let world = Arc::new(
        World::start(BedOptions {
            kube_vip: false,
            ..BedOptions::default()
        })
        .await?,
    );
    world.namespace(driver::NAMESPACE).await?;
    if is_wanted("cluster") {
        cluster::run(&world, &mut report).await?;
    }
    if is_wanted("machines") {
        machine::run(&world, &mut report).await?;
    }
    if is_wanted("events") {
        events::run(&world, &mut report).await?;
    }
    if is_wanted("scale") {
        scale::run(&world, &mut report).await?;
    }
    report.write()
}
