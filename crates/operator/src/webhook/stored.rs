//! The objects that the webhook itself writes, as its watches cache them: the two Secrets, and the three objects through
//! which the API server calls it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use harvester_lb_api::meta::{Decoded, annotation};
use harvester_lb_controller_kit::store::{Change, Store};
use harvester_lb_object::Key;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, ValidatingWebhook,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::webhook::certificates::AuthoritySecret;
use crate::webhook::certificates::x509::{Pair, seconds};
use crate::webhook::desired::{Call, calls, conversion_call};
use crate::webhook_names::{
    ANNOTATION_UNINSTALLED, CONFIGURATION, DEFINITION, Names, UNINSTALLATION,
};

/// Key of the certificate in a Secret of type `kubernetes.io/tls`.
pub const CERTIFICATE: &str = "tls.crt";
/// Key of the private key.
pub const PRIVATE_KEY: &str = "tls.key";
/// Key of the previous authorities' certificates, in the authority's Secret.
pub const PREVIOUS: &str = "previous.crt";

/// A Secret. Its content is not shown.
#[derive(Clone, PartialEq)]
pub struct StoredSecret {
    /// Its metadata.
    pub meta: ObjectMeta,
    data: BTreeMap<String, ByteString>,
}

impl std::fmt::Debug for StoredSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredSecret")
            .field("meta", &self.meta)
            .finish_non_exhaustive()
    }
}

impl StoredSecret {
    /// The cached form. A Secret that cannot be decoded is one without content.
    pub fn of(decoded: Decoded<Secret>) -> Self {
        match decoded {
            Ok(secret) => Self {
                meta: secret.metadata,
                data: secret.data.unwrap_or_default(),
            },
            Err(invalid) => Self {
                meta: invalid.metadata,
                data: BTreeMap::new(),
            },
        }
    }

    fn text(&self, key: &str) -> String {
        let bytes = self.data.get(key).map_or(&[][..], |bytes| &bytes.0);
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// Certificate and key.
    pub fn pair(&self) -> Pair {
        Pair {
            certificate: self.text(CERTIFICATE),
            key: self.text(PRIVATE_KEY),
        }
    }

    /// The content of the authority's Secret.
    pub fn authority(&self) -> AuthoritySecret {
        AuthoritySecret {
            present: self.pair(),
            previous: self.text(PREVIOUS),
        }
    }

    /// When an uninstallation that is at work now, in seconds since 1970, counts as failed. What it says may be ahead by
    /// [`UNINSTALLATION`] too: a clock that is days ahead must not keep the webhook from registering for as long.
    pub fn uninstalled_until(&self, now: i64) -> Option<i64> {
        let at: Timestamp = annotation(&self.meta, ANNOTATION_UNINSTALLED)?
            .parse()
            .ok()?;
        let limit = seconds(UNINSTALLATION);
        let away = now - at.as_second();
        let until = at.as_second() + limit;
        (-limit..limit).contains(&away).then_some(until)
    }
}

/// A webhook configuration, validating or mutating.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration<W> {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// Its webhooks.
    pub webhooks: Vec<W>,
    /// How it calls them.
    pub calls: Vec<Call>,
}

/// The cached form of a ValidatingWebhookConfiguration. One that cannot be decoded has no webhooks.
pub fn validating(
    decoded: Decoded<ValidatingWebhookConfiguration>,
) -> Configuration<ValidatingWebhook> {
    let (meta, webhooks) = match decoded {
        Ok(object) => (object.metadata, object.webhooks.unwrap_or_default()),
        Err(invalid) => (invalid.metadata, Vec::new()),
    };
    Configuration {
        meta,
        calls: calls(webhooks.iter().map(|w| &w.client_config)),
        webhooks,
    }
}

/// The cached form of a MutatingWebhookConfiguration. One that cannot be decoded has no webhooks.
pub fn mutating(decoded: Decoded<MutatingWebhookConfiguration>) -> Configuration<MutatingWebhook> {
    let (meta, webhooks) = match decoded {
        Ok(object) => (object.metadata, object.webhooks.unwrap_or_default()),
        Err(invalid) => (invalid.metadata, Vec::new()),
    };
    Configuration {
        meta,
        calls: calls(webhooks.iter().map(|w| &w.client_config)),
        webhooks,
    }
}

/// The definition of LoadBalancers, as far as conversion is concerned.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// Its conversion stanza.
    pub conversion: Option<CustomResourceConversion>,
}

impl Definition {
    /// The cached form. One that cannot be decoded has no stanza.
    pub fn of(decoded: Decoded<CustomResourceDefinition>) -> Self {
        match decoded {
            Ok(object) => Self {
                meta: object.metadata,
                conversion: object.spec.conversion,
            },
            Err(invalid) => Self {
                meta: invalid.metadata,
                conversion: None,
            },
        }
    }
}

/// The stores.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The names.
    pub names: Names,
    /// The Secret of the authority.
    pub authority: Arc<Store<StoredSecret>>,
    /// The Secret of the serving certificate.
    pub leaf: Arc<Store<StoredSecret>>,
    /// Whether the authority's Secret was deleted while `uninstall-webhook` counted as being at work.
    is_uninstalled: Arc<AtomicBool>,
    /// Until when what is gone counts as an uninstallation that was missed, in seconds since 1970; 0: nothing is.
    missed_until: Arc<AtomicI64>,
    /// The ValidatingWebhookConfiguration.
    pub validating: Arc<Store<Configuration<ValidatingWebhook>>>,
    /// The MutatingWebhookConfiguration.
    pub mutating: Arc<Store<Configuration<MutatingWebhook>>>,
    /// The definition of LoadBalancers.
    pub definition: Arc<Store<Definition>>,
}

