//! The wire format of admission requests: `AdmissionReview` of `admission.k8s.io/v1` and `/v1beta1`. Pure.
//!
//! Only what the rules read is decoded. `status` and `metadata.managedFields` are skipped at any size and depth; the memory
//! of a request is bounded by a small multiple of the size of its body.

use harvester_lb_api::{GROUP, IPPool, LoadBalancer};
use harvester_lb_object::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::admission::object::{self, Change, Named, Parsed, clipped};

/// The version of LoadBalancers and IPPools that the rules are about.
const OBJECT_VERSION: &str = "v1beta1";

/// The version of a review; the response has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `admission.k8s.io/v1`
    V1,
    /// `admission.k8s.io/v1beta1`
    V1Beta1,
}

impl ReviewVersion {
    /// The `apiVersion` of the review.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::V1, Self::V1Beta1]
            .into_iter()
            .find(|version| version.api_version() == text)
    }
}

/// The operation under review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `CREATE`
    Create,
    /// `UPDATE`
    Update,
    /// `DELETE`
    Delete,
    /// `CONNECT`
    Connect,
}

/// What is under review.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// A LoadBalancer in the version `v1beta1`.
    LoadBalancer(Box<Change<LoadBalancer>>),
    /// An IPPool in the version `v1beta1`.
    IPPool(Box<Change<IPPool>>),
    /// A LoadBalancer or IPPool in another version. The configurations name `v1beta1`, and the API server converts to it.
    OtherVersion {
        /// `LoadBalancer` or `IPPool`.
        kind: &'static str,
        /// Its version.
        version: String,
    },
    /// An object of another kind: no rule is about it.
    OtherKind(String),
}

/// A parsed review.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Version of the review.
    pub version: ReviewVersion,
    /// Identity of the request, which the response repeats.
    pub uid: String,
    /// The operation.
    pub operation: Operation,
    /// Namespace of the object; empty for an IPPool.
    pub namespace: String,
    /// Name of the object. Empty if it is yet to be generated (`metadata.generateName`).
    pub name: String,
    /// Name of the requesting user. No rule depends on it.
    pub user: String,
    /// Whether the request is a dry run. The rules are the same.
    pub dry_run: bool,
    /// The object.
    pub subject: Subject,
}

/// Why a body is no review. The server answers 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    /// No JSON, or not that of a review.
    #[error("the body is no AdmissionReview: {0}")]
    Json(String),
    /// JSON of another kind, or a version that is not supported.
    #[error(
        "the body is {kind:?} of {api_version:?}: an AdmissionReview of admission.k8s.io/v1 or admission.k8s.io/v1beta1 is expected"
    )]
    Kind {
        /// Its `kind`.
        kind: String,
        /// Its `apiVersion`.
        api_version: String,
    },
    /// There is no request, or it has no uid.
    #[error("the AdmissionReview has no request with a uid")]
    NoRequest,
    /// The operation is none of the four.
    #[error("request.operation is {0:?}: CREATE, UPDATE, DELETE or CONNECT is expected")]
    Operation(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawReview<'a> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(borrow)]
    request: Option<RawRequest<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawRequest<'a> {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    kind: GroupVersionKind,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    user_info: UserInfo,
    #[serde(default)]
    dry_run: Option<bool>,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow)]
    old_object: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
struct GroupVersionKind {
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize, Default)]
struct UserInfo {
    #[serde(default)]
    username: Option<String>,
}

impl Request {
    /// Namespace and name of the object.
    pub fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }

    /// Parses the body of a request to the webhook.
    ///
    /// # Errors
    /// The body is no AdmissionReview that can be answered. An object that cannot be decoded is no error: it is part of the
    /// result, and refused by [`super::validate`].
    pub fn parse(body: &[u8]) -> Result<Self, ReviewError> {
        let review: RawReview<'_> = serde_json::from_slice(body)
            .map_err(|error| ReviewError::Json(clipped(error.to_string())))?;
        let version = ReviewVersion::parse(&review.api_version);
        let ("AdmissionReview", Some(version)) = (&*review.kind, version) else {
            return Err(ReviewError::Kind {
                kind: clipped(review.kind),
                api_version: clipped(review.api_version),
            });
        };
        let raw = review.request.filter(|request| !request.uid.is_empty());
        let raw = raw.ok_or(ReviewError::NoRequest)?;
        let operation = match &*raw.operation {
            "CREATE" => Operation::Create,
            "UPDATE" => Operation::Update,
            "DELETE" => Operation::Delete,
            "CONNECT" => Operation::Connect,
            _ => return Err(ReviewError::Operation(clipped(raw.operation))),
        };
        let (subject, in_objects) = raw.subject();
        // A deletion of a collection names each object in its metadata alone.
        let or = |given: Option<String>, own| given.filter(|g| !g.is_empty()).unwrap_or(own);
        Ok(Self {
            version,
            uid: raw.uid,
            operation,
            namespace: or(raw.namespace, in_objects.namespace),
            name: or(raw.name, in_objects.name),
            user: raw.user_info.username.unwrap_or_default(),
            dry_run: raw.dry_run.unwrap_or_default(),
            subject,
        })
    }
}

impl<'a> RawRequest<'a> {
    /// The subject, and the names in its metadata.
    fn subject(&self) -> (Subject, Named) {
        let GroupVersionKind {
            group,
            version,
            kind,
        } = &self.kind;
        let known = ["LoadBalancer", "IPPool"].into_iter().find(|k| k == kind);
        let Some(kind) = known.filter(|_| group == GROUP) else {
            let other = clipped(format!("{group}/{kind}"));
            return (Subject::OtherKind(other), Named::default());
        };
        if version != OBJECT_VERSION {
            let version = clipped(version.clone());
            return (Subject::OtherVersion { kind, version }, Named::default());
        }
        if kind == "LoadBalancer" {
            let (change, named) = self.change(object::load_balancer);
            (Subject::LoadBalancer(Box::new(change)), named)
        } else {
            let (change, named) = self.change(object::ip_pool);
            (Subject::IPPool(Box::new(change)), named)
        }
    }

    /// Both objects, and the names in the newer one.
    #[allow(clippy::result_large_err, reason = "moved as it is into what holds it")]
    fn change<K, S: DeserializeOwned>(&self, build: fn(ObjectMeta, S) -> K) -> (Change<K>, Named) {
        let old = self.old_object.map(|raw| object::decode(raw.get(), build));
        let object = self.object.map(|raw| object::decode(raw.get(), build));
        let named = object.as_ref().or(old.as_ref());
        let named = named.map(|parsed| parsed.named.clone()).unwrap_or_default();
        let spec = |parsed: Option<&Parsed<'a, K>>| parsed.and_then(|parsed| parsed.spec);
        let change = Change {
            is_same_text: spec(object.as_ref()).is_some_and(|s| Some(s) == spec(old.as_ref())),
            object: object.map(|parsed| parsed.object),
            old: old.map(|parsed| parsed.object),
        };
        (change, named)
    }
}

#[cfg(test)]
mod tests;
