//! Labels, annotations, finalizers and fixed names that the operator reads or writes.

/// Requirement of pool selection: `<namespace>/<NetworkAttachmentDefinition>`.
pub const ANNOTATION_NETWORK: &str = "loadbalancer.harvesterhci.io/network";
/// Requirement of pool selection: the Rancher project.
pub const ANNOTATION_PROJECT: &str = "loadbalancer.harvesterhci.io/project";
/// Requirement of pool selection: the namespace; empty means the load balancer's own.
pub const ANNOTATION_NAMESPACE: &str = "loadbalancer.harvesterhci.io/namespace";
/// Requirement of pool selection: the guest cluster.
pub const ANNOTATION_CLUSTER: &str = "loadbalancer.harvesterhci.io/cluster";
/// On a load balancer, set by guest clusters: fallback of [`ANNOTATION_NETWORK`] (WM-3).
pub const ANNOTATION_MANAGEMENT_NETWORK: &str = "cloudprovider.harvesterhci.io/managementNetwork";
/// On a namespace, set by Rancher: `<cluster>:<project>`, the project that it belongs to (WM-2).
pub const ANNOTATION_PROJECT_ID: &str = "field.cattle.io/projectId";
/// On a pool: `<ip>: <namespace>/<name>`, an address that the administrator asks to release.
pub const ANNOTATION_MANUALLY_RELEASE_IP: &str = "loadbalancer.harvesterhci.io/manuallyReleaseIP";
/// On a pool: digest of the two address maps as this operator last wrote them (IPA-1).
pub const ANNOTATION_PROJECTION: &str = "loadbalancer.harvesterhci.io/projection";
/// On a load balancer: the address that it requests (REQ-1).
pub const ANNOTATION_REQUESTED_ADDRESS: &str = "loadbalancer.harvesterhci.io/requested-address";
/// On a load balancer: the load balancer whose address it shares (SHR-1). On an IPAllocation: the group whose address it is, if that
/// is not its owner's (SHR-5).
pub const ANNOTATION_PRIMARY: &str = "loadbalancer.harvesterhci.io/primary-load-balancer";
/// On a load balancer: the hardware address (`chaddr`) of its DHCP lease, for a reservation on the server (DHC-1).
pub const ANNOTATION_DHCP_HARDWARE_ADDRESS: &str =
    "loadbalancer.harvesterhci.io/dhcp-hardware-address";
/// On a pool: addresses that are excluded from allocation (EXC-1).
pub const ANNOTATION_EXCLUDE: &str = "loadbalancer.harvesterhci.io/exclude";
/// The annotations of a load balancer that are a part of its spec: they ask for an address, or for an interface (section 15).
pub const LOAD_BALANCER_SPEC_ANNOTATIONS: [&str; 4] = [
    ANNOTATION_REQUESTED_ADDRESS,
    ANNOTATION_PRIMARY,
    ANNOTATION_DHCP_HARDWARE_ADDRESS,
    ANNOTATION_KUBE_VIP_INTERFACE,
];
/// Those of load balancers and of pools: validating admission is asked about a change of them, as about one of a spec. One condition is
/// for both kinds; which of them are a part of the spec is decided afterwards.
pub const SPEC_ANNOTATIONS: [&str; 5] = {
    let [requested, primary, hardware, interface] = LOAD_BALANCER_SPEC_ANNOTATIONS;
    [requested, primary, hardware, ANNOTATION_EXCLUDE, interface]
};
/// Name prefix of an IPAllocation that is the DHCP lease of a load balancer, whose uid follows (DHC-1).
pub const LEASE_RECORD_PREFIX: &str = "dhcp-";
/// On kube-vip's ConfigMap: `true` once its pools are migrated (MIG-1).
pub const ANNOTATION_AFTER_CONVERSION: &str = "loadbalancer.harvesterhci.io/after-conversion";
/// On a load balancer: its guest cluster is being removed (GC-1).
pub const ANNOTATION_GUEST_REMOVED: &str = "loadbalancer.harvesterhci.io/guest-removed";
/// On a load balancer: the uid of the object that [`ANNOTATION_GUEST_REMOVED`] was set on. It does not count on a copy
/// of the object, whose uid differs (GC-2).
pub const ANNOTATION_GUEST_REMOVED_UID: &str = "loadbalancer.harvesterhci.io/guest-removed-uid";

