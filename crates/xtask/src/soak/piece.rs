//! Owns the next piece of a test: its size, the environment of the test, and the failure in its output.

use std::time::Duration;

use super::parts::Unit;
use super::state::Progress;

/// Duration of a piece: long compared with the start of a test cluster, short enough to lose.
const PIECE: Duration = Duration::from_mins(5);

/// A number of units from a seed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Seed of the first unit.
    pub(crate) seed: u64,
    /// Number of units.
    pub(crate) count: u64,
}

/// How to reproduce a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reproduction {
    /// The environment of the test.
    pub(crate) env: Vec<(&'static str, String)>,
    /// Units of the piece that were run, including the failed one.
    pub(crate) played: u64,
}

impl Piece {
    /// The next piece of a test, or `None` if none fits into the remaining time.
    pub(crate) fn next(progress: &Progress, unit: Unit, left: Option<Duration>) -> Option<Self> {
        let time = left.unwrap_or(PIECE).min(PIECE).as_secs_f64();
        let count = match progress.seconds_of_one() {
            // A first one starts whenever there is any time left.
            None if time > 0.0 => unit.first_piece(),
            None => 0,
            Some(seconds) => units(time, seconds),
        };
        let count = count.min(progress.left());
        (count > 0).then_some(Self {
            seed: progress.next_seed(),
            count,
        })
    }

    /// The environment of the test.
    pub(crate) fn env(self, unit: Unit) -> Vec<(&'static str, String)> {
        let mut env = vec![
            ("HLB_SOAK", "1".to_owned()),
            (unit.seed_variable(), self.seed.to_string()),
        ];
        env.extend(unit.variable().map(|name| (name, self.count.to_string())));
        env
    }

    /// The piece, for display.
    pub(crate) fn words(self, unit: Unit) -> String {
        let Self { seed, count } = self;
        match unit {
            Unit::Rounds | Unit::Schedules => {
                let last = seed.wrapping_add(count - 1);
                format!("{count} {}, seeds {seed} to {last}", unit.name())
            }
            Unit::Cases | Unit::Objects | Unit::Seconds | Unit::Runs => {
                format!("{count} {}, seed {seed}", unit.name())
            }
        }
    }

    /// How to reproduce a failure in this piece. The output may name the seed; otherwise the whole piece is needed.
    pub(crate) fn reproduce(self, unit: Unit, output: &str) -> Reproduction {
        let whole = Reproduction {
            env: self.env(unit),
            played: self.count,
        };
        let Some((seed, rounds)) = named(output) else {
            return whole;
        };
        let played = match unit {
            // A round may depend on those before it: the test reports how many.
            Unit::Rounds => rounds.unwrap_or(1),
            Unit::Schedules => seed.wrapping_sub(self.seed).wrapping_add(1),
            Unit::Cases | Unit::Objects | Unit::Seconds | Unit::Runs => return whole,
        };
        if !(1..=self.count).contains(&played) {
            return whole;
        }
        let env = match unit {
            Unit::Rounds => Self {
                seed,
                count: played,
            }
            .env(unit),
            // A seed alone runs that one schedule and prints it.
            _ => vec![("HLB_SEED", seed.to_string())],
        };
        Reproduction { env, played }
    }
}

/// Units that fit into a time.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, and far from any bound"
)]
fn units(time: f64, seconds_of_one: f64) -> u64 {
    (time / seconds_of_one.max(1e-6)) as u64
}

/// The last `HLB_SEED=n` in an output, and `HLB_ROUNDS=m` if it follows.
fn named(output: &str) -> Option<(u64, Option<u64>)> {
    let (_, after) = output.rsplit_once("HLB_SEED=")?;
    let mut words = after.split_whitespace();
    let number = |word: &str| {
        let digits = word.trim_end_matches(|c: char| !c.is_ascii_digit());
        digits.parse::<u64>().ok()
    };
    let seed = number(words.next()?)?;
    let rounds = words.next().and_then(|w| w.strip_prefix("HLB_ROUNDS="));
    Some((seed, rounds.and_then(number)))
}

