//! Requests that the API server refuses, or executes without a proper answer.

use std::sync::Arc;
use std::time::Duration;

use harvester_lb_e2e::World;
use harvester_lb_e2e::seeds::{seed, soaks};
use harvester_lb_testkit::proxy::{Fault, Frequency, Match, Refusal};

use super::fault_run::FaultRun;

const TIME: Duration = Duration::from_secs(2);

/// How often all faults of a test come; each time other requests are hit.
fn rounds() -> usize {
    if soaks() { 20 } else { 1 }
}

pub async fn alc_8_a_third_is_refused(world: Arc<World>) -> anyhow::Result<()> {
    let seed = seed();
    let run = FaultRun::open(&world, "third").await?;
    for seed in (seed..).take(rounds()) {
        for (name, refusals) in [
            ("409", vec![Refusal::conflict(), Refusal::already_exists()]),
            ("410", vec![Refusal::expired()]),
            (
                "429",
                vec![Refusal::too_many(Some(2)), Refusal::too_many(None)],
            ),
            ("500", vec![Refusal::internal()]),
            (
                "503 and 504",
                vec![Refusal::unavailable(), Refusal::timeout()],
            ),
        ] {
            // Together a third.
            let percent = if refusals.len() == 1 { 33 } else { 18 };
            let faults = refusals.into_iter().zip(seed..).map(|(refusal, seed)| {
                let frequency = Frequency::percent(percent, seed);
                (Match::any(), frequency, Fault::Refuse(refusal))
            });
            let name = format!("a third is answered with {name} (seed {seed})");
            run.endure(&name, TIME, faults.collect()).await?;
        }
    }
    run.close().await
}

pub async fn alc_8_answers_are_lost(world: Arc<World>) -> anyhow::Result<()> {
    let seed = seed();
    let run = FaultRun::open(&world, "lost").await?;
    for seed in (seed..).take(rounds()) {
        for (name, fault) in [
            ("the line is cut", Fault::LoseAnswer),
            ("it says 500", Fault::DenyAnswer(Refusal::internal())),
            ("it says 409", Fault::DenyAnswer(Refusal::conflict())),
        ] {
            let name = format!("of 40 % of the writes, done as they are, {name} (seed {seed})");
            let frequency = Frequency::percent(40, seed);
            let faults = vec![(Match::writes(), frequency, fault)];
            run.endure(&name, TIME, faults).await?;
        }
    }
    run.close().await
}

pub async fn alc_8_one_resource_is_refused(world: Arc<World>) -> anyhow::Result<()> {
    let run = FaultRun::open(&world, "single").await?;
    for (resource, code, refusal) in [
        ("ipallocations", 500, Refusal::internal()),
        ("services", 500, Refusal::internal()),
        ("ippools", 410, Refusal::expired()),
        ("loadbalancers", 503, Refusal::unavailable()),
    ] {
        let name = format!("{resource}: each request is answered with {code}");
        let requests = Match::any().resource(resource);
        let faults = vec![(requests, Frequency::all(), Fault::Refuse(refusal))];
        run.endure(&name, TIME, faults).await?;
    }
    run.close().await
}
