//! What admission reads of other objects. The server answers from its stores; the rules are in [`super`].
//!
//! A fact that is not known yet ends the decision with [`Fact`], and nothing is guessed: the server reads the object and
//! asks again, or answers 503 while a list is incomplete (CNV-1). A request that needs none of these facts, or that is
//! refused without them, is answered at once.

use std::fmt;

use crate::admission::address_holders::AddressHolders;
use crate::admission::allocated_addresses::AllocatedAddresses;
use crate::admission::guest_networks::GuestNetworks;
use crate::admission::neighbours::Neighbours;
use crate::admission::removed_clusters::RemovedClusters;
use crate::kube_vip_annotations::Interfaces;
use crate::validation::pool_index::PoolIndex;

/// A fact that a decision needs and does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The Namespace of this name. A cache may lack one that was just created: read it live, then decide again.
    Namespace(String),
    /// The NetworkAttachmentDefinition of this namespace and name. As for a Namespace: read it live, then decide again.
    NetworkAttachmentDefinition(String, String),
    /// The LoadBalancers of this namespace. There is no list of them: read them live, then decide again.
    LoadBalancers(String),
    /// The complete list of VirtualMachineInstances.
    VirtualMachineInstances,
    /// The complete list of VirtualMachines.
    VirtualMachines,
    /// The complete list of IPPools.
    IPPools,
    /// The complete list of IPAllocations.
    IPAllocations,
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Namespace(name) => return write!(f, "Namespace {name} is not read yet"),
            Self::NetworkAttachmentDefinition(namespace, name) => {
                return write!(
                    f,
                    "NetworkAttachmentDefinition {namespace}/{name} is not read yet"
                );
            }
            Self::LoadBalancers(namespace) => {
                return write!(
                    f,
                    "the LoadBalancers of namespace {namespace} are not read yet"
                );
            }
            Self::VirtualMachineInstances => "VirtualMachineInstances",
            Self::VirtualMachines => "VirtualMachines",
            Self::IPPools => "IPPools",
            Self::IPAllocations => "IPAllocations",
        };
        write!(f, "the list of {kind} is not complete yet")
    }
}

/// The list that holds a fact is not complete yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incomplete;

/// The result of looking up one object, or the load balancers of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<T> {
    /// The object exists; what is read of it.
    Found(T),
    /// A live read found no such object.
    NotFound,
    /// A live read failed; the error.
    Failed(String),
    /// It was not read yet, or a cache lacks it.
    Unread,
}

impl<T> Lookup<T> {
    /// The same, with a reference to what was found.
    pub fn as_ref(&self) -> Lookup<&T> {
        match self {
            Self::Found(value) => Lookup::Found(value),
            Self::NotFound => Lookup::NotFound,
            Self::Failed(error) => Lookup::Failed(error.clone()),
            Self::Unread => Lookup::Unread,
        }
    }
}

/// The facts of the mutating rules (WM-1 to WM-5).
pub trait MutationFacts {
    /// The annotation `field.cattle.io/projectId` of a Namespace as stored; "" without one (WM-2).
    fn project_id(&self, namespace: &str) -> Lookup<String>;

    /// The VLAN id of a NetworkAttachmentDefinition, see [`super::vlan_id`] (WM-5).
    fn vlan_id(&self, namespace: &str, name: &str) -> Lookup<Result<i64, String>>;

    /// The networks of the virtual machines of guest clusters (WM-3).
    ///
    /// # Errors
    /// The list of VirtualMachineInstances is not complete.
    fn guest_networks(&self) -> Result<&GuestNetworks, Incomplete>;
}

/// The facts of the validating rules (WV-10, PV-3 to PV-9) and of the warnings.
pub trait ValidationFacts {
    /// The guest clusters that are being removed (WV-10).
    ///
    /// # Errors
    /// The list of VirtualMachines is not complete.
    fn removed_clusters(&self) -> Result<&RemovedClusters, Incomplete>;

    /// All pools (PV-3, PV-5, PV-7, PV-8).
    ///
    /// # Errors
    /// The list of IPPools is not complete.
    fn pools(&self) -> Result<&PoolIndex, Incomplete>;

    /// The allocated addresses (PV-4, PV-9).
    ///
    /// # Errors
    /// The list of IPAllocations, or that of IPPools, is not complete.
    fn allocated(&self) -> Result<&AllocatedAddresses, Incomplete>;

    /// The addresses of the Nodes, by the name of the Node; `None` if not known. Used for warnings only.
    fn nodes(&self) -> Option<&AddressHolders>;

    /// The addresses of foreign LoadBalancer Services, see [`super::foreign_addresses`], by `<namespace>/<name>`; `None` if
    /// not known. Used for warnings only.
    fn services(&self) -> Option<&AddressHolders>;

    /// The interfaces of the nodes that load balancers may name (KVA-2).
    fn interfaces(&self) -> &Interfaces;

    /// The load balancers of a namespace (SHR-1, SHR-2, SHR-9). Used for warnings only: they are not warned about if they cannot be
    /// read.
    fn neighbours(&self, namespace: &str) -> Lookup<&Neighbours>;
}
