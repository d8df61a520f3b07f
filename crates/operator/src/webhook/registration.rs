//! Writes of the objects through which the API server calls the webhook: the two configurations, and the conversion stanza
//! of the definition of LoadBalancers. Whatever somebody else changes there is restored, with a back-off, and whoever did
//! it is named.

use harvester_lb_api::meta::Decoded;
use harvester_lb_controller_kit::Stamp;
use harvester_lb_controller_kit::backoff::Backoff;
use harvester_lb_controller_kit::decode_guard::DecodeGuard;
use harvester_lb_controller_kit::events::Events;
use harvester_lb_controller_kit::store::Store;
use harvester_lb_controller_kit::writer::{WriteError, bounded};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PostParams};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tracing::warn;

use crate::timings::Timings;
use crate::webhook::desired::{Desired, conversion_call, is_called};
use crate::webhook::metrics::Metrics;
use crate::webhook::registration::object::{Object, Reason, State, Writer};
use crate::webhook::registration::report::report;
use crate::webhook::restores::Restores;
use crate::webhook::secrets::patch_params;
use crate::webhook::stored::{Definition, Stored, mutating, validating};
use crate::webhook_names::{CONFIGURATION, DEFINITION, FIELD_MANAGER};

mod object;
mod report;

/// Back-off after a write that failed: nobody has undone anything.
const FAILURES: Backoff = Backoff {
    base: Duration::from_millis(500),
    cap: Duration::from_secs(10),
};
/// Longest wait for the name of who wrote an object last, which a message alone depends on.
const WRITER_LIMIT: Duration = Duration::from_secs(1);

/// What this process knows of one object.
#[derive(Debug)]
struct Known {
    restores: Restores,
    /// Writes that failed.
    failures: Restores,
    /// What it was, when it last was as it had to be.
    right: Option<Desired>,
}

impl Known {
    /// When the object may be written; `now` or earlier: at once.
    fn due_at(&self, now: Instant) -> Instant {
        self.restores.due_at(now).max(self.failures.due_at(now))
    }
}

/// Which of the objects may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Each.
    All,
    /// Those through which the API server calls this webhook's Service already.
    Named,
}

/// An object of the registration could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{kind} {name}: {error}")]
pub struct ReadError {
    kind: &'static str,
    name: &'static str,
    error: WriteError,
}

impl ReadError {
    /// Whether the API server answers and does not allow it.
    pub const fn is_refusal(&self) -> bool {
        self.error.is_refusal()
    }
}

/// The three objects.
pub struct Registration {
    client: Client,
    stored: Stored,
    metrics: Arc<Metrics>,
    events: Events,
    known: [Known; 3],
}

impl Registration {
    /// Nothing is written yet.
    pub fn new(
        client: Client,
        stored: Stored,
        metrics: Arc<Metrics>,
        events: Events,
        timings: &Timings,
    ) -> Self {
        let backoff = timings.webhook_restore_backoff();
        Self {
            client,
            stored,
            metrics,
            events,
            known: std::array::from_fn(|_| Known {
                restores: Restores::new(backoff),
                failures: Restores::new(FAILURES),
                right: None,
            }),
        }
    }

    /// Reads all three live into the stores, whose watches may be behind one another.
    pub async fn refresh(&self) -> Result<(), ReadError> {
        let stored = &self.stored;
        self.read(Object::Validating, &stored.validating, validating)
            .await?;
        self.read(Object::Mutating, &stored.mutating, mutating)
            .await?;
        self.read(Object::Conversion, &stored.definition, Definition::of)
            .await
    }

