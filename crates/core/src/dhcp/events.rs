//! The Events about the DHCP lease of a load balancer. Pure. A renewal is none: it is what always happens.

use harvester_lb_ipam::Owner;
use harvester_lb_ipam::dhcp::{Conflict, Event, HardwareAddressError, Lease};

use crate::dhcp::upkeep::Holder;
use crate::event_draft::EventDraft;
/// Reason: the annotation `dhcp-hardware-address` is invalid (DHC-1).
pub use crate::reasons::INVALID_HARDWARE_ADDRESS;

/// Reason: the address was leased, and may be served.
pub const LEASE_BOUND: &str = "LeaseBound";
/// Reason: the address must not be served any more (DHC-3).
pub const LEASE_LOST: &str = "LeaseLost";
/// Reason: the leased address belongs to somebody else (DHC-5).
pub const LEASE_DECLINED: &str = "LeaseDeclined";
/// Reason: no DHCP server answers, or none acknowledges what it has offered.
pub const LEASE_UNANSWERED: &str = "LeaseUnanswered";
/// Reason: a DHCP server refuses what it has offered.
pub const LEASE_REFUSED: &str = "LeaseRefused";
/// Reason: the address was given back (DHC-4, DHC-6).
pub const LEASE_RELEASED: &str = "LeaseReleased";
/// Reason: the interface of the lease cannot be used.
pub const LEASE_INTERFACE_DOWN: &str = "LeaseInterfaceDown";
/// Reason: the interface has as many leases as are allowed.
pub const LEASE_LIMIT_REACHED: &str = "LeaseLimitReached";
/// Reason: another load balancer with the same hardware address has yet to give its lease back (DHC-1).
pub const LEASE_WAITS: &str = "LeaseWaits";
/// Reasons of problems that are over when a server acknowledges a lease. Not when an interface is up again: it may go up and down.
pub const OVER_WITH_AN_ACK: [&str; 3] = [LEASE_UNANSWERED, LEASE_REFUSED, LEASE_INTERFACE_DOWN];

fn normal(reason: &str, text: String) -> EventDraft {
    EventDraft {
        warning: false,
        reason: reason.to_owned(),
        text,
    }
}

fn warning(reason: &str, text: String) -> EventDraft {
    EventDraft {
        warning: true,
        reason: reason.to_owned(),
        text,
    }
}

/// The Event of what happened to a client. `None`: none, or it follows the write of the record ([`bound`], [`released`]).
/// `has_lease`: the client had a lease before. `holder`: who else has the address, of a conflict.
pub fn of_client(event: &Event, has_lease: bool, holder: Option<&Holder>) -> Option<EventDraft> {
    Some(match event {
        // A renewal that was not answered is repeated. If it never is, the expiry is told.
        Event::Bound(_) | Event::Renewed(_) | Event::RenewalUnanswered | Event::Released(_) => {
            return None;
        }
        Event::Unanswered => warning(
            LEASE_UNANSWERED,
            "no DHCP server leases an address; still asking".to_owned(),
        ),
        Event::Refused { server, text } => {
            let reason = text
                .as_deref()
                .map_or_else(String::new, |t| format!(": {t:?}"));
            if has_lease {
                let text = format!(
                    "DHCP server {server} has ended the lease{reason}; its address is not served any more, asking for another one"
                );
                warning(LEASE_LOST, text)
            } else {
                let text = format!(
                    "DHCP server {server} refuses the address that it has offered{reason}; asking again"
                );
                warning(LEASE_REFUSED, text)
            }
        }
        Event::Expired(address) => warning(
            LEASE_LOST,
            format!(
                "the lease of {address} has expired, because no DHCP server has renewed it; the address is not served any more, asking for another one"
            ),
        ),
        Event::Declined {
            address,
            conflict,
            is_offer,
        } => {
            let then = if *is_offer {
                "not asked for, asking again"
            } else {
                "declined, asking for another address"
            };
            let text = match known_as(*conflict, holder) {
                Conflict::Host => {
                    format!("{address} is in use by another host, which answers ARP; {then}")
                }
                Conflict::TwinHost => format!(
                    "{address} is in use by another host with the same hardware address, and the DHCP server takes the two for one client; asking again. Give the load balancer another annotation dhcp-hardware-address"
                ),
                Conflict::Pool => format!(
                    "{address} is allocated by a pool; {then}. Keep the ranges of DHCP server and pools disjoint"
                ),
                Conflict::Lease => format!("{address} is leased by {}; {then}", lb_of(holder)),
                Conflict::Twin => format!(
                    "{address} is leased by {}, which has the same hardware address, and the DHCP server takes the two for one client; asking again. Give them different annotations dhcp-hardware-address",
                    lb_of(holder)
                ),
            };
            warning(LEASE_DECLINED, text)
        }
    })
}

/// Who has an address, if a host that answers ARP may be kube-vip, for an address of another record.
const fn known_as(conflict: Conflict, holder: Option<&Holder>) -> Conflict {
    match (conflict, holder) {
        (Conflict::Host, Some(Holder::Pool)) => Conflict::Pool,
        (Conflict::Host, Some(Holder::Lease { .. })) => Conflict::Lease,
        _ => conflict,
    }
}

fn lb_of(holder: Option<&Holder>) -> String {
    match holder {
        Some(Holder::Lease { lb, .. }) => format!("load balancer {}", lb.id),
        Some(Holder::Pool) | None => "another load balancer".to_owned(),
    }
}

/// The Event of a recorded lease.
pub fn bound(lease: &Lease) -> EventDraft {
    let text = format!("leased {} from DHCP server {}", lease.address, lease.server);
    normal(LEASE_BOUND, text)
}

/// The Event of a lease that was given back.
pub fn released(lease: &Lease) -> EventDraft {
    let text = format!(
        "gave {} back to DHCP server {}",
        lease.address, lease.server
    );
    normal(LEASE_RELEASED, text)
}

/// The Event of an interface that cannot be used.
pub fn interface_down(interface: &str, error: &str) -> EventDraft {
    let text = format!(
        "interface {interface} of the DHCP process cannot be used: {error}; retrying. A lease lasts until it expires"
    );
    warning(LEASE_INTERFACE_DOWN, text)
}

/// The Event of a load balancer that gets no client.
pub fn limit_reached(interface: &str, limit: usize) -> EventDraft {
    let text = format!(
        "interface {interface} has {limit} leases or more, which is the limit: raise --dhcp-lease-limit, or delete load balancers"
    );
    warning(LEASE_LIMIT_REACHED, text)
}

/// The Event of a load balancer that gets no client before another one has given its lease back.
pub fn waits_for_twin(twin: &Owner) -> EventDraft {
    let text = format!(
        "waits until the lease of load balancer {} is given back or has expired, which has the same hardware address",
        twin.id
    );
    normal(LEASE_WAITS, text)
}

/// The Event of an invalid annotation. `has_record`: it has a lease, or asks for one, as before.
pub fn invalid_hardware_address(error: &HardwareAddressError, has_record: bool) -> EventDraft {
    let then = if has_record {
        "the hardware address of the lease stays as it is"
    } else {
        "no address is leased"
    };
    let text = format!("annotation dhcp-hardware-address: {error}; {then}");
    warning(INVALID_HARDWARE_ADDRESS, text)
}

#[cfg(test)]
mod tests;
