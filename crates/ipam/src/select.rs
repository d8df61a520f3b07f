//! Selects the pool for a load balancer that names none; `explanation` explains the verdict on every pool.
//!
//! The result depends on the set of pools only, not on their order. The ledger implements SEL-1
//! (a pool named in the spec) and SEL-8 (stickiness), without a selection.

mod explanation;

use std::cmp::Reverse;

pub use explanation::{Explanation, PoolVerdict, Verdict, explain};

/// Wildcard that matches everything.
pub const ANY: &str = "*";

/// One entry of a pool's scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// `project`
    pub project: String,
    /// `namespace`
    pub namespace: String,
    /// `guestCluster`
    pub guest_cluster: String,
}

/// SEL-2: either side is `*`, or both are equal.
fn meets(a: &str, b: &str) -> bool {
    a == ANY || b == ANY || a == b
}

impl Tuple {
    /// The tuple of these three.
    pub fn new(project: &str, namespace: &str, guest_cluster: &str) -> Self {
        Self {
            project: project.into(),
            namespace: namespace.into(),
            guest_cluster: guest_cluster.into(),
        }
    }

    /// Whether two tuples can match the same load balancer (PV-6, PV-8).
    pub fn overlaps(&self, other: &Self) -> bool {
        meets(&self.project, &other.project)
            && meets(&self.namespace, &other.namespace)
            && meets(&self.guest_cluster, &other.guest_cluster)
    }

    /// SEL-2.
    fn matches(&self, requirement: &Requirement) -> bool {
        meets(&self.project, &requirement.project)
            && meets(&self.namespace, &requirement.namespace)
            && meets(&self.guest_cluster, &requirement.cluster)
    }

    /// SEL-6: as SEL-2, with an empty project or cluster of the pool as wildcard.
    fn matches_loosely(&self, requirement: &Requirement) -> bool {
        let loose = |own: &str, required: &str| own.is_empty() || meets(own, required);
        loose(&self.project, &requirement.project)
            && meets(&self.namespace, &requirement.namespace)
            && loose(&self.guest_cluster, &requirement.cluster)
    }
}

/// `spec.selector` of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// `priority`: the highest wins.
    pub priority: u32,
    /// `network`
    pub network: String,
    /// `scope`
    pub scope: Vec<Tuple>,
}

impl Selector {
    /// SEL-4: whether the scope is exactly one tuple of three `*`.
    pub fn is_global(&self) -> bool {
        matches!(self.scope.as_slice(), [only]
            if only.project == ANY && only.namespace == ANY && only.guest_cluster == ANY)
    }
}

/// What a load balancer requires of a pool, from its annotations; "" for an absent one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Requirement {
    /// Required network.
    pub network: String,
    /// Required project.
    pub project: String,
    /// Required namespace.
    pub namespace: String,
    /// Required guest cluster.
    pub cluster: String,
}

impl Requirement {
    /// The requirement of these four texts.
    pub fn new(network: &str, project: &str, namespace: &str, cluster: &str) -> Self {
        Self {
            network: network.into(),
            project: project.into(),
            namespace: namespace.into(),
            cluster: cluster.into(),
        }
    }

    /// Total length of the four texts in bytes; tenants choose it (OPS-6).
    pub fn text_len(&self) -> usize {
        self.network.len() + self.project.len() + self.namespace.len() + self.cluster.len()
    }

    /// Replaces an empty namespace by that of the load balancer.
    #[must_use]
    pub fn or_namespace(mut self, namespace: &str) -> Self {
        if self.namespace.is_empty() {
            self.namespace = namespace.into();
        }
        self
    }
}

/// `spec.workloadType` of a load balancer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Workload {
    /// Serves virtual machines.
    #[default]
    Vm,
    /// Serves a guest cluster.
    Cluster,
}

/// How well a pool matches, apart from its priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    None,
    Loose,
    Global,
    Strict,
}

/// SEL-3, SEL-4, SEL-6. Strict beats global and global beats loose, as in two passes of which the
/// loose one runs only when the strict one finds neither a match nor a global pool.
fn fit(selector: &Selector, requirement: &Requirement, workload: Workload) -> Fit {
    if selector.is_global() {
        return Fit::Global;
    }
    if selector.network != requirement.network {
        return Fit::None;
    }
    if selector
        .scope
        .iter()
        .any(|tuple| tuple.matches(requirement))
    {
        return Fit::Strict;
    }
    let loose = workload == Workload::Cluster
        && selector
            .scope
            .iter()
            .any(|tuple| tuple.matches_loosely(requirement));
    if loose { Fit::Loose } else { Fit::None }
}

/// SEL-3 to SEL-6: the pool for the requirement. Of those that fit best the highest priority wins, then the smallest name
/// (SEL-5).
pub fn select<'a>(
    pools: impl IntoIterator<Item = (&'a str, &'a Selector)>,
    requirement: &Requirement,
    workload: Workload,
) -> Option<&'a str> {
    pools
        .into_iter()
        .map(|(name, selector)| {
            (
                fit(selector, requirement, workload),
                selector.priority,
                name,
            )
        })
        .filter(|(fit, ..)| *fit != Fit::None)
        .max_by_key(|(fit, priority, name)| (*fit, *priority, Reverse(*name)))
        .map(|(.., name)| name)
}

#[cfg(test)]
mod tests;
