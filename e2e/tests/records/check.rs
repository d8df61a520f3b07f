//! The subcommand `check`: what it finds, what it needs, and that it writes nothing (OPS-2).

use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_e2e::World;
use harvester_lb_e2e::check::{check, check_as, passes};
use harvester_lb_e2e::fake_kube_vip::FakeKubeVip;
use harvester_lb_e2e::quiet::audited;
use harvester_lb_e2e::world::{SOON, repository};
use harvester_lb_e2e::{permissions, requests};
use harvester_lb_fixtures::{allocated_address, vm_spec};
use harvester_lb_testkit::eventually;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::stage::{cluster, pool, set, start};

/// A webhook configuration about IPPools whose Service does not exist.
fn dead_webhook() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "check-dead"},
        "webhooks": [{
            "name": "dead.check.example.org", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"service": {"namespace": "check", "name": "nobody"}},
            "rules": [{
                "apiGroups": ["loadbalancer.harvesterhci.io"], "apiVersions": ["*"],
                "operations": ["DELETE"], "resources": ["ippools"],
            }],
        }],
    })
}

pub async fn ops_2_check_names_what_is_wrong(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "check";
    set(&world, ns).await?;
    pool(&world, ns, &[json!({"subnet": "10.74.0.0/24"})]).await?;
    let kube_vip = FakeKubeVip::start(&world.client());
    let operator = start(&world).await?;
    for name in ["a", "b", "c", "d"] {
        cluster(&world, ns, name).await?;
    }
    world.lb(ns, "vm", vm_spec("web")).await?;
    for name in ["a", "b", "c", "d", "vm"] {
        world.lb_address(ns, name).await?;
    }
    audited(&world, "node1", &[ns]).await?;
    let checked = passes(&world).await?;
    ensure!(
        checked.json["leader"]["operator"] == "this",
        "{:#}",
        checked.json
    );
    ensure!(checked.json["findings"] == json!([]), "{:#}", checked.json);
    operator.end().await?;
    drop(kube_vip);
    let checked = passes(&world).await?;
    ensure!(checked.objects("NoLeader").len() == 1, "{:#}", checked.json);

    // Nobody repairs what is altered now.
    let ip = world.lb_address(ns, "a").await?;
    let lbs = world.lbs(ns);
    world.merge(&lbs, "b", allocated_address(&ip, ns)).await?;
    let ip = world.lb_address(ns, "c").await?;
    let released = json!({"spec": {"phase": "Released"}});
    world.merge(&world.records(), &ip, released).await?;
    let other = json!({"status": {"loadBalancer": {"ingress": [{"ip": "10.74.0.99"}]}}});
    let services = world.services(ns);
    let patch = kube::api::Patch::Merge(other);
    let params = kube::api::PatchParams::default();
    services.patch_status("vm", &params, &patch).await?;
    world
        .cluster
        .apply(&json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {
                "namespace": ns, "name": "left", "labels": {"loadbalancer.harvesterhci.io/servicelb": "true"},
            },
            "spec": {"ports": [{"port": 80}]},
        }))
        .await?;
    world.cluster.apply(&dead_webhook()).await?;
    let checked = check(&world).await?;
    let group = "admissionregistration.k8s.io/v1";
    let kind = "ValidatingWebhookConfiguration";
    world
        .cluster
        .delete(group, kind, None, "check-dead")
        .await?;
    ensure!(checked.code == 1, "{:#}", checked.json);
    for (reason, object) in [
        ("DuplicateAddress", "check/b"),
        ("AddressMismatch", "check/b"),
        ("AddressWithoutIPAllocation", "check/c"),
        ("StatusAddressMismatch", "check/vm"),
        ("ServiceOrphaned", "check/left"),
        ("WebhookUnreachable", "/check-dead"),
    ] {
        let objects = checked.objects(reason);
        ensure!(
            objects.contains(object),
            "no {reason} of {object}: {:#}",
            checked.json
        );
    }
    let sound: Vec<&Value> = checked.json["findings"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|finding| finding["object"]["name"] == "d")
        .collect();
    ensure!(sound.is_empty(), "{sound:#?}");

    // The operator repairs all of that, except what others own: the Service, and what kube-vip announces.
    services.delete("left", &DeleteParams::default()).await?;
    services.delete("vm", &DeleteParams::default()).await?;
    let kube_vip = FakeKubeVip::start(&world.client());
    let operator = start(&world).await?;
    audited(&world, "node1", &[ns]).await?;
    passes(&world).await?;
    drop(kube_vip);
    operator.end().await
}

