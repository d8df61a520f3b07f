//! The clients of one interface: whose each is, and what it has told that its state does not show. Owns how a client is seen from
//! outside. Sends nothing.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use harvester_lb_core::dhcp::record::LeaseSpec;
use harvester_lb_core::dhcp::upkeep::ClientView;
use harvester_lb_ipam::dhcp::{
    Action, Client, Command, Event, HardwareAddress, Identity, Loss, Now, StateName, Table,
    TableError,
};
use harvester_lb_ipam::{Owner, Uid};

use crate::dhcp::views::Entry;

/// The clients.
pub struct Clients {
    /// Their protocol.
    pub table: Table,
    told: BTreeMap<Uid, Told>,
}

struct Told {
    owner: Owner,
    loss: Option<Loss>,
    declined: Option<Ipv4Addr>,
}

impl Clients {
    /// None is there yet.
    pub fn new(limit: usize) -> Self {
        Self {
            table: Table::new(HardwareAddress::ZERO, limit),
            told: BTreeMap::new(),
        }
    }

    /// Adds the client of a record, not started. `reserved` as for [`Table::insert`].
    pub fn insert(
        &mut self,
        record: LeaseSpec,
        reserved: usize,
        now: Now,
    ) -> Result<(), TableError> {
        let uid = record.owner.uid.clone();
        let client = client_of(&record, now);
        self.table.insert(uid.clone(), client, reserved)?;
        let told = Told {
            owner: record.owner,
            loss: None,
            declined: None,
        };
        self.told.insert(uid, told);
        Ok(())
    }

    /// What gives the lease of a record back. Without a client, one is made for this message alone. `interface` is its address.
    pub fn release(
        &mut self,
        record: &LeaseSpec,
        interface: HardwareAddress,
        now: Now,
    ) -> Vec<Action> {
        let (uid, mut actions) = (&record.owner.uid, Vec::new());
        if !self.table.command(uid, Command::Release, now, &mut actions) {
            let mut table = Table::new(interface, 1);
            if table.insert(uid.clone(), client_of(record, now), 0).is_ok() {
                table.command(uid, Command::Release, now, &mut actions);
            }
        }
        actions
    }

    /// Removes a client, if there is one.
    pub fn remove(&mut self, uid: &Uid) {
        self.table.remove(uid);
        self.told.remove(uid);
    }

    /// The load balancers.
    pub fn owners(&self) -> impl Iterator<Item = &Owner> {
        self.told.values().map(|told| &told.owner)
    }

    /// The load balancer of a client.
    pub fn owner(&self, uid: &Uid) -> Option<&Owner> {
        self.told.get(uid).map(|told| &told.owner)
    }

    /// A client has lost its lease.
    pub fn lost(&mut self, uid: &Uid, loss: Loss) {
        if let Some(told) = self.told.get_mut(uid) {
            told.loss = Some(loss);
        }
    }

    /// A client tells of an event. Returns its load balancer, if it is there.
    pub fn tells(&mut self, uid: &Uid, event: &Event) -> Option<&Owner> {
        let told = self.told.get_mut(uid)?;
        if let Event::Declined { address, .. } = event {
            told.declined = Some(*address);
        }
        Some(&told.owner)
    }

    /// What a client is like now. `interface`: that of all of them.
    pub fn entry(&self, uid: &Uid, interface: &str) -> Option<Entry> {
        let (client, told) = (self.table.client(uid)?, self.told.get(uid)?);
        let asking = [StateName::Requesting, StateName::Checking];
        let view = ClientView {
            interface: interface.to_owned(),
            hardware: client.identity().hardware,
            lease: client.lease().copied(),
            is_asking: asking.contains(&client.state()),
            loss: told.loss,
            declined: told.declined,
        };
        Some(Entry {
            owner: told.owner.clone(),
            view,
            state: client.state(),
        })
    }
}

/// The client of a record, not started.
fn client_of(record: &LeaseSpec, now: Now) -> Client {
    let identity = Identity::new(&record.owner.uid, Some(record.hardware));
    let lease = record.phase.lease().copied();
    Client::new(identity, lease, record.wanted, fastrand::u64(..), now)
}
