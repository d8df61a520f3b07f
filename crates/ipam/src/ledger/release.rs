//! Which records may be released, and which Released ones may be deleted.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Ledger;
use super::decision::Blocked;
use crate::types::{Micros, Phase, Record, Uid};

impl Ledger {
    /// IPA-3, REL-1: the Released record to write for an address whose owner, of this uid, is gone
    /// or has another address. Only a record of exactly this uid is released, and only if no Service
    /// of its id shows the address. The caller must know that the uid is gone.
    ///
    /// # Errors
    ///
    /// Why the record must not be released.
    pub fn may_release(&self, addr: IpAddr, uid: &Uid, now: Micros) -> Result<Record, Blocked> {
        let entry = self.records.get(addr).ok_or(Blocked::NoRecord)?;
        let owner = &entry.owner;
        if !entry.is_bound() {
            return Err(Blocked::NotBound);
        }
        if owner.uid != *uid {
            return Err(Blocked::OtherOwner {
                owner: owner.id.clone(),
            });
        }
        if self.holds.is_blocked(addr) {
            return Err(Blocked::Unreadable);
        }
        if self.holds.shows(&owner.id, addr) {
            return Err(Blocked::Shown {
                owner: owner.id.clone(),
            });
        }
        let mut record = self.to_record(entry);
        record.spec.phase = Phase::Released;
        record.spec.group = None;
        record.spec.released_at = Some(now);
        Ok(record)
    }

    /// The Released records to delete, at most `limit`: those that their pool cannot allocate (any
    /// more) or whose pool is deleted (POOL-1), and the oldest of those beyond the limits of the
    /// settings (6.5). A pool whose ranges are invalid keeps its history until they are repaired.
    /// Call it only when all pools are known.
    pub fn history_excess(&self, limit: usize) -> Vec<Record> {
        let mut excess: BTreeSet<IpAddr> = BTreeSet::new();
        let mut total = 0;
        for pool in self.pools.all() {
            let knows_addresses = pool.knows_addresses();
            let outside = pool
                .outside
                .iter()
                .filter(|addr| knows_addresses && !self.records.is_bound(**addr));
            let before = excess.len();
            excess.extend(outside.take(limit - before));
            if excess.len() == limit {
                break;
            }
            let kept = pool.history.len() - (excess.len() - before);
            let over = kept.saturating_sub(self.settings.history_per_pool);
            let oldest: Vec<_> = pool
                .history
                .iter()
                .map(|(_, addr)| *addr)
                .filter(|addr| !excess.contains(addr))
                .take(over.min(limit - excess.len()))
                .collect();
            excess.extend(oldest);
            total += kept - over;
        }
        let over = total.saturating_sub(self.settings.history_total);
        // The excess of single pools goes first.
        if over > 0 && excess.len() < limit {
            let mut rest: Vec<_> = self
                .pools
                .all()
                .iter()
                .flat_map(|pool| &pool.history)
                .filter(|(_, addr)| !excess.contains(addr))
                .collect();
            rest.sort_unstable();
            let over = over.min(limit - excess.len());
            excess.extend(rest.into_iter().take(over).map(|(_, addr)| *addr));
        }
        excess
            .into_iter()
            .filter_map(|addr| self.record(addr))
            .collect()
    }
}
