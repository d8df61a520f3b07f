//! What goes into a port: orders and what it needs of its surroundings; and why an order was not carried out.

use std::net::Ipv4Addr;
use std::sync::Arc;

use harvester_lb_core::dhcp::record::LeaseSpec;
use harvester_lb_core::dhcp::upkeep::ClientView;
use harvester_lb_core::event_draft::EventDraft;
use harvester_lb_ipam::dhcp::Conflict;
use harvester_lb_ipam::{Owner, Uid};
use thiserror::Error;
use tokio::sync::oneshot;

use crate::dhcp::index::Index;
use crate::dhcp::metrics::Metrics;

/// What a port needs of its surroundings.
#[derive(Clone)]
pub struct Surroundings {
    /// Views and queue.
    pub index: Arc<Index>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Publishes Events.
    pub notifier: Arc<dyn Notify>,
    /// Largest number of clients whose lease is new; those of recorded leases count, and get theirs whatever the limit (DHC-2).
    pub limit: usize,
}

/// What a port asks of the process.
pub trait Notify: Send + Sync {
    /// Whether this process may send: only the leader may (DHC-2).
    fn is_leader(&self) -> bool;
    /// Publishes an Event about a load balancer.
    fn publish(&self, owner: &Owner, draft: &EventDraft);
    /// Publishes a problem, unless it was the last one published with this reason.
    fn problem(&self, owner: &Owner, draft: &EventDraft);
    /// Publishes a problem that lasts, unless one with this reason was published and is not over: its text may come from the network.
    fn lasting(&self, owner: &Owner, draft: &EventDraft);
    /// Problems with these reasons are over.
    fn solved(&self, uid: &Uid, reasons: &[&str]);
}

/// Why a request to a port failed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PortError {
    /// The interface cannot be used; the port reports when it can.
    #[error("interface {0} cannot be used: {1}")]
    Down(String, String),
    /// There is no such interface; the port reports when there is.
    #[error("there is no interface {0}")]
    Missing(String),
    /// A message was not sent, although the interface can be used.
    #[error("a message on interface {0} was not sent")]
    Unsent(String),
    /// It has as many clients as allowed.
    #[error("interface {0} has {1} leases or more, which is the limit")]
    Full(String, usize),
    /// The lease has ended, so there is nothing to give back.
    #[error("the lease has ended")]
    Over,
    /// The client is not as the caller believes.
    #[error("the client has changed meanwhile")]
    Changed,
    /// The task has ended before it answered. Usually with the term.
    #[error("the task of the interface has ended")]
    Ended,
}

/// A request to a port, and where its result goes.
pub struct Request {
    /// What to do.
    pub order: Order,
    /// Receives the result.
    pub done: oneshot::Sender<Result<(), PortError>>,
}

/// What a port is to do.
#[derive(Debug)]
pub enum Order {
    /// Start the client of a record (DHC-1, DHC-2).
    Start(LeaseSpec),
    /// Remove a client without a RELEASE, if it still is as it was seen.
    Stop(Uid, ClientView),
    /// Give the lease of a record back, and remove its client (DHC-4, DHC-6).
    Release(LeaseSpec),
    /// Somebody else has the address of a client (DHC-5).
    Decline(Uid, Ipv4Addr, Conflict),
}
