//! IPA-4: for each pool the oldest older pool that overlaps it, updated when pools are added, deleted or edited. An
//! update visits only the pools whose ranges overlap those of the changed pool.

use std::collections::BTreeSet;

use super::Pools;
use crate::ledger::pool::Seniority;
use crate::types::PoolName;

impl Pools {
    /// The pools whose ranges overlap those of this one.
    fn neighbours(&self, at: u32) -> BTreeSet<u32> {
        let mut others = self.near.around(self[at].cover());
        others.remove(&at);
        others
    }

    /// Removes the ranges of a pool, and updates the neighbours whose older pool it was.
    pub(super) fn remove_overlaps(&mut self, at: u32) {
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

    /// Adds the ranges of a pool, and updates it and its neighbours.
    pub(super) fn add_overlaps(&mut self, at: u32) {
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
            self.overlap_changed.insert(own);
            self.overlap_changed
                .extend(names(&before).into_iter().chain(after));
        }
    }

    /// Pools whose older overlapping pool changed since the last call, and the pools that it was and is (IPA-4).
    pub(crate) fn take_overlap_changes(&mut self) -> BTreeSet<PoolName> {
        std::mem::take(&mut self.overlap_changed)
    }
}
