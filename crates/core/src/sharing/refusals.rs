//! What the API server refuses of a shared Service (SHR-3): a load balancer with a port that a policy does not allow must not keep the
//! others from theirs, nor the Service from what else is to change in it.
//!
//! A write that is refused and changes something for load balancers is repeated in pieces: first the rest, which is who leaves, the owners
//! and the names of ports; then one change after the other: the address and the annotations for kube-vip, and the ports of each load
//! balancer. What is refused by itself is tried again by itself, with a back-off, and holds up nothing else. So a refusal costs one write
//! for each of the changes, and one more.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ports::Served;
use crate::desired::DesiredPort;

/// Longest reason that is remembered, in bytes: a condition has room for the rest of its message.
const LONGEST_REASON: usize = 512;

/// A change of the Service for one load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Name of the load balancer.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// What changes.
    pub what: What,
}

/// What changes for one load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// If it has the address: that, and the annotations for kube-vip, as text.
    Fields(String),
    /// All of its ports that the Service lacks, or has with another target.
    Ports(Vec<DesiredPort>),
}

/// The kinds of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Fields,
    Ports,
}

impl Change {
    /// One change of each kind is remembered of a load balancer.
    fn key(&self) -> (String, Kind) {
        let kind = match self.what {
            What::Fields(_) => Kind::Fields,
            What::Ports(_) => Kind::Ports,
        };
        (self.name.clone(), kind)
    }
}

/// What is refused of one Service. Times are those of any clock that does not go back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Changes that were refused, by load balancer and kind.
    lbs: BTreeMap<(String, Kind), Refused>,
    /// The rest.
    rest: Option<Refusal>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Refused {
    change: Change,
    /// `None`: it was refused together with those of others, or with what else was to change.
    alone: Option<Refusal>,
    /// Why the one before it was refused by itself, which is said until this one is tried by itself.
    earlier: Option<String>,
}

impl Refused {
    fn why(&self) -> Option<&str> {
        let own = self.alone.as_ref().map(|it| &*it.why);
        own.or(self.earlier.as_deref())
    }
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
    /// A write of these changes was refused. `pause`: the back-off after so many refusals.
    pub fn refused(
        &mut self,
        changes: &[Change],
        why: &str,
        now: Duration,
        pause: impl Fn(u32) -> Duration,
    ) {
        if changes.is_empty() {
            self.rest = Some(Refusal::after(self.rest.as_ref(), why, now, pause));
            return;
        }
        // What had not been refused before was not tried by itself.
        let alone = match changes {
            [one] => self.of(one).map(|it| it.alone.clone()),
            _ => None,
        };
        let alone = alone.map(|before| Refusal::after(before.as_ref(), why, now, pause));
        for change in changes {
            let before = self.lbs.remove(&change.key());
            let before = before.filter(|it| it.change.uid == change.uid);
            let refused = Refused {
                change: change.clone(),
                alone: alone.clone(),
                earlier: before.and_then(|it| it.why().map(str::to_owned)),
            };
            self.lbs.insert(change.key(), refused);
        }
    }

    /// A write of these changes was done.
    pub fn written(&mut self, changes: &[Change]) {
        self.rest = None;
        for change in changes {
            self.lbs.remove(&change.key());
        }
    }

    /// Nothing is to be written now, and these changes are left to do. What was refused and is none of them is not wanted any more.
    pub fn settled(&mut self, pending: &[Change]) {
        self.rest = None;
        self.lbs.retain(|_, it| pending.contains(&it.change));
    }

    /// Forgets those that are none of these load balancers, by name and uid.
    pub fn retain(&mut self, is_party: impl Fn(&str, &str) -> bool) {
        self.lbs
            .retain(|_, it| is_party(&it.change.name, &it.change.uid));
    }

    /// Whether the rest may be written now, by itself.
    pub fn may_write_rest(&self, now: Duration) -> bool {
        self.rest.as_ref().is_none_or(|it| it.until <= now)
    }

    /// Which of these changes the next write is to do, once the rest is done: all that were not refused; else the first one that was not
    /// refused by itself; else the one that is longest due. None if none is due.
    pub fn next<'a>(&self, pending: &'a [Change], now: Duration) -> Vec<&'a Change> {
        let fresh: Vec<&Change> = pending.iter().filter(|it| self.of(it).is_none()).collect();
        if !fresh.is_empty() {
            return fresh;
        }
        let alone = |it: &Change| self.of(it).and_then(|it| it.alone.as_ref());
        let first = pending.iter().find(|it| alone(it).is_none());
        let due = || {
            let until = |it: &&Change| alone(it).map(|it| it.until);
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

    /// Why the Service lacks these ports of a load balancer, as far as the API server refuses them, or the rest.
    pub fn why(&self, name: &str, uid: &str, lacks: &[Served]) -> Option<&str> {
        let are_its = |it: &&Refused| match &it.change.what {
            What::Fields(_) => false,
            What::Ports(ports) => ports.iter().all(|it| lacks.contains(&it.served())),
        };
        let own = self.of_lb(name, uid, Kind::Ports).filter(are_its);
        let why = own.and_then(Refused::why).or_else(|| self.why_rest());
        why.filter(|_| !lacks.is_empty())
    }

    /// Why the API server refuses the address or the annotations of a load balancer.
    pub fn why_fields(&self, name: &str, uid: &str) -> Option<&str> {
        self.of_lb(name, uid, Kind::Fields).and_then(Refused::why)
    }

    /// Why the API server refuses exactly this change, or the rest.
    pub fn why_not(&self, change: &Change) -> Option<&str> {
        let own = self.of(change).and_then(Refused::why);
        own.or_else(|| self.why_rest())
    }

    fn why_rest(&self) -> Option<&str> {
        self.rest.as_ref().map(|it| &*it.why)
    }

    /// Whether there is nothing to remember.
    pub fn is_empty(&self) -> bool {
        self.lbs.is_empty() && self.rest.is_none()
    }

    /// The refusal of a kind of changes of a load balancer.
    fn of_lb(&self, name: &str, uid: &str, kind: Kind) -> Option<&Refused> {
        let refused = self.lbs.get(&(name.to_owned(), kind));
        refused.filter(|it| it.change.uid == uid)
    }

    /// The refusal of exactly this change.
    fn of(&self, change: &Change) -> Option<&Refused> {
        let refused = self.lbs.get(&change.key());
        refused.filter(|it| it.change == *change)
    }
}

#[cfg(test)]
pub(super) mod tests;
