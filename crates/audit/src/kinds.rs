//! The kinds of findings: what each means and what to do. docs/operations.md has the same table.

/// How serious a kind of finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// An address or traffic is at stake: an error at any time.
    Danger,
    /// The operator repairs it by itself within seconds: an error if it persists while the operator is leader.
    Repairable,
    /// To be looked at; nothing fails because of it.
    Minor,
    /// Information.
    Note,
}

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// To be resolved, before a swap or an upgrade too.
    Error,
    /// To be looked at.
    Warning,
    /// Information.
    Info,
}

impl Severity {
    /// The text in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

impl Class {
    /// The severity. `is_leader`: a process of this operator is leader, so that what it repairs by itself should be
    /// repaired.
    pub const fn severity(self, is_leader: bool) -> Severity {
        match self {
            Self::Danger => Severity::Error,
            Self::Repairable if is_leader => Severity::Error,
            Self::Repairable | Self::Minor => Severity::Warning,
            Self::Note => Severity::Info,
        }
    }
}

/// A kind of finding.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its name: one CamelCase word, for programs. It never changes.
    pub reason: &'static str,
    /// How serious it is.
    pub class: Class,
    /// What it means.
    pub meaning: &'static str,
    /// What to do.
    pub action: &'static str,
}

macro_rules! kinds {
    ($($name:ident $class:ident $reason:literal $meaning:literal $action:expr;)*) => {
        $(
            #[doc = concat!("`", $reason, "`.")]
            pub static $name: Kind = Kind {
                reason: $reason, class: Class::$class, meaning: $meaning, action: $action,
            };
        )*
        /// All kinds, in the order of the documentation.
        pub static ALL: &[&Kind] = &[$(&$name),*];
    };
}

/// What to do about something that the operator repairs by itself.
const REPAIRED: &str = "start the operator if none is leader; if one is, keep its log and restart it: the next leader rebuilds its state from the stored objects";
/// What to do about an address that no load balancer can use.
const RELEASE: &str = "start the operator if none is leader; if one is, release the address manually: annotate its IPPool with `loadbalancer.harvesterhci.io/manuallyReleaseIP: \"<ip>: <namespace>/<name>\"`";

