//! Benchmarks on a real control plane: the rows, in the order in which they are run.
//!
//! Each name stands for a few rows that are measured together, on a separate control plane if they need one, so that a
//! failure affects no other rows and no row is slowed by what another has left behind.

mod api_cpu;
mod check;
mod cluster;
mod dhcp;
mod driver;
mod event_writer;
mod events;
mod facts;
mod large;
mod lists;
mod machine;
mod plane;
mod pool_status;
mod programs;
mod replay;
mod report;
mod sample;
mod scale;
mod took;
mod verdicts;
mod webhook;

use anyhow::ensure;

use facts::Facts;
use report::{Report, say};

/// The names, in order.
const NAMES: &[&str] = &[
    "size",
    "ledger",
    "ledger-scale",
    "admission",
    "prober",
    "cluster",
    "machines",
    "events",
    "verdicts",
    "scale",
    "check",
    "large",
    "webhook",
    "dhcp",
    "api-cpu",
];

/// Measures the rows of these names, or all. Returns whether all could be measured; the results are not judged here.
pub(crate) async fn run(wanted: &[String]) -> anyhow::Result<bool> {
    for name in wanted {
        ensure!(
            NAMES.contains(&name.as_str()),
            "there are no rows {name:?}; there are {}",
            NAMES.join(", ")
        );
    }
    let mut report = Report::new(Facts::collect(&programs::operator()?));
    for name in NAMES {
        if wanted.is_empty() || wanted.iter().any(|w| w == name) {
            say(&format!("\n{name}"));
            if let Err(error) = measure(name, &mut report).await {
                report.failed(name, &error);
            }
        }
    }
    report.write()?;
    Ok(report.is_complete())
}

async fn measure(name: &str, report: &mut Report) -> anyhow::Result<()> {
    match name {
        "size" => return programs::size(report),
        "ledger" => return programs::ledger(report),
        "ledger-scale" => return programs::ledger_scale(report),
        "admission" => return programs::admission(report),
        "prober" => return programs::prober(report),
        _ => {}
    }
    // Only these rows read the audit log.
    let world = plane::fresh(matches!(name, "verdicts" | "check")).await?;
    let version = world.client().apiserver_version().await?.git_version;
    report.facts().apiserver(version);
    match name {
        "cluster" => cluster::run(&world, report).await,
        "machines" => machine::run(&world, report).await,
        "events" => events::run(&world, report).await,
        "verdicts" => verdicts::run(&world, report).await,
        "scale" => scale::run(&world, report).await,
        "check" => check::run(&world, report).await,
        "large" => large::run(world, report).await,
        "webhook" => webhook::run(&world, report).await,
        "dhcp" => dhcp::run(&world, report).await,
        _ => api_cpu::run(&world, report).await,
    }
}
