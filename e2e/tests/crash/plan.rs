//! What a round does, made from its seed: load balancers that come, go and come back, and the moments of the kills.

use std::time::Duration;

/// How the life of one name goes on within a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Made, if it is not there.
    Make,
    /// Deleted, if it is there.
    Delete,
    /// A short wait.
    Wait(Duration),
}

/// One name and what happens to it, in order.
#[derive(Clone, Debug)]
pub struct Life {
    pub name: String,
    pub vm: bool,
    pub steps: Vec<Step>,
}

/// A round.
#[derive(Clone, Debug)]
pub struct Round {
    pub lives: Vec<Life>,
    /// After the beginning, or after the start before: how long until the operator is killed, and how long it is away.
    pub kills: Vec<(Duration, Duration)>,
    /// Whether each process has the pod's uid of the one before, and so need not wait for the Lease.
    pub same_pod: bool,
}

/// The seeds of the rounds: `HLB_SEED` alone, or some fixed ones and a new one each time; `HLB_ROUNDS` of them.
pub fn seeds() -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let rounds = usize::try_from(number("HLB_ROUNDS").unwrap_or(5)).unwrap_or(5);
    let mut seeds = match number("HLB_SEED") {
        Some(seed) => vec![seed],
        None => vec![1, 2, 3, 4],
    };
    if number("HLB_SEED").is_none() || rounds > 1 {
        while seeds.len() < rounds {
            seeds.push(u64::from(fastrand::u32(..)));
        }
    }
    seeds.truncate(rounds);
    seeds
}

/// Makes a round: 200 names of cluster type and 24 of VM type.
pub fn round(seed: u64) -> Round {
    let mut rng = fastrand::Rng::with_seed(seed);
    let lives = (0..224).map(|n| life(&mut rng, n)).collect();
    // At least one kill amid the first creations; then at any moment, a start included.
    let kills = (0..rng.u64(1..=3))
        .map(|n| {
            let within = if n == 0 { 1_500 } else { 3_000 };
            (millis(rng.u64(20..within)), millis(rng.u64(0..700)))
        })
        .collect();
    Round {
        lives,
        kills,
        same_pod: rng.bool(),
    }
}

fn life(rng: &mut fastrand::Rng, number: usize) -> Life {
    let vm = number >= 200;
    let prefix = if vm { "v" } else { "c" };
    let mut steps = vec![Step::Wait(millis(rng.u64(0..800)))];
    match rng.u8(0..10) {
        // Stays, or comes if the round before has ended it.
        0..=3 => steps.push(Step::Make),
        // Comes and goes within 50 ms, before it was looked at.
        4 | 5 => steps.extend([Step::Make, Step::Wait(millis(rng.u64(0..50))), Step::Delete]),
        // Comes, goes and comes back under a new uid, more or less at once.
        6 | 7 => steps.extend([
            Step::Make,
            Step::Wait(millis(rng.u64(0..1_000))),
            Step::Delete,
            Step::Wait(millis(rng.u64(0..100))),
            Step::Make,
        ]),
        // Goes for good, having lived for a while.
        _ => steps.extend([
            Step::Make,
            Step::Wait(millis(rng.u64(200..2_500))),
            Step::Delete,
        ]),
    }
    Life {
        name: format!("{prefix}{number}"),
        vm,
        steps,
    }
}

fn millis(number: u64) -> Duration {
    Duration::from_millis(number)
}
