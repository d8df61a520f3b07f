//! The addresses that Services have shown until a moment ago (DHC-5). Owns how long that is. What is kept is bounded by the Services that
//! change within that time.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use harvester_lb_object::Key;

/// How long kube-vip may go on answering ARP for an address that a Service shows no more: it follows within seconds, unless its watch is
/// interrupted. Later another host may have the address.
const WITHDRAWAL: Duration = Duration::from_mins(1);

/// When a Service has ceased to show an address.
#[derive(Debug, Default)]
pub(super) struct Withdrawn(BTreeMap<(Key, Ipv4Addr), Instant>);

impl Withdrawn {
    /// A Service does not show an address any more. O(n).
    pub(super) fn add(&mut self, service: &Key, address: Ipv4Addr, now: Instant) {
        self.0.retain(|_, at| is_recent(*at, now));
        self.0.insert((service.clone(), address), now);
    }

    /// Whether a Service has shown an address until a moment ago.
    pub(super) fn has(&self, service: &Key, address: Ipv4Addr, now: Instant) -> bool {
        let at = self.0.get(&(service.clone(), address));
        at.is_some_and(|at| is_recent(*at, now))
    }

    /// Whether any Service has shown an address until a moment ago. O(n).
    pub(super) fn has_any(&self, address: Ipv4Addr, now: Instant) -> bool {
        let mut all = self.0.iter();
        all.any(|((_, of), at)| *of == address && is_recent(*at, now))
    }
}

fn is_recent(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < WITHDRAWAL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dhc_5_what_a_service_has_shown_counts_for_a_minute() {
        let (web, api) = (Key::new("shop", "web"), Key::new("shop", "api"));
        let a = Ipv4Addr::new(192, 168, 100, 7);
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut withdrawn = Withdrawn::default();
        withdrawn.add(&web, a, began);
        assert!(withdrawn.has(&web, a, at(59)));
        assert!(!withdrawn.has(&api, a, began));
        assert!(!withdrawn.has(&web, Ipv4Addr::new(192, 168, 100, 8), began));
        assert!(!withdrawn.has(&web, a, at(60)));
        assert!(withdrawn.has_any(a, at(59)));
        assert!(!withdrawn.has_any(a, at(60)));
        assert!(!withdrawn.has_any(Ipv4Addr::new(192, 168, 100, 8), began));
        // Nothing is kept for ever.
        withdrawn.add(&api, a, at(60));
        assert_eq!(withdrawn.0.len(), 1);
    }
}
