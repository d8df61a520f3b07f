//! What must hold of every decision of the ledger, and after every step.

use std::net::IpAddr;

use harvester_lb_ipam::{AllocationReason, Decision, Micros, Phase, PoolRanges, Record, Request};

use super::Model;

impl Model {
    /// Asks for a decision twice, and judges it.
    pub(super) fn decide(&mut self, request: &Request) {
        let id = &request.owner.id;
        let now = Micros(self.now);
        let decision = self.ledger.decide(request, now);
        let again = self.ledger.decide(request, Micros(self.now + 1));
        assert_eq!(decision, again, "the same question, another answer");
        let stood = self.proposed.get(&request.owner).map(|spec| spec.addr);
        self.proposed.retain(|owner, _| owner.id != *id);
        match decision {
            Decision::Held { grant, .. } => {
                let record = &self.records[&grant.addr];
                assert_eq!(
                    (record.spec.phase, &record.spec.owner),
                    (Phase::Bound, &request.owner)
                );
            }
            Decision::Adopt { record, .. } => {
                let before = &self.records[&record.spec.addr];
                assert_eq!(
                    (before.spec.phase, &before.spec.owner.id),
                    (Phase::Bound, id)
                );
                assert_eq!(
                    (before.version, &record.spec.owner),
                    (record.version, &request.owner)
                );
            }
            Decision::Take {
                spec,
                replaces,
                reason,
                stale,
                ..
            } => {
                let addr = spec.addr;
                assert_eq!(replaces, self.records.get(&addr).map(|r| r.version));
                let bound = self
                    .records
                    .get(&addr)
                    .filter(|r| r.spec.phase == Phase::Bound);
                assert!(bound.is_none(), "{addr} is held by {bound:?}");
                assert!(
                    !self.blocked.contains_key(&addr),
                    "{addr} has a record that cannot be read"
                );
                let others = self.proposed.iter().find(|(_, other)| other.addr == addr);
                assert!(others.is_none(), "{addr} is proposed to {others:?}");
                let usable = self
                    .pools
                    .get(&*spec.pool)
                    .and_then(|pool| pool.ranges.as_ref().ok())
                    .is_some_and(|ranges| ranges.usable(addr));
                assert!(
                    usable || reason == AllocationReason::Recorded,
                    "{addr} is none of {}",
                    spec.pool
                );
                if reason != AllocationReason::Recorded {
                    let requested = request.requested.unwrap_or(addr);
                    assert_eq!(addr, requested, "another address was requested (REQ-3)");
                    let withheld = &self.pools[&*spec.pool].withheld;
                    // What it had, and its own Service shows, is nothing new.
                    let shows = self.shown.get(id).is_some_and(|all| all.contains(&addr));
                    let had_it = reason == AllocationReason::Sticky && shows;
                    assert!(
                        withheld.is_none() || had_it,
                        "{} is withheld (EXC-1): {withheld:?}",
                        spec.pool
                    );
                }
                // A proposal made before another object showed the address stands.
                if reason != AllocationReason::Recorded && stood != Some(addr) {
                    let shown = self
                        .shown
                        .iter()
                        .find(|(owner, all)| *owner != id && all.contains(&addr));
                    assert!(shown.is_none(), "{addr} is shown by {shown:?}");
                }
                for record in stale {
                    assert_eq!(self.records[&record.spec.addr].spec.phase, Phase::Released);
                }
                self.proposed.insert(request.owner.clone(), spec);
            }
            Decision::Wait { explanation, .. } => assert!(explanation.to_string().len() < 16_384),
        }
    }

    /// Compares the ledger with what is stored.
    pub(super) fn check(&self) {
        let counts = self.ledger.counts();
        let bound = self
            .records
            .values()
            .filter(|r| r.spec.phase == Phase::Bound)
            .count();
        assert_eq!(
            (counts.bound, counts.released),
            (bound, self.records.len() - bound)
        );
        assert_eq!(counts.pools, self.pools.len());
        assert_eq!(counts.blocked, self.blocked.len());
        for (name, pool) in &self.pools {
            let view = self.ledger.projection(name).unwrap();
            let of = |phase: Phase| {
                let own = |r: &&Record| *r.spec.pool == **name && r.spec.phase == phase;
                self.records
                    .values()
                    .filter(own)
                    .map(|r| r.spec.addr)
                    .collect::<Vec<_>>()
            };
            assert_eq!(
                view.allocated().map(|(a, _)| a).collect::<Vec<_>>(),
                of(Phase::Bound)
            );
            assert_eq!(
                view.history().map(|(a, ..)| a).collect::<Vec<_>>(),
                of(Phase::Released)
            );
            assert_eq!(view.allocated_len, of(Phase::Bound).len());
            assert_eq!(view.history_len, of(Phase::Released).len());
            let total = pool.ranges.as_ref().map_or(0, PoolRanges::total);
            let usable = |addr: &IpAddr| {
                pool.ranges
                    .as_ref()
                    .is_ok_and(|ranges| ranges.usable(*addr))
            };
            let held = |r: &&Record| r.spec.phase == Phase::Bound && usable(&r.spec.addr);
            let taken = self.records.values().filter(held).count();
            assert_eq!(view.total, total);
            // An address that is claimed, shown or blocked is not available either (ALC-11).
            let most = (total - i64::try_from(taken).unwrap()).max(0);
            assert!((0..=most).contains(&view.available));
        }
    }
}
