//! The cached form of a LoadBalancer.

use harvester_lb_api::LoadBalancer;
use harvester_lb_api::meta::Decoded;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cached::trim::{pruned, shrink};

/// A cached LoadBalancer.
#[derive(Debug)]
pub enum Lb {
    /// A decoded object, without `spec.description` and with trimmed metadata.
    Valid(Box<LoadBalancer>),
    /// The trimmed metadata of an object that cannot be decoded, and the decoding error.
    Invalid(Box<ObjectMeta>, String),
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
        object.metadata = pruned(object.metadata);
        // Free text of any length that the operator never reads. A merge patch leaves it as it is.
        object.spec.description = None;
        shrink(&mut object.spec.listeners);
        if let Some(status) = &mut object.status {
            shrink(&mut status.conditions);
            shrink(&mut status.backend_servers);
        }
        Self::Valid(Box::new(object))
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
