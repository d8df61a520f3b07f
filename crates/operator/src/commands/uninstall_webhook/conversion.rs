//! Who converts LoadBalancers, and whether somebody has to.

use anyhow::Context;
use harvester_lb_controller_kit::writer::bounded;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};

use crate::webhook::desired::conversion_call;
use crate::webhook_names::{DEFINITION, Names};

/// The storage version, and the only one that can be read without the webhook.
pub(super) const STORED: &str = "v1beta1";

/// Who converts LoadBalancers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Converter {
    /// This webhook.
    This,
    /// Another one.
    Other,
    /// Nobody, and nothing is stored that needs it.
    Nobody,
    /// Nobody, although something may be stored that needs it.
    Missing,
}

/// The definition of LoadBalancers, if there is one, and who converts them.
///
/// # Errors
/// It cannot be read.
pub(super) async fn definition(
    client: &Client,
    names: &Names,
) -> anyhow::Result<Option<(CustomResourceDefinition, Converter)>> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let found = bounded(api.get_opt(DEFINITION)).await;
    let Some(found) = found.with_context(|| DEFINITION.to_owned())? else {
        return Ok(None);
    };
    let converter = match conversion_call(found.spec.conversion.as_ref()) {
        Some(call) if call.is_of(names) => Converter::This,
        Some(_) => Converter::Other,
        None if stored_versions(&found).iter().all(|v| v == STORED) => Converter::Nobody,
        None => Converter::Missing,
    };
    Ok(Some((found, converter)))
}

/// The versions in which LoadBalancers may be stored.
pub(super) fn stored_versions(definition: &CustomResourceDefinition) -> &[String] {
    let status = definition.status.as_ref();
    let stored = status.and_then(|status| status.stored_versions.as_deref());
    stored.unwrap_or_default()
}

/// Says that nobody converts LoadBalancers that may be stored in another version.
pub(super) fn missing(definition: &CustomResourceDefinition) -> anyhow::Error {
    let stored = stored_versions(definition);
    anyhow::anyhow!(
        "the definition {DEFINITION} names the stored versions {stored:?}, but conversion is off: start the webhook first, which restores it, then run this command again"
    )
}
