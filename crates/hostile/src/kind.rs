//! The kind of a hostile object, its targets, and how it arrives.

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
    /// Service: one of the operator's, modified by others.
    Service,
    /// EndpointSlice: one of the operator's, modified by others.
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

    /// Whether the kind is cluster-scoped.
    pub const fn is_cluster_scoped(self) -> bool {
        matches!(self, Self::IpPool | Self::IpAllocation)
    }
}

/// Targets of an attack: what a hostile object refers to besides itself.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    /// Namespaces.
    pub namespaces: Vec<String>,
    /// Names of LoadBalancers and VirtualMachines.
    pub names: Vec<String>,
    /// Uids of LoadBalancers.
    pub uids: Vec<String>,
    /// Addresses.
    pub addresses: Vec<String>,
    /// Pools.
    pub pools: Vec<String>,
    /// Subnets that mutated pools may use.
    pub subnets: Vec<String>,
}

/// Where the metadata owned by the API server comes from, and what may be mutated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// As a watch delivers it: complete, and any field may be odd.
    FromWatch,
    /// As a client sends it: namespace and name match the request.
    ToServer,
}

impl Source {
    /// One object in this many carries a text of up to a mebibyte; more of them would only take time.
    pub(crate) const fn one_in_large(self) -> usize {
        match self {
            Self::FromWatch => 250,
            Self::ToServer => 1_000,
        }
    }
}
