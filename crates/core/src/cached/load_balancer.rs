//! The copy of a load balancer.

use harvester_lb_api::LoadBalancer;
use harvester_lb_api::meta::Decoded;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cached::trim::pruned;

/// A load balancer as it is stored.
#[derive(Debug)]
pub enum Lb {
    /// It could be decoded.
    Valid(Box<LoadBalancer>),
    /// It could not; its metadata and why.
    Invalid(Box<ObjectMeta>, String),
}

impl Lb {
    /// From the watch.
    pub fn from_watch(decoded: Decoded<LoadBalancer>) -> Self {
        match decoded {
            Ok(object) => Self::valid(object),
            Err(invalid) => Self::Invalid(Box::new(pruned(invalid.metadata)), invalid.error),
        }
    }

    /// A decoded object.
    pub fn valid(mut object: LoadBalancer) -> Self {
        object.metadata = pruned(object.metadata);
        // Free text of any length that nothing here reads; a patch of differences leaves it as it is.
        object.spec.description = None;
        Self::Valid(Box::new(object))
    }

    /// Its metadata.
    pub fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Valid(object) => &object.metadata,
            Self::Invalid(meta, _) => meta,
        }
    }

    /// Its uid.
    pub fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }
}
