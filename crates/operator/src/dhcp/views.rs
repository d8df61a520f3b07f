//! What the clients have told: the newest state of each. Written by the ports, read by the reconciles. What is told replaces
//! what was told before, so this is bounded by the number of clients.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use harvester_lb_core::dhcp::upkeep::ClientView;
use harvester_lb_ipam::dhcp::StateName;
use harvester_lb_ipam::{Owner, Uid};
use parking_lot::Mutex;

/// A client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its load balancer.
    pub owner: Owner,
    /// What a reconcile needs to know of it.
    pub view: ClientView,
    /// Its state, for the metrics.
    pub state: StateName,
}

impl Entry {
    fn address(&self) -> Option<Ipv4Addr> {
        self.view.lease.map(|lease| lease.address)
    }
}

#[derive(Debug, Default)]
struct Inner {
    entries: BTreeMap<Uid, Entry>,
    by_address: BTreeMap<Ipv4Addr, BTreeSet<Uid>>,
}

impl Inner {
    fn take(&mut self, uid: &Uid) -> Option<Entry> {
        let entry = self.entries.remove(uid)?;
        if let Some(address) = entry.address()
            && let Some(uids) = self.by_address.get_mut(&address)
        {
            uids.remove(uid);
            if uids.is_empty() {
                self.by_address.remove(&address);
            }
        }
        Some(entry)
    }
}

/// The clients of a term, of all interfaces.
#[derive(Debug, Default)]
pub struct Views(Mutex<Inner>);

impl Views {
    /// The client of a load balancer.
    pub fn get(&self, uid: &Uid) -> Option<ClientView> {
        let inner = self.0.lock();
        inner.entries.get(uid).map(|entry| entry.view.clone())
    }

    /// The load balancer of the client of this uid.
    pub fn owner(&self, uid: &Uid) -> Option<Owner> {
        let inner = self.0.lock();
        inner.entries.get(uid).map(|entry| entry.owner.clone())
    }

    /// Replaces what is known of a client. Whether a reconcile has to know.
    pub fn set(&self, entry: Entry) -> bool {
        let mut inner = self.0.lock();
        let uid = entry.owner.uid.clone();
        let before = inner.take(&uid);
        if let Some(address) = entry.address() {
            let uids = inner.by_address.entry(address).or_default();
            uids.insert(uid.clone());
        }
        let is_news = before.is_none_or(|before| before.view != entry.view);
        inner.entries.insert(uid, entry);
        is_news
    }

    /// A client is removed.
    pub fn remove(&self, uid: &Uid) {
        self.0.lock().take(uid);
    }

    /// The load balancers whose clients hold an address: more than one only if servers are at fault.
    pub fn holders(&self, address: Ipv4Addr) -> Vec<Owner> {
        let inner = self.0.lock();
        let uids = inner.by_address.get(&address).into_iter().flatten();
        uids.filter_map(|uid| inner.entries.get(uid))
            .map(|entry| entry.owner.clone())
            .collect()
    }

    /// Number of clients by state.
    pub fn by_state(&self) -> BTreeMap<StateName, usize> {
        let mut count = BTreeMap::new();
        for entry in self.0.lock().entries.values() {
            *count.entry(entry.state).or_insert(0) += 1;
        }
        count
    }

    /// The process is no leader any more: there is no client.
    pub fn clear(&self) {
        *self.0.lock() = Inner::default();
    }
}

#[cfg(test)]
mod tests {
    use harvester_lb_ipam::dhcp::{HardwareAddress, Lease};

    use super::*;

    fn entry(uid: &str, address: Option<u8>) -> Entry {
        Entry {
            owner: Owner::new("shop", uid, uid),
            view: ClientView {
                interface: "eth0".to_owned(),
                hardware: HardwareAddress([2, 0, 0, 0, 0, 1]),
                lease: address.map(|last| Lease {
                    address: Ipv4Addr::new(192, 168, 100, last),
                    server: Ipv4Addr::new(192, 168, 100, 1),
                    server_hardware: None,
                    mask: None,
                    router: None,
                    times: None,
                }),
                is_asking: false,
                loss: None,
                declined: None,
            },
            state: StateName::Bound,
        }
    }

    #[test]
    fn dhc_5_who_holds_an_address_is_found() {
        let views = Views::default();
        let of = |last: u8| {
            let holders = views.holders(Ipv4Addr::new(192, 168, 100, last));
            let names = holders.into_iter().map(|owner| owner.uid.to_string());
            names.collect::<Vec<_>>()
        };
        assert!(views.set(entry("a", Some(7))));
        assert!(!views.set(entry("a", Some(7))), "no news");
        assert!(views.set(entry("b", Some(7))));
        assert_eq!(of(7), ["a", "b"]);
        assert!(views.set(entry("a", Some(8))));
        assert_eq!((of(7), of(8)), (vec!["b".to_owned()], vec!["a".to_owned()]));
        assert!(views.set(entry("a", None)));
        views.remove(&Uid::new("b"));
        assert!(of(7).is_empty() && of(8).is_empty());
        assert_eq!(views.by_state(), [(StateName::Bound, 1)].into());
        views.clear();
        assert_eq!(views.get(&Uid::new("a")), None);
    }
}