/// The line of an output that best describes the failure.
pub(crate) fn failure_line(output: &str) -> String {
    let says = |word: &str| output.lines().find(|line| line.contains(word));
    let line = says("WRONG in")
        .or_else(|| says("breaks "))
        .or_else(|| says("panicked at"))
        .or_else(|| output.lines().rev().find(|line| !line.trim().is_empty()));
    line.unwrap_or("it wrote nothing")
        .trim()
        .chars()
        .take(400)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(done: u64, seconds: f64) -> Progress {
        Progress {
            first: 1_000,
            done,
            total: 200,
            seconds,
        }
    }

    #[test]
    fn a_piece_begins_where_the_last_one_ended() {
        let fresh = Piece::next(&progress(0, 0.0), Unit::Rounds, None).unwrap();
        assert_eq!(
            fresh,
            Piece {
                seed: 1_000,
                count: 3
            }
        );
        // Ten seconds each: thirty in a piece of five minutes.
        let later = Piece::next(&progress(20, 200.0), Unit::Rounds, None).unwrap();
        assert_eq!(
            later,
            Piece {
                seed: 1_020,
                count: 30
            }
        );
        let last = Piece::next(&progress(195, 1_950.0), Unit::Rounds, None).unwrap();
        assert_eq!(
            last,
            Piece {
                seed: 1_195,
                count: 5
            }
        );
        assert_eq!(
            Piece::next(&progress(200, 2_000.0), Unit::Rounds, None),
            None
        );
    }

    #[test]
    fn a_piece_fits_into_the_time_that_is_left() {
        let within = |seconds| {
            let left = Some(Duration::from_secs(seconds));
            Piece::next(&progress(20, 200.0), Unit::Rounds, left).map(|piece| piece.count)
        };
        assert_eq!(within(60), Some(6));
        assert_eq!(within(9), None);
        assert_eq!(within(100_000), Some(30));
        let none = Piece::next(&progress(0, 0.0), Unit::Rounds, Some(Duration::ZERO));
        assert_eq!(none, None);
    }

    #[test]
    fn the_environment_of_a_test() {
        let piece = Piece { seed: 7, count: 30 };
        let env = |unit| {
            let env = piece.env(unit);
            env.iter()
                .map(|(n, v)| format!("{n}={v}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(env(Unit::Rounds), "HLB_SOAK=1 HLB_SEED=7 HLB_ROUNDS=30");
        assert_eq!(
            env(Unit::Schedules),
            "HLB_SOAK=1 HLB_SEED=7 HLB_SCHEDULES=30"
        );
        assert_eq!(env(Unit::Objects), "HLB_SOAK=1 HLB_SEED=7 HLB_OBJECTS=30");
        assert_eq!(
            env(Unit::Cases),
            "HLB_SOAK=1 PROPTEST_RNG_SEED=7 PROPTEST_CASES=30"
        );
        assert_eq!(env(Unit::Runs), "HLB_SOAK=1 HLB_SEED=7");
        assert_eq!(piece.words(Unit::Rounds), "30 rounds, seeds 7 to 36");
        assert_eq!(piece.words(Unit::Runs), "30 runs, seed 7");
    }

    #[test]
    fn the_seed_of_a_failure_is_in_the_output() {
        let piece = Piece { seed: 7, count: 30 };
        let round = piece.reproduce(
            Unit::Rounds,
            "killed: 4 runs\n WRONG in round 10; again: HLB_SEED=7 HLB_ROUNDS=4: two holders\n",
        );
        assert_eq!(round.played, 4);
        assert_eq!(round.env, Piece { seed: 7, count: 4 }.env(Unit::Rounds));
        let schedule = piece.reproduce(
            Unit::Schedules,
            "HLB_SEED=9 repeats it; above is a smaller one",
        );
        assert_eq!(
            (schedule.played, schedule.env),
            (3, vec![("HLB_SEED", "9".to_owned())])
        );
        for (unit, output) in [
            (Unit::Rounds, "killed by a signal"),
            (Unit::Schedules, "HLB_SEED=500 is of another run"),
            (Unit::Objects, "HLB_SEED=7: a pool"),
        ] {
            let whole = piece.reproduce(unit, output);
            assert_eq!((whole.played, whole.env), (30, piece.env(unit)), "{output}");
        }
    }

    #[test]
    fn the_failure_line_describes_the_failure() {
        assert_eq!(
            failure_line("a\n  WRONG in round 7: x\nb\n"),
            "WRONG in round 7: x"
        );
        assert_eq!(
            failure_line("a\nthread panicked at x\nb\n"),
            "thread panicked at x"
        );
        assert_eq!(failure_line("a\nb\n\n"), "b");
        assert_eq!(failure_line(""), "it wrote nothing");
    }
}
