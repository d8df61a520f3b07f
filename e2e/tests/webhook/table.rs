//! Rows of accepted and refused objects, sent to the API server.

use anyhow::{bail, ensure};
use harvester_lb_e2e::World;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};

/// What the API server answers.
#[derive(Clone, Copy, Debug)]
pub enum Wanted {
    /// The object is stored.
    Accepted,
    /// It is refused, by the webhook or already by the schema; the message contains this text.
    Refused(&'static str),
}
pub use Wanted::{Accepted, Refused};

/// Compares an answer with what is wanted.
pub fn judge<T: std::fmt::Debug>(
    what: &str,
    wanted: Wanted,
    answer: Result<T, kube::Error>,
) -> anyhow::Result<()> {
    match (wanted, answer) {
        (Accepted, Ok(_)) => Ok(()),
        (Accepted, Err(error)) => bail!("{what}: refused: {error}"),
        (Refused(_), Ok(object)) => bail!("{what}: accepted: {object:?}"),
        (Refused(text), Err(kube::Error::Api(status))) => {
            ensure!(
                status.message.contains(text),
                "{what}: the message does not say {text:?}: {}",
                status.message
            );
            ensure!(
                status.code == 422 || status.code == 403,
                "{what}: {} {}",
                status.code,
                status.message
            );
            Ok(())
        }
        (Refused(_), Err(error)) => bail!("{what}: {error}"),
    }
}

/// The API of a kind of ours.
pub async fn api(world: &World, kind: &str, ns: &str) -> anyhow::Result<Api<DynamicObject>> {
    let version = harvester_lb_api::API_VERSION;
    world.cluster.api(version, kind, Some(ns)).await
}

/// Creates an object without storing it.
pub async fn try_create(
    api: &Api<DynamicObject>,
    kind: &str,
    metadata: Value,
    spec: Value,
) -> anyhow::Result<Result<DynamicObject, kube::Error>> {
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": harvester_lb_api::API_VERSION, "kind": kind, "metadata": metadata, "spec": spec,
    }))?;
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    Ok(api.create(&params, &object).await)
}

/// Changes an object without storing it, by a merge patch.
pub async fn try_patch(
    api: &Api<DynamicObject>,
    name: &str,
    patch: Value,
) -> Result<DynamicObject, kube::Error> {
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    api.patch(name, &params, &Patch::Merge(patch)).await
}
