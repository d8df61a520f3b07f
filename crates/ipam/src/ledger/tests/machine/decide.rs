//! What the model answers: the rules of allocation, one after the other, by looking through lists.

use super::*;

/// An address for a load balancer without one.
pub(super) struct Found {
    pub(super) addr: IpAddr,
    pub(super) pool: PoolName,
    pub(super) reason: AllocationReason,
    /// When it was reserved, if it was before.
    pub(super) reserved_at: Option<i64>,
}

impl Found {
    pub(super) fn new(addr: IpAddr, pool: PoolName, reason: AllocationReason) -> Self {
        Self {
            addr,
            pool,
            reason,
            reserved_at: None,
        }
    }
}

impl Model {
    pub(super) fn decide(&mut self, request: &Request) -> Outcome {
        let id = &request.owner.id;
        let own = |owner: &Owner| owner.id != *id || *owner == request.owner;
        self.reserved.retain(|r| own(&r.owner));
        self.claims.retain(|c| own(&c.1));
        self.earlier_ones_leave(&request.owner);
        self.held_back.retain(|held| held.0.id != *id);
        let status = request.status.as_ref().map(|status| status.addr);
        let bound: Vec<Record> = self.bound_of(id).into_iter().cloned().collect();
        if let Some(addr) = request.requested {
            return self.decide_requested(request, addr, &bound);
        }
        self.asking.retain(|it| it.request.owner.id != *id);
        let kept = bound
            .iter()
            .filter(|r| {
                request
                    .pool
                    .as_ref()
                    .is_none_or(|pool| *pool == r.spec.pool)
            })
            .filter(|r| {
                r.spec.owner == request.owner
                    || Some(r.spec.addr) == status
                    || request.takes(r.spec.addr)
            })
            .min_by_key(|r| {
                (
                    r.spec.owner != request.owner,
                    Some(r.spec.addr) != status,
                    r.spec.addr,
                )
            });
        let rest = |kept: Option<IpAddr>| -> Vec<IpAddr> {
            bound
                .iter()
                .map(|r| r.spec.addr)
                .filter(|addr| Some(*addr) != kept)
                .collect()
        };
        if let Some(kept) = kept {
            self.waiting.retain(|w| w.owner.id != *id);
            self.drop_holds(id, None);
            let addr = kept.spec.addr;
            return if kept.spec.owner == request.owner {
                Outcome::Held(addr, rest(Some(addr)))
            } else {
                Outcome::Adopt(addr, rest(Some(addr)))
            };
        }
        match self.find(request, status, &bound) {
            Ok(found) => self.take(request, found, rest(None)),
            Err(Refused::Wait(reason)) => {
                self.drop_holds(id, None);
                self.waiting.retain(|w| w.owner.id != *id);
                self.waiting.push(request.clone());
                Outcome::Wait(reason, rest(None), false)
            }
            Err(Refused::HeldBack(reason, addr, pool)) => {
                self.hold_back(request, addr, pool);
                Outcome::Wait(reason, rest(None), true)
            }
        }
    }

    pub(super) fn hold_back(&mut self, request: &Request, addr: IpAddr, pool: PoolName) {
        let id = &request.owner.id;
        self.waiting.retain(|w| w.owner.id != *id);
        let is_known = self.usable(&pool, addr);
        self.drop_holds(id, Some(addr).filter(|_| is_known));
        let held = (request.owner.clone(), addr, pool);
        self.claim_held_back(&held);
        self.held_back.push(held);
    }

    pub(super) fn take(&mut self, request: &Request, found: Found, rest: Vec<IpAddr>) -> Outcome {
        let Found {
            addr,
            pool,
            reason,
            reserved_at,
        } = found;
        let id = &request.owner.id;
        self.waiting.retain(|w| w.owner.id != *id);
        self.drop_holds(id, Some(addr));
        self.reserved.retain(|r| r.addr != addr);
        let (owner, stamp) = (request.owner.clone(), reserved_at.unwrap_or(self.now));
        if reserved_at.is_none() {
            self.stamp = self.now;
        }
        let reserved = Reserved {
            addr,
            owner,
            pool: pool.clone(),
            reason,
            at: stamp,
        };
        self.reserved.push(reserved);
        let spec = RecordSpec {
            addr,
            pool,
            owner: request.owner.clone(),
            phase: Phase::Bound,
            bound_at: Micros(stamp),
            released_at: None,
            group: None,
        };
        let replaces = self.record(addr).map(|record| record.version);
        Outcome::Take(spec, replaces, reason, rest)
    }

