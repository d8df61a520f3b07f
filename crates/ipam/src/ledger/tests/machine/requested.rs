//! What the model answers to a load balancer that requests an address (REQ-2 to REQ-4).

use super::decide::Found;
use super::*;

impl Model {
    /// REQ-2: the named pool, if it exists, else the best one that has the address.
    fn requested_pool(&self, request: &Request, addr: IpAddr) -> Option<PoolName> {
        if let Some(named) = &request.pool {
            return self.pool(named).map(|pool| pool.name.clone());
        }
        let has = |pool: &&PoolSpec| {
            let ranges = pool.ranges.as_ref().ok();
            ranges.is_some_and(|it| it.ranges().iter().any(|range| range.contains(addr)))
        };
        let pools = self.pools.iter().filter(has);
        let views = pools.map(|pool| (&*pool.name, &pool.selector));
        let requirement = request.requirement.clone().or_namespace("ns");
        select(views, &requirement, request.workload).map(PoolName::from)
    }

    /// The pool that allocates the address now, or whether one would if it were free.
    fn answer(&self, request: &Request, addr: IpAddr) -> Result<PoolName, bool> {
        let pool = self.requested_pool(request, addr).ok_or(false)?;
        if !self.hands_out(&pool, addr) || !request.takes(addr) {
            return Err(false);
        }
        let others = self.holders(addr);
        let has_it = self
            .bound_of(&request.owner.id)
            .iter()
            .any(|r| r.spec.addr == addr);
        let is_held = has_it || others.iter().any(|holder| *holder != request.owner.id);
        let older = self.asking.iter().any(|it| {
            it.addr == addr && it.is_served && Self::key(&it.request) < Self::key(request)
        });
        if is_held || older {
            Err(true)
        } else {
            Ok(pool)
        }
    }

    fn asks(&mut self, request: &Request, addr: IpAddr, is_served: bool, has_address: bool) {
        let id = &request.owner.id;
        self.asking.retain(|it| it.request.owner.id != *id);
        self.asking.push(Asking {
            addr,
            request: request.clone(),
            is_served,
            has_address,
        });
    }

    pub(super) fn enlist_requested(&mut self, request: &Request, addr: IpAddr) {
        self.waiting.retain(|w| w.owner.id != request.owner.id);
        let is_served = self.answer(request, addr).map_or_else(|it| it, |_| true);
        self.asks(request, addr, is_served, false);
    }

    pub(super) fn decide_requested(
        &mut self,
        request: &Request,
        addr: IpAddr,
        bound: &[Record],
    ) -> Outcome {
        let id = &request.owner.id;
        self.waiting.retain(|w| w.owner.id != *id);
        let demanded = |pool: &PoolName| request.pool.as_ref().is_none_or(|it| it == pool);
        let rest = |kept: Option<IpAddr>| -> Vec<IpAddr> {
            let addrs = bound.iter().map(|r| r.spec.addr);
            addrs.filter(|addr| Some(*addr) != kept).collect()
        };
        let keep = |model: &mut Self, kept: &Record| {
            model.drop_holds(id, None);
            let addr = kept.spec.addr;
            if kept.spec.owner == request.owner {
                Outcome::Held(addr, rest(Some(addr)))
            } else {
                Outcome::Adopt(addr, rest(Some(addr)))
            }
        };
        let has = bound.iter().find(|r| r.spec.addr == addr);
        if let Some(kept) = has.filter(|kept| demanded(&kept.spec.pool)) {
            self.asking.retain(|it| it.request.owner.id != *id);
            return keep(self, kept);
        }
        let present = self.reserved.iter().find(|r| r.owner == request.owner);
        if let Some(r) = present.cloned() {
            let is_present = r.reason == AllocationReason::Recorded;
            let is_asked = r.addr == addr && demanded(&r.pool) && self.hands_out(&r.pool, addr);
            if is_present || is_asked {
                self.asking.retain(|it| it.request.owner.id != *id);
                let found = Found {
                    reserved_at: Some(r.at),
                    ..Found::new(r.addr, r.pool, r.reason)
                };
                return self.take(request, found, rest(None));
            }
            self.reserved.retain(|r| r.owner != request.owner);
        }
        if bound.is_empty() {
            if let Some((addr, pool)) = self.present_claim(request) {
                self.asking.retain(|it| it.request.owner.id != *id);
                let found = Found::new(addr, pool, AllocationReason::Recorded);
                return self.take(request, found, Vec::new());
            }
            if let Some((addr, pool)) = self.held_back_of(request, bound) {
                self.asking.retain(|it| it.request.owner.id != *id);
                let reason = match self.pool(&pool).map(|pool| &pool.withheld) {
                    Some(Some(Withheld::InvalidExclude(_))) => WaitReason::InvalidExclude,
                    _ => WaitReason::PoolInvalid,
                };
                self.hold_back(request, addr, pool);
                return Outcome::Wait(reason, Vec::new(), true);
            }
            self.drop_holds(id, None);
        }
        match self.answer(request, addr) {
            Ok(pool) => {
                self.asking.retain(|it| it.request.owner.id != *id);
                let released = self.record(addr).map(|record| &record.spec);
                let released = released.filter(|spec| spec.phase == Phase::Released);
                let reason = if bound.iter().any(|r| r.spec.owner == request.owner) {
                    AllocationReason::Moved
                } else if released.is_some_and(|spec| spec.owner.id == *id) {
                    AllocationReason::Sticky
                } else {
                    AllocationReason::Fresh
                };
                self.take(request, Found::new(addr, pool, reason), rest(None))
            }
            Err(is_served) => {
                self.asks(request, addr, is_served, !bound.is_empty());
                let status = request.status.as_ref().map(|status| status.addr);
                let kept = bound.iter().min_by_key(|r| {
                    let spec = &r.spec;
                    (
                        spec.owner != request.owner,
                        Some(spec.addr) != status,
                        spec.addr,
                    )
                });
                match kept {
                    Some(kept) => keep(self, kept),
                    None => {
                        Outcome::Wait(WaitReason::RequestedAddressUnavailable, Vec::new(), false)
                    }
                }
            }
        }
    }

    /// REQ-4: an address that the load balancer has without a record.
    fn present_claim(&self, request: &Request) -> Option<(IpAddr, PoolName)> {
        let status = request.status.as_ref().map(|status| status.addr);
        let own = self.claims.iter().filter(|c| c.1 == request.owner);
        let mut claims: Vec<_> = own.collect();
        claims.sort_by_key(|c| (Some(c.0) != status, c.0));
        let of = |claim: &(IpAddr, Owner, Option<PoolName>)| match &claim.2 {
            Some(pool) => Some(pool.clone()),
            None => self.target(request).filter(|target| {
                let pool = self.pool(target);
                let hands_out = pool.is_some_and(|pool| pool.withheld.is_none());
                let id = request.owner.id.clone();
                let shown = self.shown.contains(&(id, claim.0));
                self.usable(target, claim.0) && (hands_out || shown)
            }),
        };
        claims.into_iter().find_map(|c| Some((c.0, of(c)?)))
    }
}
