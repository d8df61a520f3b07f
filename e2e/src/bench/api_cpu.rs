//! Whether a LoadBalancer costs the API server more where there are many: its CPU time per LoadBalancer at 10,000 and
//! at 1,000, each divided by that of the same requests by a bare client.

use std::sync::Arc;

use super::cluster::rounds;
use super::report::{Report, Row};
use super::took::Took;
use harvester_lb_e2e::world::World;

const FEW: u32 = 1_000;
const MANY: u32 = 10_000;
const ROUNDS: usize = 3;

/// The rows.
pub(crate) async fn run(world: &Arc<World>, report: &mut Report) -> anyhow::Result<()> {
    let few = ratios(world, report, FEW).await?;
    let many = ratios(world, report, MANY).await?;
    let row = "API server CPU per LB over its replay: at 10,000, limit: at 1,000";
    report.row(Row::of(row, "x", many).limits(few).at_most_times(1.2));
    Ok(())
}

/// CPU time with the operator divided by that with the bare client, of each round.
async fn ratios(world: &Arc<World>, report: &mut Report, count: u32) -> anyhow::Result<Vec<f64>> {
    let (operator, bare) = rounds(world, usize::try_from(count)?, ROUNDS, false).await?;
    let per_lb = |all: &[Took]| -> Vec<f64> {
        all.iter()
            .map(|t| t.create_cpu * 1e3 / f64::from(count))
            .collect()
    };
    let pools: Vec<String> = operator
        .iter()
        .map(|t| t.create_pool_writes.to_string())
        .collect();
    report.row(
        Row::of(
            &format!("API server CPU per LB, {count} made"),
            "ms",
            per_lb(&operator),
        )
        .limits(per_lb(&bare))
        .note(format!(
            "with {} writes of the pool's status",
            pools.join(", ")
        )),
    );
    let create = |all: &[Took]| all.iter().map(|t| t.create).collect::<Vec<f64>>();
    report.row(
        Row::of(
            &format!("{count} cluster-type LBs, first create to last address"),
            "s",
            create(&operator),
        )
        .limits(create(&bare)),
    );
    Ok(operator
        .iter()
        .zip(&bare)
        .map(|(a, b)| a.create_cpu / b.create_cpu)
        .collect())
}
