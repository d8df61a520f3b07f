//! Slow writes, and all faults at once.

use std::sync::Arc;
use std::time::Duration;

use harvester_lb_e2e::World;
use harvester_lb_e2e::seeds::{seed, soaks};
use harvester_lb_testkit::proxy::{After, End, Fault, Frequency, Match, Refusal, Verb};

use super::fault_run::FaultRun;

pub async fn alc_8_writes_are_slow(world: Arc<World>) -> anyhow::Result<()> {
    let run = FaultRun::open(&world, "slow").await?;
    let (slow, hung) = if soaks() { (120, 300) } else { (5, 18) };
    for (name, delay, time) in [
        ("each write takes 0.5 s longer", 500, slow),
        // Each is done in the end, after its sender has timed out.
        ("writes hang", 900_000, hung),
    ] {
        let delay = Fault::Delay(Duration::from_millis(delay));
        let faults = vec![(Match::writes(), Frequency::all(), delay)];
        run.endure(name, Duration::from_secs(time), faults).await?;
    }
    run.close().await
}

pub async fn alc_8_every_fault_at_once(world: Arc<World>) -> anyhow::Result<()> {
    let mut rng = fastrand::Rng::with_seed(seed());
    let run = FaultRun::open(&world, "mixed").await?;
    let rounds = if soaks() { 20 } else { 1 };
    for round in 1..=rounds {
        let name = format!("everything at once, round {round}");
        let faults = everything(&mut rng);
        run.endure(&name, Duration::from_secs(8), faults).await?;
    }
    run.close().await
}

fn everything(rng: &mut fastrand::Rng) -> Vec<(Match, Frequency, Fault)> {
    let of = |verb| Match::any().verbs(&[verb]);
    let mut faults = Vec::new();
    let mut add = |matching: Match, percent, fault| {
        faults.push((matching, Frequency::percent(percent, rng.u64(..)), fault));
    };
    for millis in [50, 200, 800] {
        add(
            Match::any(),
            10,
            Fault::Delay(Duration::from_millis(millis)),
        );
    }
    add(of(Verb::List), 50, Fault::Pages(7));
    add(of(Verb::List), 20, Fault::Truncate);
    add(of(Verb::Watch), 10, Fault::Swallow);
    for (percent, millis, end) in [
        (25, 900, End::Clean),
        (33, 300, End::Cut),
        (50, 600, End::Torn),
        (50, 1_500, End::Expired),
    ] {
        let after = After::Time(Duration::from_millis(millis));
        add(of(Verb::Watch), percent, Fault::EndWatch(after, end));
    }
    add(Match::writes(), 5, Fault::LoseAnswer);
    let denied = Fault::DenyAnswer(Refusal::internal());
    add(Match::writes(), 5, denied);
    add(Match::any(), 5, Fault::Cut);
    for refusal in [
        Refusal::conflict(),
        Refusal::already_exists(),
        Refusal::expired(),
        Refusal::too_many(Some(1)),
        Refusal::internal(),
        Refusal::unavailable(),
        Refusal::timeout(),
    ] {
        add(Match::any(), 4, Fault::Refuse(refusal));
    }
    faults
}
