//! What the conversion reads of other objects: the virtual machine with an address, and the pool of an address.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use harvester_lb_ipam::{OwnerId, Phase, PoolName, Record};
use harvester_lb_object::Key;

use crate::cached::{Allocation, Pool, Vmi};

/// The facts of a conversion to v1beta1 (section 2.4).
pub trait Facts {
    /// The name of the virtual machine of the namespace whose backend address this is (BE-2).
    fn virtual_machine(&self, namespace: &str, address: Ipv4Addr) -> Option<Arc<str>>;

    /// The pool that gave the address to this load balancer: it holds it, or held it last.
    fn pool(&self, owner: &OwnerId, address: IpAddr) -> Option<PoolName>;
}

/// An index of VirtualMachineInstances, IPPools and IPAllocations. Each update names the object as it is now and costs
/// O(log n), as does [`Facts::virtual_machine`]; [`Facts::pool`] also asks each pool whose maps another writer wrote.
#[derive(Debug, Default)]
pub struct Index {
    /// What each virtual machine contributes to `by_address`.
    machines: HashMap<Key, (Ipv4Addr, Rank)>,
    /// Namespace and address, then the virtual machines in their order of preference.
    by_address: BTreeMap<(Arc<str>, Ipv4Addr), BTreeSet<Ranked>>,
    /// The readable IPAllocations.
    allocations: HashMap<IpAddr, Holder>,
    /// The pools whose maps another writer wrote (IPA-1). This operator's own maps are only a copy of the IPAllocations.
    foreign: BTreeMap<PoolName, Arc<Pool>>,
}

/// The order of virtual machines that report one address: the one that gets traffic comes first (BE-1, BE-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Running,
    Terminated,
    Deleting,
}

/// A virtual machine's place in the order, and its name.
type Ranked = (Rank, Arc<str>);

#[derive(Debug)]
struct Holder {
    owner: OwnerId,
    pool: PoolName,
    phase: Phase,
}

impl Index {
    /// A VirtualMachineInstance was seen, or is gone (`None`).
    pub fn set_virtual_machine(&mut self, key: &Key, vmi: Option<&Vmi>) {
        let now = vmi.and_then(|vmi| {
            let rank = match vmi {
                _ if vmi.deleting => Rank::Deleting,
                _ if vmi.state.has_terminated() => Rank::Terminated,
                _ => Rank::Running,
            };
            Some((vmi.address?, rank))
        });
        let before = match now {
            Some(now) => self.machines.insert(key.clone(), now),
            None => self.machines.remove(key),
        };
        if before == now {
            return;
        }
        if let Some((address, rank)) = before {
            let at = (Arc::clone(&key.namespace), address);
            if let Some(names) = self.by_address.get_mut(&at) {
                names.remove(&(rank, Arc::clone(&key.name)));
                if names.is_empty() {
                    self.by_address.remove(&at);
                }
            }
        }
        if let Some((address, rank)) = now {
            let at = (Arc::clone(&key.namespace), address);
            let names = self.by_address.entry(at).or_default();
            names.insert((rank, Arc::clone(&key.name)));
        }
    }

    /// The IPAllocation of an address was seen, or is gone (`None`). One that cannot be read names no owner.
    pub fn set_allocation(&mut self, address: IpAddr, allocation: Option<&Allocation>) {
        match allocation {
            Some(Allocation::Valid { record, .. }) => {
                let Record { spec, .. } = record;
                let holder = Holder {
                    owner: spec.owner.id.clone(),
                    pool: spec.pool.clone(),
                    phase: spec.phase,
                };
                self.allocations.insert(address, holder);
            }
            Some(
                Allocation::Unreadable { .. }
                | Allocation::Lease(_)
                | Allocation::UnreadableLease(_)
                | Allocation::Reserved,
            )
            | None => {
                self.allocations.remove(&address);
            }
        }
    }

    /// An IPPool was seen, or is gone (`None`).
    pub fn set_pool(&mut self, name: &PoolName, pool: Option<&Arc<Pool>>) {
        match pool.filter(|pool| pool.foreign_maps.is_some()) {
            Some(pool) => self.foreign.insert(name.clone(), Arc::clone(pool)),
            None => self.foreign.remove(name),
        };
    }

    /// The pool whose `allocated`, or `allocatedHistory`, names this load balancer; the first by name.
    fn foreign_pool(&self, owner: &OwnerId, address: &str, phase: Phase) -> Option<PoolName> {
        let names_owner = |pool: &Pool| {
            let maps = pool.foreign_maps.as_ref()?;
            let map = match phase {
                Phase::Bound => &maps.allocated,
                Phase::Released => &maps.history,
            };
            Some(map.get(address)? == owner.as_str())
        };
        let mut pools = self.foreign.iter();
        pools
            .find(|(_, pool)| names_owner(pool) == Some(true))
            .map(|(name, _)| name.clone())
    }
}

impl Facts for Index {
    /// Several virtual machines report the address: one that runs comes before one that has terminated, and that before one
    /// that is being deleted; of the same, the first by name.
    fn virtual_machine(&self, namespace: &str, address: Ipv4Addr) -> Option<Arc<str>> {
        let names = self.by_address.get(&(Arc::from(namespace), address))?;
        names.first().map(|(_, name)| Arc::clone(name))
    }

    /// A Bound IPAllocation of this load balancer, else a pool whose `allocated` names it, else a Released IPAllocation, else
    /// a pool whose `allocatedHistory` names it. The maps count only if another writer wrote them (POOL-3): before their
    /// import, and while the Go operator runs, the IPAllocations lack what they say.
    fn pool(&self, owner: &OwnerId, address: IpAddr) -> Option<PoolName> {
        let holder = self.allocations.get(&address).filter(|h| h.owner == *owner);
        let text = address.to_string();
        [Phase::Bound, Phase::Released]
            .into_iter()
            .find_map(|phase| match holder {
                Some(holder) if holder.phase == phase => Some(holder.pool.clone()),
                _ => self.foreign_pool(owner, &text, phase),
            })
    }
}
