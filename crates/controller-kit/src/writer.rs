//! Every write of a controller's work goes through here. The Lease, the Events and what works without a Lease share no
//! more than the bound in time and the outcomes.
//!
//! A write is sent only while this process leads, is bounded in time, and comes back as one of the few outcomes that
//! a reconcile has to tell apart. Nothing is retried here: whoever decided the write decides again, from what the API
//! server holds by then.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::merge;

/// Longest time that one request may take: well above what a struggling API server needs, well below a
/// Lease's life times a few.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Why a request did not do what it was for.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// This process does not lead (any more); nothing was sent.
    #[error("this process does not lead, nothing was written")]
    Fenced,
    /// The object has changed since it was read.
    #[error("the object has changed since it was read: {0}")]
    Conflict(String),
    /// An object of that name exists.
    #[error("it exists already: {0}")]
    AlreadyExists(String),
    /// There is no such object.
    #[error("not found: {0}")]
    NotFound(String),
    /// The API server refuses the content; trying again as it is does not help.
    #[error("the API server refuses it: {0}")]
    Refused(String),
    /// The API server did not answer in time, or not at all, or is overloaded.
    #[error("the API server is not to be had: {0}")]
    Unavailable(String),
}

impl WriteError {
    /// Whether the cause is the request's content or the rights, not the moment.
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_))
    }

    /// Whether the cause is that the copy that the request was decided from is old.
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
            other => Self::Unavailable(other.to_string()),
        }
    }
}

/// Says whether this process may write. Asked before each request, at the time of the request.
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
    /// A writer over a client without retries of its own.
    pub fn new(client: Client, fence: Arc<dyn Fence>) -> Self {
        Self { client, fence }
    }

    /// The client, for reads that need no fence.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    async fn fenced<T>(
        &self,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, WriteError> {
        if !self.fence.is_open() {
            return Err(WriteError::Fenced);
        }
        bounded(request).await
    }

    /// A live read. `None` if there is no such object.
    pub async fn get<K>(&self, api: &Api<K>, name: &str) -> Result<Option<K>, WriteError>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        match bounded(api.get_opt(name)).await {
            Err(WriteError::NotFound(_)) => Ok(None),
            other => other,
        }
    }

    /// Makes an object; [`WriteError::AlreadyExists`] if there is one of its name.
    pub async fn create<K>(&self, api: &Api<K>, object: &K) -> Result<K, WriteError>
    where
        K: Clone + DeserializeOwned + Debug + Serialize,
    {
        self.fenced(api.create(&PostParams::default(), object))
            .await
    }

    /// Merges a patch into the copy of that version and no other (IPA-5).
    pub async fn patch<K>(
        &self,
        api: &Api<K>,
        name: &str,
        version: &str,
        mut patch: Value,
    ) -> Result<K, WriteError>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        merge::at_version(&mut patch, version);
        self.fenced(api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)))
            .await
    }

    /// Applies a JSON patch (RFC 6902), which is to set `metadata.resourceVersion` to the version that it was decided
    /// from (IPA-5).
    pub async fn patch_json<K>(
        &self,
        api: &Api<K>,
        name: &str,
        operations: Value,
    ) -> Result<K, WriteError>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let patch: json_patch::Patch = serde_json::from_value(operations)
            .map_err(|error| WriteError::Refused(format!("not a JSON patch: {error}")))?;
        self.fenced(api.patch(name, &PatchParams::default(), &Patch::<()>::Json(patch)))
            .await
    }

    /// Deletes the copy with this metadata, its uid and its resource version, and no other (IPA-5).
    pub async fn delete<K>(
        &self,
        api: &Api<K>,
        name: &str,
        from: &ObjectMeta,
    ) -> Result<(), WriteError>
    where
        K: Clone + DeserializeOwned + Debug + Resource,
    {
        let params = DeleteParams::background().preconditions(Preconditions {
            uid: from.uid.clone(),
            resource_version: from.resource_version.clone(),
        });
        self.fenced(api.delete(name, &params)).await.map(|_| ())
    }
}

/// Any request, bounded in time.
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

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn api_error(code: u16, reason: &str) -> kube::Error {
        kube::Error::Api(Status::failure("m", reason).with_code(code).boxed())
    }

    #[test]
    fn outcomes_are_told_apart() {
        let cases = [
            (404, "NotFound", "not found"),
            (409, "AlreadyExists", "it exists already"),
            (409, "Conflict", "the object has changed"),
            (422, "Invalid", "the API server refuses it"),
            (403, "Forbidden", "the API server refuses it"),
            (400, "BadRequest", "the API server refuses it"),
            (429, "TooManyRequests", "the API server is not to be had"),
            (410, "Expired", "the API server is not to be had"),
            (500, "InternalError", "the API server is not to be had"),
            (503, "ServiceUnavailable", "the API server is not to be had"),
        ];
        for (code, reason, expected) in cases {
            let text = WriteError::from_kube(api_error(code, reason)).to_string();
            assert!(text.starts_with(expected), "{code} {reason}: {text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_request_waits_for_ever() {
        let outcome = bounded(std::future::pending::<kube::Result<()>>()).await;
        assert!(matches!(outcome, Err(WriteError::Unavailable(_))));
    }
}
