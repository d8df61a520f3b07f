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

    /// The pool that allocates the address, taken or free.
    fn serves(&self, request: &Request, addr: IpAddr) -> Option<PoolName> {
        let pool = self.requested_pool(request, addr)?;
        (self.hands_out(&pool, addr) && request.takes(addr)).then_some(pool)
    }

    pub(super) fn is_served(&self, asking: &Asking) -> bool {
        self.serves(&asking.request, asking.addr).is_some()
    }

    /// The pool that allocates the address now.
    fn answer(&self, request: &Request, addr: IpAddr) -> Option<PoolName> {
        let pool = self.serves(request, addr)?;
        let others = self.holders(addr);
        let has_it = self
            .bound_of(&request.owner.id)
            .iter()
            .any(|r| r.spec.addr == addr);
        let is_held = has_it || others.iter().any(|holder| *holder != request.owner.id);
        let older = self.asking.iter().any(|it| {
            it.addr == addr && self.is_served(it) && Self::key(&it.request) < Self::key(request)
        });
        (!is_held && !older).then_some(pool)
    }

    fn asks(&mut self, request: &Request, addr: IpAddr, has_address: bool) {
        let id = &request.owner.id;
        self.asking.retain(|it| it.request.owner.id != *id);
        self.asking.push(Asking {
            addr,
            request: request.clone(),
            has_address,
        });
    }

    pub(super) fn enlist_requested(&mut self, request: &Request, addr: IpAddr) {
        self.waiting.retain(|w| w.owner.id != request.owner.id);
        self.asks(request, addr, false);
    }

    pub(super) fn decide_requested(
        &mut self,
        request: &Request,
        addr: IpAddr,
        bound: &[Record],
    ) -> Outcome {
        let id = &request.owner.id;
        self.waiting.retain(|w| w.owner.id != *id);
        self.asking
            .retain(|it| it.request.owner.id != *id || it.addr == addr);
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
        let may_have = |kept: &&Record| {
            kept.spec.owner == request.owner || request.names(addr) || request.takes(addr)
        };
        let has = has.filter(may_have);
        if let Some(kept) = has.filter(|kept| demanded(&kept.spec.pool)) {
            self.asking.retain(|it| it.request.owner.id != *id);
            return keep(self, kept);
        }
        let present = self.reserved.iter().find(|r| r.owner == request.owner);
        if let Some(r) = present.cloned() {
            let is_present = r.reason == AllocationReason::Recorded;
            let is_asked = r.addr == addr && demanded(&r.pool) && self.is_confirmed(&r);
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
            if let Some((addr, pool)) = self.present_status(request) {
                self.asking.retain(|it| it.request.owner.id != *id);
                let found = Found::new(addr, pool, AllocationReason::Recorded);
                return self.take(request, found, Vec::new());
            }
        }
        if let Some(pool) = self.answer(request, addr) {
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
            return self.take(request, Found::new(addr, pool, reason), rest(None));
        }
        let status = request.status.as_ref().map(|status| status.addr);
        let own = bound
            .iter()
            .filter(|r| r.spec.owner == request.owner || Some(r.spec.addr) == status);
        let kept = own.min_by_key(|r| {
            let spec = &r.spec;
            (
                spec.owner != request.owner,
                Some(spec.addr) != status,
                spec.addr,
            )
        });
        self.asks(request, addr, kept.is_some());
        match kept {
            Some(kept) => keep(self, kept),
            None => Outcome::Wait(WaitReason::RequestedAddressUnavailable, rest(None), false),
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
            None => self.pool_of_present(request, claim.0).filter(|target| {
                let pool = self.pool(target);
                let hands_out = pool.is_some_and(|pool| pool.withheld.is_none());
                let id = request.owner.id.clone();
                let shown = self.shown.contains(&(id, claim.0));
                self.usable(target, claim.0) && (hands_out || shown)
            }),
        };
        claims.into_iter().find_map(|c| Some((c.0, of(c)?)))
    }

    /// The pool that serves one which has the address without a record.
    pub(super) fn pool_of_present(&self, request: &Request, addr: IpAddr) -> Option<PoolName> {
        if request.pool.is_none() && request.requested == Some(addr) {
            return self.requested_pool(request, addr);
        }
        self.target(request)
    }

    /// ALC-7: an address that its Service shows, or its status names.
    fn present_status(&self, request: &Request) -> Option<(IpAddr, PoolName)> {
        let id = &request.owner.id;
        let status = request.status.as_ref();
        let named = status.map(|status| status.addr);
        let mine = |addr: IpAddr| self.holders(addr).iter().all(|holder| holder == id);
        let shown = self.shown.iter().filter(|(owner, _)| owner == id);
        let mut shown: Vec<IpAddr> = shown.map(|(_, addr)| *addr).collect();
        shown.sort_by_key(|addr| (Some(*addr) != named, *addr));
        let shown = shown
            .into_iter()
            .filter(|addr| mine(*addr))
            .find_map(|addr| {
                let of_status = status.filter(|it| it.addr == addr);
                let of_status = of_status.and_then(|it| it.pool.clone());
                let pools = [of_status, self.pool_of_present(request, addr)];
                let mut pools = pools.into_iter().flatten();
                Some((addr, pools.find(|pool| self.usable(pool, addr))?))
            });
        let by_name = || {
            let addr = named?;
            let pool = self.pool_of_present(request, addr)?;
            let has_room = self.has_room(&pool, request, addr) && !self.is_awaited(addr);
            (self.usable(&pool, addr) && mine(addr) && has_room).then_some((addr, pool))
        };
        let found = shown.or_else(by_name);
        // REQ-3: what an earlier load balancer of the name left, and the status does not name.
        let is_left = |addr: IpAddr| {
            let last = self.record(addr).map(|record| &record.spec.owner);
            named != Some(addr) && last.is_some_and(|it| it.id == *id && *it != request.owner)
        };
        found.filter(|(addr, _)| request.takes(*addr) && !is_left(*addr))
    }
}
