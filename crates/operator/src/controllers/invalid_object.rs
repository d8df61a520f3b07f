//! Objects of our kinds that cannot be decoded. The schema rejects them, unless they were stored under an older schema.
//!
//! The condition `Ready` reports the error on the object itself. It is written by a patch that changes nothing else, because
//! the rest of the object is unknown; its address, Service and EndpointSlice stay.

use harvester_lb_api::condition::{self, READY};
use harvester_lb_api::{Condition, ConditionStatus, keys, meta};
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::status::{EventDraft, INVALID_OBJECT};
use harvester_lb_core::{time, wording};
use harvester_lb_object::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DynamicObject;
use kube::{Api, CustomResourceExt};
use serde_json::{Value, json};
use tracing::warn;

use crate::clock;
use crate::context::Context;

/// Sets the condition of an object that cannot be decoded, with an Event if its reason changes. `error` is short and names
/// the field. The API server may refuse the write because the rest of the object violates the schema; the object is then
/// listed among the refused writes and retried (RUN-1).
pub async fn report<K: CustomResourceExt>(
    ctx: &Context,
    key: &Key,
    meta: &ObjectMeta,
    error: &str,
) -> Result<(), WriteError> {
    let resource = &K::api_resource();
    let client = ctx.client.writer().client();
    let api: Api<DynamicObject> = if key.namespace.is_empty() {
        Api::all_with(client, resource)
    } else {
        Api::namespaced_with(client, &key.namespace, resource)
    };
    let Some(present) = ctx.client.writer().get(&api, &key.name).await? else {
        return Ok(());
    };
    if present.metadata.resource_version != meta.resource_version {
        // The watch delivers the newer version.
        return Ok(());
    }
    let kind = &resource.kind;
    let message = message(kind, key, error);
    let Some((patch, news)) = patch(&present.data, meta, &message, &time::rfc3339(clock::now()))
    else {
        return Ok(());
    };
    warn!(kind, object = %key, error, "object cannot be decoded");
    let written = ctx
        .client
        .writer()
        .patch(
            &api,
            &key.name,
            meta.resource_version.as_deref().unwrap_or_default(),
            patch,
        )
        .await;
    ctx.client.note_refusal(kind, key, written.as_ref().err());
    match written {
        Ok(_) => {}
        Err(error) if error.is_stale() => return Ok(()),
        Err(other) => return Err(other),
    }
    if news {
        let draft = EventDraft {
            warning: true,
            reason: INVALID_OBJECT.to_owned(),
            text: message,
        };
        ctx.notify(kind, meta, &draft);
    }
    Ok(())
}

/// The message of the condition: the error and how to correct it.
pub fn message(kind: &str, key: &Key, error: &str) -> String {
    format!("{kind} {key} cannot be decoded, correct it or delete it: {error}")
}

/// The patch, and whether the reason of the condition changes; `None` if the object is up to date.
fn patch(data: &Value, meta: &ObjectMeta, message: &str, now: &str) -> Option<(Value, bool)> {
    let before: Vec<Condition> =
        serde_json::from_value(data["status"]["conditions"].clone()).unwrap_or_default();
    let mut after = before.clone();
    wording::set(
        &mut after,
        READY,
        ConditionStatus::False,
        INVALID_OBJECT,
        message,
        now,
    );
    let mut patch = json!({});
    if after != before {
        patch["status"] = json!({ "conditions": after });
    }
    if let Some(kept) = meta::finalizers_without(meta, &keys::LEGACY_FINALIZERS) {
        patch["metadata"] = json!({ "finalizers": kept });
    }
    let reason = |all: &[Condition]| condition::find(all, READY).and_then(|c| c.reason.clone());
    let news = reason(&before) != reason(&after);
    (patch != json!({})).then_some((patch, news))
}

#[cfg(test)]
mod tests {
    use super::*;
    use harvester_lb_api::LoadBalancer;
    use http::Method;

    use crate::fake::{self, FakeApiServer};
    use crate::timings::Timings;

    const NOW: &str = "2026-01-01T00:00:00Z";

    #[tokio::test]
    async fn run_1_one_that_cannot_even_be_told_is_named_until_it_can_be() {
        const PATH: &str =
            "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/n/loadbalancers/a";
        let server = FakeApiServer::default();
        let object = json!({
            "metadata": {"namespace": "n", "name": "a", "resourceVersion": "5"},
            "spec": {"listeners": 7},
        });
        let meta: ObjectMeta = serde_json::from_value(object["metadata"].clone()).unwrap();
        server.put(PATH, object);
        server.refuse(Method::PATCH, "loadbalancers");
        let ctx = fake::context(server.client(), &Timings::default(), true);
        let key = Key::new("n", "a");
        let outcome = report::<LoadBalancer>(&ctx, &key, &meta, "why").await;
        assert!(
            matches!(outcome, Err(WriteError::Refused(_))),
            "it is tried again: {outcome:?}"
        );
        let named = [("LoadBalancer".to_owned(), key.clone())];
        assert_eq!(ctx.refused_writes.all(), named);
        server.admit();
        report::<LoadBalancer>(&ctx, &key, &meta, "why")
            .await
            .unwrap();
        assert!(ctx.refused_writes.all().is_empty());
        let conditions = &server.get(PATH).unwrap()["status"]["conditions"];
        assert_eq!(conditions[0]["reason"], INVALID_OBJECT);
    }

    #[test]
    fn only_the_condition_is_written_and_only_once() {
        let data = json!({"spec": {"listeners": 7}, "status": {"address": "10.0.0.2"}});
        let (first, news) = patch(&data, &ObjectMeta::default(), "m", NOW).unwrap();
        assert!(news);
        assert_eq!(first["status"].as_object().unwrap().len(), 1);
        assert_eq!(first["status"]["conditions"][0]["reason"], INVALID_OBJECT);
        assert!(first.get("metadata").is_none());

        let again = json!({"status": first["status"]});
        assert_eq!(patch(&again, &ObjectMeta::default(), "m", NOW), None);
        let (_, news) = patch(&again, &ObjectMeta::default(), "other words", NOW).unwrap();
        assert!(!news);
    }

    #[test]
    fn fin_2_finalizers_of_old_are_taken_off() {
        let meta = ObjectMeta {
            finalizers: Some(vec![
                keys::LEGACY_FINALIZERS[0].to_owned(),
                "other".to_owned(),
            ]),
            ..ObjectMeta::default()
        };
        let (patch, _) = patch(&json!({}), &meta, "m", NOW).unwrap();
        assert_eq!(patch["metadata"]["finalizers"], json!(["other"]));
    }

    #[test]
    fn conditions_that_are_garbage_are_replaced() {
        let data = json!({"status": {"conditions": "none"}});
        let (patch, news) = patch(&data, &ObjectMeta::default(), "m", NOW).unwrap();
        assert!(news);
        assert_eq!(patch["status"]["conditions"].as_array().unwrap().len(), 1);
    }
}
