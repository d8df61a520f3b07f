//! The objects of a review: metadata and spec, decoded apart from each other. Pure.
//!
//! Only what the rules read is decoded. `status` and `metadata.managedFields` are skipped at any size and depth.

use std::collections::BTreeMap;

use harvester_lb_api::meta::{Decoded, Undecodable};
use harvester_lb_api::{IPPool, IPPoolSpec, LoadBalancer, LoadBalancerSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

/// Longest text of a decoding error, in bytes. The decoder quotes values, which can be of any length.
const ERROR_LIMIT: usize = 320;

/// The object under review, before and after the operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Change<K> {
    /// The object after the operation; `None` on a deletion. Without its status.
    pub object: Option<Decoded<K>>,
    /// The object before the operation; `None` on a creation. Without its status.
    pub old: Option<Decoded<K>>,
    /// Whether both have the same spec, as text: also one that cannot be decoded is recognized as unchanged.
    pub is_same_text: bool,
}

impl<K: Resource> Change<K> {
    /// Whether the stored object is being deleted. Such an update is always allowed, so that nothing delays the deletion.
    pub(super) fn is_deleting(&self) -> bool {
        let meta = match &self.old {
            Some(Ok(object)) => object.meta(),
            Some(Err(invalid)) => &invalid.metadata,
            None => return false,
        };
        meta.deletion_timestamp.is_some()
    }
}

impl<K> Change<K> {
    /// The stored object, if it can be decoded.
    pub(super) fn stored(&self) -> Option<&K> {
        self.old.as_ref()?.as_ref().ok()
    }

    /// The new object.
    ///
    /// # Errors
    /// It is missing or cannot be decoded; the text says so after the object's name.
    pub(super) fn new_object(&self) -> Result<&K, String> {
        match &self.object {
            Some(Ok(object)) => Ok(object),
            Some(Err(invalid)) => Err(format!("cannot be decoded, correct it: {}", invalid.error)),
            None => Err("is missing in the AdmissionReview".to_owned()),
        }
    }
}

/// Namespace and name in the metadata of an object.
#[derive(Clone, Debug, Default)]
pub(super) struct Named {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// An object of a review.
pub(super) struct Parsed<'a, K> {
    /// The object.
    pub(super) object: Decoded<K>,
    /// Its names, also if the rest cannot be decoded.
    pub(super) named: Named,
    /// Its spec as text; `None` if it has none.
    pub(super) spec: Option<&'a str>,
}

/// The metadata that the rules read.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    uid: Option<String>,
    #[serde(default)]
    deletion_timestamp: Option<Time>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

impl From<Metadata> for ObjectMeta {
    fn from(meta: Metadata) -> Self {
        Self {
            name: meta.name,
            namespace: meta.namespace,
            uid: meta.uid,
            deletion_timestamp: meta.deletion_timestamp,
            labels: meta.labels,
            annotations: meta.annotations,
            ..Self::default()
        }
    }
}

/// Decodes metadata and spec of an object.
pub(super) fn decode<K, S: DeserializeOwned>(
    text: &str,
    build: fn(ObjectMeta, S) -> K,
) -> Parsed<'_, K> {
    #[derive(Deserialize)]
    struct Parts<'a> {
        #[serde(borrow)]
        metadata: &'a RawValue,
        #[serde(borrow)]
        spec: &'a RawValue,
    }
    let nameless = |error, spec| Parsed {
        object: Err(undecodable(error, ObjectMeta::default())),
        named: Named::default(),
        spec,
    };
    let parts = match fields::<Parts<'_>>("the object", text) {
        Ok(parts) => parts,
        Err(error) => return nameless(error, None),
    };
    let spec_text = Some(parts.spec.get());
    let metadata: ObjectMeta = match fields::<Metadata>("metadata", parts.metadata.get()) {
        Ok(metadata) => metadata.into(),
        Err(error) => return nameless(error, spec_text),
    };
    let named = Named {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    };
    let object = match fields("spec", parts.spec.get()) {
        Ok(spec) => Ok(build(metadata, spec)),
        Err(error) => Err(undecodable(error, metadata)),
    };
    Parsed {
        object,
        named,
        spec: spec_text,
    }
}

/// Decodes a JSON object. The decoder would take a list for the fields in their order.
fn fields<'a, T: Deserialize<'a>>(part: &str, text: &'a str) -> Result<T, String> {
    if !text.starts_with('{') {
        return Err(format!("{part}: it is no JSON object"));
    }
    serde_json::from_str(text).map_err(|error| {
        let error = error.to_string();
        // The position in the body is of no use.
        let problem = error.rsplit_once(" at line ");
        let problem = problem.map_or(&*error, |(problem, _)| problem);
        clipped(format!("{part}: {problem}"))
    })
}

/// A LoadBalancer of these parts.
pub(super) fn load_balancer(metadata: ObjectMeta, spec: LoadBalancerSpec) -> LoadBalancer {
    LoadBalancer {
        metadata,
        spec,
        status: None,
    }
}

/// An IPPool of these parts.
pub(super) fn ip_pool(metadata: ObjectMeta, spec: IPPoolSpec) -> IPPool {
    IPPool {
        metadata,
        spec,
        status: None,
    }
}

fn undecodable(error: String, metadata: ObjectMeta) -> Undecodable {
    Undecodable {
        error,
        metadata,
        object: Value::Null,
    }
}

/// The beginning of a text.
pub(super) fn clipped(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(ERROR_LIMIT));
    text
}
