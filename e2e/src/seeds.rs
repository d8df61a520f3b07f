//! Seeds of tests that are made by chance: which rounds are played, and how one that failed is repeated.

pub use harvester_lb_hostile::soaks;

/// The rounds of one test: each has the seed after that of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounds {
    /// The seed of the first round.
    pub first: u64,
    /// How many rounds.
    pub count: u64,
}

impl Rounds {
    /// `HLB_SEED` is the first seed and means one round, else chance gives it. `HLB_ROUNDS` says how many rounds; else
    /// there are as many as given here, or with `HLB_SOAK` as many as the soak has.
    pub fn from_env(test: u64, soak: u64) -> Self {
        let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse().ok());
        Self::of(
            number("HLB_SEED"),
            number("HLB_ROUNDS"),
            if soaks() { soak } else { test },
        )
    }

    fn of(seed: Option<u64>, rounds: Option<u64>, otherwise: u64) -> Self {
        let unsaid = seed.map_or(otherwise, |_| 1);
        Self {
            first: seed.unwrap_or_else(|| u64::from(fastrand::u32(..))),
            count: rounds.unwrap_or(unsaid).max(1),
        }
    }

    /// The seeds.
    pub fn seeds(self) -> impl Iterator<Item = u64> {
        (0..self.count).map(move |n| self.first.wrapping_add(n))
    }

    /// What to set to come to the round of a seed again, with the rounds before it.
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
        let one = Rounds { first: 7, count: 1 };
        assert_eq!(Rounds::of(Some(7), None, 20), one);
        assert_eq!(
            Rounds::of(Some(7), Some(3), 20).seeds().collect::<Vec<_>>(),
            [7, 8, 9]
        );
        assert_eq!(Rounds::of(None, None, 20).count, 20);
        assert_eq!(Rounds::of(None, Some(2), 20).count, 2);
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
