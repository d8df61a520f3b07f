//! A process is delayed between its decision and its write; objects change; then the write arrives (IPA-5, IPA-6).
//!
//! Each kind of write of the operator is combined with each event that matters to it. docs/internals/interleavings.md lists all
//! combinations with their outcome; the tables in this folder are the tests. A round runs all rows of a table together:
//! one operator makes the decisions, a proxy holds all its writes, it is killed, the next one becomes leader and
//! handles the events, and the writes of the dead one are released.

use std::sync::Arc;

use anyhow::ensure;
use harvester_lb_e2e::world::repository;
use harvester_lb_e2e::{Test, World, tests};

mod condition;
mod lease;
mod on_request;
mod others;
mod records;
mod round;
mod services;
mod slices;
mod status;
mod step;

use lease::{ipa_5_resumed_amid_its_work, section_1_a_late_renewal_of_the_lease};
use round::{Row, round};

/// The rounds, and the tests outside of a round.
pub fn all() -> Vec<Test> {
    let rounds = tests![
        the_list_is_complete,
        ipa_6_late_creations_of_records,
        ipa_5_late_changes_of_records,
        ipa_5_late_status,
        ipa_5_ipa_6_late_services,
        ipa_5_late_slices_and_finalizers,
        ipa_5_late_pools,
        ipa_5_late_manual_releases,
        shr_3_shr_5_dhc_3_late_writes_on_request,
    ];
    [rounds, of_the_lease()].concat()
}

/// Tests outside of a round: two live processes.
fn of_the_lease() -> Vec<Test> {
    tests![
        ipa_5_resumed_amid_its_work,
        section_1_a_late_renewal_of_the_lease,
    ]
}

/// The rounds.
const ROUNDS: [&[Row]; 8] = [
    records::CREATIONS,
    records::CHANGES,
    status::ROWS,
    services::ROWS,
    slices::ROWS,
    others::POOLS,
    others::MANUAL_RELEASES,
    on_request::ROWS,
];

async fn ipa_6_late_creations_of_records(world: Arc<World>) -> anyhow::Result<()> {
    round(&world, 0, ROUNDS[0]).await
}

async fn ipa_5_late_changes_of_records(world: Arc<World>) -> anyhow::Result<()> {
    round(&world, 1, ROUNDS[1]).await
}

async fn ipa_5_late_status(world: Arc<World>) -> anyhow::Result<()> {
    round(&world, 2, ROUNDS[2]).await
}

async fn ipa_5_ipa_6_late_services(world: Arc<World>) -> anyhow::Result<()> {
    round(&world, 3, ROUNDS[3]).await
}

async fn ipa_5_late_slices_and_finalizers(world: Arc<World>) -> anyhow::Result<()> {
    round(&world, 4, ROUNDS[4]).await
}

async fn ipa_5_late_pools(world: Arc<World>) -> anyhow::Result<()> {
    round(&world, 5, ROUNDS[5]).await
}

async fn ipa_5_late_manual_releases(world: Arc<World>) -> anyhow::Result<()> {
    round(&world, 6, ROUNDS[6]).await
}

async fn shr_3_shr_5_dhc_3_late_writes_on_request(world: Arc<World>) -> anyhow::Result<()> {
    round(&world, 7, ROUNDS[7]).await
}

/// Each row of the document is tested, and each test has its row, with the same answer. The table of the Lease has no
/// column for that.
async fn the_list_is_complete(_: Arc<World>) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(repository().join("docs/internals/interleavings.md"))?;
    let mut tested: Vec<(String, String)> = ROUNDS
        .iter()
        .flat_map(|rows| rows.iter())
        .map(|row| (row.name.to_owned(), row.code.to_string()))
        .collect();
    tested.extend(
        of_the_lease()
            .iter()
            .map(|test| (test.name.to_owned(), String::new())),
    );
    let mut listed: Vec<(String, String)> = text
        .lines()
        .filter_map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let (name, code) = match cells.as_slice() {
                [_, name, _, _, code, _, _] => (name, *code),
                [_, name, _, _, _] => (name, ""),
                _ => return None,
            };
            let name = name.strip_prefix('`')?.strip_suffix('`')?;
            Some((name.to_owned(), code.to_owned()))
        })
        .collect();
    tested.sort();
    listed.sort();
    for row in &tested {
        ensure!(
            listed.contains(row),
            "not in docs/internals/interleavings.md: {row:?}"
        );
    }
    for row in &listed {
        ensure!(tested.contains(row), "no test: {row:?}");
    }
    ensure!(tested.len() == listed.len(), "a name is there twice");
    Ok(())
}