    async fn read<K, V>(
        &self,
        object: Object,
        store: &Store<V>,
        convert: impl FnOnce(Decoded<K>) -> V,
    ) -> Result<(), ReadError>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let key = object.key();
        let known = store.version(&key);
        let api: Api<DecodeGuard<K>> = Api::all(self.client.clone());
        match bounded(api.get_opt(object.name())).await {
            Ok(Some(found)) => {
                let stamp = Stamp::of(found.meta());
                store.written(&key, stamp, convert(found.0));
            }
            Ok(None) => {
                store.absent(&key, known);
            }
            Err(error) => {
                return Err(ReadError {
                    kind: object.kind(),
                    name: object.name(),
                    error,
                });
            }
        }
        Ok(())
    }

    /// Whether those that may be written are as they must be, as far as that is up to this program.
    pub fn is_right(&self, desired: &Desired, extent: Extent) -> bool {
        let mut all = Object::ALL.into_iter();
        all.all(|object| self.is_done(object, desired) || !self.is_within(object, extent))
    }

    /// Shows which objects are as they must be, whether they may be written or not.
    pub fn show(&self, desired: &Desired) {
        for object in Object::ALL {
            let is_right = self.state(object, desired) == State::Right;
            let gauge = &self.metrics.registered;
            gauge
                .with_label_values(&[object.as_label()])
                .set(i64::from(is_right));
        }
    }

    /// Whether an object must be written through which the API server does not call this webhook's Service yet.
    pub fn is_to_begin(&self, desired: &Desired) -> bool {
        let mut all = Object::ALL.into_iter();
        all.any(|object| !self.is_done(object, desired) && !self.is_within(object, Extent::Named))
    }

    fn is_done(&self, object: Object, desired: &Desired) -> bool {
        matches!(
            self.state(object, desired),
            State::Right | State::Impossible
        )
    }

    fn is_within(&self, object: Object, extent: Extent) -> bool {
        let (stored, key) = (&self.stored, object.key());
        let names = &stored.names;
        let is_named = || match object {
            Object::Validating => {
                let found = stored.validating.get(&key);
                found.is_some_and(|found| is_called(&found.calls, names))
            }
            Object::Mutating => {
                let found = stored.mutating.get(&key);
                found.is_some_and(|found| is_called(&found.calls, names))
            }
            Object::Conversion => {
                let found = stored.definition.get(&key);
                let call = found.and_then(|found| conversion_call(found.conversion.as_ref()));
                is_called(call.as_slice(), names)
            }
        };
        extent == Extent::All || is_named()
    }

    /// Writes what differs, may be written and is due. Returns when to decide again: at once after a write, since the
    /// certificates follow from the bundles and the watch says nothing about a copy that is stored already, otherwise when
    /// something else becomes due.
    pub async fn ensure(&mut self, desired: &Desired, extent: Extent) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        let mut at_the_latest = |at: Instant| next = Some(next.map_or(at, |next| next.min(at)));
        for (n, object) in Object::ALL.into_iter().enumerate() {
            let label = object.as_label();
            let state = self.state(object, desired);
            if state == State::Right {
                self.known[n].right = Some(desired.clone());
                continue;
            }
            if !self.is_within(object, extent) {
                continue;
            }
            let (reason, meta) = match state {
                State::Right | State::Impossible => continue,
                State::Missing => (Reason::Missing, None),
                State::Differs(meta) => {
                    let reason = match &self.known[n].right {
                        None => Reason::Taken,
                        Some(right) if right == desired => Reason::Changed,
                        Some(_) => Reason::Bundle,
                    };
                    (reason, Some(meta))
                }
            };
            let due = self.known[n].due_at(Instant::now());
            if due > Instant::now() {
                at_the_latest(due);
                continue;
            }
            let by = match reason {
                Reason::Changed | Reason::Taken => self.last_writer(object).await,
                Reason::Missing | Reason::Bundle => Writer::Unknown,
            };
            let written = self.write(object, desired, meta.as_deref()).await;
            let (known, now) = (&mut self.known[n], Instant::now());
            let jitter = fastrand::f64();
            match written {
                Ok(()) => {
                    at_the_latest(now);
                    let labels = [label, reason.as_label(&by)];
                    self.metrics.registrations.with_label_values(&labels).inc();
                    known.restores.written(now, jitter);
                    known.failures.reset();
                    known.right = Some(desired.clone());
                    report(&self.events, object, reason, &by, known.restores.count());
                }
                // A newer copy is on its way, or was just made.
                Err(error) if error.is_stale() => known.failures.lost(now, jitter),
                Err(error) => {
                    known.failures.written(now, jitter);
                    warn!(kind = object.kind(), name = object.name(), %error, "registration not written, will retry");
                }
            }
            let due = self.known[n].due_at(Instant::now());
            if !matches!(self.state(object, desired), State::Right) {
                at_the_latest(due);
            }
        }
        self.show(desired);
        next
    }

    fn state(&self, object: Object, desired: &Desired) -> State {
        let key = object.key();
        match object {
            Object::Validating => match self.stored.validating.get(&key) {
                None => State::Missing,
                Some(found) => {
                    let is_right = Some(&found.webhooks) == desired.validating().webhooks.as_ref();
                    State::of(is_right, &found.meta)
                }
            },
            Object::Mutating => match self.stored.mutating.get(&key) {
                None => State::Missing,
                Some(found) => {
                    let is_right = Some(&found.webhooks) == desired.mutating().webhooks.as_ref();
                    State::of(is_right, &found.meta)
                }
            },
            // The chart, or Harvester, ships the definition.
            Object::Conversion => match self.stored.definition.get(&key) {
                None => State::Impossible,
                Some(found) => {
                    let is_right = found.conversion.as_ref() == Some(&desired.conversion());
                    State::of(is_right, &found.meta)
                }
            },
        }
    }

    /// Creates an object, or changes the copy with this metadata.
    async fn write(
        &self,
        object: Object,
        desired: &Desired,
        present: Option<&ObjectMeta>,
    ) -> Result<(), WriteError> {
        let stored = &self.stored;
        let key = object.key();
        match object {
            Object::Validating => {
                let wanted = desired.validating();
                let patch = json!({ "webhooks": &wanted.webhooks });
                let written = self.put(&wanted, patch, present).await?;
                let stamp = Stamp::of(&written.metadata);
                stored
                    .validating
                    .written(&key, stamp, validating(Ok(written)));
            }
            Object::Mutating => {
                let wanted = desired.mutating();
                let patch = json!({ "webhooks": &wanted.webhooks });
                let written = self.put(&wanted, patch, present).await?;
                let stamp = Stamp::of(&written.metadata);
                stored.mutating.written(&key, stamp, mutating(Ok(written)));
            }
            Object::Conversion => {
                let mut patch = json!({"spec": {"conversion": desired.conversion()}});
                // A merge patch keeps what it does not name.
                patch["spec"]["conversion"]["webhook"]["clientConfig"]["url"] = Value::Null;
                let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
                let written = self.patch(&api, DEFINITION, patch, present).await?;
                let stamp = Stamp::of(&written.metadata);
                stored
                    .definition
                    .written(&key, stamp, Definition::of(Ok(written)));
            }
        }
        Ok(())
    }

    async fn put<K>(
        &self,
        wanted: &K,
        patch: Value,
        present: Option<&ObjectMeta>,
    ) -> Result<K, WriteError>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let api: Api<K> = Api::all(self.client.clone());
        if present.is_some() {
            return self.patch(&api, CONFIGURATION, patch, present).await;
        }
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        bounded(api.create(&params, wanted)).await
    }

    async fn patch<K>(
        &self,
        api: &Api<K>,
        name: &str,
        mut patch: Value,
        present: Option<&ObjectMeta>,
    ) -> Result<K, WriteError>
    where
        K: Clone + Debug + DeserializeOwned,
    {
        let version = present.and_then(|meta| meta.resource_version.as_deref());
        patch["metadata"] = json!({"resourceVersion": version.unwrap_or_default()});
        bounded(api.patch(name, &patch_params(), &Patch::Merge(patch))).await
    }

    /// Who wrote an object last. Without it the message says less; the write does not wait for it.
    async fn last_writer(&self, object: Object) -> Writer {
        let client = || self.client.clone();
        let name = object.name();
        let read = async {
            match object {
                Object::Validating => {
                    metadata::<ValidatingWebhookConfiguration>(client(), name).await
                }
                Object::Mutating => metadata::<MutatingWebhookConfiguration>(client(), name).await,
                Object::Conversion => metadata::<CustomResourceDefinition>(client(), name).await,
            }
        };
        let found = tokio::time::timeout(WRITER_LIMIT, read).await;
        let found = found.ok().flatten();
        found.map_or(Writer::Unknown, |meta| Writer::of(&meta))
    }
}

/// The metadata of an object, if they can be read.
async fn metadata<K>(client: Client, name: &str) -> Option<ObjectMeta>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::all(client);
    let found = bounded(api.get_metadata_opt(name)).await.ok().flatten()?;
    Some(found.metadata)
}

#[cfg(test)]
mod tests;
