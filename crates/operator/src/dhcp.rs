//! The DHCP process: holds the leases of load balancers of VM type with `ipam: dhcp` (DHC-1 to DHC-6). It decides nothing by
//! itself: the protocol is `ipam: dhcp`, the life of a record is `core: dhcp/upkeep`.
//!
//! | module | owns |
//! |---|---|
//! | [`metrics`] | counters |
//! | [`permissions`] | the kinds and permissions that it requires |
//! | [`clocks`] | the two clocks, and whether the wall clock was set |
//! | [`filter`] | which frames reach the process |
//! | [`socket`] | a packet socket on one interface: the only place that sends or receives |
//! | [`views`] | what the clients have told: the newest state of each |
//! | [`mod@line`] | the way to one interface: its socket, or when it is tried again |
//! | [`clients`] | the clients of one interface, and how they are seen from outside |
//! | [`report`] | what a client tells of itself, as Events and as counts |
//! | [`order`] | what goes into a port |
//! | [`port`] | the task of one interface, with its clients |
//! | [`ports`] | the ports of a term: a request goes to the one that is meant |
//! | [`index`] | stores and the queue; a change becomes keys |
//! | [`client`] | the kinds that it reads live and writes, as the cached client finds them in the index |
//! | [`context`] | what all of these share in one term of leadership |
//! | [`upkeep`] | one reconcile of a load balancer's lease |
//!
//! A port never waits for the API server, and a reconcile waits for a port for one command at a time. What a client tells
//! replaces what it told before, and queues its load balancer: no queue grows with the traffic.

pub mod client;
pub mod clients;
pub mod clocks;
pub mod context;
pub mod filter;
pub mod index;
pub mod line;
pub mod metrics;
pub mod order;
pub mod permissions;
pub mod port;
pub mod ports;
pub mod report;
pub mod socket;
pub mod upkeep;
pub mod views;
