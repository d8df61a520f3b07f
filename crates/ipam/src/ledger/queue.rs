//! Who waits for an address, oldest first.

use std::collections::BTreeMap;

use super::decision::{Request, WaitReason};
use crate::types::{Micros, OwnerId, Uid};

/// The order in which the waiting are served: creation, then name, then uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Age {
    pub(crate) created: Micros,
    pub(crate) id: OwnerId,
    pub(crate) uid: Uid,
}

impl Age {
    pub(crate) fn of(request: &Request) -> Self {
        let owner = request.owner.clone();
        Self {
            created: request.created,
            id: owner.id,
            uid: owner.uid,
        }
    }
}

/// A load balancer that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) request: Request,
    /// The reason it was last given; none when it was only enlisted.
    pub(crate) told: Option<WaitReason>,
    /// Whether it was woken since and has not asked yet.
    pub(crate) woken: bool,
}

/// The waiting of one pool, or those that no pool matches.
pub(crate) type Queue = BTreeMap<Age, Waiter>;

/// Counts those older than `age` that compete for what is free, but no further than `limit`.
pub(crate) fn older(
    queue: &Queue,
    age: &Age,
    limit: u128,
    competes: impl Fn(&Waiter) -> bool,
) -> usize {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if queue.len() < limit {
        // Enough for everybody: who is older does not matter.
        return 0;
    }
    let older = queue.range(..age).filter(|(_, waiter)| competes(waiter));
    older.take(limit).count()
}
