//! Reads and writes of the two Secrets. Every write is a creation, or carries the resource version of the copy that it was
//! decided from: of several replicas one succeeds, and the others read what it wrote.

use std::sync::Arc;

use harvester_lb_controller_kit::Stamp;
use harvester_lb_controller_kit::store::{Change, Store};
use harvester_lb_controller_kit::writer::{WriteError, bounded};
use harvester_lb_object::Key;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::webhook::certificates::Action;
use crate::webhook::certificates::x509::{Authority, Certificate, Pair, new_authority};
use crate::webhook::certificates::{Lifetimes, x509};
use crate::webhook::stored::{CERTIFICATE, PREVIOUS, PRIVATE_KEY, Stored, StoredSecret};
use crate::webhook_names::FIELD_MANAGER;

/// Type of the Secrets.
const TYPE: &str = "kubernetes.io/tls";

/// Why a Secret was not written.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The API server.
    #[error("Secret {name}: {error}")]
    Write {
        /// Name of the Secret.
        name: String,
        /// The error.
        error: WriteError,
    },
    /// A certificate cannot be made.
    #[error(transparent)]
    Unusable(#[from] x509::Unusable),
}

impl SecretError {
    /// Whether another replica was first: what it wrote is read, and everything is decided again.
    pub const fn is_conflict(&self) -> bool {
        matches!(self, Self::Write { error, .. } if error.is_stale())
    }

    /// Whether the API server answers and does not allow it.
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Write { error, .. } if error.is_refusal())
    }
}

/// The Secrets of the API server.
pub struct Secrets {
    api: Api<Secret>,
    stored: Stored,
    lifetimes: Lifetimes,
}

impl Secrets {
    /// The Secrets of a webhook.
    pub fn new(client: Client, stored: Stored, lifetimes: Lifetimes) -> Self {
        Self {
            api: Api::namespaced(client, &stored.names.namespace),
            stored,
            lifetimes,
        }
    }

    /// Reads both live into the stores.
    pub async fn refresh(&self) -> Result<(), SecretError> {
        let stored = &self.stored;
        let key = stored.authority_key();
        if let Some(change) = self.read(&stored.authority, &key).await? {
            stored.authority_changed(&change);
        }
        self.read(&stored.leaf, &stored.leaf_key()).await?;
        Ok(())
    }

    async fn read(
        &self,
        store: &Store<StoredSecret>,
        key: &Key,
    ) -> Result<Option<Change<StoredSecret>>, SecretError> {
        let known = store.version(key);
        match bounded(self.api.get_opt(&key.name)).await {
            Ok(Some(secret)) => Ok(learn(store, key, secret)),
            Ok(None) => Ok(store.absent(key, known)),
            Err(error) => Err(error_of(key, error)),
        }
    }

    /// Does what the machine has decided, at a time in seconds since 1970.
    pub async fn apply(&self, action: &Action, now: i64) -> Result<(), SecretError> {
        let stored = &self.stored;
        match action {
            Action::NewAuthority { previous, .. } => {
                let pair = new_authority(now, self.lifetimes.authority)?;
                let mut data = pair_data(&pair);
                data[PREVIOUS] = previous_data(previous);
                self.write(&stored.authority, &stored.authority_key(), data)
                    .await
            }
            Action::SetPrevious {
                present, previous, ..
            } => {
                // The certificate is written too: whatever else somebody has put beside it goes.
                let data = json!({
                    CERTIFICATE: base64(&present.pem),
                    PREVIOUS: previous_data(previous),
                });
                self.write(&stored.authority, &stored.authority_key(), data)
                    .await
            }
            Action::NewLeaf { .. } => {
                let secret = stored.authority.get(&stored.authority_key());
                let pair = secret.map(|secret| secret.pair());
                let pair = pair.unwrap_or_else(|| Pair {
                    certificate: String::new(),
                    key: String::new(),
                });
                let authority = Authority::parse(&pair)?;
                let name = stored.names.dns_name();
                let leaf = authority.sign(&name, now, self.lifetimes.leaf)?;
                self.write(&stored.leaf, &stored.leaf_key(), pair_data(&leaf))
                    .await
            }
        }
    }

    /// Creates a Secret, or changes the copy that is stored.
    async fn write(
        &self,
        store: &Arc<Store<StoredSecret>>,
        key: &Key,
        data: Value,
    ) -> Result<(), SecretError> {
        let name = &*key.name;
        let written = match store.get(key) {
            None => {
                let secret: Secret = serde_json::from_value(json!({
                    "metadata": {"name": name, "namespace": &*key.namespace},
                    "type": TYPE,
                    "data": data,
                }))
                .map_err(|error| x509::Unusable::NotMade(error.to_string()))?;
                let params = PostParams {
                    field_manager: Some(FIELD_MANAGER.to_owned()),
                    ..PostParams::default()
                };
                bounded(self.api.create(&params, &secret)).await
            }
            Some(present) => {
                let version = present.meta.resource_version.as_deref();
                let patch = Patch::Merge(json!({
                    "metadata": {"resourceVersion": version.unwrap_or_default()},
                    "data": data,
                }));
                bounded(self.api.patch(name, &patch_params(), &patch)).await
            }
        };
        match written {
            Ok(secret) => {
                learn(store, key, secret);
                Ok(())
            }
            Err(error) => Err(error_of(key, error)),
        }
    }
}

/// The parameters of a patch by this program.
pub fn patch_params() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

fn error_of(key: &Key, error: WriteError) -> SecretError {
    SecretError::Write {
        name: key.to_string(),
        error,
    }
}

fn base64(text: &str) -> Value {
    json!(ByteString(text.as_bytes().to_vec()))
}

fn pair_data(pair: &Pair) -> Value {
    json!({CERTIFICATE: base64(&pair.certificate), PRIVATE_KEY: base64(&pair.key)})
}

fn previous_data(previous: &[Certificate]) -> Value {
    let text: String = previous.iter().map(|c| &*c.pem).collect();
    base64(&text)
}

/// Puts a Secret that the API server answered with into its store.
fn learn(store: &Store<StoredSecret>, key: &Key, secret: Secret) -> Option<Change<StoredSecret>> {
    let stamp = Stamp::of(&secret.metadata);
    store.written(key, stamp, StoredSecret::of(Ok(secret)))
}
