//! Seeds of randomized tests: which rounds are run, and how to repeat one that failed.

pub use harvester_lb_hostile::soaks;

/// The seed of a test without rounds, which is printed: `HLB_SEED`, else constant, and random in the soak.
#[allow(clippy::print_stderr, reason = "the way to the user")]
pub fn seed() -> u64 {
    let seed = harvester_lb_hostile::seed();
    eprintln!("HLB_SEED={seed}");
    seed
}

/// The rounds of one test: the seed increases by one per round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounds {
    /// The seed of the first round.
    pub first: u64,
    /// Number of rounds.
    pub count: u64,
}

impl Rounds {
    /// `HLB_SEED` is the first seed and implies one round; `HLB_ROUNDS` sets the number of rounds. By default it is the
    /// one round of `test`, always the same, or with `HLB_SOAK` that number of rounds from a random seed.
    pub fn from_env(test: u64, soak: u64) -> Self {
        let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse().ok());
        let otherwise = if soaks() {
            Self {
                first: u64::from(fastrand::u32(..)),
                count: soak,
            }
        } else {
            Self {
                first: test,
                count: 1,
            }
        };
        Self::of(number("HLB_SEED"), number("HLB_ROUNDS"), otherwise)
    }

    fn of(seed: Option<u64>, rounds: Option<u64>, otherwise: Self) -> Self {
        let unsaid = seed.map_or(otherwise.count, |_| 1);
        Self {
            first: seed.unwrap_or(otherwise.first),
            count: rounds.unwrap_or(unsaid).max(1),
        }
    }

    /// The seeds.
    pub fn seeds(self) -> impl Iterator<Item = u64> {
        (0..self.count).map(move |n| self.first.wrapping_add(n))
    }

    /// The variables that repeat the round of a seed, with the rounds before it.
    pub fn again(self, seed: u64) -> String {
        let rounds = seed.wrapping_sub(self.first).wrapping_add(1);
        format!("HLB_SEED={} HLB_ROUNDS={rounds}", self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_alone_is_one_round() {
        let rounds = |first, count| Rounds { first, count };
        let soak = rounds(50, 20);
        assert_eq!(Rounds::of(Some(7), None, soak), rounds(7, 1));
        let three = Rounds::of(Some(7), Some(3), soak);
        assert_eq!(three.seeds().collect::<Vec<_>>(), [7, 8, 9]);
        assert_eq!(Rounds::of(None, None, soak), soak);
        assert_eq!(Rounds::of(None, Some(2), soak), rounds(50, 2));
    }

    #[test]
    fn a_round_is_repeated_with_those_before_it() {
        let rounds = Rounds {
            first: 100,
            count: 20,
        };
        assert_eq!(rounds.again(100), "HLB_SEED=100 HLB_ROUNDS=1");
        assert_eq!(rounds.again(104), "HLB_SEED=100 HLB_ROUNDS=5");
    }
}
