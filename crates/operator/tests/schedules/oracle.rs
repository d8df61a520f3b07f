//! Invariants after every change, written naively from the rules: the oracle reads the stored objects and does not use the
//! operator's own state. Here: what it keeps; what a change means to it is in one module per kind of object.

#[path = "oracle/allocations.rs"]
mod allocations;
#[path = "oracle/groups.rs"]
mod groups;
#[path = "oracle/history.rs"]
mod history;
#[path = "oracle/leases.rs"]
mod leases;
#[path = "oracle/load_balancers.rs"]
mod load_balancers;
#[path = "oracle/objects.rs"]
mod objects;
#[path = "oracle/records.rs"]
mod records;
#[path = "oracle/services.rs"]
mod services;
#[path = "oracle/wiring.rs"]
mod wiring;

use std::collections::{BTreeMap, BTreeSet};

use harvester_lb_object::Key;
use history::History;
use objects::{Lb, Record, Shown};
use wiring::Wiring;

use super::api::Event;
use super::failure::Failure;
use super::kind::Kind;

/// The state from which the rules are checked.
#[derive(Default)]
pub(crate) struct Oracle {
    lbs: BTreeMap<Key, Lb>,
    records: BTreeMap<String, Record>,
    services: BTreeMap<Key, Shown>,
    wiring: Wiring,
    /// Load balancers that the operator has told that they are served, and of which nobody has asked anything else since.
    settled: BTreeSet<Key>,
    history: History,
    /// Load balancers whose EndpointSlice has changed.
    slices_changed: BTreeSet<Key>,
    /// Addresses whose IPAllocations a user has edited or deleted: their rules are not checked.
    by_hand: BTreeSet<String>,
    /// Those among them whose IPAllocation a late request has made anew: it may have landed after whoever leads has made sure that
    /// there is none, and before its write of the status.
    made_late: BTreeSet<String>,
    /// Those of which a user has released the IPAllocation.
    released_by_hand: BTreeSet<String>,
    /// Uids of load balancers with a lease, and the addresses that they had by one.
    leased: BTreeSet<(String, Option<String>)>,
    /// The valid leases by the names of their records: load balancer, its uid, the address.
    leases: BTreeMap<Key, (Key, String, String)>,
    /// Number of events.
    events: u64,
}

impl Oracle {
    /// Applies a change and checks the rules.
    pub(crate) fn event(&mut self, event: &Event) -> Result<(), Failure> {
        self.events += 1;
        if matches!(event.kind, Kind::Service | Kind::Slice) {
            self.wired(event)?;
        }
        self.history.note(event);
        match event.kind {
            Kind::Lb => self.lb(event),
            Kind::Record => self.record(event),
            Kind::Service => self.service(event),
            Kind::Slice => {
                self.slices_changed.insert(event.key.clone());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A term has ended: its pace is not known to the next one.
    pub(crate) fn end_term(&mut self) {
        for lb in self.lbs.values_mut() {
            lb.written_at = None;
        }
    }

    /// Addresses that a user has released although a Service may show them. A leader whose copy of that Service is still to come
    /// allocates them anew.
    pub(crate) fn released_by_hand(&self) -> &BTreeSet<String> {
        &self.released_by_hand
    }

    /// How many load balancers have an address of a pool.
    pub(crate) fn served(&self) -> usize {
        self.lbs
            .values()
            .filter(|lb| lb.committed.is_some())
            .count()
    }

    /// How many have none.
    pub(crate) fn waiting(&self) -> usize {
        self.lbs
            .values()
            .filter(|lb| !lb.dhcp && lb.committed.is_none())
            .count()
    }
}
