//! The cached form of a LoadBalancer.

use std::ops::Deref;

use harvester_lb_api::LoadBalancer;
use harvester_lb_api::meta::Decoded;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cached::trim::{pruned, shrink};
use crate::guest_cluster;

/// A cached LoadBalancer.
#[derive(Debug)]
pub enum Lb {
    /// A decoded object.
    Valid(Box<ValidLb>),
    /// The trimmed metadata of an object that cannot be decoded, and the decoding error.
    Invalid(Box<ObjectMeta>, String),
}

/// A decoded LoadBalancer, without `spec.description` and labels and with trimmed metadata.
#[derive(Debug)]
pub struct ValidLb {
    object: LoadBalancer,
    /// The guest cluster that owns it ([`guest_cluster::of_load_balancer`]), the only label that the operator reads: the map of a
    /// single label takes 640 bytes.
    pub guest_cluster: Option<Box<str>>,
}

impl Deref for ValidLb {
    type Target = LoadBalancer;

    fn deref(&self) -> &LoadBalancer {
        &self.object
    }
}

impl Lb {
    /// The object, if it can be decoded.
    pub fn as_valid(&self) -> Option<&LoadBalancer> {
        match self {
            Self::Valid(lb) => Some(lb),
            Self::Invalid(..) => None,
        }
    }

    /// Converts an object from the watch or from the response to a write.
    pub fn from_watch(decoded: Decoded<LoadBalancer>) -> Self {
        match decoded {
            Ok(object) => Self::valid(object),
            Err(invalid) => Self::Invalid(Box::new(pruned(invalid.metadata)), invalid.error),
        }
    }

    /// Converts a decoded object.
    pub fn valid(mut object: LoadBalancer) -> Self {
        let guest_cluster = guest_cluster::of_load_balancer(&object).map(Into::into);
        object.metadata = pruned(object.metadata);
        object.metadata.labels = None;
        // Free text of any length that the operator never reads. A merge patch leaves it as it is, and the labels.
        object.spec.description = None;
        shrink(&mut object.spec.listeners);
        if let Some(status) = &mut object.status {
            shrink(&mut status.conditions);
            shrink(&mut status.backend_servers);
        }
        Self::Valid(Box::new(ValidLb {
            object,
            guest_cluster,
        }))
    }

    /// Its metadata, trimmed.
    pub fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Valid(object) => &object.metadata,
            Self::Invalid(meta, _) => meta,
        }
    }

    /// Its uid; empty if the metadata has none.
    pub fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
