//! The registration of the webhook: begun once its Service has an endpoint, restored when somebody changes it, taken over
//! from the Go operator, removed by `uninstall-webhook`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_e2e::World;
use harvester_lb_e2e::webhook::{
    CONFIGURATION, DEFINITION, MUTATING, NAMESPACE, Replica, SERVICE, VALIDATING, answers,
    definition, endpoints, endpoints_that_are, uninstall,
};
use harvester_lb_e2e::world::SOON;
use harvester_lb_testkit::{consistently, eventually};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::stage::{bare, finish, one, one_with};
use crate::tls::{address, bundle, connect, connector};

async fn get(world: &World, (version, kind): (&str, &str)) -> anyhow::Result<Option<Value>> {
    let found = world
        .cluster
        .get(version, kind, None, CONFIGURATION)
        .await?;
    Ok(found.map(|object| object.data["webhooks"].clone()))
}

pub async fn section_1_the_registration_is_restored(world: Arc<World>) -> anyhow::Result<()> {
    let replica = one_with(&world, "webhook-restore=200ms,webhook-restore-cap=1s").await?;
    let wanted = [
        get(&world, VALIDATING).await?.context("none")?,
        get(&world, MUTATING).await?.context("none")?,
    ];
    let stanza = async || {
        let object = definition(&world).await?.get(DEFINITION).await?;
        anyhow::Ok(object.data["spec"]["conversion"].clone())
    };
    let conversion = stanza().await?;
    ensure!(conversion["strategy"] == "Webhook", "{conversion}");
    let is_restored = async |what: &str| {
        eventually(&format!("{what}: restored"), SOON, || async {
            let is_right = get(&world, VALIDATING).await?.as_ref() == Some(&wanted[0])
                && get(&world, MUTATING).await?.as_ref() == Some(&wanted[1])
                && stanza().await? == conversion;
            Ok(is_right.then_some(()))
        })
        .await
    };
    // Deleted.
    for (version, kind) in [VALIDATING, MUTATING] {
        world
            .cluster
            .delete(version, kind, None, CONFIGURATION)
            .await?;
    }
    is_restored("deletion").await?;
    // Changed, as another program would: a Helm upgrade, or the other webhook.
    let patch = |object: Value| Patch::Merge(object);
    let params = PatchParams {
        field_manager: Some("somebody-else".to_owned()),
        ..PatchParams::default()
    };
    let mut changed = wanted[0].clone();
    changed[0]["failurePolicy"] = json!("Ignore");
    changed[0]["clientConfig"]["caBundle"] = json!(ByteString(world.cluster.ca_pem().into_bytes()));
    let api = world.cluster.api(VALIDATING.0, VALIDATING.1, None).await?;
    api.patch(
        CONFIGURATION,
        &params,
        &patch(json!({ "webhooks": changed })),
    )
    .await?;
    is_restored("another bundle").await?;
    world
        .event("default", VALIDATING.1, CONFIGURATION, "somebody-else")
        .await?;
    let definitions = definition(&world).await?;
    let off = json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}});
    definitions.patch(DEFINITION, &params, &patch(off)).await?;
    is_restored("no conversion").await?;
    answers(&world).await?;
    let restored = replica
        .metric("harvester_lb_webhook_registration_writes_total{object=\"validating\",reason=\"changed_by_others\"}")
        .await?;
    ensure!(restored >= 1.0, "{restored}");

    // A program that does it again and again is not fought faster than the back-off.
    let start = tokio::time::Instant::now();
    let before = writes(&replica).await?;
    while start.elapsed() < Duration::from_secs(6) {
        let patch = patch(json!({ "webhooks": changed }));
        api.patch(CONFIGURATION, &params, &patch).await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let fought = writes(&replica).await? - before;
    eprintln!("{fought} restores in 6 s");
    ensure!((2.0..=20.0).contains(&fought), "{fought}");
    is_restored("the end").await?;
    world
        .event("default", VALIDATING.1, CONFIGURATION, "stop the other one")
        .await?;
    // Nothing is restored after SIGTERM.
    replica.process.term()?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    world
        .cluster
        .delete(MUTATING.0, MUTATING.1, None, CONFIGURATION)
        .await?;
    consistently("it is not restored", Duration::from_secs(3), || async {
        ensure!(get(&world, MUTATING).await?.is_none());
        Ok(())
    })
    .await?;
    replica.process.wait(SOON).await?;
    finish(&world, &[&replica]).await
}

async fn writes(replica: &Replica) -> anyhow::Result<f64> {
    let series = "harvester_lb_webhook_registration_writes_total{object=\"validating\",reason=\"changed_by_others\"}";
    replica.metric(series).await
}