/// The documents of rbac-check.yaml for a user of the test.
fn roles(account: &str) -> anyhow::Result<Vec<Value>> {
    let text = std::fs::read_to_string(repository().join("docs/examples/rbac-check.yaml"))?;
    let mut documents: Vec<Value> = serde_saphyr::from_multiple(&text)?;
    let subject = json!([{"kind": "ServiceAccount", "namespace": "kube-system", "name": account}]);
    for document in &mut documents {
        document["metadata"]["name"] = account.into();
        if document["roleRef"].is_object() {
            document["roleRef"]["name"] = account.into();
            document["subjects"] = subject.clone();
        }
    }
    Ok(documents)
}

/// Removes a resource from the rules.
fn without(documents: &[Value], resource: &str) -> Vec<Value> {
    let mut documents = documents.to_vec();
    for document in &mut documents {
        // Indexing would add the field to a binding.
        let Some(rules) = document.get_mut("rules").and_then(Value::as_array_mut) else {
            continue;
        };
        for rule in &mut *rules {
            if let Some(resources) = rule["resources"].as_array_mut() {
                resources.retain(|it| it != resource);
            }
        }
        rules.retain(|rule| {
            let resources = rule["resources"].as_array();
            resources.is_some_and(|all| !all.is_empty())
        });
    }
    documents
}

pub async fn ops_2_check_needs_the_rights_of_its_example_and_writes_nothing(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let ns = "rights";
    set(&world, ns).await?;
    pool(&world, ns, &[json!({"subnet": "10.75.0.0/24"})]).await?;
    let operator = start(&world).await?;
    cluster(&world, ns, "a").await?;
    audited(&world, "node1", &[ns]).await?;
    let account = "checker";
    world
        .cluster
        .apply(&json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": account, "namespace": "kube-system"},
        }))
        .await?;
    world
        .cluster
        .apply(&json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "harvester-system"},
        }))
        .await?;
    let documents = roles(account)?;
    for document in &documents {
        world.cluster.apply(document).await?;
    }
    let kubeconfig = world
        .cluster
        .service_account_kubeconfig("kube-system", account);
    let kubeconfig = kubeconfig.await?;
    let kubeconfig = kubeconfig.to_str().context("the path is no text")?;
    eventually("the permissions are in effect", SOON, || async {
        let checked = check_as(&world, kubeconfig).await?;
        ensure!(checked.code == 0, "{:#}", checked.json);
        Ok(Some(()))
    })
    .await?;
    let user = format!("system:serviceaccount:kube-system:{account}");
    let seen = requests::of(&world, &user)?;
    let written: Vec<_> = seen.iter().filter(|request| request.writes()).collect();
    ensure!(written.is_empty(), "{written:#?}");
    let all = permissions::of(&documents);
    let unused = permissions::unused(&all, &seen);
    ensure!(unused.is_empty(), "rights that nothing needs: {unused:?}");

    for resource in [
        "services",
        "ippools",
        "leases",
        "validatingwebhookconfigurations",
    ] {
        for document in &without(&documents, resource) {
            world.cluster.apply(document).await?;
        }
        eventually(&format!("without {resource}"), SOON, || async {
            let checked = check_as(&world, kubeconfig).await?;
            ensure!(checked.code == 2, "{:#}", checked.json);
            let text = checked.json["notRead"].to_string();
            ensure!(text.contains(resource), "{text}");
            Ok(Some(()))
        })
        .await?;
        for document in &documents {
            world.cluster.apply(document).await?;
        }
    }
    let services = world.services(ns);
    ensure!(
        services
            .list(&kube::api::ListParams::default())
            .await?
            .items
            .is_empty(),
        "no Service"
    );
    world.lbs(ns).delete("a", &DeleteParams::default()).await?;
    operator.end().await
}