kinds! {
    OBJECT_UNDECODABLE Danger "ObjectUndecodable"
        "the object cannot be decoded, and is not checked; its address stays blocked"
        "correct the field that the text names, or delete the object";
    DUPLICATE_ADDRESS Danger "DuplicateAddress"
        "two LoadBalancers have one address, and one of them does not receive its traffic"
        "delete one of the two LoadBalancers, or name another IPPool in its `spec.ipPool`";
    DUPLICATE_SERVICE_ADDRESS Danger "DuplicateServiceAddress"
        "two Services request one address, and kube-vip announces it for only one of them"
        "delete the Service whose LoadBalancer has another address; the operator creates it again";
    ADDRESS_WITHOUT_IP_ALLOCATION Danger "AddressWithoutIPAllocation"
        "a LoadBalancer has an address that no IPAllocation reserves, so another LoadBalancer can get it"
        REPAIRED;
    ADDRESS_MISMATCH Danger "AddressMismatch"
        "the status of a LoadBalancer names another address than its IPAllocation"
        REPAIRED;
    SERVED_WITHOUT_ADDRESS Danger "ServedWithoutAddress"
        "a LoadBalancer waits for an address, and its Service, EndpointSlice or status still has an old one"
        REPAIRED;
    IP_ALLOCATION_ORPHANED Repairable "IPAllocationOrphaned"
        "an address is Bound to a LoadBalancer that does not exist, so no other can get it"
        RELEASE;
    IP_ALLOCATION_OF_OTHER_UID Repairable "IPAllocationOfOtherUID"
        "an address is Bound to an earlier LoadBalancer of the same name"
        REPAIRED;
    IP_ALLOCATION_MISNAMED Danger "IPAllocationMisnamed"
        "the name of an IPAllocation and its `spec.address` differ; the address that it is named after stays blocked"
        "delete the IPAllocation; the operator creates it again if a LoadBalancer has the address";
    LEASE_NOT_RELEASED Repairable "LeaseNotReleased"
        "the DHCP lease of a LoadBalancer that does not exist was not given back"
        "start the DHCP process (chart: `dhcp.enabled`); if it runs, look at its log. Without it, delete the IPAllocation: the lease then expires on the DHCP server";
    SERVICE_ORPHANED Danger "ServiceOrphaned"
        "a Service of the operator belongs to no LoadBalancer; its address is still announced"
        "delete the Service";
    SERVICE_ADDRESS_MISMATCH Danger "ServiceAddressMismatch"
        "the Service of a LoadBalancer requests another address than the LoadBalancer has"
        REPAIRED;
    STATUS_ADDRESS_MISMATCH Danger "StatusAddressMismatch"
        "`status.address` of a LoadBalancer is not the address that its Service reports"
        REPAIRED;
    ANNOUNCED_ADDRESS_MISMATCH Danger "AnnouncedAddressMismatch"
        "kube-vip announces another address than the one allocated"
        "check kube-vip: its log, and the annotation `kube-vip.io/vipHost` of the Service; then delete the Service, which the operator creates again";
    STALE_ENDPOINT Danger "StaleEndpoint"
        "traffic goes to an address that no matching VirtualMachineInstance has"
        REPAIRED;
    UNEXPECTED_SERVICE Danger "UnexpectedService"
        "a LoadBalancer of a guest cluster has a Service or an EndpointSlice on the host, which competes with the guest's"
        "delete the Service and the EndpointSlice";
    FOREIGN_SERVICE_WITH_ENDPOINT_SLICE Danger "ForeignServiceWithEndpointSlice"
        "an EndpointSlice of the operator sends the traffic of a Service of another owner to virtual machines"
        "delete the EndpointSlice, and rename the Service or the LoadBalancer";
    FOREIGN_SERVICE Danger "ForeignService"
        "a Service or EndpointSlice of the name of a LoadBalancer has neither the operator's label nor its ownerReference; this operator does not touch it, and does not serve the LoadBalancer"
        "rename the LoadBalancer, or delete the other object";
    SEVERAL_IP_ALLOCATIONS Repairable "SeveralIPAllocations"
        "a LoadBalancer has several addresses"
        REPAIRED;
    IP_ALLOCATION_UNUSED Repairable "IPAllocationUnused"
        "an address is Bound to a LoadBalancer that does not use it"
        REPAIRED;
    POOL_MISMATCH Repairable "PoolMismatch"
        "a LoadBalancer and its IPAllocation name different IPPools"
        REPAIRED;
    NOT_RECONCILED Repairable "NotReconciled"
        "the operator has not looked at a LoadBalancer yet"
        REPAIRED;
    FREE_ADDRESS_NOT_ALLOCATED Repairable "FreeAddressNotAllocated"
        "a LoadBalancer waits although its IPPool has a free address"
        REPAIRED;
    CONDITION_MISMATCH Repairable "ConditionMismatch"
        "a condition does not say what the objects show"
        REPAIRED;
    SERVICE_MISSING Repairable "ServiceMissing"
        "a LoadBalancer has an address and no Service, so the address is not announced"
        REPAIRED;
    SERVICE_MISMATCH Repairable "ServiceMismatch"
        "the Service of a LoadBalancer is not what its spec asks for"
        REPAIRED;
    ENDPOINT_SLICE_MISSING Repairable "EndpointSliceMissing"
        "a LoadBalancer has a Service and no EndpointSlice, so its traffic is refused"
        REPAIRED;
    ENDPOINT_SLICE_ORPHANED Repairable "EndpointSliceOrphaned"
        "an EndpointSlice of the operator belongs to no LoadBalancer"
        REPAIRED;
    ENDPOINTS_MISMATCH Repairable "EndpointsMismatch"
        "the endpoints of a LoadBalancer are not its virtual machines"
        REPAIRED;
    STATUS_MISMATCH Repairable "StatusMismatch"
        "the status of a LoadBalancer is not what the objects show"
        REPAIRED;
    POOL_STATUS_OUTDATED Repairable "PoolStatusOutdated"
        "counters or address maps of an IPPool are not those of the IPAllocations; written up to 60 s late on a busy cluster"
        "wait a minute; before a swap back run `harvester-load-balancer export`, which writes them";
    MANUAL_RELEASE_PENDING Repairable "ManualReleasePending"
        "the annotation for a manual release is not processed"
        REPAIRED;
    RELEASED_IP_ALLOCATIONS_EXCESSIVE Minor "ReleasedIPAllocationsExcessive"
        "more addresses are remembered than the limits allow; the operator deletes the oldest"
        "none; if the number does not fall, check the operator's permission to delete IPAllocations";
    RELEASED_IP_ALLOCATION_WITHOUT_POOL Minor "ReleasedIPAllocationWithoutPool"
        "an address is remembered for an IPPool that does not exist"
        "none; delete the IPAllocation if it is in the way";
    ALLOCATED_MAP_TRUNCATED Minor "AllocatedMapTruncated"
        "the address maps of an IPPool do not fit into the object"
        "none, except that a swap back to the Go operator is not possible";
    DUPLICATE_CLAIM Danger "DuplicateClaim"
        "several LoadBalancers claim one address; at the import one keeps it, the others get a new address and the condition `AddressLost`"
        "before the swap, delete the LoadBalancers that are not to keep it, or name another IPPool in their `spec.ipPool`";
    ADDRESS_NOT_KEPT Danger "AddressNotKept"
        "at the import a LoadBalancer loses the address that its status names: no IPPool that serves it has the address, or it cannot be confirmed"
        "before the swap, add the address to the ranges of the IPPool that the text names, or name its IPPool in `spec.ipPool`";
    MAP_ENTRY_SKIPPED Minor "MapEntrySkipped"
        "an entry of the address maps of an IPPool cannot be imported"
        "none, unless a LoadBalancer uses the address";
    STALE_ENDPOINT_BEFORE_IMPORT Minor "StaleEndpointBeforeImport"
        "an endpoint written by the Go operator has an address that no VirtualMachineInstance of the namespace reports; this operator removes it"
        "none";
    POOL_INVALID Minor "PoolInvalid"
        "the ranges of an IPPool or its list of exclusions are invalid, so nothing is allocated from it; allocated addresses stay"
        "correct `spec.ranges`, or the annotation `exclude`";
    POOLS_OVERLAP Minor "PoolsOverlap"
        "two IPPools have addresses in common; an address allocated from one is taken in both"
        "make them disjoint";
    WEBHOOK_UNREACHABLE Danger "WebhookUnreachable"
        "a webhook with failurePolicy Fail has a Service without a ready endpoint: the API server refuses every write that it is asked about"
        "start the webhook's Pods, or delete the webhook configuration";
    CONVERSION_UNREACHABLE Danger "ConversionUnreachable"
        "LoadBalancers are stored in an older version, and the Service of the conversion webhook has no ready endpoint: they cannot be read"
        "start the conversion webhook";
    CONVERSION_UNREACHABLE_UNUSED Minor "ConversionUnreachableUnused"
        "the Service of the conversion webhook has no ready endpoint; requests in v1alpha1 fail, those in v1beta1 succeed"
        "start the conversion webhook if guest clusters with cloud provider v0.1.x exist";
    CRD_MISSING Danger "CRDMissing"
        "the API server does not serve a kind that the operator needs"
        "create the CustomResourceDefinition: `kubectl create -f crds/crds.yaml`";
    CRD_TO_CREATE Minor "CRDToCreate"
        "the kind IPAllocation does not exist yet, which is right as long as only the Go operator has run"
        "create it before this operator starts: `kubectl create -f crds/crds.yaml`";
    STATUS_SUBRESOURCE Danger "StatusSubresource"
        "the definition has a status subresource, which drops the status that guest clusters write"
        "restore the CustomResourceDefinition of Harvester or of this operator";
    CRD_OF_HARVESTER Note "CRDOfHarvester"
        "the definition is Harvester's, which is supported; `kubectl get` shows fewer columns, and writes of large IPPools take longer"
        "none";
    GO_OPERATOR_LEADS Minor "GoOperatorLeads"
        "the Go operator holds the Lease"
        "before this operator starts, set the Go operator's `replicaCount` to 0";
    OTHER_DEPLOYMENT Minor "OtherDeployment"
        "Harvester's own Deployment of the load balancer operator has replicas, and none of them holds the Lease; if it runs the Go operator, that takes over when this one stops"
        "set its `replicaCount` to 0, unless its image is this operator";
    NO_LEADER Minor "NoLeader"
        "no process holds the Lease: nothing is allocated or updated"
        "none during a swap; otherwise start the operator and check its `/readyz`";
    PERMISSION_MISSING Minor "PermissionMissing"
        "the user of this command, who may write some of what the operator writes, lacks permissions that the operator needs"
        "none, unless the operator runs as this user: then apply docs/examples/rbac.yaml";
    PERMISSIONS_NOT_CHECKED Note "PermissionsNotChecked"
        "the user of this command may write nothing, as is right for the account of `helm test`: whether the operator has its permissions is not known"
        "none; if the operator runs as this user, it has lost its permissions: apply docs/examples/rbac.yaml";
}
