//! All writes of a controller's work go through here. The Lease, the Events and requests that need no Lease share only
//! the timeout and the error type.
//!
//! A write is sent only while this process is leader, has a timeout, and returns one of the few errors that a reconcile
//! has to distinguish. Nothing is retried here: the caller decides again, from what the API server holds by then.
//!
//! Answers are decoded like lists and watches ([`crate::decode_guard`]): a deeply nested `metadata.managedFields` must
//! not make a successful write look like a failed one.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use harvester_lb_object::{Key, Version};
use kube::api::{
    DeleteParams, GetParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions,
};
use kube::core::request;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::decode_guard;

/// Longest time of one request: well above what an overloaded API server needs, well below a few Lease durations.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Objects in a page of a list.
const PAGE: u32 = 1_000;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// This process is not leader (any more); nothing was sent.
    #[error("not the leader, nothing was written")]
    Fenced,
    /// The object has changed since it was read.
    #[error("the object has changed since it was read: {0}")]
    Conflict(String),
    /// An object of that name exists already.
    #[error("the object exists already: {0}")]
    AlreadyExists(String),
    /// There is no such object.
    #[error("not found: {0}")]
    NotFound(String),
    /// The API server refuses the request; retrying it unchanged does not help.
    #[error("the API server refuses the request: {0}")]
    Refused(String),
    /// The API server did not answer in time or at all, or is overloaded.
    #[error("API server unavailable: {0}")]
    Unavailable(String),
    /// The object of the answer cannot be decoded. The request was done all the same.
    #[error("the answer of the API server cannot be decoded: {0}")]
    Undecodable(String),
}

impl WriteError {
    /// Whether the cause is the request's content or missing permissions, which time alone does not change.
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_))
    }

    /// Whether the cause is a stale copy that the request was decided from.
    pub const fn is_stale(&self) -> bool {
        matches!(
            self,
            Self::Conflict(_) | Self::AlreadyExists(_) | Self::NotFound(_)
        )
    }

    fn from_kube(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.is_not_found() => Self::NotFound(status.message),
            kube::Error::Api(status) if status.is_already_exists() => {
                Self::AlreadyExists(status.message)
            }
            kube::Error::Api(status) if status.is_conflict() => Self::Conflict(status.message),
            kube::Error::Api(status)
                if (400..500).contains(&status.code) && !matches!(status.code, 408 | 410 | 429) =>
            {
                Self::Refused(status.message)
            }
            other => Self::Unavailable(with_causes(&other)),
        }
    }
}

/// The text of an error and of its causes: a connection that fails says why only in these. A cause whose text is in the text
/// before it is left out.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let further = error.to_string();
        if !text.contains(&further) {
            text.push_str(": ");
            text.push_str(&further);
        }
        cause = error.source();
    }
    text
}

/// Whether this process may write. Asked immediately before each request.
pub trait Fence: Send + Sync + 'static {
    /// Whether writes are allowed now.
    fn is_open(&self) -> bool;
}

/// Reads and writes of a controller.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    fence: Arc<dyn Fence>,
}

impl Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl Writer {
    /// A writer over a client that does not retry by itself.
    pub fn new(client: Client, fence: Arc<dyn Fence>) -> Self {
        Self { client, fence }
    }

    /// A writer to the same API server under another fence.
    #[must_use]
    pub fn under(&self, fence: Arc<dyn Fence>) -> Self {
        Self::new(self.client(), fence)
    }