impl Stored {
    /// Empty stores.
    pub fn new(names: Names) -> Self {
        Self {
            names,
            authority: Arc::default(),
            leaf: Arc::default(),
            is_uninstalled: Arc::default(),
            missed_until: Arc::default(),
            validating: Arc::default(),
            mutating: Arc::default(),
            definition: Arc::default(),
        }
    }

    /// Key of the authority's Secret.
    pub fn authority_key(&self) -> Key {
        Key::new(&self.names.namespace, self.names.authority_secret())
    }

    /// Key of the serving certificate's Secret.
    pub fn leaf_key(&self) -> Key {
        Key::new(&self.names.namespace, self.names.leaf_secret())
    }

    /// Notes a change of the authority's Secret: who looks later sees neither the Secret nor its mark.
    pub fn authority_changed(&self, change: &Change<StoredSecret>) {
        let is_uninstalled = match change {
            Change::Applied { .. } => false,
            Change::Deleted { old, .. } => {
                let now = Timestamp::now().as_second();
                old.uninstalled_until(now).is_some()
            }
        };
        self.is_uninstalled.store(is_uninstalled, Ordering::Relaxed);
    }

    /// Whether the authority's Secret was deleted while `uninstall-webhook` counted as being at work.
    pub fn is_uninstalled(&self) -> bool {
        self.is_uninstalled.load(Ordering::Relaxed)
    }

    /// Notes until when what is gone counts as an uninstallation that was missed.
    pub fn has_missed_until(&self, until: Option<i64>) {
        let until = until.unwrap_or_default();
        self.missed_until.store(until, Ordering::Relaxed);
    }

    /// Until when what is gone counts as an uninstallation that was missed.
    pub fn missed_until(&self, now: i64) -> Option<i64> {
        let until = self.missed_until.load(Ordering::Relaxed);
        (now < until).then_some(until)
    }

    /// Until when `uninstall-webhook` counts as being at work, in seconds since 1970.
    pub fn uninstalled_until(&self, now: i64) -> Option<i64> {
        let authority = self.authority.get(&self.authority_key())?;
        authority.uninstalled_until(now)
    }

    /// What has not been listed yet.
    pub fn unsynced(&self) -> Vec<&'static str> {
        [
            (
                "secrets",
                self.authority.is_synced() && self.leaf.is_synced(),
            ),
            (
                "validatingwebhookconfigurations",
                self.validating.is_synced(),
            ),
            ("mutatingwebhookconfigurations", self.mutating.is_synced()),
            ("customresourcedefinitions", self.definition.is_synced()),
        ]
        .into_iter()
        .filter_map(|(kind, synced)| (!synced).then_some(kind))
        .collect()
    }

    /// The bundles through which the API server calls this webhook: those of other webhooks do not count.
    pub fn bundles(&self) -> Vec<String> {
        let configuration = Key::new("", CONFIGURATION);
        let validating = self.validating.get(&configuration);
        let mutating = self.mutating.get(&configuration);
        let definition = self.definition.get(&Key::new("", DEFINITION));
        let conversion = definition.and_then(|d| conversion_call(d.conversion.as_ref()));
        let calls = validating
            .iter()
            .flat_map(|c| c.calls.iter().cloned())
            .chain(mutating.iter().flat_map(|c| c.calls.iter().cloned()))
            .chain(conversion);
        calls
            .filter(|call| call.is_of(&self.names))
            .map(|call| call.bundle)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn section_1_a_mark_counts_for_a_while_and_not_if_it_is_far_ahead() {
        let now = 1_800_000_000;
        let marked = |at: String| {
            let secret = json!({"metadata": {"annotations": {ANNOTATION_UNINSTALLED: at}}});
            StoredSecret::of(Ok(serde_json::from_value(secret).unwrap()))
        };
        let until = |at: i64| {
            let at = Timestamp::from_second(at).unwrap();
            marked(at.to_string()).uninstalled_until(now)
        };
        let limit = seconds(UNINSTALLATION);
        for ahead in [-limit + 1, -60, 0, 60, limit] {
            assert_eq!(until(now + ahead), Some(now + ahead + limit), "{ahead}");
        }
        for ahead in [-limit, -limit - 1, limit + 1, 86_400 * 3] {
            assert_eq!(until(now + ahead), None, "{ahead}");
        }
        assert_eq!(marked("soon".to_owned()).uninstalled_until(now), None);
    }

    #[test]
    fn section_1_a_mark_counts_on_after_its_secret_is_deleted() {
        let stored = Stored::new(Names {
            namespace: "ns".to_owned(),
            service: "svc".to_owned(),
        });
        let secret = |annotations: serde_json::Value| {
            let secret = json!({"metadata": {"annotations": annotations}});
            Arc::new(StoredSecret::of(
                Ok(serde_json::from_value(secret).unwrap()),
            ))
        };
        let marked = secret(json!({ANNOTATION_UNINSTALLED: Timestamp::now().to_string()}));
        let deleted = |old: &Arc<StoredSecret>, final_state_unknown| Change::Deleted {
            old: Arc::clone(old),
            final_state_unknown,
        };
        stored.authority_changed(&deleted(&secret(json!({})), false));
        assert!(!stored.is_uninstalled());
        for final_state_unknown in [false, true] {
            stored.authority_changed(&deleted(&marked, final_state_unknown));
            assert!(stored.is_uninstalled());
            // It was made anew.
            let applied = Change::Applied {
                old: None,
                new: secret(json!({})),
            };
            stored.authority_changed(&applied);
            assert!(!stored.is_uninstalled());
        }
    }
}
