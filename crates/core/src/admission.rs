//! Admission of LoadBalancers and IPPools (section 10): from the bytes of an `AdmissionReview` to those of its response.
//! Pure: the facts about other objects come in through traits.
//!
//! ```text
//! body ─> Request::parse ─> mutate   ─> Response::Patched ─┐
//!                        └> validate ─> Response::Allowed ─┼─> to_bytes
//!                               │                          │
//!                               ├─ Denial::Refused ─> Response::Refused
//!                               └─ Denial::NotReady: read the object and decide again, or 503
//! ```
//!
//! | module | owns |
//! |---|---|
//! | [`request`] | the wire format of requests |
//! | [`object`] | the objects in them, before and after: specs, and the annotations that are a part of them (section 15) |
//! | [`response`] | patches, warnings, refusals, the wire format of responses |
//! | [`facts`] | what is read of other objects |
//! | `load_balancer` | the rules for LoadBalancers: WM-1 to WM-4, WV-1 to WV-10 |
//! | `shared_address` | the warnings about shared addresses, deletions included: SHR-1, SHR-2, SHR-6, SHR-7, SHR-9 |
//! | `ip_pool` | the rules for IPPools: WM-5, PV-1 to PV-9, EXC-1 |
//! | `host_ports` | the ports that Harvester's hosts use, for a warning |
//! | [`guest_networks`], [`removed_clusters`], [`allocated_addresses`], [`address_holders`] | facts, indexed incrementally |
//! | [`neighbours`] | the load balancers of a namespace, read for one request |
//!
//! The index of all pools is [`crate::validation::pool_index`].

pub mod address_holders;
pub mod allocated_addresses;
pub mod facts;
pub mod guest_networks;
mod host_ports;
mod ip_pool;
mod load_balancer;
pub mod neighbours;
pub mod object;
pub mod removed_clusters;
pub mod request;
pub mod response;
mod shared_address;

pub use address_holders::{AddressHolders, foreign_addresses, node_addresses};
pub use allocated_addresses::AllocatedAddresses;
pub use facts::{Fact, Incomplete, Lookup, MutationFacts, ValidationFacts};
pub use guest_networks::GuestNetworks;
pub use ip_pool::vlan_id;
pub use neighbours::Neighbours;
pub use object::Change;
pub use removed_clusters::RemovedClusters;
pub use request::{Operation, Request, ReviewError, ReviewVersion, Subject};
pub use response::{Denial, Patch, Refusal, Response, Warning};

/// The changes that the mutating webhook makes (WM-1 to WM-5). Idempotent: an object that has them gets an empty patch.
/// Objects that are being deleted, that no rule is about, or that cannot be decoded are not changed; of the last the API
/// server reports what is wrong.
///
/// # Errors
/// [`Denial::Refused`]: WM-2, WM-5. [`Denial::NotReady`]: a fact is missing.
pub fn mutate(request: &Request, facts: &impl MutationFacts) -> Result<Patch, Denial> {
    if !matches!(request.operation, Operation::Create | Operation::Update) {
        return Ok(Patch::default());
    }
    match &request.subject {
        Subject::LoadBalancer(change) => load_balancer::mutate(request, change, facts),
        Subject::IPPool(change) => ip_pool::mutate(request, change, facts),
        Subject::OtherVersion { .. } | Subject::OtherKind(_) => Ok(Patch::default()),
    }
}

/// Validates a request (WV-1 to WV-10, PV-1 to PV-9). The warnings, at most [`Warning::MOST`], tell what is legal but
/// probably wrong. The deletion of a load balancer is never refused (SHR-9).
///
/// Rules that need no facts come first: a request that violates one of them is refused, and one that needs no facts is
/// admitted, before any list is complete (CNV-1). A LoadBalancer or IPPool that cannot be checked is never admitted: one
/// that cannot be decoded, or of another version, is refused. An update that leaves the spec alone is admitted whatever the
/// spec is, so that nothing stops the writes of metadata and status of an object that is older than a rule.
///
/// # Errors
/// [`Denial::Refused`]: a rule is violated. [`Denial::NotReady`]: no rule is known to be violated, but a fact is missing.
pub fn validate(request: &Request, facts: &impl ValidationFacts) -> Result<Vec<Warning>, Denial> {
    match (&request.subject, request.operation) {
        (Subject::LoadBalancer(change), Operation::Create | Operation::Update) => {
            load_balancer::validate(request, change, facts)
        }
        (Subject::LoadBalancer(_), Operation::Delete) => shared_address::deletion(request, facts),
        (Subject::IPPool(change), Operation::Create | Operation::Update) => {
            ip_pool::validate(request, change, facts)
        }
        (Subject::IPPool(change), Operation::Delete) => {
            ip_pool::validate_deletion(request, change, facts)
        }
        (Subject::OtherVersion { kind, version }, operation)
            if *kind == "IPPool" || operation != Operation::Delete =>
        {
            let object = format!("{kind} {}", request.key());
            let reason = format!(
                "cannot be checked in the version {version:?}: the webhook configuration must name v1beta1, with matchPolicy Equivalent"
            );
            Err(Refusal::unchecked(&object, &reason).into())
        }
        _ => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests;
