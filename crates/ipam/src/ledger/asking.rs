//! Changes of the load balancers that ask for an address (REQ-3): for whom it is kept, and who is woken.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::Ledger;
use super::askers::{Asker, Askers};
use super::decision::Request;
use super::queue::Age;
use crate::types::OwnerId;

impl Ledger {
    /// REQ-3: puts a load balancer among those that ask for an address, or updates it there.
    pub(super) fn ask(&mut self, asker: Asker) {
        let age = Age::of(&asker.request);
        self.maybe_outdated.remove(&age);
        let known = self.askers.get(&age.id).map(|it| it.addr);
        let addrs: BTreeSet<IpAddr> = known.into_iter().chain([asker.addr]).collect();
        let first = |askers: &Askers, addr| (addr, askers.first(addr).cloned());
        let before: Vec<_> = addrs
            .into_iter()
            .map(|it| first(&self.askers, it))
            .collect();
        self.askers.insert(asker);
        for (addr, before) in before {
            self.after_asking(addr, before.as_ref(), &age.id);
        }
    }

    /// After a change of those that ask for an address, by one of them. `before`: the first one before.
    fn after_asking(&mut self, addr: IpAddr, before: Option<&Age>, by: &OwnerId) {
        if self.askers.first(addr) == before {
            return;
        }
        self.set_taken(addr, self.records.is_bound(addr));
        // The others' explanations name the first one, unless somebody has the address.
        if !self.records.is_bound(addr) {
            let others = self.askers.at(addr).filter(|id| *id != by);
            self.wake_requested.extend(others.cloned());
        }
    }

    /// The same for one that was not decided about yet.
    pub(super) fn enlist_requested(&mut self, request: &Request, addr: IpAddr) {
        self.leave_queue(&request.owner.id);
        self.leave_asking(&request.owner.id);
        let is_served = self.is_served(request, addr);
        self.ask(Asker {
            addr,
            request: request.clone(),
            is_served,
            has_address: false,
            explanation_digest: None,
        });
        self.wake_requested.insert(request.owner.id.clone());
    }

    /// Removes a load balancer from those that ask for an address; the next one may get it.
    pub(super) fn leave_asking(&mut self, id: &OwnerId) {
        let Some(asker) = self.askers.get(id) else {
            return;
        };
        self.maybe_outdated.remove(&Age::of(&asker.request));
        let addr = asker.addr;
        let before = self.askers.first(addr).cloned();
        self.askers.remove(id);
        self.after_asking(addr, before.as_ref(), id);
    }

    /// Those that ask for an address of a pool's present ranges, or name it.
    pub(super) fn askers_of(&self, at: u32) -> BTreeSet<OwnerId> {
        let pool = &self.pools[at];
        let cover = pool.cover().iter();
        let inside = cover.flat_map(|it| self.askers.within(it.start, it.end));
        inside
            .chain(self.askers.naming(&pool.name))
            .cloned()
            .collect()
    }

    /// After a change of a pool: wakes those that ask for its addresses, or name it, and before that decides for which of them the
    /// addresses are kept, so that neither a younger one nor one that takes any address gets them (REQ-3). `before`:
    /// [`askers_of`](Self::askers_of) before the change.
    pub(super) fn pool_of_askers_changed(&mut self, at: u32, before: BTreeSet<OwnerId>) {
        let mut concerned = self.askers_of(at);
        concerned.extend(before);
        // All at once: of many that ask for one address each would be the first for a moment.
        let mut firsts: BTreeMap<IpAddr, Option<Age>> = BTreeMap::new();
        for id in &concerned {
            let Some(asker) = self.askers.get(id) else {
                continue;
            };
            let is_served = self.is_served(&asker.request, asker.addr);
            if is_served != asker.is_served {
                let asker = Asker {
                    is_served,
                    ..asker.clone()
                };
                let first = || self.askers.first(asker.addr).cloned();
                firsts.entry(asker.addr).or_insert_with(first);
                self.maybe_outdated.remove(&Age::of(&asker.request));
                self.askers.insert(asker);
            }
        }
        for (addr, before) in firsts {
            if self.askers.first(addr) != before.as_ref() {
                self.sync_taken(addr);
            }
        }
        self.wake_requested.extend(concerned);
    }
}