    /// The client, for reads, which need no fence.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A live read. `None` if there is no such object.
    pub async fn get<K>(&self, api: &Api<K>, name: &str) -> Result<Option<K>, WriteError>
    where
        K: Resource + DeserializeOwned,
    {
        let request = to(api).get(name, &GetParams::default());
        match self.send(request).await {
            Ok(text) => read(&text).map(Some),
            Err(WriteError::NotFound(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// The names and versions of all objects of a kind, page by page, not older than the last write. `selector`: of their labels.
    /// `next`: the token of the page.
    pub async fn list_versions<K>(
        &self,
        selector: Option<&str>,
        next: Option<&str>,
    ) -> Result<Versions, WriteError>
    where
        K: Resource<DynamicType = ()>,
    {
        let mut params = ListParams::default().limit(PAGE);
        params.label_selector = selector.map(str::to_owned);
        params.continue_token = next.map(str::to_owned);
        let request = to(&Api::<K>::all(self.client())).list_metadata(&params);
        let text = self.send(request).await?;
        let page: Page = serde_json::from_str(&text)
            .map_err(|error| WriteError::Undecodable(error.to_string()))?;
        Ok(page.into())
    }

    /// Creates an object; [`WriteError::AlreadyExists`] if there is one of its name.
    pub async fn create<K>(&self, api: &Api<K>, object: &K) -> Result<K, WriteError>
    where
        K: Resource + DeserializeOwned + Serialize,
    {
        let object = serde_json::to_vec(object).map_err(|error| {
            WriteError::Refused(format!("the object cannot be encoded as JSON: {error}"))
        })?;
        let request = to(api).create(&PostParams::default(), object);
        read(&self.write(request).await?)
    }

    /// Applies a merge patch to exactly the copy of that version (IPA-5).
    pub async fn patch<K>(
        &self,
        api: &Api<K>,
        name: &str,
        version: &str,
        mut patch: Value,
    ) -> Result<K, WriteError>
    where
        K: Resource + DeserializeOwned,
    {
        at_version(&mut patch, version);
        let patch = Patch::Merge(&patch);
        let request = to(api).patch(name, &PatchParams::default(), &patch);
        read(&self.write(request).await?)
    }

    /// Applies a JSON patch (RFC 6902), which must set `metadata.resourceVersion` to the version that it was decided
    /// from (IPA-5).
    pub async fn patch_json<K>(
        &self,
        api: &Api<K>,
        name: &str,
        operations: Value,
    ) -> Result<K, WriteError>
    where
        K: Resource + DeserializeOwned,
    {
        let patch: json_patch::Patch = serde_json::from_value(operations)
            .map_err(|error| WriteError::Refused(format!("not a JSON patch: {error}")))?;
        let patch = Patch::<()>::Json(patch);
        let request = to(api).patch(name, &PatchParams::default(), &patch);
        read(&self.write(request).await?)
    }

    /// Deletes exactly the copy with the uid and the resource version of this metadata (IPA-5). Returns whether it is gone: not while
    /// finalizers remain.
    pub async fn delete<K>(
        &self,
        api: &Api<K>,
        name: &str,
        from: &ObjectMeta,
    ) -> Result<bool, WriteError>
    where
        K: Resource,
    {
        let params = DeleteParams::background().preconditions(Preconditions {
            uid: from.uid.clone(),
            resource_version: from.resource_version.clone(),
        });
        let answer = self.write(to(api).delete(name, &params)).await?;
        // The rest of the object, or a status.
        let remains = serde_json::from_str::<Remains>(&answer);
        Ok(!remains.is_ok_and(|rest| rest.metadata.deletion_timestamp.is_some()))
    }

    /// Sends a request that changes an object.
    async fn write(&self, request: Built) -> Result<String, WriteError> {
        if !self.fence.is_open() {
            return Err(WriteError::Fenced);
        }
        self.send(request).await
    }

    async fn send(&self, request: Built) -> Result<String, WriteError> {
        let request = request.map_err(|error| WriteError::Refused(error.to_string()))?;
        bounded(self.client.request_text(request)).await
    }
}

/// What counts of the answer to a deletion.
#[derive(Deserialize)]
struct Remains {
    #[serde(default)]
    metadata: ObjectMeta,
}

/// A request that can be sent, or why it cannot.
type Built = Result<axum::http::Request<Vec<u8>>, request::Error>;

/// Requests to the objects of an API.
fn to<K: Resource>(api: &Api<K>) -> request::Request {
    request::Request::new(api.resource_url())
}

/// Decodes the object of an answer. On failure the request was done all the same.
fn read<K: DeserializeOwned>(text: &str) -> Result<K, WriteError> {
    let object =
        decode_guard::decode(text).map_err(|error| WriteError::Undecodable(error.to_string()))?;
    object.map_err(|invalid| WriteError::Undecodable(invalid.error))
}

/// The names and versions of some objects.
#[derive(Debug)]
pub struct Versions {
    /// The objects.
    pub objects: Vec<(Key, Version)>,
    /// The token of the next page; `None` after the last one.
    pub next: Option<String>,
}

/// What is read of a list of metadata. All else is skipped at any depth.
#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: PageMeta,
    /// `null` if there is none.
    items: Option<Vec<Item>>,
}

#[derive(Default, Deserialize)]
struct PageMeta {
    #[serde(rename = "continue", default)]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Item {
    metadata: ItemMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ItemMeta {
    #[serde(default)]
    namespace: String,
    name: String,
    resource_version: Option<String>,
}

impl From<Page> for Versions {
    fn from(page: Page) -> Self {
        let object = |Item { metadata }| {
            let version = Version::parse(metadata.resource_version.as_deref());
            (Key::new(metadata.namespace, metadata.name), version)
        };
        Self {
            objects: page.items.into_iter().flatten().map(object).collect(),
            next: page.metadata.next.filter(|next| !next.is_empty()),
        }
    }
}

/// Any request, with a timeout.
pub async fn bounded<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, WriteError> {
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(WriteError::from_kube(error)),
        Err(_) => Err(WriteError::Unavailable(format!(
            "no answer within {} s",
            REQUEST_TIMEOUT.as_secs()
        ))),
    }
}

/// Sets `metadata.resourceVersion` in a merge patch, so that the API server refuses it for any other copy.
fn at_version(patch: &mut Value, version: &str) {
    if !patch.is_object() {
        *patch = Value::Object(Map::new());
    }
    let metadata = &mut patch["metadata"];
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    metadata["resourceVersion"] = Value::String(version.to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::Status;
    use serde_json::json;

    fn api_error(code: u16, reason: &str) -> kube::Error {
        kube::Error::Api(Status::failure("m", reason).with_code(code).boxed())
    }

    #[test]
    fn outcomes_are_told_apart() {
        let cases = [
            (404, "NotFound", "not found"),
            (409, "AlreadyExists", "the object exists already"),
            (409, "Conflict", "the object has changed"),
            (422, "Invalid", "the API server refuses the request"),
            (403, "Forbidden", "the API server refuses the request"),
            (400, "BadRequest", "the API server refuses the request"),
            (429, "TooManyRequests", "API server unavailable"),
            (410, "Expired", "API server unavailable"),
            (500, "InternalError", "API server unavailable"),
            (503, "ServiceUnavailable", "API server unavailable"),
        ];
        for (code, reason, expected) in cases {
            let text = WriteError::from_kube(api_error(code, reason)).to_string();
            assert!(text.starts_with(expected), "{code} {reason}: {text}");
        }
    }

    #[test]
    fn a_failed_connection_says_why() {
        #[derive(Debug, thiserror::Error)]
        #[error("client error (Connect)")]
        struct Connect(#[source] std::io::Error);
        let reason = std::io::Error::other("certificate not valid for name");
        let error = WriteError::from_kube(kube::Error::Service(Box::new(Connect(reason))));
        assert_eq!(
            error.to_string(),
            "API server unavailable: ServiceError: client error (Connect): certificate not valid for name"
        );
    }

    #[test]
    fn answers_with_deep_managed_fields_are_read() {
        let levels = 5_000;
        let deep = format!("{}1{}", r#"{"f:a":"#.repeat(levels), "}".repeat(levels));
        let text = format!(
            r#"{{"metadata":{{"name":"a","managedFields":[{{"fieldsV1":{deep}}}]}},"data":{{"k":"v"}}}}"#
        );
        let object: ConfigMap = read(&text).unwrap();
        assert_eq!(object.metadata.name.as_deref(), Some("a"));
        assert_eq!(object.data.unwrap()["k"], "v");
        let error = read::<ConfigMap>(r#"{"data":7}"#).unwrap_err().to_string();
        assert!(error.contains("cannot be decoded: data: "), "{error}");
    }

    #[test]
    fn versions_are_read_of_objects_of_any_kind() {
        let deep = format!("{}1{}", r#"{"f:a":"#.repeat(5_000), "}".repeat(5_000));
        let text = format!(
            r#"{{"kind":"PartialObjectMetadataList","metadata":{{"continue":"c","resourceVersion":"9"}},"items":[
            {{"metadata":{{"namespace":"n","name":"a","resourceVersion":"7","managedFields":[{{"fieldsV1":{deep}}}]}}}},
            {{"metadata":{{"name":"b","resourceVersion":"8"}}}}]}}"#
        );
        let page: Page = serde_json::from_str(&text).unwrap();
        let versions = Versions::from(page);
        assert_eq!(
            versions.objects,
            [
                (Key::new("n", "a"), Version(7)),
                (Key::new("", "b"), Version(8))
            ]
        );
        assert_eq!(versions.next.as_deref(), Some("c"));
        for items in ["[]", "null"] {
            let text = format!(r#"{{"metadata":{{"continue":""}},"items":{items}}}"#);
            let last: Page = serde_json::from_str(&text).unwrap();
            let Versions { objects, next } = last.into();
            assert_eq!((objects.len(), next), (0, None));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_request_waits_for_ever() {
        let outcome = bounded(std::future::pending::<kube::Result<()>>()).await;
        assert!(matches!(outcome, Err(WriteError::Unavailable(_))));
    }

    #[test]
    fn ipa_5_a_patch_carries_its_version() {
        let mut patch = json!({"status": {"address": "10.0.0.2"}});
        at_version(&mut patch, "17");
        assert_eq!(
            patch,
            json!({"status": {"address": "10.0.0.2"}, "metadata": {"resourceVersion": "17"}})
        );
        let mut patch = json!({"metadata": {"labels": {"a": "b"}}});
        at_version(&mut patch, "18");
        assert_eq!(patch["metadata"]["labels"]["a"], "b");
        assert_eq!(patch["metadata"]["resourceVersion"], "18");
    }
}
