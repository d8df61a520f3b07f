//! Ports of shared Services that load balancers are about to have in their EndpointSlices (SHR-2).

use std::collections::BTreeMap;

use harvester_lb_object::{Key, Version};
use tokio::time::Instant;

use super::doubt::Doubt;

/// By group and load balancer.
#[derive(Default)]
pub(super) struct Offers(BTreeMap<Key, BTreeMap<Key, Offer>>);

/// Names of ports.
#[derive(Default)]
struct Offer {
    /// Those that the load balancer is at.
    begun: Option<Vec<String>>,
    /// Those of earlier writes that were not answered.
    doubt: Option<(Doubt, Vec<String>)>,
}

impl Offers {
    /// A load balancer is about to write these.
    pub(super) fn begin(&mut self, group: &Key, lb: &Key, ports: &[String]) {
        let of = self.0.entry(group.clone()).or_default();
        of.entry(lb.clone()).or_default().begun = Some(ports.to_vec());
    }

    /// It has written them, or has given up.
    pub(super) fn end(&mut self, group: &Key, lb: &Key) {
        self.retain(|of, it, offer| {
            if of == group && it == lb {
                offer.begun = None;
            }
            offer.begun.is_some() || offer.doubt.is_some()
        });
    }

    /// The write, decided from this version of the EndpointSlice, was not answered. What can no longer be done is forgotten.
    pub(super) fn doubt(&mut self, group: &Key, lb: &Key, version: Version, now: Instant) {
        self.retain(|of, it, offer| {
            if of == group && it == lb {
                let earlier = offer.doubt.take();
                let earlier = earlier.filter(|(doubt, _)| doubt.is_from(version));
                let ports = earlier.into_iter().flat_map(|(_, ports)| ports);
                let ports = ports.chain(offer.begun.iter().flatten().cloned()).collect();
                offer.doubt = Some((Doubt::new(lb, version, now), ports));
            }
            offer.begun.is_some() || offer.open(&|_, _| true, now).is_some()
        });
    }

    /// The EndpointSlice of a load balancer has this version: what was decided from another one can no longer be done.
    pub(super) fn seen(&mut self, lb: &Key, version: Version) {
        self.retain(|_, it, offer| {
            if it == lb {
                offer.doubt.take_if(|(doubt, _)| !doubt.is_from(version));
            }
            offer.begun.is_some() || offer.doubt.is_some()
        });
    }

    /// Those of a group, each with the name of the load balancer, and when the last of the writes that were not answered can no longer
    /// be done. `is_same`: whether an EndpointSlice has this version.
    pub(super) fn of(
        &mut self,
        group: &Key,
        is_same: impl Fn(&Key, Version) -> bool,
        now: Instant,
    ) -> (Vec<(String, String)>, Option<Instant>) {
        let (mut all, mut until) = (Vec::new(), None);
        if !self.0.contains_key(group) {
            return (all, until);
        }
        self.retain(|of, lb, offer| {
            if of != group {
                return true;
            }
            let open = offer.open(&is_same, now);
            let doubted = open.into_iter().flat_map(|(_, ports)| ports);
            let ports = doubted.chain(offer.begun.iter().flatten());
            all.extend(ports.map(|port| (port.clone(), lb.name.to_string())));
            until = until.max(open.map(|(doubt, _)| doubt.until));
            open.is_some() || offer.begun.is_some()
        });
        (all, until)
    }

    fn retain(&mut self, mut is_kept: impl FnMut(&Key, &Key, &mut Offer) -> bool) {
        self.0.retain(|group, of| {
            of.retain(|lb, offer| is_kept(group, lb, offer));
            !of.is_empty()
        });
    }
}

impl Offer {
    fn open(
        &self,
        is_same: &impl Fn(&Key, Version) -> bool,
        now: Instant,
    ) -> Option<&(Doubt, Vec<String>)> {
        let doubt = self.doubt.as_ref();
        doubt.filter(|(doubt, _)| doubt.is_open(is_same, now))
    }
}

#[cfg(test)]
mod tests {
    use super::super::doubt::WRITE_LIFETIME;
    use super::*;

