//! What the API server refuses of a shared Service (SHR-3): a load balancer with a port that a policy does not allow must not keep the
//! others from theirs, nor the Service from what else is to change in it.
//!
//! A write that is refused and adds ports is repeated in pieces: first what changes besides them, then the ports of one load balancer
//! after the other. What is refused by itself is tried again by itself, with a back-off, and holds up nobody else. So a refusal costs one
//! write for each of the load balancers, and one more.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ports::Served;
use crate::desired::DesiredPort;

/// Longest reason that is remembered, in bytes: a condition has room for the rest of its message.
const LONGEST_REASON: usize = 512;

/// Ports that a write is to add to the Service for one load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adding {
    /// Name of the load balancer.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// All of its ports that the Service lacks.
    pub ports: Vec<DesiredPort>,
}

/// What is refused of one Service. Times are those of any clock that does not go back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Ports that were refused, by load balancer.
    lbs: BTreeMap<String, Refused>,
    /// What changes besides new ports.
    rest: Option<Refusal>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Refused {
    adding: Adding,
    /// `None`: they were refused together with those of others, or with what else was to change.
    alone: Option<Refusal>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Refusal {
    why: String,
    /// How often in a row.
    times: u32,
    /// When it is tried again.
    until: Duration,
}

impl Refusal {
    /// `pause`: that after so many refusals.
    fn after(
        before: Option<&Self>,
        why: &str,
        now: Duration,
        pause: impl Fn(u32) -> Duration,
    ) -> Self {
        let times = before.map_or(0, |it| it.times).saturating_add(1);
        Self {
            why: why[..why.floor_char_boundary(LONGEST_REASON)].to_owned(),
            times,
            until: now + pause(times),
        }
    }
}

impl Refusals {
    /// A write that adds these ports was refused. `pause`: the back-off after so many refusals.
    pub fn refused(
        &mut self,
        added: &[Adding],
        why: &str,
        now: Duration,
        pause: impl Fn(u32) -> Duration,
    ) {
        if added.is_empty() {
            self.rest = Some(Refusal::after(self.rest.as_ref(), why, now, pause));
            return;
        }
        // What had not been refused before was not tried by itself.
        let alone = match added {
            [one] => self.of(one).map(|it| it.alone.clone()),
            _ => None,
        };
        let alone = alone.map(|before| Refusal::after(before.as_ref(), why, now, pause));
        for adding in added {
            let refused = Refused {
                adding: adding.clone(),
                alone: alone.clone(),
            };
            self.lbs.insert(adding.name.clone(), refused);
        }
    }

    /// A write that adds these ports was done.
    pub fn written(&mut self, added: &[Adding]) {
        self.rest = None;
        for adding in added {
            self.lbs.remove(&adding.name);
        }
    }

    /// Nothing changes besides new ports.
    pub fn rest_is_written(&mut self) {
        self.rest = None;
    }

    /// Forgets the load balancers that are none of these.
    pub fn retain(&mut self, is_party: impl Fn(&str) -> bool) {
        self.lbs.retain(|name, _| is_party(name));
    }

    /// Whether what changes besides new ports may be written now, by itself.
    pub fn may_write_rest(&self, now: Duration) -> bool {
        self.rest.as_ref().is_none_or(|it| it.until <= now)
    }

    /// Which of these ports the next write is to add, if nothing else changes: all that were not refused; else those of the first one
    /// that was not refused by itself; else those of which it is longest due that they are tried again. None if none is due.
    pub fn next<'a>(&self, pending: &'a [Adding], now: Duration) -> Vec<&'a Adding> {
        let fresh: Vec<&Adding> = pending.iter().filter(|it| self.of(it).is_none()).collect();
        if !fresh.is_empty() {
            return fresh;
        }
        let alone = |it: &Adding| self.of(it).and_then(|it| it.alone.as_ref());
        let first = pending.iter().find(|it| alone(it).is_none());
        let due = || {
            let until = |it: &&Adding| alone(it).map(|it| it.until);
            let due = pending.iter().filter(|it| until(it) <= Some(now));
            due.min_by_key(until)
        };
        first.or_else(due).into_iter().collect()
    }

    /// How long until something that was refused is tried again.
    pub fn retry_in(&self, now: Duration) -> Option<Duration> {
        let alone = self.lbs.values().filter_map(|it| it.alone.as_ref());
        let times = alone.chain(&self.rest).map(|it| it.until);
        let left = times.filter_map(|until| until.checked_sub(now));
        left.filter(|left| !left.is_zero()).min()
    }

    /// Why the Service lacks these ports of a load balancer, as far as the API server refuses them, or what changes besides new ports.
    pub fn why(&self, name: &str, uid: &str, lacks: &[Served]) -> Option<&str> {
        let own = self.lbs.get(name).filter(|it| {
            let mut its = it.adding.ports.iter();
            it.adding.uid == uid && its.all(|port| lacks.contains(&port.served()))
        });
        let own = own.and_then(|it| it.alone.as_ref());
        let why = own.or(self.rest.as_ref()).filter(|_| !lacks.is_empty());
        why.map(|it| &*it.why)
    }

    /// Why what changes besides new ports is refused.
    pub fn why_rest(&self) -> Option<&str> {
        self.rest.as_ref().map(|it| &*it.why)
    }

    /// Whether there is nothing to remember.
    pub fn is_empty(&self) -> bool {
        self.lbs.is_empty() && self.rest.is_none()
    }

    /// The refusal of exactly these ports.
    fn of(&self, adding: &Adding) -> Option<&Refused> {
        let refused = self.lbs.get(&adding.name);
        refused.filter(|it| it.adding == *adding)
    }
}

#[cfg(test)]
pub(super) mod tests;
