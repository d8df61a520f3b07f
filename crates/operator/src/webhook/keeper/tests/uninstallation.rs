//! Uninstallations, seen and missed, and what is told apart from them: Secrets and registrations that are lost.

use jiff::SignedDuration;

use super::*;
use crate::webhook::certificates::x509::seconds;
use crate::webhook_names::{ANNOTATION_UNINSTALLED, DEFINITION, UNINSTALLATION};

#[tokio::test(start_paused = true)]
async fn section_1_an_uninstallation_that_failed_does_not_keep_the_webhook_from_registering() {
    let server = FakeApiServer::default();
    let mut keeper = keeper(&server.client());
    for _ in 0..2 {
        keeper.round().await;
    }
    server.writes();
    let mark = |minutes: i64| {
        move |secret: &mut Value| {
            let at = Timestamp::now() - SignedDuration::from_mins(minutes);
            secret["metadata"]["annotations"] = json!({ANNOTATION_UNINSTALLED: at.to_string()});
        }
    };
    for minutes in [0, 9] {
        change(&server, &keeper, AUTHORITY, mark(minutes)).await;
        let next = keeper.round().await;
        assert!(server.writes().is_empty());
        let left = next - Instant::now();
        let wanted = UNINSTALLATION
            .checked_sub(Duration::from_secs(minutes.unsigned_abs() * 60))
            .unwrap();
        assert!(
            left <= wanted && left + Duration::from_secs(3) > wanted,
            "{left:?}"
        );
    }
    // It says nothing more: it has failed, or was ended. This may be the next installation.
    change(&server, &keeper, AUTHORITY, mark(11)).await;
    keeper.round().await;
    let written: Vec<String> = server
        .writes()
        .into_iter()
        .map(|(_, path, _)| path)
        .collect();
    assert_eq!(written.len(), 2, "{written:?}");
    assert!(
        written
            .iter()
            .all(|path| path.contains("admissionregistration"))
    );
}

#[tokio::test(start_paused = true)]
async fn section_1_nothing_is_made_again_after_an_uninstallation() {
    // The mark and the loss may both be seen before the next round.
    for looks_between in [true, false] {
        let server = FakeApiServer::default();
        let mut keeper = keeper(&server.client());
        for _ in 0..2 {
            keeper.round().await;
        }
        change(&server, &keeper, AUTHORITY, |secret| {
            secret["metadata"]["annotations"] =
                json!({ANNOTATION_UNINSTALLED: Timestamp::now().to_string()});
        })
        .await;
        if looks_between {
            keeper.round().await;
        }
        for name in ["svc-tls", "svc-ca"] {
            delete(&server, name).await;
        }
        keeper.secrets.refresh().await.unwrap();
        server.writes();
        for _ in 0..3 {
            tokio::time::sleep(2 * FORGET).await;
            keeper.round().await;
            assert!(server.writes().is_empty(), "{looks_between}");
        }
    }
}

/// The replica sees that the configurations are gone.
fn forget_configurations(stored: &Stored) {
    let key = Key::new("", CONFIGURATION);
    let (validating, mutating) = (&stored.validating, &stored.mutating);
    let gone = validating.forget(&key, validating.version(&key));
    assert!(gone.is_some());
    assert!(mutating.forget(&key, mutating.version(&key)).is_some());
}

/// Whether the metrics say that a configuration registers the webhook.
fn registered(keeper: &Keeper, object: &str) -> bool {
    let gauge = &keeper.metrics.registered;
    gauge.with_label_values(&[object]).get() == 1
}