    fn said(offers: &mut Offers, group: &Key, version: u64, now: Instant) -> Vec<String> {
        let (all, _) = offers.of(group, |_, it| it == Version(version), now);
        let all = all.into_iter().map(|(port, lb)| format!("{lb} {port}"));
        all.collect()
    }

    #[test]
    fn shr_2_an_offer_lasts_until_its_load_balancer_ends_it() {
        let (web, other) = (Key::new("n", "web"), Key::new("n", "other"));
        let (b, c) = (Key::new("n", "b"), Key::new("n", "c"));
        let mut offers = Offers::default();
        let now = Instant::now();
        offers.begin(&web, &b, &["80-tcp".to_owned(), "81-tcp".to_owned()]);
        offers.begin(&web, &c, &["82-tcp".to_owned()]);
        let said = |offers: &mut Offers, group: &Key| said(offers, group, 0, now);
        assert_eq!(
            said(&mut offers, &web),
            ["b 80-tcp", "b 81-tcp", "c 82-tcp"]
        );
        assert!(said(&mut offers, &other).is_empty());
        offers.end(&other, &b);
        offers.end(&web, &b);
        assert_eq!(said(&mut offers, &web), ["c 82-tcp"]);
        offers.end(&web, &c);
        assert!(offers.0.is_empty());
    }

    #[test]
    fn shr_2_an_offer_whose_write_was_not_answered_lasts_as_long_as_that_may_be_done() {
        let (web, b) = (Key::new("n", "web"), Key::new("n", "b"));
        let port = |name: &str| [name.to_owned()];
        let start = Instant::now();
        let late = start + WRITE_LIFETIME;
        for (version, now, is_left) in [(5, start, true), (6, start, false), (5, late, false)] {
            let mut offers = Offers::default();
            offers.begin(&web, &b, &port("80-tcp"));
            offers.doubt(&web, &b, Version(5), start);
            offers.end(&web, &b);
            assert_eq!(
                !said(&mut offers, &web, version, now).is_empty(),
                is_left,
                "{version}"
            );
            assert_eq!(offers.0.is_empty(), !is_left);
        }
        // The next one may not get there before it.
        let mut offers = Offers::default();
        offers.begin(&web, &b, &port("80-tcp"));
        offers.doubt(&web, &b, Version(5), start);
        offers.end(&web, &b);
        offers.begin(&web, &b, &port("81-tcp"));
        assert_eq!(said(&mut offers, &web, 5, start), ["b 80-tcp", "b 81-tcp"]);
        // Once the next one is done, the first cannot be.
        assert_eq!(said(&mut offers, &web, 6, start), ["b 81-tcp"]);
        offers.begin(&web, &b, &port("82-tcp"));
        offers.doubt(&web, &b, Version(6), start);
        offers.begin(&web, &b, &port("83-tcp"));
        offers.doubt(&web, &b, Version(6), start);
        offers.end(&web, &b);
        let open = offers.of(&web, |_, it| it == Version(6), start);
        assert_eq!(open.1, Some(late));
        assert_eq!(said(&mut offers, &web, 6, start), ["b 82-tcp", "b 83-tcp"]);
        assert!(said(&mut offers, &web, 7, start).is_empty());
        // It came and went, and nobody asked in between.
        for (version, is_left) in [(5, true), (7, false)] {
            let mut offers = Offers::default();
            offers.begin(&web, &b, &port("80-tcp"));
            offers.doubt(&web, &b, Version(5), start);
            offers.end(&web, &b);
            offers.seen(&b, Version(version));
            let open = said(&mut offers, &web, 5, start);
            assert_eq!(!open.is_empty(), is_left, "{version}");
        }
        // Nobody asks for those of a group that is gone.
        offers.begin(&web, &b, &port("80-tcp"));
        offers.doubt(&web, &b, Version(5), start);
        offers.end(&web, &b);
        let (other, c) = (Key::new("n", "other"), Key::new("n", "c"));
        offers.begin(&other, &c, &port("80-tcp"));
        offers.doubt(&other, &c, Version(7), late);
        assert_eq!(offers.0.len(), 1);
    }
}
