//! The pool that section 5 selects for a load balancer that names none.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use harvester_lb_api::ippool::Tuple;
use harvester_lb_api::{IPPool, LoadBalancer, WorkloadType, keys};

use crate::meta::annotation;

/// What a load balancer requires of a pool.
struct Requirement<'a> {
    network: &'a str,
    project: &'a str,
    namespace: &'a str,
    guest_cluster: &'a str,
}

/// A pool: its name and the object.
pub(crate) type Named<'a> = (&'a str, &'a IPPool);

/// A requirement, and whether the load balancer is of cluster type.
type Question = ([String; 4], bool);

/// The pools that were selected so far: thousands of load balancers may wait for a pool.
#[derive(Default)]
pub(crate) struct Selections<'a>(RefCell<BTreeMap<Question, Option<&'a str>>>);

impl<'a> Selections<'a> {
    /// The name of the selected pool. `pools`: all, always the same.
    pub(crate) fn selected(
        &self,
        lb: &LoadBalancer,
        pools: &(impl Iterator<Item = Named<'a>> + Clone),
    ) -> Option<&'a str> {
        let value = |name: &str| annotation(&lb.metadata, name).unwrap_or_default();
        let namespace = value(keys::ANNOTATION_NAMESPACE);
        let wanted = Requirement {
            network: value(keys::ANNOTATION_NETWORK),
            project: value(keys::ANNOTATION_PROJECT),
            namespace: if namespace.is_empty() {
                lb.metadata.namespace.as_deref().unwrap_or_default()
            } else {
                namespace
            },
            guest_cluster: value(keys::ANNOTATION_CLUSTER),
        };
        let is_cluster = lb.spec.workload() == WorkloadType::Cluster;
        let key = (wanted.text(), is_cluster);
        if let Some(known) = self.0.borrow().get(&key) {
            return *known;
        }
        let selected = select(&wanted, is_cluster, pools);
        self.0.borrow_mut().insert(key, selected);
        selected
    }
}

fn select<'a>(
    wanted: &Requirement<'_>,
    is_cluster: bool,
    pools: &(impl Iterator<Item = Named<'a>> + Clone),
) -> Option<&'a str> {
    let best = |is: &dyn Fn(&IPPool) -> bool| {
        let those = pools.clone().filter(|(_, pool)| is(pool));
        // SEL-5.
        those
            .min_by_key(|(name, pool)| (Reverse(priority(pool)), *name))
            .map(|(name, _)| name)
    };
    best(&|pool| !is_global(pool) && matches(pool, wanted, false))
        .or_else(|| best(&is_global))
        .or_else(|| {
            // SEL-6.
            is_cluster
                .then(|| best(&|pool| !is_global(pool) && matches(pool, wanted, true)))
                .flatten()
        })
}

impl Requirement<'_> {
    fn text(&self) -> [String; 4] {
        [
            self.network,
            self.project,
            self.namespace,
            self.guest_cluster,
        ]
        .map(ToOwned::to_owned)
    }
}

fn scope(pool: &IPPool) -> &[Tuple] {
    let selector = pool.spec.selector.as_ref();
    let scope = selector.and_then(|selector| selector.scope.as_deref());
    scope.unwrap_or_default()
}

fn priority(pool: &IPPool) -> i64 {
    let selector = pool.spec.selector.as_ref();
    selector.and_then(|selector| selector.priority).unwrap_or(0)
}

fn parts(tuple: &Tuple) -> [&str; 3] {
    [&tuple.project, &tuple.namespace, &tuple.guest_cluster]
        .map(|part| part.as_deref().unwrap_or_default())
}

/// SEL-4.
fn is_global(pool: &IPPool) -> bool {
    matches!(scope(pool), [tuple] if parts(tuple) == ["*"; 3])
}

/// SEL-2, SEL-3; loosely, with an empty project and guest cluster of the pool as wildcards, SEL-6.
fn matches(pool: &IPPool, wanted: &Requirement<'_>, loose: bool) -> bool {
    let selector = pool.spec.selector.as_ref();
    let network = selector.and_then(|selector| selector.network.as_deref());
    let one = |of_pool: &str, wanted: &str, loose: bool| {
        of_pool == "*" || wanted == "*" || of_pool == wanted || (loose && of_pool.is_empty())
    };
    network.unwrap_or_default() == wanted.network
        && scope(pool).iter().any(|tuple| {
            let [project, namespace, guest_cluster] = parts(tuple);
            one(project, wanted.project, loose)
                && one(namespace, wanted.namespace, false)
                && one(guest_cluster, wanted.guest_cluster, loose)
        })
}
