//! Pseudo-random numbers from a seed that the caller passes in: transaction ids and jitter. No secrets.
//!
//! Owns the state of one generator, SplitMix64 (Steele, Lea and Flood, 2014): eight bytes, no global state.

use core::time::Duration;

/// A generator. Two of the same seed give the same numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The generator of `seed`.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub(crate) const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A transaction id (RFC 2131, 2: "a random number chosen by the client").
    pub(crate) fn xid(&mut self) -> u32 {
        let [a, b, c, d, ..] = self.bits().to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }

    /// A duration of 0 to `most`, uniformly distributed to the nanosecond.
    pub(crate) fn up_to(&mut self, most: Duration) -> Duration {
        // More than 584 years count as that; leases have at most 136.
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        let share = (u128::from(most) * u128::from(self.bits())) >> 64;
        Duration::from_nanos(u64::try_from(share).unwrap_or(most))
    }

    /// A duration of `middle - spread` to `middle + spread`, at least 0.
    pub(crate) fn around(&mut self, middle: Duration, spread: Duration) -> Duration {
        middle
            .saturating_add(self.up_to(spread.saturating_mul(2)))
            .saturating_sub(spread)
    }
}

/// The output function of SplitMix64: each bit of the result depends on all bits of `z`.
pub(crate) const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_numbers_of_splitmix64() {
        let mut random = Random::new(1_234_567);
        let numbers = [0; 3].map(|_| random.bits());
        let reference = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(numbers, reference);
    }

    #[test]
    fn durations_stay_in_their_bounds_and_fill_them() {
        let mut random = Random::new(7);
        let second = Duration::from_secs(1);
        let mut all: Vec<Duration> = (0..1000)
            .map(|_| random.around(4 * second, second))
            .collect();
        all.sort_unstable();
        assert!(all[0] >= 3 * second && all[0] < 3 * second + second / 10);
        assert!(all[999] <= 5 * second && all[999] + second / 10 > 5 * second);
        assert_eq!(random.up_to(Duration::ZERO), Duration::ZERO);
        assert!(random.around(Duration::ZERO, second) <= second);
        assert!(random.up_to(Duration::MAX) <= Duration::MAX);
    }
}
