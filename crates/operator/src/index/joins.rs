//! Addresses that load balancers are about to share: none is released before their statuses name it, or are known not to (IPA-6).

use std::collections::HashMap;
use std::net::IpAddr;

/// The load balancers that are about to name the address of another one in their status, by that address.
#[derive(Default)]
pub(super) struct Joins(HashMap<IpAddr, Join>);

#[derive(Default)]
struct Join {
    count: usize,
    is_awaited: bool,
}

impl Joins {
    /// One more is about to.
    pub(super) fn begin(&mut self, addr: IpAddr) {
        self.0.entry(addr).or_default().count += 1;
    }

    /// One of them has written its status, or has given up. Returns whether it was the last one, and the release was refused meanwhile.
    pub(super) fn end(&mut self, addr: IpAddr) -> bool {
        let Some(join) = self.0.get_mut(&addr) else {
            return false;
        };
        join.count = join.count.saturating_sub(1);
        if join.count > 0 {
            return false;
        }
        self.0.remove(&addr).is_some_and(|join| join.is_awaited)
    }

    /// Whether the release of an address has to wait for them.
    pub(super) fn delay_release(&mut self, addr: IpAddr) -> bool {
        let join = self.0.get_mut(&addr);
        join.map(|join| join.is_awaited = true).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
