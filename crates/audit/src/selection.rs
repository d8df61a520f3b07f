//! The pool that section 5 selects for a load balancer that names none.

use std::cmp::Reverse;

use harvester_lb_api::ippool::Tuple;
use harvester_lb_api::{WorkloadType, keys};

use crate::objects::{Lb, Objects, Pool};

/// What a load balancer requires of a pool.
struct Requirement<'a> {
    network: &'a str,
    project: &'a str,
    namespace: &'a str,
    guest_cluster: &'a str,
}

impl<'a> Objects<'a> {
    /// The name of the selected pool.
    pub(crate) fn selected(&self, lb: &Lb<'_>) -> Option<&'a str> {
        let namespace = lb.annotation(keys::ANNOTATION_NAMESPACE);
        let wanted = Requirement {
            network: lb.annotation(keys::ANNOTATION_NETWORK),
            project: lb.annotation(keys::ANNOTATION_PROJECT),
            namespace: if namespace.is_empty() {
                &lb.key.namespace
            } else {
                namespace
            },
            guest_cluster: lb.annotation(keys::ANNOTATION_CLUSTER),
        };
        let is_cluster = lb.object.spec.workload() == WorkloadType::Cluster;
        // Thousands of load balancers may wait for a pool.
        let key = (wanted.text(), is_cluster);
        if let Some(known) = self.selections.borrow().get(&key) {
            return *known;
        }
        let selected = self.select(&wanted, is_cluster);
        self.selections.borrow_mut().insert(key, selected);
        selected
    }

    fn select(&self, wanted: &Requirement<'_>, is_cluster: bool) -> Option<&'a str> {
        let best = |is: &dyn Fn(&Pool<'_>) -> bool| {
            let those = self.pools.values().filter(|pool| is(pool));
            // SEL-5.
            those
                .min_by_key(|pool| (Reverse(priority(pool)), pool.name))
                .map(|pool| pool.name)
        };
        best(&|pool| !is_global(pool) && matches(pool, wanted, false))
            .or_else(|| best(&|pool| is_global(pool)))
            .or_else(|| {
                // SEL-6.
                is_cluster
                    .then(|| best(&|pool| !is_global(pool) && matches(pool, wanted, true)))
                    .flatten()
            })
    }
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

fn scope<'a>(pool: &Pool<'a>) -> &'a [Tuple] {
    let selector = pool.object.spec.selector.as_ref();
    let scope = selector.and_then(|selector| selector.scope.as_deref());
    scope.unwrap_or_default()
}

fn priority(pool: &Pool<'_>) -> i64 {
    let selector = pool.object.spec.selector.as_ref();
    selector.and_then(|selector| selector.priority).unwrap_or(0)
}

fn parts(tuple: &Tuple) -> [&str; 3] {
    [&tuple.project, &tuple.namespace, &tuple.guest_cluster]
        .map(|part| part.as_deref().unwrap_or_default())
}

/// SEL-4.
fn is_global(pool: &Pool<'_>) -> bool {
    matches!(scope(pool), [tuple] if parts(tuple) == ["*"; 3])
}

/// SEL-2, SEL-3; loosely, with an empty project and guest cluster of the pool as wildcards, SEL-6.
fn matches(pool: &Pool<'_>, wanted: &Requirement<'_>, loose: bool) -> bool {
    let selector = pool.object.spec.selector.as_ref();
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
