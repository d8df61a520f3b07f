//! What a hostile object is of, whom it is meant for, and how it comes.

/// Kinds that the operator watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// LoadBalancer.
    LoadBalancer,
    /// IPPool.
    IpPool,
    /// IPAllocation.
    IpAllocation,
    /// VirtualMachineInstance.
    Vmi,
    /// VirtualMachine.
    Vm,
    /// Service, one of the operator's that others have altered.
    Service,
    /// EndpointSlice, the same.
    EndpointSlice,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::LoadBalancer,
        Self::IpPool,
        Self::IpAllocation,
        Self::Vmi,
        Self::Vm,
        Self::Service,
        Self::EndpointSlice,
    ];

    /// API version and kind.
    pub const fn names(self) -> (&'static str, &'static str) {
        const OURS: &str = "loadbalancer.harvesterhci.io/v1beta1";
        match self {
            Self::LoadBalancer => (OURS, "LoadBalancer"),
            Self::IpPool => (OURS, "IPPool"),
            Self::IpAllocation => (OURS, "IPAllocation"),
            Self::Vmi => ("kubevirt.io/v1", "VirtualMachineInstance"),
            Self::Vm => ("kubevirt.io/v1", "VirtualMachine"),
            Self::Service => ("v1", "Service"),
            Self::EndpointSlice => ("discovery.k8s.io/v1", "EndpointSlice"),
        }
    }

    /// Whether its objects have no namespace.
    pub const fn is_cluster_wide(self) -> bool {
        matches!(self, Self::IpPool | Self::IpAllocation)
    }
}

/// Whom the harm is meant for: what a hostile object names besides itself.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    /// Namespaces.
    pub namespaces: Vec<String>,
    /// Names of load balancers and machines.
    pub names: Vec<String>,
    /// Uids of load balancers.
    pub uids: Vec<String>,
    /// Addresses.
    pub addresses: Vec<String>,
    /// Pools.
    pub pools: Vec<String>,
    /// Subnets from which pools may be made.
    pub subnets: Vec<String>,
}

/// Who fills in the metadata that the API server owns, and what may be mutated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As a watch brings it: everything is there, and everything may be odd.
    FromWatch,
    /// As a client sends it: namespace and name fit the request.
    ToServer,
}

impl Way {
    /// One object in so many carries a text of up to a mebibyte; more of them would only take time.
    pub(crate) const fn one_in_large(self) -> usize {
        match self {
            Self::FromWatch => 250,
            Self::ToServer => 1_000,
        }
    }
}
