//! Addresses that load balancers are about to share: none is released before their statuses name it, or are known not to (IPA-6).

use std::collections::HashMap;
use std::net::IpAddr;

use harvester_lb_object::{Key, Version};
use tokio::time::Instant;

use super::doubt::Doubt;

/// The load balancers that are about to name the address of another one in their status, by that address.
#[derive(Default)]
pub(super) struct Joins {
    joins: HashMap<IpAddr, Join>,
    /// Those whose write was not answered.
    doubts: HashMap<IpAddr, Vec<Doubt>>,
}

#[derive(Default)]
struct Join {
    count: usize,
    is_awaited: bool,
}

impl Joins {
    /// One more is about to.
    pub(super) fn begin(&mut self, addr: IpAddr) {
        self.joins.entry(addr).or_default().count += 1;
    }

    /// One of them has written its status, or has given up. Returns whether it was the last one, and the release was refused meanwhile.
    pub(super) fn end(&mut self, addr: IpAddr) -> bool {
        let Some(join) = self.joins.get_mut(&addr) else {
            return false;
        };
        join.count = join.count.saturating_sub(1);
        if join.count > 0 {
            return false;
        }
        self.joins.remove(&addr).is_some_and(|join| join.is_awaited)
    }

    /// Whether the release of an address has to wait for them.
    pub(super) fn delay_release(&mut self, addr: IpAddr) -> bool {
        let join = self.joins.get_mut(&addr);
        join.map(|join| join.is_awaited = true).is_some()
    }

    /// The write of one of them was not answered. What can no longer be done is forgotten.
    pub(super) fn doubt(&mut self, addr: IpAddr, lb: &Key, version: Version, now: Instant) {
        self.doubts.retain(|_, doubts| {
            doubts.retain(|doubt| doubt.until > now);
            !doubts.is_empty()
        });
        let doubts = self.doubts.entry(addr).or_default();
        doubts.retain(|doubt| doubt.key != *lb);
        doubts.push(Doubt::new(lb, version, now));
    }

    /// When the last of those writes can no longer be done; `None` if none can. `is_same`: whether a load balancer has this version.
    pub(super) fn doubt_until(
        &mut self,
        addr: IpAddr,
        is_same: impl Fn(&Key, Version) -> bool,
        now: Instant,
    ) -> Option<Instant> {
        let doubts = self.doubts.get_mut(&addr)?;
        doubts.retain(|doubt| doubt.is_open(&is_same, now));
        let until = doubts.iter().map(|doubt| doubt.until).max();
        if until.is_none() {
            self.doubts.remove(&addr);
        }
        until
    }
}

#[cfg(test)]
mod tests {
    use super::super::doubt::WRITE_LIFETIME;
    use super::*;
    use std::time::Duration;

    #[test]
    fn ipa_6_a_refused_release_is_due_once_the_last_one_has_ended() {
        let addr = IpAddr::from([10, 0, 0, 2]);
        let mut joins = Joins::default();
        assert!(!joins.delay_release(addr));
        joins.begin(addr);
        assert!(!joins.end(addr), "nobody waits");
        joins.begin(addr);
        joins.begin(addr);
        assert!(joins.delay_release(addr));
        assert!(!joins.end(addr), "one is left");
        assert!(joins.end(addr));
        assert!(!joins.end(addr) && !joins.delay_release(addr));
    }

    #[test]
    fn ipa_6_a_write_that_was_not_answered_may_be_done_until_its_time_or_the_next_version() {
        let addr = IpAddr::from([10, 0, 0, 2]);
        let (b, c) = (Key::new("n", "b"), Key::new("n", "c"));
        let start = Instant::now();
        let at = |secs| start + Duration::from_secs(secs);
        let mut joins = Joins::default();
        let versions = |of_b: u64, of_c: u64| {
            let b = b.clone();
            move |lb: &Key, version: Version| version.0 == if *lb == b { of_b } else { of_c }
        };
        assert_eq!(joins.doubt_until(addr, versions(5, 7), start), None);
        joins.doubt(addr, &b, Version(5), at(10));
        joins.doubt(addr, &c, Version(7), at(20));
        joins.doubt(addr, &b, Version(5), at(30));
        let until = |joins: &mut Joins, of_b, of_c, now| {
            let until = joins.doubt_until(addr, versions(of_b, of_c), at(now));
            until.map(|until| until - WRITE_LIFETIME)
        };
        assert_eq!(until(&mut joins, 5, 7, 31), Some(at(30)));
        assert_eq!(until(&mut joins, 6, 7, 31), Some(at(20)));
        assert_eq!(until(&mut joins, 5, 7, 94), Some(at(20)), "b has changed");
        assert_eq!(until(&mut joins, 5, 7, 95), None);
        assert!(joins.doubts.is_empty());
        joins.doubt(addr, &b, Version(5), at(100));
        let other = IpAddr::from([10, 0, 0, 3]);
        joins.doubt(other, &b, Version(5), at(175));
        assert_eq!(joins.doubts.len(), 1, "the first one is forgotten");
    }
}
