//! Hostile input: objects as they should be, and mutations of them. All of it follows from a seed.
//!
//! | module | owns |
//! |---|---|
//! | `valid` | objects as users, KubeVirt and the operator write them |
//! | `values` | numbers and texts that nobody expects |
//! | `mutate` | changes of any JSON: wrong types, missing, many, deep, unknown |
//! | `wishes` | changes that make sense to somebody who means harm: the address of another, broken times, foreign labels |
//! | `text` | what no tree of JSON values can hold: numbers too large, nesting without end, keys that are there twice |

mod mutate;
mod text;
mod valid;
mod values;
mod wishes;

use fastrand::Rng;
use serde_json::{Value, json};

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

/// A mutated object.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace, empty for cluster-wide kinds, as the request names it.
    pub namespace: String,
    /// Its name, as the request names it.
    pub name: String,
    /// The object in JSON.
    pub text: String,
    /// What was done to it, for whoever has to find out.
    pub what: Vec<String>,
    /// Whether no API server would ever send this: its own decoder refuses it.
    pub impossible: bool,
}

/// Makes hostile objects of a kind.
#[derive(Debug)]
pub struct Generator {
    rng: Rng,
    kind: Kind,
    way: Way,
    targets: Targets,
    number: u64,
}

impl Way {
    /// One object in so many carries a text of up to a mebibyte; more of them would only take time.
    const fn one_in_large(self) -> usize {
        match self {
            Self::FromWatch => 250,
            Self::ToServer => 1_000,
        }
    }
}

impl Generator {
    /// A generator; the same arguments give the same objects.
    pub fn new(seed: u64, kind: Kind, way: Way, targets: Targets) -> Self {
        // Kinds must not get the same choices one after the other.
        let number = Kind::ALL
            .iter()
            .position(|k| *k == kind)
            .unwrap_or_default();
        let rng = Rng::with_seed(seed ^ (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self {
            rng,
            kind,
            way,
            targets,
            number: 0,
        }
    }

    /// An object of that namespace and name without any mutation.
    pub fn sound(&mut self, namespace: &str, name: &str) -> Value {
        let mut object = valid::object(&mut self.rng, self.kind, &self.targets);
        let (api_version, kind) = self.kind.names();
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        object["metadata"]["name"] = json!(name);
        if !self.kind.is_cluster_wide() {
            object["metadata"]["namespace"] = json!(namespace);
        }
        if self.way == Way::ToServer && self.kind == Kind::Service {
            // The API server gives these, each once.
            for field in ["clusterIP", "clusterIPs"] {
                object["spec"][field].take();
            }
            object["spec"]["ports"][0]["nodePort"].take();
        }
        if self.way == Way::FromWatch {
            self.number += 1;
            object["metadata"]["uid"] = json!(valid::uid(&mut self.rng));
            object["metadata"]["resourceVersion"] = json!((1_000 + self.number).to_string());
            object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        object
    }

    /// A mutated object of that namespace and name.
    pub fn mutant(&mut self, namespace: &str, name: &str) -> Mutant {
        let mut object = self.sound(namespace, name);
        let mut what = Vec::new();
        let rng = &mut self.rng;
        let mut rounds = 1;
        while rounds < 6 && rng.bool() {
            rounds += 1;
        }
        for _ in 0..rounds {
            let done = if rng.u8(..5) < 2 {
                wishes::one(rng, self.kind, self.way, &self.targets, &mut object)
            } else {
                let large = rng.usize(..self.way.one_in_large()) == 0;
                mutate::one(rng, self.way, large, &mut object)
            };
            what.push(done);
        }
        if self.way == Way::ToServer {
            object["metadata"]["name"] = json!(name);
            if !self.kind.is_cluster_wide() {
                object["metadata"]["namespace"] = json!(namespace);
            }
        }
        let (text, impossible) = text::render(&object);
        Mutant {
            kind: self.kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            text,
            what,
            impossible,
        }
    }
}

/// Whether the long form of a test was asked for (`HLB_SOAK`).
pub fn soaks() -> bool {
    std::env::var_os("HLB_SOAK").is_some_and(|v| !v.is_empty() && v != "0")
}

/// The seed of a run: `HLB_SEED`, else by chance in the soak, and else always the same: whoever changes the code must not
/// be told of what was there before.
pub fn seed() -> u64 {
    let given = std::env::var("HLB_SEED").ok().and_then(|v| v.parse().ok());
    given.unwrap_or_else(|| if soaks() { fastrand::u64(..) } else { 1 })
}

/// How many objects of each kind: `HLB_OBJECTS`, else so many in a test run and so many in the soak.
pub fn amount(test: usize, soak: usize) -> usize {
    let given = std::env::var("HLB_OBJECTS")
        .ok()
        .and_then(|v| v.parse().ok());
    given.unwrap_or_else(|| if soaks() { soak } else { test })
}

#[cfg(test)]
mod tests;