/// Secrets as the Go operator's webhook leaves them: another authority, whose certificate serves until the new one is in
/// every bundle.
pub async fn section_1_the_secrets_of_the_go_webhook_are_replaced(
    world: Arc<World>,
) -> anyhow::Result<()> {
    bare(&world).await?;
    endpoints(&world, &["node1"]).await?;
    let name = format!("{SERVICE}.{NAMESPACE}.svc");
    let (certificate, key) = world.cluster.issue(&[&name], &[])?;
    let secret = |name: String, certificate: &str, key: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "stringData": {"tls.crt": certificate, "tls.key": key},
        })
    };
    // The key of the test cluster's authority is not at hand; an unusable one makes no difference.
    let authority = world.cluster.ca_pem();
    for object in [
        secret(format!("{SERVICE}-ca"), &authority, &key),
        secret(format!("{SERVICE}-tls"), &certificate, &key),
    ] {
        world.cluster.apply(&object).await?;
    }
    let replica = Replica::spawn(&world, "node1", "webhook-settle=4s,webhook-retain=3s").await?;
    replica.ready().await?;
    replica.registered().await?;
    let theirs = connector(authority.as_bytes())?;
    connect(&theirs, address(&world, "node1")?)
        .await
        .context("a client that knows the old authority alone")?;
    let both = bundle(&world).await?;
    ensure!(both.len() > authority.len(), "the bundle has both");
    connect(&connector(&both)?, address(&world, "node1")?).await?;
    answers(&world).await?;
    // Then the new one signs, and the old one leaves.
    eventually("the old authority is gone", SOON, || async {
        let now = bundle(&world).await?;
        connect(&connector(&now)?, address(&world, "node1")?).await?;
        Ok((now.len() < both.len()).then_some(()))
    })
    .await?;
    ensure!(connect(&theirs, address(&world, "node1")?).await.is_err());
    answers(&world).await?;
    let secrets: Api<Secret> = Api::namespaced(world.client(), NAMESPACE);
    let stored = secrets.get(&format!("{SERVICE}-tls")).await?;
    ensure!(stored.type_.as_deref() == Some("kubernetes.io/tls"));
    finish(&world, &[&replica]).await
}

/// What `/readyz` and the log say while the Service has no ready endpoint.
const WAITS: &str = "the registration waits for a ready endpoint of the Service";

/// Waits until a replica says that its registration waits. It is ready all the same: otherwise its Pod would never become an
/// endpoint. Answers how often the log says so, which is also that of the replicas before it.
async fn waits(replica: &Replica) -> anyhow::Result<usize> {
    replica.ready().await?;
    eventually("it waits for an endpoint", SOON, || async {
        let (code, text) = replica.get("/readyz").await?;
        ensure!(code == 200 && text.contains(WAITS), "{code}, {text}");
        let said = replica.process.log().matches(WAITS).count();
        Ok((said > 0).then_some(said))
    })
    .await
}

/// It waits no more, and has not said again that it does.
async fn has_waited(replica: &Replica, said: usize) -> anyhow::Result<()> {
    let (code, text) = replica.get("/readyz").await?;
    ensure!(code == 200 && !text.contains(WAITS), "{code}, {text}");
    let now = replica.process.log().matches(WAITS).count();
    ensure!(now == said, "it says so {now} times, {said} before");
    Ok(())
}

/// Writes a pool that only the webhook refuses, and removes it.
async fn is_unchecked(world: &World) -> anyhow::Result<()> {
    let name = "unchecked";
    world
        .pool(name, json!({"ranges": [{"subnet": "x"}]}))
        .await
        .context("a write is refused")?;
    let params = DeleteParams::default();
    world.pools().delete(name, &params).await?;
    Ok(())
}

/// With failurePolicy Fail the API server would refuse every write while nobody is behind the Service.
pub async fn section_1_nothing_is_registered_before_an_endpoint_is_ready(
    world: Arc<World>,
) -> anyhow::Result<()> {
    bare(&world).await?;
    endpoints(&world, &[]).await?;
    let replica = Replica::spawn(&world, "node1", "").await?;
    let said = waits(&replica).await?;
    let nothing = async || {
        for object in [VALIDATING, MUTATING] {
            ensure!(get(&world, object).await?.is_none(), "{object:?}");
        }
        let object = definition(&world).await?.get(DEFINITION).await?;
        let strategy = &object.data["spec"]["conversion"]["strategy"];
        ensure!(strategy == "None", "{strategy}");
        is_unchecked(&world).await
    };
    consistently("no endpoint", Duration::from_secs(3), &nothing).await?;
    endpoints_that_are(&world, &["node1"], false).await?;
    consistently("not ready", Duration::from_secs(3), nothing).await?;
    endpoints(&world, &["node1"]).await?;
    replica.registered().await?;
    answers(&world).await?;
    has_waited(&replica, said).await?;
    finish(&world, &[&replica]).await
}

