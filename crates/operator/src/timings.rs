//! How long the operator waits where no event can wake it: every such time, in one place.
//!
//! They are no settings: the defaults hold for every cluster. A debug build can be given shorter ones, so that a test need
//! not wait out what an operator in a cluster waits out; a release build cannot ([`crate::args::Args`]).

use std::time::Duration;

use harvester_lb_controller_kit::backoff::Backoff;

use crate::duration;

/// All times that a test may shorten. Each is above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// Longest time between two looks at a load balancer that waits for something, should an event ever be missed (SEL-7,
    /// RUN-4). 30 s: nobody relies on it, and a thousand that wait cost 40 looks a second, which write nothing.
    pub recheck: Duration,
    /// Time that kube-vip is given to leave an address for another one (REL-4). 8 s: it takes a second when all goes well.
    pub move_limit: Duration,
    /// Wait for something that the cluster lacks, before it is asked again. 5 s: people install what is missing in minutes,
    /// and a right is asked for in two requests.
    pub preflight_pause: Duration,
    /// Longest time to bring the pools' maps up to date at the end (POOL-3). 8 s: well below the 30 s that a pod is given to
    /// end.
    pub flush_limit: Duration,
    /// Longest wait at the end for Events that are not written yet. 2 s: a thousand are written in that, and the conditions
    /// say the same.
    pub events_limit: Duration,
    /// First delay after a failure, whatever its cause (section 9). 1 s: a refusal is seldom over in less, and people
    /// notice more.
    pub retry: Duration,
    /// Longest delay before what was refused is tried again (section 9). 60 s: what is refused stays refused until
    /// somebody acts, and each try costs the API server a request.
    pub retry_cap: Duration,
    /// Longest delay where the API server was not to be had, or held another copy. 5 s, as for watches: the cause is the
    /// moment and not the object, and once the API server is well all is to be done within seconds.
    pub retry_away_cap: Duration,
    /// Delay before rare work that was refused is tried again: finalizers of old, removed guest clusters. 10 s: there may
    /// be thousands of such objects, and a right comes late.
    pub rare_refused: Duration,
    /// Shortest time between two writes of a pool's status (POOL-3). 1 s: the contract's.
    pub pool_pace: Duration,
    /// Longest pause after a write of a pool's status (POOL-3). 60 s: one that took so long for another reason than its
    /// size, such as an API server that stood still, must not leave the status behind for minutes.
    pub pool_pace_limit: Duration,
    /// Longest time of a watch, in whole seconds (RUN-2). 40 s: with the 5 s after which one that is silent is given up, no
    /// change is later than 45 s when nobody says that a line is dead.
    pub watch: Duration,
    /// Longest wait for answers after the Lease was lost (RUN-5). 2 s: one that is not there by then comes from an API
    /// server that is away, and would keep this process from being back within seconds of its return.
    pub drain_limit: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            recheck: Duration::from_secs(30),
            move_limit: Duration::from_secs(8),
            preflight_pause: Duration::from_secs(5),
            flush_limit: Duration::from_secs(8),
            events_limit: Duration::from_secs(2),
            retry: Duration::from_secs(1),
            retry_cap: Duration::from_mins(1),
            retry_away_cap: Duration::from_secs(5),
            rare_refused: Duration::from_secs(10),
            pool_pace: Duration::from_secs(1),
            pool_pace_limit: Duration::from_mins(1),
            watch: Duration::from_secs(40),
            drain_limit: Duration::from_secs(2),
        }
    }
}

impl Timings {
    /// Back-off of a load balancer or pool that cannot be served (section 9).
    pub const fn backoff(&self) -> Backoff {
        Backoff {
            base: self.retry,
            cap: self.retry_cap,
        }
    }

    /// Back-off of what failed because the API server was not to be had, or held another copy.
    pub const fn backoff_away(&self) -> Backoff {
        Backoff {
            base: self.retry,
            cap: self.retry_away_cap,
        }
    }

    /// Reads `recheck=2s,move-limit=500ms`: those named, the others by default. The names are those of the fields, with
    /// dashes. Fails on a name that is none, and on a time that is none or zero.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut timings = Self::default();
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| format!("{pair:?} is not a timing; write it like recheck=2s"))?;
            let field = timings
                .field(name)
                .ok_or_else(|| format!("unknown timing {name:?}"))?;
            *field = duration::parse(value)?;
            if field.is_zero() {
                return Err(format!("the timing {name} must be above zero"));
            }
        }
        Ok(timings)
    }

    fn field(&mut self, name: &str) -> Option<&mut Duration> {
        Some(match name {
            "recheck" => &mut self.recheck,
            "move-limit" => &mut self.move_limit,
            "preflight-pause" => &mut self.preflight_pause,
            "flush-limit" => &mut self.flush_limit,
            "events-limit" => &mut self.events_limit,
            "retry" => &mut self.retry,
            "retry-cap" => &mut self.retry_cap,
            "retry-away-cap" => &mut self.retry_away_cap,
            "rare-refused" => &mut self.rare_refused,
            "pool-pace" => &mut self.pool_pace,
            "pool-pace-limit" => &mut self.pool_pace_limit,
            "watch" => &mut self.watch,
            "drain-limit" => &mut self.drain_limit,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_is_as_by_default() {
        let timings = Timings::parse("recheck=2s,move-limit=500ms").unwrap();
        let wanted = Timings {
            recheck: Duration::from_secs(2),
            move_limit: Duration::from_millis(500),
            ..Timings::default()
        };
        assert_eq!(timings, wanted);
        assert_eq!(Timings::parse(""), Ok(Timings::default()));
    }

    #[test]
    fn each_timing_can_be_shortened() {
        let names = "recheck,move-limit,preflight-pause,flush-limit,events-limit,retry,retry-cap,retry-away-cap,rare-refused,pool-pace,pool-pace-limit,watch,drain-limit";
        let one = Duration::from_millis(1);
        let all = names.replace(',', "=1ms,") + "=1ms";
        let wanted = Timings {
            recheck: one,
            move_limit: one,
            preflight_pause: one,
            flush_limit: one,
            events_limit: one,
            retry: one,
            retry_cap: one,
            retry_away_cap: one,
            rare_refused: one,
            pool_pace: one,
            pool_pace_limit: one,
            watch: one,
            drain_limit: one,
        };
        assert_eq!(Timings::parse(&all), Ok(wanted));
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in ["recheck", "recheck=", "recheck=0s", "rechek=2s", "retry=1h"] {
            assert!(Timings::parse(bad).is_err(), "{bad}");
        }
    }
}
