//! The annotation by which an administrator releases one address of a pool (section 6.4).

use std::fmt;
use std::net::IpAddr;

use crate::addr;
use crate::ledger::{Blocked, Ledger};
use crate::types::{Micros, OwnerId, Phase, Record};

/// What to do about the annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The value is empty: nothing, and the annotation stays.
    Nothing,
    /// Nothing is released; the annotation is removed.
    Refused(Refusal),
    /// Write this Released record, with its version; the annotation is removed.
    Release(Record),
}

/// Why nothing is released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The value does not have the form `<ip>: <namespace>/<name>`.
    Unreadable,
    /// The pool has not allocated the address.
    NotAllocated(IpAddr),
    /// The address is allocated to another load balancer.
    OtherOwner(OwnerId),
    /// The load balancer exists.
    Alive(OwnerId),
    /// IPA-3: a Service of that namespace and name still shows the address.
    Shown(OwnerId),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable => {
                f.write_str("the value must read <ip>: <namespace>/<name of the load balancer>")
            }
            Self::NotAllocated(addr) => write!(f, "{addr} is not allocated in this pool"),
            Self::OtherOwner(owner) => write!(f, "the address is allocated to {owner}"),
            Self::Alive(owner) => write!(f, "the load balancer {owner} exists; delete it instead"),
            Self::Shown(owner) => {
                write!(
                    f,
                    "the Service {owner} still shows the address; delete it first"
                )
            }
        }
    }
}

/// Parses `<ip>: <namespace>/<name>`. Whitespace around each part is ignored; the last `:`
/// separates, because an IPv6 address contains others.
pub fn parse(value: &str) -> Option<(IpAddr, OwnerId)> {
    let (address, owner) = value.rsplit_once(':')?;
    Some((addr::parse(address.trim())?, OwnerId::parse(owner.trim())?))
}

/// Decides what to do about the annotation of a pool. `alive`: whether a load balancer of this
/// namespace and name exists.
pub fn verdict(
    ledger: &Ledger,
    pool: &str,
    value: &str,
    alive: impl FnOnce(&OwnerId) -> bool,
    now: Micros,
) -> Verdict {
    if value.trim().is_empty() {
        return Verdict::Nothing;
    }
    let Some((addr, id)) = parse(value) else {
        return Verdict::Refused(Refusal::Unreadable);
    };
    let allocated = ledger
        .record(addr)
        .filter(|record| record.spec.phase == Phase::Bound && *record.spec.pool == *pool);
    let Some(record) = allocated else {
        return Verdict::Refused(Refusal::NotAllocated(addr));
    };
    if record.spec.owner.id != id {
        return Verdict::Refused(Refusal::OtherOwner(record.spec.owner.id));
    }
    if alive(&id) {
        return Verdict::Refused(Refusal::Alive(id));
    }
    match ledger.may_release(addr, &record.spec.owner.uid, now) {
        Ok(record) => Verdict::Release(record),
        Err(Blocked::Shown { owner }) => Verdict::Refused(Refusal::Shown(owner)),
        Err(_) => Verdict::Refused(Refusal::NotAllocated(addr)),
    }
}

#[cfg(test)]
mod tests;
