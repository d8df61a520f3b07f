//! Addresses that are given to a load balancer: not an excluded one (EXC-1, EXC-2), and no other than the one that it requests (REQ-3).
//!
//! A request may be decided from old copies. It breaks a rule if it breaks it by each version of the objects since the one that the
//! watch of its sender had brought.

use std::net::IpAddr;

use harvester_lb_api::keys;
use harvester_lb_object::Key;
use serde_json::Value;

use super::Oracle;
use super::objects::{Record, text};
use crate::api::Event;
use crate::failure::{Failure, must};
use crate::kind::Kind;

impl Oracle {
    /// A record has become Bound.
    pub(super) fn given(&self, event: &Event, record: &Record) -> Result<(), Failure> {
        let Record {
            address,
            owner,
            pool,
            ..
        } = record;
        // The address is chosen just before the request is sent, for a copy of the load balancer that was taken before.
        let Some(seen) = &event.seen else {
            return Ok(());
        };
        let known = || self.history.known(Kind::Lb, owner, &seen.at_begin);
        let mut lbs = known().flatten();
        let names = |lb: &Value| text(lb, "/status/allocatedAddress/ip").as_ref() == Some(address);
        // It has the address already: it was restored from a backup, or its record was edited.
        if self.by_hand.contains(address) || lbs.clone().any(names) {
            return Ok(());
        }
        let pool_key = Key::new("", pool);
        let mut pools = self.history.known(Kind::Pool, &pool_key, &seen.at_sending);
        must!(
            "EXC-2",
            pools.any(|pool| pool.is_none_or(|pool| !excludes(pool, address))),
            "{address} is given to {owner}, although its pool {pool} excludes it"
        );
        let is_gone = known().any(|lb| lb.is_none());
        let requests_another = |lb: &Value| {
            let requested = &lb["metadata"]["annotations"][keys::ANNOTATION_REQUESTED_ADDRESS];
            requested.as_str().is_some_and(|it| it != address)
        };
        must!(
            "REQ-3",
            is_gone || !lbs.all(requests_another),
            "{address} is given to {owner}, which requests another one"
        );
        Ok(())
    }
}

/// Whether a pool excludes an address. By a list that cannot be read it may (EXC-1).
fn excludes(pool: &Value, address: &str) -> bool {
    let list = pool["metadata"]["annotations"][keys::ANNOTATION_EXCLUDE].as_str();
    let entries = list.unwrap_or_default().split(',').map(str::trim);
    let mut entries = entries.filter(|entry| !entry.is_empty());
    let address: IpAddr = address.parse().unwrap();
    entries.any(|entry| {
        let (first, last) = entry.split_once('-').unwrap_or((entry, entry));
        match (first.parse::<IpAddr>(), last.parse::<IpAddr>()) {
            (Ok(first), Ok(last)) => {
                first.is_ipv4() == address.is_ipv4() && (first..=last).contains(&address)
            }
            _ if entry == "0.0.0.0/0" => address.is_ipv4(),
            _ => true,
        }
    })
}
