//! The kinds of objects that the operator reads and writes.

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Lb,
    Pool,
    Record,
    Service,
    Slice,
    Vmi,
    Vm,
    Node,
}

impl Kind {
    pub(crate) const ALL: [Self; 8] = [
        Self::Lb,
        Self::Pool,
        Self::Record,
        Self::Service,
        Self::Slice,
        Self::Vmi,
        Self::Vm,
        Self::Node,
    ];

    pub(crate) fn of_plural(plural: &str) -> Option<Self> {
        Some(match plural {
            "loadbalancers" => Self::Lb,
            "ippools" => Self::Pool,
            "ipallocations" => Self::Record,
            "services" => Self::Service,
            "endpointslices" => Self::Slice,
            "virtualmachineinstances" => Self::Vmi,
            "virtualmachines" => Self::Vm,
            "nodes" => Self::Node,
            _ => return None,
        })
    }

    /// apiVersion and kind.
    pub(crate) fn type_meta(self) -> (&'static str, &'static str) {
        match self {
            Self::Lb => ("loadbalancer.harvesterhci.io/v1beta1", "LoadBalancer"),
            Self::Pool => ("loadbalancer.harvesterhci.io/v1beta1", "IPPool"),
            Self::Record => ("loadbalancer.harvesterhci.io/v1beta1", "IPAllocation"),
            Self::Service => ("v1", "Service"),
            Self::Slice => ("discovery.k8s.io/v1", "EndpointSlice"),
            Self::Vmi => ("kubevirt.io/v1", "VirtualMachineInstance"),
            Self::Vm => ("kubevirt.io/v1", "VirtualMachine"),
            Self::Node => ("v1", "Node"),
        }
    }
}
