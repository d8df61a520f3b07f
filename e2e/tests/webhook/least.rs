//! The webhook needs each permission that its example grants (docs/examples/rbac-webhook.yaml).

use std::sync::Arc;

use anyhow::ensure;
use harvester_lb_api::keys;
use harvester_lb_e2e::World;
use harvester_lb_e2e::webhook::{
    ACCOUNT, CONFIGURATION, DEFINITION, MUTATING, NAMESPACE, SERVICE, VALIDATING, definition,
};
use harvester_lb_e2e::world::SOON;
use harvester_lb_e2e::{permissions, requests};
use harvester_lb_fixtures::{cluster_spec, subnet};
use harvester_lb_testkit::eventually;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::stage::{finish, one_with};
use crate::table::{Accepted, Refused, api, judge, try_create};
use crate::tls::{address, bundle, connector, post};

/// What is changed is put right at once.
const QUICK: &str =
    "webhook-restore=200ms,webhook-restore-cap=1s,webhook-settle=1s,webhook-retain=1s";

pub async fn section_1_each_right_of_the_webhook_is_used(world: Arc<World>) -> anyhow::Result<()> {
    let user = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
    let before = requests::of(&world, &user)?.len();
    let replica = one_with(&world, QUICK).await?;
    missing_objects(&world).await?;
    changed_by_others(&world).await?;
    let all = permissions::of_example("rbac-webhook.yaml")?;
    eventually("each right is used", SOON, || async {
        let seen = requests::of(&world, &user)?;
        let unused = permissions::unused(&all, &seen[before..]);
        ensure!(
            unused.is_empty(),
            "rights that nothing needs: {unused:#?}, {}",
            replica.process.tail()
        );
        Ok(Some(()))
    })
    .await?;
    finish(&world, &[&replica]).await
}

/// A network and a Namespace that its lists lack are read: they may have been created just now. So are the load balancers of a
/// namespace, of which it has no list.
async fn missing_objects(world: &World) -> anyhow::Result<()> {
    let pools = api(world, "IPPool", "").await?;
    let selector = json!({"network": "default/none"});
    let spec = json!({"ranges": [subnet("10.29.1.0/24")], "selector": selector});
    let made = try_create(&pools, "IPPool", json!({"name": "least"}), spec).await?;
    judge(
        "no such network",
        Refused("spec.selector.network \"default/none\""),
        made,
    )?;
    let lbs = api(world, "LoadBalancer", "default").await?;
    let shared = json!({
        "name": "least", "namespace": "default", "annotations": {keys::ANNOTATION_PRIMARY: "none"},
    });
    let made = try_create(&lbs, "LoadBalancer", shared, cluster_spec()).await?;
    judge("no such primary", Accepted, made)?;
    // The API server itself refuses a Namespace that does not exist.
    let object = json!({
        "apiVersion": harvester_lb_api::API_VERSION, "kind": "LoadBalancer",
        "metadata": {"namespace": "none", "name": "a"}, "spec": {"workloadType": "cluster"},
    });
    let kind = json!({
        "group": "loadbalancer.harvesterhci.io", "version": "v1beta1", "kind": "LoadBalancer",
    });
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "1", "operation": "CREATE", "kind": kind, "namespace": "none", "name": "a",
            "object": object,
        },
    });
    let trusted = connector(&bundle(world).await?)?;
    let body = review.to_string().into_bytes();
    let (code, answer) = post(
        &trusted,
        address(world, "node1")?,
        "/v1/webhook/mutation",
        &body,
    )
    .await?;
    let answer: Value = serde_json::from_slice(&answer)?;
    let is_denied = code == 200 && answer["response"]["allowed"] == false;
    ensure!(is_denied, "{code}: {answer:#}");
    Ok(())
}

/// All that it keeps up is changed: the registration and both Secrets.
async fn changed_by_others(world: &World) -> anyhow::Result<()> {
    let params = PatchParams {
        field_manager: Some("another-program".to_owned()),
        ..PatchParams::default()
    };
    for ((version, kind), policy) in [(VALIDATING, "Ignore"), (MUTATING, "Fail")] {
        let change =
            json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": policy}]);
        let patch: Patch<()> = Patch::Json(serde_json::from_value(change)?);
        let configurations = world.cluster.api(version, kind, None).await?;
        configurations.patch(CONFIGURATION, &params, &patch).await?;
    }
    let off = json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}});
    let definitions = definition(world).await?;
    definitions
        .patch(DEFINITION, &params, &Patch::Merge(off))
        .await?;
    // Who wrote is asked only about a change of others, and not while new authorities change everything.
    for (kind, name) in [
        (VALIDATING.1, CONFIGURATION),
        (MUTATING.1, CONFIGURATION),
        ("CustomResourceDefinition", DEFINITION),
    ] {
        world
            .event("default", kind, name, "another-program")
            .await?;
    }
    let secrets = world.cluster.api("v1", "Secret", Some(NAMESPACE)).await?;
    for part in ["ca", "tls"] {
        let patch = json!({"stringData": {"tls.crt": "unusable", "tls.key": "unusable"}});
        let name = format!("{SERVICE}-{part}");
        secrets.patch(&name, &params, &Patch::Merge(patch)).await?;
    }
    Ok(())
}
