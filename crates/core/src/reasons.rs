//! Reasons of the condition `Ready` of a load balancer, and the types of its further conditions (section 9).

/// Reason: ready.
pub const READY_REASON: &str = "Ready";
/// Reason: the Service has no ingress address yet (REC-2).
pub const WAITING_FOR_EXTERNAL_IP: &str = "WaitingForExternalIP";
/// Reason: the selector is empty or matches nothing (BE-1).
pub const NO_BACKEND: &str = "NoBackend";
/// Reason: no matching virtual machine has a usable address (BE-2, BE-8).
pub const BACKENDS_WITHOUT_IP: &str = "BackendsWithoutIP";
/// Reason: no backend is ready (HC-4, BE-5).
pub const BACKENDS_UNHEALTHY: &str = "BackendsUnhealthy";
/// Reason: a Service or EndpointSlice of the load balancer's name has another owner (SVC-1).
pub const NAME_CONFLICT: &str = "NameConflict";
/// Reason: there is no DHCP lease (DHC-1).
pub const WAITING_FOR_LEASE: &str = "WaitingForLease";
/// Reason: the annotation `dhcp-hardware-address` is no hardware address (DHC-1).
pub const INVALID_HARDWARE_ADDRESS: &str = "InvalidHardwareAddress";
/// Reason: the API server rejects an object.
pub const API_ERROR: &str = "ApiError";
/// Reason: the object needs a feature of a later version (IPA-9).
pub const UNSUPPORTED_ANNOTATION: &str = "UnsupportedAnnotation";
/// Reason: the LoadBalancer cannot be decoded.
pub const INVALID_OBJECT: &str = "InvalidObject";

/// Condition: the address is no longer in the ranges of its pool (IPA-7).
pub const ADDRESS_OUT_OF_POOL: &str = "AddressOutOfPool";
/// Condition: the address is excluded by its pool (EXC-3).
pub const ADDRESS_EXCLUDED: &str = "AddressExcluded";
/// Reason, and that of [`REQUESTED_ADDRESS`]: the requested address cannot be had now (REQ-2, REQ-3).
pub const REQUESTED_ADDRESS_UNAVAILABLE: &str = "RequestedAddressUnavailable";
/// Reason: the requested address is no address, or not one of a pool (REQ-1).
pub const INVALID_REQUESTED_ADDRESS: &str = "InvalidRequestedAddress";
/// Condition, False: the load balancer has another address than the one that it requests (REQ-4).
pub const REQUESTED_ADDRESS: &str = "RequestedAddress";
/// Condition: the load balancer may not have the address that its status named (IPA-2, ALC-7).
pub const ADDRESS_LOST: &str = "AddressLost";
/// Condition: more backends match than an EndpointSlice can have, see [`crate::backends::MAX_BACKENDS`].
pub const BACKENDS_LEFT_OUT: &str = "BackendsLeftOut";
/// Condition: [`BACKENDS_UNHEALTHY`] is a start-up step and no failure, because no health check has had a verdict. It is
/// stored, so that after a restart the operator knows whether the Event of a failure was sent already.
pub const FIRST_HEALTH_CHECKS: &str = "FirstHealthChecks";
/// Condition: the health check's port is not the backend port of a TCP listener (HC-7).
pub const HEALTH_CHECK_PORT_MISMATCH: &str = "HealthCheckPortMismatch";

/// Condition: virtual machines are left out because of the address that they report (BE-8).
pub const BACKEND_ADDRESS_REFUSED: &str = "BackendAddressRefused";
/// Condition: virtual machines of another namespace report the same address (BE-8).
pub const BACKEND_ADDRESS_SHARED: &str = "BackendAddressShared";

/// Condition: the load balancer names an interface of the nodes that it may not name (KVA-2).
pub const INTERFACE_NOT_ALLOWED: &str = "InterfaceNotAllowed";

/// Condition: the load balancer shares an address (SHR-3). Its reason is its role, [`SHARED_PRIMARY`], [`SHARED_SECONDARY`] or
/// [`SHARED_HOLDER`]; False: why it has an address of its own, although it asks for that of another one.
pub const ADDRESS_SHARED: &str = "AddressShared";
/// Role: others share its address.
pub const SHARED_PRIMARY: &str = "Primary";
/// Role: its address is that of another load balancer.
pub const SHARED_SECONDARY: &str = "Secondary";
/// Role: its address was that of a load balancer that is gone, and others may share it (SHR-5).
pub const SHARED_HOLDER: &str = "Holder";
/// Reason: it may not share the address that it asks for (SHR-1).
pub const INVALID_PRIMARY: &str = "InvalidPrimary";
/// Reason: the load balancer whose address it asks for does not exist (SHR-1).
pub const PRIMARY_NOT_FOUND: &str = "PrimaryNotFound";
/// Reason: the load balancer whose address it asks for has none yet, or its Service does not have the ports yet.
pub const WAITING_FOR_PRIMARY: &str = "WaitingForPrimary";
/// Reason: one of its ports belongs to another load balancer of the group (SHR-2).
pub const PORT_CONFLICT: &str = "PortConflict";
