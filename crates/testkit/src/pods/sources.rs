//! Owns the reads of the objects that a Pod refers to: Secrets, ConfigMaps, tokens of its ServiceAccount.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use anyhow::{Context, bail};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Lifetime of a token whose source does not set one, in seconds.
const LIFETIME: i64 = 3600;

/// Keys and values of a Secret or a ConfigMap.
pub(crate) type Data = BTreeMap<String, Vec<u8>>;

/// Reads for one Pod.
pub(crate) struct Sources {
    client: Client,
    namespace: String,
    account: String,
    pod: BoundObjectReference,
    tokens: Mutex<HashMap<(String, i64), Token>>,
}

#[derive(Clone)]
struct Token {
    text: String,
    /// A kubelet requests a new one when four fifths of its lifetime have passed.
    renew: Instant,
}

impl Sources {
    pub(crate) fn new(client: Client, pod: &Pod) -> Self {
        let account = pod
            .spec
            .as_ref()
            .and_then(|s| s.service_account_name.clone());
        Self {
            client,
            namespace: pod.namespace().unwrap_or_default(),
            account: account.unwrap_or_else(|| "default".into()),
            pod: BoundObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Pod".into()),
                name: Some(pod.name_any()),
                uid: pod.uid(),
            },
            tokens: Mutex::default(),
        }
    }

    /// Data of a Secret; `None` if there is none and it is optional.
    pub(crate) async fn secret(&self, name: &str, optional: bool) -> anyhow::Result<Option<Data>> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let Some(secret) = api.get_opt(name).await? else {
            return missing("Secret", name, optional);
        };
        let data = secret.data.unwrap_or_default().into_iter();
        Ok(Some(data.map(|(key, value)| (key, value.0)).collect()))
    }

    /// Data of a ConfigMap; `None` if there is none and it is optional.
    pub(crate) async fn config_map(
        &self,
        name: &str,
        optional: bool,
    ) -> anyhow::Result<Option<Data>> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let Some(map) = api.get_opt(name).await? else {
            return missing("ConfigMap", name, optional);
        };
        let texts = map.data.unwrap_or_default().into_iter();
        let bytes = map.binary_data.unwrap_or_default().into_iter();
        Ok(Some(
            texts
                .map(|(key, value)| (key, value.into_bytes()))
                .chain(bytes.map(|(key, value)| (key, value.0)))
                .collect(),
        ))
    }

    /// A token of the Pod's ServiceAccount, bound to the Pod. `audience` is empty for the API server's own.
    pub(crate) async fn token(
        &self,
        audience: &str,
        lifetime: Option<i64>,
    ) -> anyhow::Result<String> {
        let lifetime = lifetime.unwrap_or(LIFETIME);
        let key = (audience.to_owned(), lifetime);
        let known = self.tokens.lock().get(&key).cloned();
        if let Some(token) = known
            && Instant::now() < token.renew
        {
            return Ok(token.text);
        }
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &self.namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: Some(audience.to_owned())
                    .filter(|a| !a.is_empty())
                    .into_iter()
                    .collect(),
                bound_object_ref: Some(self.pod.clone()),
                expiration_seconds: Some(lifetime),
            },
            ..TokenRequest::default()
        };
        let answer = accounts
            .create_token_request(&self.account, &PostParams::default(), &request)
            .await?;
        let text = answer.status.context("no token in the answer")?.token;
        let seconds = u64::try_from(lifetime).unwrap_or_default();
        let renew = Instant::now() + Duration::from_secs(seconds) * 4 / 5;
        let token = Token {
            text: text.clone(),
            renew,
        };
        self.tokens.lock().insert(key, token);
        Ok(text)
    }
}

fn missing(kind: &str, name: &str, optional: bool) -> anyhow::Result<Option<Data>> {
    if optional {
        return Ok(None);
    }
    bail!("{kind} {name:?} not found")
}
