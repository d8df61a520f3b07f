//! Rows of accepted and refused objects, sent to the API server.

use anyhow::{bail, ensure};
use harvester_lb_e2e::World;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::core::DynamicObject;
use serde_json::{Value, json};

/// What the API server answers.
#[derive(Clone, Copy, Debug)]
pub enum Wanted {
    /// The object is stored.
    Accepted,
    /// The webhook refuses it; the first violation that it names begins with this text.
    Refused(&'static str),
    /// The definition itself refuses it, before validating webhooks are asked; the message contains this text.
    Invalid(&'static str),
}
pub use Wanted::{Accepted, Invalid, Refused};

/// The first violation in a refusal of the webhook: `admission webhook "NAME" denied the request: KIND NAME: VIOLATION`.
fn violation(message: &str) -> Option<&str> {
    let (_, told) = message.split_once(" denied the request: ")?;
    let (object, violation) = told.split_once(": ")?;
    let names_object = ["LoadBalancer ", "IPPool "]
        .iter()
        .any(|kind| object.starts_with(kind));
    names_object.then_some(violation)
}

/// Compares an answer with what is wanted.
pub fn judge<T: std::fmt::Debug>(
    what: &str,
    wanted: Wanted,
    answer: Result<T, kube::Error>,
) -> anyhow::Result<()> {
    match (wanted, answer) {
        (Accepted, Ok(_)) => Ok(()),
        (Accepted, Err(error)) => bail!("{what}: refused: {error}"),
        (Refused(_) | Invalid(_), Ok(object)) => bail!("{what}: accepted: {object:?}"),
        (Refused(text) | Invalid(text), Err(kube::Error::Api(status))) => {
            let message = &status.message;
            ensure!(status.code == 422, "{what}: {} {message}", status.code);
            let is_said = match wanted {
                Invalid(_) => violation(message).is_none() && message.contains(text),
                _ => violation(message).is_some_and(|first| first.starts_with(text)),
            };
            ensure!(is_said, "{what}: it does not say {text:?}: {message}");
            Ok(())
        }
        (Refused(_) | Invalid(_), Err(error)) => bail!("{what}: {error}"),
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

/// The warnings in the answer to a request that succeeds, as `kubectl` shows them.
pub async fn warnings(
    world: &World,
    request: http::Request<Vec<u8>>,
) -> anyhow::Result<Vec<String>> {
    let answer = world.client().send(request.map(Body::from)).await?;
    ensure!(answer.status().is_success(), "{}", answer.status());
    let texts = answer.headers().get_all(http::header::WARNING).iter();
    Ok(texts
        .map(|text| String::from_utf8_lossy(text.as_bytes()).into_owned())
        .collect())
}

/// The request that creates an object without storing it.
pub fn creation(
    api: &Api<DynamicObject>,
    kind: &str,
    metadata: &Value,
    spec: &Value,
) -> anyhow::Result<http::Request<Vec<u8>>> {
    let object = json!({
        "apiVersion": harvester_lb_api::API_VERSION, "kind": kind, "metadata": metadata, "spec": spec,
    });
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let request = kube::core::Request::new(api.resource_url());
    Ok(request.create(&params, object.to_string().into_bytes())?)
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

/// A change that is refused, and accepted once the object is being deleted (section 10). The object is gone afterwards.
pub async fn held_in_deletion(
    api: &Api<DynamicObject>,
    name: &str,
    change: Value,
    refusal: Wanted,
) -> anyhow::Result<()> {
    let hold = async |finalizers: &[&str]| {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        api.patch(name, &PatchParams::default(), &patch).await
    };
    hold(&["example.com/hold"]).await?;
    let answer = try_patch(api, name, change.clone()).await;
    judge("before the deletion", refusal, answer)?;
    api.delete(name, &DeleteParams::default()).await?;
    judge("in deletion", Accepted, try_patch(api, name, change).await)?;
    hold(&[]).await?;
    Ok(())
}
