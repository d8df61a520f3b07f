//! The DHCP client of load balancers (DHC-1 to DHC-6): one lease each, many on one interface. Pure: no socket, no clock,
//! no random number that does not come from a seed.
//!
//! | module | owns |
//! |---|---|
//! | `identity` | hardware address and client identifier, from a load balancer's uid |
//! | `message`, `options` | messages and their bytes |
//! | `frame`, `arp`, `bytes` | Ethernet frames |
//! | `lease` | the record of a lease; T1 and T2 |
//! | `timing`, `clock`, `random` | pauses, the two clocks, jitter |
//! | `client` | the state machine of one lease |
//! | `table` | the clients of an interface: who a frame is for, whose time has come |
//!
//! The process that owns the sockets has one [`Table`] per interface. It passes received frames to [`Table::receive`],
//! calls [`Table::wake`] at [`Table::next_wakeup`], and carries out the [`Action`]s.

mod arp;
mod bytes;
mod client;
mod clock;
mod frame;
mod identity;
mod ignored;
mod lease;
mod message;
mod options;
mod output;
mod random;
mod table;
mod timing;

pub use arp::{Arp, ArpKind};
pub use client::{Client, StateName};
pub use clock::Now;
pub use frame::{
    CLIENT_PORT, Checksum, FrameError, Received, SERVER_PORT, arp_frame, client_frame, parse,
};
pub use identity::{ClientId, HardwareAddress, HardwareAddressError, Identity};
pub use ignored::Ignored;
pub use lease::{Lease, LeaseTimes, SHORTEST_LEASE};
pub use message::{Body, ClientMessage, MAX_MESSAGE, ParseError, Reply, ReplyKind};
pub use options::OptionError;
pub use output::{Conflict, Event, Input, Loss, Output};
pub use table::{Action, Command, Delivery, Effect, Table, TableError};
