//! The load balancers of a namespace, as far as the warnings about shared addresses depend on them (SHR-1, SHR-2, SHR-9). Pure.
//!
//! They come from a live list of limited length, read for one request: the webhook has no store of load balancers.

use harvester_lb_api::meta::{Decoded, annotation};
use harvester_lb_api::{LoadBalancer, LoadBalancerSpec, LoadBalancerStatus, keys};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cached::Lb;
use crate::reasons::ADDRESS_SHARED;
use crate::sharing::told;

/// The load balancers of a namespace, by name.
#[derive(Debug, Default)]
pub struct Neighbours {
    lbs: Vec<Lb>,
    is_complete: bool,
}

impl Neighbours {
    /// The load balancers of a list, each reduced to what is read of it. `is_complete`: the namespace has no others.
    pub fn new(list: impl IntoIterator<Item = Decoded<LoadBalancer>>, is_complete: bool) -> Self {
        let lbs = list.into_iter().map(|decoded| match decoded {
            Ok(lb) => Lb::valid(reduced(lb)),
            Err(invalid) => Lb::Invalid(Box::new(reduced_meta(invalid.metadata)), invalid.error),
        });
        let mut lbs: Vec<Lb> = lbs.collect();
        lbs.sort_by(|a, b| a.meta().name.cmp(&b.meta().name));
        Self { lbs, is_complete }
    }

    /// Whether the namespace has no others.
    pub(super) const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The load balancer of this name.
    pub(super) fn find(&self, name: &str) -> Option<&Lb> {
        let mut all = self.lbs.iter();
        all.find(|lb| lb.meta().name.as_deref() == Some(name))
    }

    /// The load balancers that ask for the address of this one.
    pub(super) fn naming<'a>(&'a self, primary: &'a str) -> impl Iterator<Item = &'a LoadBalancer> {
        let all = self.lbs.iter().filter_map(Lb::as_valid);
        all.filter(move |lb| {
            let meta = &lb.metadata;
            let asks = annotation(meta, keys::ANNOTATION_PRIMARY) == Some(primary);
            asks && meta.name.as_deref() != Some(primary)
        })
    }

    /// Those of them that have it, according to their status.
    pub(super) fn sharing<'a>(
        &'a self,
        primary: &'a str,
    ) -> impl Iterator<Item = &'a LoadBalancer> {
        self.naming(primary).filter(|lb| told::was_of_another(lb))
    }
}

/// A load balancer without the parts that tenants fill and no warning reads: the memory of a list is little more than its text.
fn reduced(lb: LoadBalancer) -> LoadBalancer {
    let status = lb.status.map(|status| {
        let mut conditions = status.conditions;
        if let Some(all) = &mut conditions {
            all.retain(|condition| condition.type_ == ADDRESS_SHARED);
            all.shrink_to_fit();
        }
        LoadBalancerStatus {
            allocated_address: status.allocated_address,
            conditions,
            ..LoadBalancerStatus::default()
        }
    });
    LoadBalancer {
        metadata: reduced_meta(lb.metadata),
        spec: LoadBalancerSpec {
            description: None,
            backend_server_selector: None,
            health_check: None,
            ..lb.spec
        },
        status,
    }
}

fn reduced_meta(meta: ObjectMeta) -> ObjectMeta {
    let mut annotations = meta.annotations;
    if let Some(all) = &mut annotations {
        all.retain(|key, _| keys::LOAD_BALANCER_SPEC_ANNOTATIONS.contains(&&**key));
    }
    ObjectMeta {
        name: meta.name,
        uid: meta.uid,
        creation_timestamp: meta.creation_timestamp,
        deletion_timestamp: meta.deletion_timestamp,
        annotations,
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shr_1_of_a_load_balancer_little_is_kept() {
        let condition =
            |type_: &str| json!({"type": type_, "status": "True", "reason": "Secondary"});
        let object = json!({
            "metadata": {
                "name": "b", "namespace": "shop", "uid": "u", "labels": {"app": "x"},
                "annotations": {"a": "b", keys::ANNOTATION_PRIMARY: "a"},
            },
            "spec": {
                "description": "text", "ipPool": "p", "backendServerSelector": {"app": ["x"]}, "healthCheck": {"port": 1},
                "listeners": [{"port": 80, "protocol": "TCP", "backendPort": 1}],
            },
            "status": {
                "backendServers": ["10.0.0.1"], "allocatedAddress": {"ip": "10.0.0.9", "ipPool": "p"},
                "conditions": [condition("Ready"), condition(ADDRESS_SHARED)],
            },
        });
        let lb: LoadBalancer = serde_json::from_value(object).unwrap();
        let neighbours = Neighbours::new([Ok(lb)], true);
        let [kept] = neighbours.sharing("a").collect::<Vec<_>>()[..] else {
            panic!("{neighbours:?}")
        };
        let text = serde_json::to_value(kept).unwrap();
        let expected = json!({
            "apiVersion": text["apiVersion"], "kind": text["kind"],
            "metadata": {"name": "b", "uid": "u", "annotations": {keys::ANNOTATION_PRIMARY: "a"}},
            "spec": {
                "ipPool": "p", "listeners": [{"port": 80, "protocol": "TCP", "backendPort": 1}],
            },
            "status": {
                "allocatedAddress": {"ip": "10.0.0.9", "ipPool": "p"},
                "conditions": [condition(ADDRESS_SHARED)],
            },
        });
        assert_eq!(text, expected);
    }
}
