//! What the API server refuses of a shared Service (SHR-3): a load balancer with a port that a policy does not allow must not keep the
//! others from theirs, nor the Service from what else is to change in it.
//!
//! A write that adds the ports of several load balancers and is refused is repeated with those of one at a time. Ports that are refused
//! by themselves are left out, and tried again with a back-off.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ports::Served;

/// First and longest pause before refused ports are tried again.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(1);
/// Longest reason that is remembered, in bytes: more does not fit into a condition.
const LONGEST_REASON: usize = 512;

/// The ports that a write adds to a Service, by load balancer.
pub type Added = BTreeMap<String, Vec<Served>>;

/// What is refused of one Service. Times are those of any clock that does not go back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// By load balancer, whose ports were refused without those of others.
    alone: BTreeMap<String, Refusal>,
    /// Until then the ports of one load balancer at a time are added.
    one_at_a_time: Option<Duration>,
    /// Why it is refused although no port is added.
    whole: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Refusal {
    ports: Vec<Served>,
    why: String,
    pause: Duration,
    until: Duration,
}

impl Refusals {
    /// A write that adds these ports was refused.
    pub fn refused(&mut self, added: &Added, why: &str, now: Duration) {
        let why = why[..why.floor_char_boundary(LONGEST_REASON)].to_owned();
        let mut all = added.iter();
        match (all.next(), all.next()) {
            (None, _) => self.whole = Some(why),
            (Some((name, ports)), None) => {
                let before = self.alone.get(name).filter(|it| it.ports == *ports);
                let pause = before.map_or(FIRST, |it| (it.pause * 2).min(LONGEST));
                let refusal = Refusal {
                    ports: ports.clone(),
                    why,
                    pause,
                    until: now + pause,
                };
                self.alone.insert(name.clone(), refusal);
            }
            (Some(_), Some(_)) => self.one_at_a_time = Some(now + LONGEST),
        }
    }

    /// A write that adds these ports was done.
    pub fn written(&mut self, added: &Added) {
        self.whole = None;
        self.alone.retain(|name, _| !added.contains_key(name));
    }

    /// Whether these ports of a load balancer are left out for now.
    pub fn leaves_out(&self, name: &str, ports: &[Served], now: Duration) -> bool {
        let refusal = self.alone.get(name);
        refusal.is_some_and(|it| it.ports == ports && now < it.until)
    }

    /// How long until the next ports that are left out are tried again.
    pub fn retry_in(&self, now: Duration) -> Option<Duration> {
        let times = self.alone.values().map(|it| it.until);
        let left = times.filter_map(|until| until.checked_sub(now));
        left.filter(|left| !left.is_zero()).min()
    }

    /// Whether the ports of one load balancer at a time are to be added.
    pub fn is_one_at_a_time(&self, now: Duration) -> bool {
        self.one_at_a_time.is_some_and(|until| now < until)
    }

    /// Why the Service does not have the ports of a load balancer, as far as the API server refuses it.
    pub fn why(&self, name: &str) -> Option<&str> {
        let own = self.alone.get(name).map(|it| &*it.why);
        own.or(self.whole.as_deref())
    }

    /// Whether there is nothing to remember.
    pub fn is_empty(&self, now: Duration) -> bool {
        self.alone.is_empty() && self.whole.is_none() && !self.is_one_at_a_time(now)
    }
}

#[cfg(test)]
mod tests;