/// On a load balancer: the guest cluster that created it.
pub const LABEL_CLOUDPROVIDER_CLUSTER: &str = "cloudprovider.harvesterhci.io/cluster";
/// On a pool: VLAN id of its network in decimal, 0 without a network (WM-5).
pub const LABEL_VID: &str = "loadbalancer.harvesterhci.io/vid";
/// On a pool: `true` if it is global (SEL-4), else `false` (WM-5).
pub const LABEL_GLOBAL_IP_POOL: &str = "loadbalancer.harvesterhci.io/global-ip-pool";
/// On a NetworkAttachmentDefinition: its VLAN id in decimal (WM-5).
pub const LABEL_VLAN_ID: &str = "network.harvesterhci.io/vlan-id";
/// On Services and EndpointSlices that this operator created: `true`.
pub const LABEL_SERVICELB: &str = "loadbalancer.harvesterhci.io/servicelb";
/// Selects what has [`LABEL_SERVICELB`].
pub const SELECTOR_SERVICELB: &str = "loadbalancer.harvesterhci.io/servicelb=true";
/// Binds an EndpointSlice to its Service.
pub const LABEL_SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The controller that manages an EndpointSlice.
pub const LABEL_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Value of [`LABEL_MANAGED_BY`], and the reporting controller of Events.
pub const MANAGER: &str = "harvester-load-balancer";

/// On VMs and VMIs: the component that created them.
pub const LABEL_CREATOR: &str = "harvesterhci.io/creator";
/// Value of [`LABEL_CREATOR`] for the nodes of guest clusters.
pub const CREATOR_NODE_DRIVER: &str = "docker-machine-driver-harvester";
/// On VMs and VMIs: the guest cluster that they are a node of.
pub const LABEL_GUEST_CLUSTER: &str = "guestcluster.harvesterhci.io/name";
/// On VMIs: the name of their VM. Key of the selectors that the conversion makes (section 2.4).
pub const LABEL_VM_NAME: &str = "harvesterhci.io/vmName";
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

/// Namespace of the leader election Lease.
pub const LEASE_NAMESPACE: &str = "kube-system";
/// Name of the leader election Lease; the Go operator uses the same, so that the two are never active at once.
pub const LEASE_NAME: &str = "harvester-load-balancer";

/// Name of the Lease of the DHCP process, in the same namespace (DHC-1).
pub const DHCP_LEASE_NAME: &str = "harvester-load-balancer-dhcp";

/// Address of the stand-in endpoint that is published when no backend is ready (EPS-2).
pub const DUMMY_ENDPOINT_ADDRESS: &str = "10.52.0.255";
/// `targetRef.uid` that marks that endpoint (EPS-2).
pub const DUMMY_ENDPOINT_UID: &str = "dummy347-546a-4642-9da6-5608endpoint";
/// On a Service: addresses that kube-vip prefers over `loadBalancerIP` (section 8.2).
pub const ANNOTATION_KUBE_VIP_ADDRESSES: &str = "kube-vip.io/loadbalancerIPs";
/// On a Service: the node from which kube-vip announces its address.
pub const ANNOTATION_KUBE_VIP_HOST: &str = "kube-vip.io/vipHost";
/// On a Service: the address that kube-vip has leased by DHCP, or asks for (DHC-6).
pub const ANNOTATION_KUBE_VIP_REQUESTED_IP: &str = "kube-vip.io/requestedIP";
/// On a Service: the hardware address of kube-vip's DHCP client (DHC-6).
pub const ANNOTATION_KUBE_VIP_HARDWARE: &str = "kube-vip.io/hwaddr";
/// On a load balancer and its Service: the interface of the nodes that its address is on (KVA-2).
pub const ANNOTATION_KUBE_VIP_INTERFACE: &str = "kube-vip.io/serviceInterface";
/// On a Service: which annotations of kube-vip were copied from the load balancer (KVA-1).
pub const ANNOTATION_COPIED: &str = "loadbalancer.harvesterhci.io/copied-annotations";
/// `loadBalancerIP` that makes kube-vip lease an address by DHCP (OPS-3).
pub const DHCP_ADDRESS: &str = "0.0.0.0";