#[tokio::test(start_paused = true)]
async fn section_1_the_metrics_follow_the_registration_whatever_keeps_it_from_being_written() {
    let server = FakeApiServer::default();
    let mut keeper = keeper(&server.client());
    registers(&server, &mut keeper).await;
    assert!(registered(&keeper, "validating") && registered(&keeper, "mutating"));
    // There is no definition.
    assert!(!registered(&keeper, "conversion"));
    // A replica that cannot answer.
    let is_ready = std::mem::replace(&mut keeper.is_ready, Box::new(|| false));
    registered_by_another(&server, &keeper, "another");
    keeper.round().await;
    assert!(!registered(&keeper, "validating") && registered(&keeper, "mutating"));
    // `uninstall-webhook`.
    keeper.is_ready = is_ready;
    change(&server, &keeper, AUTHORITY, |secret| {
        secret["metadata"]["annotations"] =
            json!({ANNOTATION_UNINSTALLED: Timestamp::now().to_string()});
    })
    .await;
    keeper.round().await;
    assert!(registered(&keeper, "mutating"));
    forget_configurations(&keeper.stored);
    keeper.round().await;
    assert!(!registered(&keeper, "validating") && !registered(&keeper, "mutating"));
    assert!(registers(&server, &mut keeper).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn section_1_an_uninstallation_that_was_missed_is_seen_by_what_is_gone() {
    let server = FakeApiServer::default();
    let mut keeper = keeper(&server.client());
    registers(&server, &mut keeper).await;
    // Neither the mark nor what was deleted: a watch was interrupted.
    for name in ["svc-tls", "svc-ca"] {
        delete(&server, name).await;
    }
    forget_configurations(&keeper.stored);
    keeper.secrets.refresh().await.unwrap();
    tokio::time::sleep(2 * FORGET).await;
    server.writes();
    for _ in 0..3 {
        let next = keeper.round().await;
        assert!(server.writes().is_empty());
        assert!(next <= Instant::now() + UNINSTALLATION);
        tokio::time::sleep(2 * FORGET).await;
    }
    let now = Timestamp::now().as_second();
    let until = keeper.stored.missed_until(now).unwrap();
    let limit = seconds(UNINSTALLATION);
    assert!((limit - 60..=limit).contains(&(until - now)), "{until}");
    // The same whichever round asks; afterwards it is an installation whose objects were lost.
    assert!(keeper.is_uninstalled(until - 1));
    assert!(!keeper.is_uninstalled(until));
    assert!(!keeper.is_uninstalled(until + 1));
    assert!(keeper.stored.missed_until(until).is_none());
    // The clock was a day ahead.
    let earlier = now - 24 * 60 * 60;
    assert!(keeper.is_uninstalled(earlier));
    assert!(!keeper.is_uninstalled(earlier + limit));
}

#[tokio::test(start_paused = true)]
async fn section_1_an_uninstallation_that_was_missed_is_seen_although_the_registration_looks_as_before()
 {
    let server = FakeApiServer::default();
    let mut keeper = keeper(&server.client());
    registers(&server, &mut keeper).await;
    // The watches of the registration are still interrupted. Conversion is switched off, the definition stays.
    for path in [VALIDATING, MUTATING] {
        server.remove(&format!("{path}/{CONFIGURATION}"));
    }
    let definition = |version: &str, conversion: Value| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": DEFINITION, "uid": "definition", "resourceVersion": version},
            "spec": {
                "group": "g", "scope": "Namespaced", "names": {"kind": "K", "plural": "ks"},
                "versions": [], "conversion": conversion,
            },
        })
    };
    let service = json!({"namespace": "ns", "name": "svc", "path": "/v1/convert"});
    let client_config = json!({"service": service, "caBundle": "eA=="});
    let webhook = json!({"clientConfig": client_config, "conversionReviewVersions": ["v1"]});
    let called = definition("5", json!({"strategy": "Webhook", "webhook": webhook}));
    let decoded = |d| Some(Definition::of(d));
    let known = &keeper.stored.definition;
    list::<CustomResourceDefinition, _>(known, &[called], decoded, |_, _| {});
    assert!(!keeper.stored.bundles().is_empty());
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{DEFINITION}");
    server.put(&path, definition("6", json!({"strategy": "None"})));
    for name in ["svc-tls", "svc-ca"] {
        delete(&server, name).await;
    }
    keeper.secrets.refresh().await.unwrap();
    server.writes();
    for _ in 0..3 {
        tokio::time::sleep(2 * FORGET).await;
        assert!(registers(&server, &mut keeper).await.is_empty());
        assert!(server.get(AUTHORITY).is_none() && server.get(LEAF).is_none());
    }
    let now = Timestamp::now().as_second();
    assert!(keeper.stored.missed_until(now).is_some());
    // While the API server does not say, nothing is made either.
    let server = FakeApiServer::default();
    let mut keeper = keeper_that_settles_at_once(&server.client());
    registers(&server, &mut keeper).await;
    for name in ["svc-tls", "svc-ca"] {
        delete(&server, name).await;
    }
    keeper.secrets.refresh().await.unwrap();
    tokio::time::sleep(2 * FORGET).await;
    server.refuse(Method::GET, "admissionregistration");
    registers(&server, &mut keeper).await;
    assert!(server.get(AUTHORITY).is_none());
    server.admit();
    tokio::time::sleep(2 * FORGET).await;
    registers(&server, &mut keeper).await;
    assert!(server.get(AUTHORITY).is_some() && server.get(LEAF).is_some());
}

#[tokio::test(start_paused = true)]
async fn section_1_secrets_that_are_lost_while_the_webhook_is_registered_are_made_again() {
    let server = FakeApiServer::default();
    let mut keeper = keeper_that_settles_at_once(&server.client());
    registers(&server, &mut keeper).await;
    for name in ["svc-tls", "svc-ca"] {
        delete(&server, name).await;
    }
    keeper.secrets.refresh().await.unwrap();
    tokio::time::sleep(2 * FORGET).await;
    registers(&server, &mut keeper).await;
    assert!(server.get(AUTHORITY).is_some() && server.get(LEAF).is_some());
    // One that has never been registered is an installation.
    let server = FakeApiServer::default();
    let mut keeper = self::keeper(&server.client());
    assert_eq!(registers(&server, &mut keeper).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn section_1_a_secret_that_uninstall_webhook_has_removed_is_not_made_again() {
    let server = FakeApiServer::default();
    let mut keeper = keeper(&server.client());
    for _ in 0..2 {
        keeper.round().await;
    }
    // The loss of one Secret is seen before the mark on the other one.
    let mut secret = server.get(AUTHORITY).unwrap();
    secret["metadata"]["resourceVersion"] = json!("900");
    secret["metadata"]["annotations"] =
        json!({ANNOTATION_UNINSTALLED: Timestamp::now().to_string()});
    server.put(AUTHORITY, secret);
    delete(&server, "svc-tls").await;
    let (leaf, key) = (&keeper.stored.leaf, keeper.stored.leaf_key());
    assert!(leaf.forget(&key, leaf.version(&key)).is_some());
    tokio::time::sleep(2 * FORGET).await;
    server.writes();
    for _ in 0..3 {
        keeper.round().await;
        assert!(server.writes().is_empty());
    }
}