    /// Whether a pool hands out the address to somebody who does not have it already.
    pub(super) fn hands_out(&self, pool: &PoolName, addr: IpAddr) -> bool {
        let is_withheld = self.pool(pool).is_none_or(|pool| pool.withheld.is_some());
        !is_withheld && self.usable(pool, addr)
    }

    /// EXC-1: whether what was proposed stays so: the pool hands it out, or it had the address and its own Service shows it.
    pub(super) fn is_confirmed(&self, reserved: &Reserved) -> bool {
        let Reserved {
            addr,
            owner,
            pool,
            reason,
            ..
        } = reserved;
        let is_shown = self.shown.contains(&(owner.id.clone(), *addr));
        let had_it = *reason == AllocationReason::Sticky && is_shown;
        self.hands_out(pool, *addr) || (had_it && self.usable(pool, *addr))
    }

    /// EXC-1: the address that the status names and a pool may have that hands out nothing new.
    pub(super) fn held_back_of(
        &self,
        request: &Request,
        bound: &[Record],
    ) -> Option<(IpAddr, PoolName)> {
        let (addr, id) = (request.status.as_ref()?.addr, &request.owner.id);
        let recorded = self
            .reserved
            .iter()
            .filter(|r| r.reason == AllocationReason::Recorded);
        let own = self
            .claims
            .iter()
            .any(|c| c.0 == addr && c.1 == request.owner)
            || recorded
                .clone()
                .any(|r| r.addr == addr && r.owner == request.owner);
        if bound.iter().any(|r| r.spec.addr == addr) {
            return None;
        }
        let named = request.status.as_ref()?.pool.clone();
        // An undecodable pool serves the one whose status names it: nobody knows whom it selects.
        let of_status = named.as_ref().and_then(|named| self.pool(named));
        let of_status = of_status.filter(|pool| {
            request.pool.is_none() && matches!(pool.withheld, Some(Withheld::Undecodable(_)))
        });
        let pool = match of_status {
            Some(pool) => pool,
            None => self.pool(&self.pool_of_present(request, addr)?)?,
        };
        pool.withheld.as_ref()?;
        let shown = self.shown.contains(&(id.clone(), addr));
        // A claim on what the pool is not known to have is void, and two Services that show one address say nothing.
        let own = own && self.usable(&pool.name, addr);
        let others = if shown {
            self.takers(addr)
        } else {
            self.holders(addr)
        };
        if others.iter().any(|holder| holder != id) && !own {
            return None;
        }
        let may_have = match pool.ranges {
            Ok(_) => self.usable(&pool.name, addr) && !shown,
            Err(_) => named.is_none_or(|named| named == pool.name),
        };
        may_have.then(|| (addr, pool.name.clone()))
    }

    /// Nobody else gets what a pool is known to have.
    fn claim_held_back(&mut self, (owner, addr, pool): &(Owner, IpAddr, PoolName)) {
        let others = self.holders(*addr);
        let is_free = others.iter().all(|holder| *holder == owner.id);
        let has_one = self.claims.iter().any(|c| c.0 == *addr && c.1 == *owner);
        if self.usable(pool, *addr) && is_free && !has_one {
            self.claims.push((*addr, owner.clone(), None));
        }
    }

    /// The pool is another, or gone.
    pub(super) fn wake_held_back(&mut self, name: &str) {
        let of_pool = |held: &&(Owner, IpAddr, PoolName)| *held.2 == *name;
        let mut woken: Vec<_> = self.held_back.iter().filter(of_pool).cloned().collect();
        woken.sort();
        self.held_back.retain(|held| *held.2 != *name);
        for held in woken {
            self.claim_held_back(&held);
        }
    }