/// Another program's webhook, most often the Go operator's, is asked until this one has an endpoint. What names this
/// webhook's Service already is kept up meanwhile.
pub async fn section_1_another_registration_stays_until_an_endpoint_is_ready(
    world: Arc<World>,
) -> anyhow::Result<()> {
    bare(&world).await?;
    endpoints_that_are(&world, &["node1"], false).await?;
    let call = |service: &str, path: &str| {
        json!({"service": {
            "namespace": NAMESPACE, "name": service, "port": 443, "path": format!("/v1/webhook/{path}"),
        }})
    };
    // Nobody is behind the other Service here, so it has no rules.
    let configuration = |(version, kind): (&str, &str), call: Value| {
        json!({
            "apiVersion": version, "kind": kind, "metadata": {"name": CONFIGURATION},
            "webhooks": [{
                "name": "of.another.program", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "clientConfig": call,
            }],
        })
    };
    let another = "another-webhook";
    for object in [
        configuration(VALIDATING, call(another, "validation")),
        configuration(MUTATING, call(SERVICE, "mutation")),
    ] {
        world.cluster.apply(&object).await?;
    }
    let webhook = json!({
        "conversionReviewVersions": ["v1"], "clientConfig": call(another, "conversion"),
    });
    let stanza = json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}}});
    let definitions = definition(&world).await?;
    definitions
        .patch(DEFINITION, &PatchParams::default(), &Patch::Merge(stanza))
        .await?;

    let replica = Replica::spawn(&world, "node1", "").await?;
    let said = waits(&replica).await?;
    let registered = async |object: &str| {
        let series = format!("harvester_lb_webhook_registered{{object=\"{object}\"}}");
        replica.metric(&series).await
    };
    eventually("what names its Service is kept up", SOON, || async {
        let webhooks = get(&world, MUTATING).await?.context("none")?;
        ensure!(
            webhooks[0]["clientConfig"]["caBundle"].is_string(),
            "{webhooks}"
        );
        Ok((registered("mutating").await? > 0.0).then_some(()))
    })
    .await?;
    let others = async || {
        let webhooks = get(&world, VALIDATING).await?.context("none")?;
        let service = &webhooks[0]["clientConfig"]["service"]["name"];
        ensure!(service == another, "{service}");
        let object = definition(&world).await?.get(DEFINITION).await?;
        let client = &object.data["spec"]["conversion"]["webhook"]["clientConfig"];
        ensure!(client["service"]["name"] == another, "{client}");
        for object in ["validating", "conversion"] {
            ensure!(registered(object).await? < 1.0, "{object}");
        }
        Ok(())
    };
    consistently("not ready", Duration::from_secs(3), others).await?;
    endpoints(&world, &["node1"]).await?;
    replica.registered().await?;
    answers(&world).await?;
    let text = format!("{CONFIGURATION} was taken over from");
    world
        .event("default", VALIDATING.1, CONFIGURATION, &text)
        .await?;
    has_waited(&replica, said).await?;
    finish(&world, &[&replica]).await
}

pub async fn section_1_the_webhook_is_uninstalled(world: Arc<World>) -> anyhow::Result<()> {
    let replica = one(&world).await?;
    // A replica that runs does not register again.
    uninstall(&world).await?;
    let nothing = async || {
        for object in [VALIDATING, MUTATING] {
            ensure!(get(&world, object).await?.is_none(), "{object:?}");
        }
        let object = definition(&world).await?.get(DEFINITION).await?;
        let strategy = &object.data["spec"]["conversion"]["strategy"];
        ensure!(strategy == "None", "{strategy}");
        let secrets: Api<Secret> = Api::namespaced(world.client(), NAMESPACE);
        let all = secrets.list(&kube::api::ListParams::default()).await?;
        let names: Vec<_> = all.iter().filter_map(|s| s.metadata.name.clone()).collect();
        ensure!(
            names.iter().all(|name| !name.starts_with(SERVICE)),
            "{names:?}"
        );
        Ok(())
    };
    nothing().await?;
    consistently("nothing comes back", Duration::from_secs(5), nothing).await?;
    for object in ["validating", "mutating", "conversion"] {
        let series = format!("harvester_lb_webhook_registered{{object=\"{object}\"}}");
        let registered = replica.metric(&series).await?;
        ensure!(registered < 1.0, "{object} is registered: {registered}");
    }
    replica.is_unharmed()?;
    // Twice is as once.
    uninstall(&world).await?;
    replica.process.kill9()?;
    // Another webhook's registration is left alone.
    let replica = one(&world).await?;
    replica.process.kill9()?;
    let api = world.cluster.api(VALIDATING.0, VALIDATING.1, None).await?;
    let other = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/service/name", "value": "other"}]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(other)?);
    api.patch(CONFIGURATION, &PatchParams::default(), &patch)
        .await?;
    uninstall(&world).await?;
    ensure!(
        get(&world, VALIDATING).await?.is_some(),
        "another's was removed"
    );
    ensure!(get(&world, MUTATING).await?.is_none());
    finish(&world, &[]).await
}
