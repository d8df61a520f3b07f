//! The worked examples of docs/pool-selection.md, row by row, with the webhook in the path. No other test runs meanwhile: one
//! pool is global, and serves whatever no other does.

use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_api::{IPPool, keys};
use harvester_lb_e2e::webhook::network;
use harvester_lb_e2e::world::repository;
use harvester_lb_e2e::{Test, World};
use harvester_lb_fixtures::documents::{POOLS, WORKED_EXAMPLES, codes, table};
use serde_json::json;

use super::requirement::{asking, pool_of, selecting};

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![sel_2_sel_3_the_worked_examples_of_the_documentation]
}

const DOCUMENT: &str = "docs/pool-selection.md";
/// The global pool of the document, and its name here.
const GLOBAL: (&str, &str) = ("G", "sel-global");

/// The only code of each of these cells.
fn only<'a, const N: usize>(cells: &[&'a str]) -> anyhow::Result<[&'a str; N]> {
    let codes: Vec<&str> = cells.iter().copied().flat_map(codes).collect();
    let only: Option<[&str; N]> = codes.try_into().ok();
    only.with_context(|| format!("{N} codes are expected in {cells:?}"))
}

async fn sel_2_sel_3_the_worked_examples_of_the_documentation(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let document = std::fs::read_to_string(repository().join(DOCUMENT))?;
    let pools = table(&document, POOLS);
    let mut examples = table(&document, WORKED_EXAMPLES);
    ensure!(
        pools.len() >= 5 && examples.len() >= 11,
        "{pools:?}, {examples:?}"
    );
    world.namespace("net").await?;
    network(&world, "net", "v20").await?;
    // A pool that serves is not deleted, so the global one comes last.
    examples.sort_by_key(|row| codes(row[5]).contains(&GLOBAL.0));
    for (number, row) in examples.iter().enumerate() {
        example(&world, &pools, number, row)
            .await
            .with_context(|| row.join(" | "))?;
    }
    // From now on it serves nobody else.
    let scope = json!({"spec": {"selector": {"scope": []}}});
    world.merge(&world.pools(), GLOBAL.1, scope).await?;
    Ok(())
}

/// One row. Its pools and namespaces have names of their own, so that those of other rows match nothing.
async fn example(
    world: &World,
    pools: &[Vec<&str>],
    number: usize,
    row: &[&str],
) -> anyhow::Result<()> {
    let own = |name: &str| match name {
        "*" => name.to_owned(),
        name if name == GLOBAL.0 => GLOBAL.1.to_owned(),
        name => format!("sel-{number}-{}", name.to_lowercase()),
    };
    let present = codes(row[5]);
    let mut seen = 0;
    for (at, pool) in pools.iter().enumerate() {
        let [name, network] = only(&pool[..2])?;
        let [project, namespace, cluster] = only(&pool[3..])?;
        if !present.contains(&name) {
            continue;
        }
        seen += 1;
        let (name, namespace) = (own(name), own(namespace));
        if world.pools().get_opt(&name).await?.is_none() {
            // No two pools share an address (PV-3).
            let range = format!("10.{}.{number}.0/24", 202 + at);
            // Priorities above 0 differ (PV-7).
            let priority = match pool[2].parse::<u32>()? {
                0 => 0,
                priority => 1_000 * priority + u32::try_from(number)?,
            };
            let scope = [project, &*namespace, cluster];
            selecting(world, &name, &range, network, priority, scope).await?;
        }
        // Then it can be selected.
        let known = |pool: &IPPool| pool.status.is_some();
        world.pool_until(&name, "its status", known).await?;
    }
    ensure!(seen == present.len(), "{present:?}");
    let [network, project, namespace, cluster, kind] = only(&row[..5])?;
    let namespace = own(namespace);
    // The webhook writes the project of the namespace into what is of cluster type (WM-2).
    let object = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": namespace, "annotations": {keys::ANNOTATION_PROJECT_ID: project}},
    });
    world.cluster.apply(&object).await?;
    let requirement = [network, project, &*namespace, cluster];
    asking(world, &namespace, "lb", kind, requirement).await?;
    let Some(&wanted) = codes(row[6]).first() else {
        ensure!(row[6] == "none", "{}", row[6]);
        world.lb_reason(&namespace, "lb", "NoMatchedPool").await?;
        return Ok(());
    };
    let serves = pool_of(world, &namespace, "lb").await?;
    ensure!(serves == own(wanted), "{serves} serves");
    Ok(())
}
