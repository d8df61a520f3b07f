//! IPAllocation v1beta1: one object for each address of a pool that a load balancer has or had, and one for each DHCP lease (DHC-1),
//! with its columns of `kubectl get` (OPS-5).
//!
//! That of a pool's address is named after the address, so the API server itself refuses a second allocation of it. That of a lease is
//! named after the uid of the load balancer.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The address and its owner.
#[derive(
    CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema,
)]
#[kube(
    group = "loadbalancer.harvesterhci.io",
    version = "v1beta1",
    kind = "IPAllocation",
    plural = "ipallocations",
    singular = "ipallocation",
    shortname = "ipalloc",
    derive = "Default",
    derive = "PartialEq",
    doc = "An address that a load balancer has or had: one of a pool, allocated by the operator, or one that the DHCP process leases.",
    printcolumn = r#"{"name":"ADDRESS","type":"string","jsonPath":".spec.address"}"#,
    printcolumn = r#"{"name":"POOL","type":"string","jsonPath":".spec.pool"}"#,
    printcolumn = r#"{"name":"NAMESPACE","type":"string","jsonPath":".spec.owner.namespace"}"#,
    printcolumn = r#"{"name":"OWNER","type":"string","jsonPath":".spec.owner.name"}"#,
    printcolumn = r#"{"name":"PHASE","type":"string","jsonPath":".spec.phase"}"#,
    printcolumn = r#"{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct IPAllocationSpec {
    /// The address in canonical text. Empty while a DHCP lease has none.
    pub address: String,
    /// Name of the pool that it was taken from. Empty for a DHCP lease.
    pub pool: String,
    /// The load balancer that holds it, or held it last.
    pub owner: Owner,
    /// Of an address of a pool: Bound (held) or Released (only remembered). Of a DHCP lease: Pending (asked for), Bound, Releasing
    /// (to be given back) or Released (given back).
    pub phase: Phase,
    /// When it was taken, RFC 3339 with microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_at: Option<String>,
    /// When an address of a pool was given back, RFC 3339 with microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_at: Option<String>,
    /// The lease, if a DHCP server chooses the address (DHC-1). The object is named `dhcp-<uid of the load balancer>` then,
    /// and is written by the DHCP process alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<DhcpLease>,
}

/// A lease of a DHCP server (DHC-1). Times are RFC 3339 with microseconds.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DhcpLease {
    /// The interface of the node on which the DHCP process asks for it.
    pub interface: String,
    /// Whether somebody has chosen the interface, by an annotation of the load balancer or `--dhcp-interface`. Else it was that
    /// of the default route.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interface_chosen: bool,
    /// The client's hardware address (`chaddr`).
    pub hardware_address: String,
    /// The client identifier (option 61), in hexadecimal digits with colons.
    pub client_id: String,
    /// The address that is asked for while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_address: Option<String>,
    /// The server that leased the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The Ethernet address that its last answer came from: the server's, or that of the relay or router in front of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_hardware_address: Option<String>,
    /// The subnet mask, if the server sent one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet_mask: Option<String>,
    /// The first router, if the server sent one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<String>,
    /// T1: when the lease is renewed. Absent, like the other times, if the lease has no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_at: Option<String>,
    /// T2: from when on any server is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebind_at: Option<String>,
    /// From when on the address must not be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// A load balancer, identified by its uid.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
pub struct Owner {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid; empty if it was deleted before the IPAllocation was created.
    #[serde(default)]
    pub uid: String,
}

/// Whether an address is held. An address of a pool is `Bound` or `Released`, a DHCP lease has each of these.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum Phase {
    /// The owner holds it. Of a DHCP lease: its address may be served until it expires.
    #[default]
    Bound,
    /// The owner held it last. The address is free, and the same owner gets it back (ALC-2). Of a DHCP lease: it was given
    /// back to the server.
    Released,
    /// A DHCP lease is asked for; there is no address.
    Pending,
    /// A DHCP lease is given back as soon as no Service has its address (DHC-4, DHC-6).
    Releasing,
}
