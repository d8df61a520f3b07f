//! IPA-4: which pool overlaps an older one, kept as pools come, go and are edited: of the others only those are looked at whose
//! ranges meet those of the pool that changes.

use std::collections::BTreeSet;

use super::{Pools, Seniority};
use crate::types::PoolName;

impl Pools {
    /// The pools whose ranges meet those of this one.
    fn neighbours(&self, at: u32) -> BTreeSet<u32> {
        let mut others = self.near.around(self[at].cover());
        others.remove(&at);
        others
    }

    /// Takes the ranges of a pool out, and finds anew whom its neighbours overlap.
    pub(super) fn cross_out(&mut self, at: u32) {
        let seniority = self[at].seniority();
        let neighbours = self.neighbours(at);
        self.near.remove(at, self.places[at as usize].cover());
        for other in neighbours {
            if self[other].older == seniority {
                let older = self.neighbours(other).into_iter();
                let older = older.filter_map(|pool| self[pool].seniority()).min();
                let older = older.filter(|older| Some(older) < self[other].seniority().as_ref());
                self.set_older(other, older);
            }
        }
        self.set_older(at, None);
    }

    /// Takes the ranges of a pool in, and with them what it means to its neighbours.
    pub(super) fn cross_in(&mut self, at: u32) {
        let Some(own) = self[at].seniority() else {
            return;
        };
        let mut oldest = None;
        for other in self.neighbours(at) {
            let Some(theirs) = self[other].seniority() else {
                continue;
            };
            if theirs < own {
                oldest =
                    Some(oldest.map_or_else(|| theirs.clone(), |known| theirs.clone().min(known)));
            } else if self[other].older.as_ref().is_none_or(|older| own < *older) {
                self.set_older(other, Some(own.clone()));
            }
        }
        self.set_older(at, oldest);
        self.near.insert(at, self.places[at as usize].cover());
    }

    fn set_older(&mut self, at: u32, older: Option<Seniority>) {
        let before = std::mem::replace(&mut self[at].older, older);
        let names = |older: &Option<Seniority>| older.as_ref().map(|(_, name)| name.clone());
        if names(&before) != names(&self[at].older) {
            let after = names(&self[at].older);
            let own = self[at].name.clone();
            self.crossed.insert(own);
            self.crossed.extend(names(&before).into_iter().chain(after));
        }
    }

    /// Pools that overlap another than before, and these others, since the last call (IPA-4).
    pub(crate) fn take_crossed(&mut self) -> BTreeSet<PoolName> {
        std::mem::take(&mut self.crossed)
    }
}