    fn find(
        &mut self,
        request: &Request,
        status: Option<IpAddr>,
        bound: &[Record],
    ) -> Result<Found, Refused> {
        let id = &request.owner.id;
        let demanded = |pool: &PoolName| {
            request
                .pool
                .as_ref()
                .is_none_or(|demanded| demanded == pool)
        };
        if let Some(r) = self.reserved.iter().find(|r| r.owner == request.owner)
            && demanded(&r.pool)
            && (r.reason == AllocationReason::Recorded || self.is_confirmed(r))
        {
            return Ok(Found {
                reserved_at: Some(r.at),
                ..Found::new(r.addr, r.pool.clone(), r.reason)
            });
        }
        self.reserved.retain(|r| r.owner != request.owner);
        let mut claims: Vec<_> = self
            .claims
            .iter()
            .filter(|c| c.1 == request.owner)
            .collect();
        claims.sort_by_key(|c| (Some(c.0) != status, c.0));
        let of = |claim: &(IpAddr, Owner, Option<PoolName>)| match &claim.2 {
            Some(pool) => demanded(pool).then(|| pool.clone()),
            None => self.target(request).filter(|target| {
                let hands_out = self
                    .pool(target)
                    .is_some_and(|pool| pool.withheld.is_none());
                let shown = self.shown.contains(&(id.clone(), claim.0));
                self.usable(target, claim.0) && (hands_out || shown)
            }),
        };
        if let Some((addr, pool)) = claims.into_iter().find_map(|c| Some((c.0, of(c)?))) {
            return Ok(Found::new(addr, pool, AllocationReason::Recorded));
        }
        if let Some((addr, pool)) = self.held_back_of(request, bound) {
            let reason = match self.pool(&pool).map(|pool| &pool.withheld) {
                Some(Some(Withheld::InvalidExclude(_))) => WaitReason::InvalidExclude,
                _ => WaitReason::PoolInvalid,
            };
            return Err(Refused::HeldBack(reason, addr, pool));
        }
        self.drop_holds(id, None);
        let target = self.target(request).ok_or(WaitReason::NoMatchedPool)?;
        let pool = self.pool(&target).ok_or(WaitReason::PoolNotFound)?;
        let ranges = pool.ranges.as_ref().map_err(|_| WaitReason::PoolInvalid)?;
        let listed = self.listed(&target);
        let none = match pool.withheld {
            Some(Withheld::InvalidExclude(_)) => WaitReason::InvalidExclude,
            _ => WaitReason::NoAvailableIp,
        };
        let is_mismatch =
            !listed.is_empty() && !listed.iter().any(|(_, addr)| request.takes(*addr));
        if is_mismatch && none == WaitReason::NoAvailableIp {
            return Err(WaitReason::AddressFamilyMismatch.into());
        }
        let served = self.is_due(&target, request);
        let has_room = |addr: IpAddr| self.has_room(&target, request, addr);
        let mine = |addr: IpAddr| self.holders(addr).iter().all(|holder| holder == id);
        let allowed = |addr: IpAddr| {
            let is_free = has_room(addr) && !self.is_awaited(addr);
            request.takes(addr) && (is_free || !self.holders(addr).is_empty())
        };
        if let Some(addr) = status
            && !bound.iter().any(|r| r.spec.addr == addr)
            && mine(addr)
            && request.takes(addr)
            && self.usable(&target, addr)
        {
            if allowed(addr) {
                return Ok(Found::new(addr, target, AllocationReason::Recorded));
            }
            if !served {
                return Err(none.into());
            }
        }
        let mut history: Vec<IpAddr> = self
            .records
            .iter()
            .map(|r| &r.spec)
            .filter(|s| s.phase == Phase::Released && s.owner.id == *id && s.pool == target)
            .map(|s| s.addr)
            .filter(|addr| self.usable(&target, *addr) && mine(*addr) && allowed(*addr))
            .collect();
        history.sort();
        if let Some(addr) = history.first() {
            return Ok(Found::new(*addr, target, AllocationReason::Sticky));
        }
        if !served {
            return Err(none.into());
        }
        let last = self.last.iter().find(|l| l.0 == target).map(|l| l.1);
        let place = last.and_then(|last| {
            Some((
                ranges
                    .ranges()
                    .iter()
                    .position(|range| range.contains(last))?,
                last,
            ))
        });
        let start = place.map_or(0, |place| {
            listed.iter().position(|entry| *entry > place).unwrap_or(0)
        });
        let turn = listed.iter().cycle().skip(start).take(listed.len());
        let free = turn
            .map(|(_, addr)| *addr)
            .find(|addr| !self.is_taken(*addr) && has_room(*addr));
        let moved = bound.iter().any(|r| r.spec.owner == request.owner);
        let reason = if moved {
            AllocationReason::Moved
        } else {
            AllocationReason::Fresh
        };
        let free = free.ok_or(none)?;
        Ok(Found::new(free, target, reason))
    }
}
