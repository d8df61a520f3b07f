//! The helm commands that the documents show: helm has their subcommands and flags, and the chart takes their values. What
//! they do is tested with the same commands in [`crate::install`] and [`crate::crds`].

use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_e2e::World;
use harvester_lb_e2e::documents::helm_commands;

use crate::helm::{chart, helm_does};

/// The chart, as the documents name it.
const CHART: &str = "charts/harvester-load-balancer";
/// Flags of `helm install` and `helm upgrade` with a value that the chart must take.
const VALUES: [&str; 2] = ["--set", "--set-string"];

pub async fn every_helm_command_of_the_documents_is_understood(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let mut failed = Vec::new();
    for command in helm_commands()? {
        if let Err(error) = is_understood(&world, &command.text).await {
            let (document, line, text) = (command.document, command.line, command.text);
            failed.push(format!("{document}:{line}: {text}: {error:#}"));
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

async fn is_understood(world: &World, text: &str) -> anyhow::Result<()> {
    // A comment ends the command.
    let words = text.split_whitespace().take_while(|word| *word != "#");
    let words: Vec<&str> = words.skip(1).collect();
    let subcommand = *words.first().context("no subcommand")?;
    let help = helm_does(world, &[subcommand, "--help"]).await?;
    ensure!(
        help.contains(&format!("helm {subcommand} ")),
        "helm {subcommand} does not exist: {help}"
    );
    let known: Vec<&str> = help
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'))
        .collect();
    for flag in words.iter().filter(|word| word.starts_with("--")) {
        let name = flag.split('=').next().unwrap_or_default();
        ensure!(
            known.contains(&name),
            "helm {subcommand} has no flag {name}"
        );
    }
    if !words.contains(&CHART) {
        return Ok(());
    }
    let chart = chart();
    let chart = chart.to_str().context("the path is no text")?;
    let mut args = vec!["template", "documented", chart];
    // Only an installation has to name the image: an upgrade keeps the values.
    if subcommand != "install" {
        args.extend(["--set", "image.repository=registry.example.com/lb"]);
    }
    for pair in words.windows(2).filter(|pair| VALUES.contains(&pair[0])) {
        args.extend_from_slice(pair);
    }
    helm_does(world, &args).await.map(drop)
}
