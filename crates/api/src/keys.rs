//! Labels, annotations, finalizers and fixed names that are read or written (contract, section 3).

/// Requirement of pool selection: `<namespace>/<NetworkAttachmentDefinition>`.
pub const ANNOTATION_NETWORK: &str = "loadbalancer.harvesterhci.io/network";
/// Requirement of pool selection: the Rancher project.
pub const ANNOTATION_PROJECT: &str = "loadbalancer.harvesterhci.io/project";
/// Requirement of pool selection: the namespace; empty means the load balancer's own.
pub const ANNOTATION_NAMESPACE: &str = "loadbalancer.harvesterhci.io/namespace";
/// Requirement of pool selection: the guest cluster.
pub const ANNOTATION_CLUSTER: &str = "loadbalancer.harvesterhci.io/cluster";
/// On a pool: `<ip>: <namespace>/<name>`, an address that an administrator wants to be released.
pub const ANNOTATION_MANUALLY_RELEASE_IP: &str = "loadbalancer.harvesterhci.io/manuallyReleaseIP";
/// On a pool: digest of the two address maps as this operator wrote them last (IPA-1).
pub const ANNOTATION_PROJECTION: &str = "loadbalancer.harvesterhci.io/projection";
/// On a load balancer: the address that it is to have. Of a later version (IPA-9).
pub const ANNOTATION_REQUESTED_ADDRESS: &str = "loadbalancer.harvesterhci.io/requested-address";
/// On a load balancer: the one whose address it is to share. Of a later version (IPA-9).
pub const ANNOTATION_PRIMARY: &str = "loadbalancer.harvesterhci.io/primary-load-balancer";
/// On a load balancer: the hardware address that its lease is asked for with. Of a later version (IPA-9).
pub const ANNOTATION_DHCP_HARDWARE_ADDRESS: &str =
    "loadbalancer.harvesterhci.io/dhcp-hardware-address";
/// On a pool: addresses that are not to be handed out. Of a later version (IPA-9).
pub const ANNOTATION_EXCLUDE: &str = "loadbalancer.harvesterhci.io/exclude";
/// Beginning of the name of an IPAllocation that is a lease of the load balancer whose uid follows. Of a later version
/// (IPA-9).
pub const LEASE_RECORD_PREFIX: &str = "dhcp-";
/// On a load balancer: its guest cluster is being removed (GC-1).
pub const ANNOTATION_GUEST_REMOVED: &str = "loadbalancer.harvesterhci.io/guest-removed";
/// On a load balancer: the uid of the object that the mark is on; a copy of the object is not marked by it (GC-2).
pub const ANNOTATION_GUEST_REMOVED_UID: &str = "loadbalancer.harvesterhci.io/guest-removed-uid";

/// On a load balancer: the guest cluster that made it.
pub const LABEL_CLOUDPROVIDER_CLUSTER: &str = "cloudprovider.harvesterhci.io/cluster";
/// On Services and EndpointSlices that this operator made: `true`.
pub const LABEL_SERVICELB: &str = "loadbalancer.harvesterhci.io/servicelb";
/// Binds an EndpointSlice to its Service.
pub const LABEL_SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Who manages an EndpointSlice.
pub const LABEL_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Value of [`LABEL_MANAGED_BY`], and the name that events are reported under.
pub const MANAGER: &str = "harvester-load-balancer";

/// On VMs and VMIs: who created them.
pub const LABEL_CREATOR: &str = "harvesterhci.io/creator";
/// Value of [`LABEL_CREATOR`] for the nodes of guest clusters.
pub const CREATOR_NODE_DRIVER: &str = "docker-machine-driver-harvester";
/// On VMs and VMIs: the guest cluster that they are a node of.
pub const LABEL_GUEST_CLUSTER: &str = "guestcluster.harvesterhci.io/name";
/// On VMs, set by Rancher: the guest cluster is being removed.
pub const ANNOTATION_REMOVE_ALL_PVCS: &str = "harvesterhci.io/removeAllPersistentVolumeClaims";

/// Finalizers of the Go operator on load balancers and pools (FIN-2).
pub const LEGACY_FINALIZERS: [&str; 2] = [
    "wrangler.cattle.io/harvester-lb-controller",
    "wrangler.cattle.io/harvester-ipam-controller",
];
/// Finalizers of the Go operator on VMs and VMIs (FIN-1).
pub const LEGACY_VM_FINALIZERS: [&str; 2] = [
    "wrangler.cattle.io/harvester-lb-vmi-controller",
    "wrangler.cattle.io/harvester-lb-vm-controller",
];

/// Namespace of the leader's Lease.
pub const LEASE_NAMESPACE: &str = "kube-system";
/// Name of the leader's Lease; the Go operator uses the same, so the two never work at once.
pub const LEASE_NAME: &str = "harvester-load-balancer";

/// Address of the endpoint that stands in when no backend is ready (EPS-2).
pub const DUMMY_ENDPOINT_ADDRESS: &str = "10.52.0.255";
/// `targetRef.uid` that marks that endpoint (EPS-2).
pub const DUMMY_ENDPOINT_UID: &str = "dummy347-546a-4642-9da6-5608endpoint";
/// On a Service: addresses that kube-vip takes before `loadBalancerIP` (section 8.2).
pub const ANNOTATION_KUBE_VIP_ADDRESSES: &str = "kube-vip.io/loadbalancerIPs";
/// `loadBalancerIP` by which kube-vip leases an address by DHCP (OPS-3).
pub const DHCP_ADDRESS: &str = "0.0.0.0";
