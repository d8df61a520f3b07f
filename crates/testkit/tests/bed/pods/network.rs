//! Pods in the network: by their addresses, by Services, and as webhooks of the API server.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_testkit::{PodRunner, TestCluster, Traffic, burst, eventually, lan};
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{apart, available, deployment, names, namespace, node_of, pods, service, serving};
use crate::program::{DENIED, TLS};
use crate::support::SOON;

async fn cluster_ip(cluster: &TestCluster, ns: &str, name: &str) -> anyhow::Result<Ipv4Addr> {
    let service = cluster.get("v1", "Service", Some(ns), name).await?;
    let service = service.context("no Service")?;
    let ip = service.data["spec"]["clusterIP"]
        .as_str()
        .context("no address")?;
    Ok(ip.parse()?)
}

pub(crate) async fn pods_are_spread_and_reachable(
    cluster: &TestCluster,
    runner: &PodRunner,
) -> anyhow::Result<()> {
    let (ns, name) = ("pods-reach", "web");
    namespace(cluster, ns).await?;
    let affinity = json!({"affinity": apart(name)});
    let web = deployment(ns, name, 2, &serving(&json!({})), &affinity);
    cluster.apply(&web).await?;
    let ports = json!([{"port": 80, "targetPort": "http"}]);
    cluster.apply(&service(ns, name, &ports)).await?;
    let found = available(cluster, ns, name).await?;
    let nodes: BTreeSet<String> = found.iter().map(node_of).collect();
    ensure!(nodes.len() == 2, "{nodes:?}");

    let expected: BTreeSet<String> = names(&found).into_iter().collect();
    let ip = cluster_ip(cluster, ns, name).await?;
    for from in ["node1", "node2"] {
        let from = cluster.netns(from)?;
        answered_by(&from, ip, 80, &expected).await?;
    }
    // The API server has no kube-proxy, but routes to the Pods; a Pod reaches the other one, and the Service.
    let (first, second) = (&found[0], &found[1]);
    let pod = runner.netns(ns, &first.name_any())?;
    for from in [cluster.netns("cp")?, pod.clone()] {
        let address = runner.address(ns, &second.name_any())?;
        answered_by(&from, address, 8080, &BTreeSet::from([second.name_any()])).await?;
    }
    answered_by(&pod, ip, 80, &expected).await?;
    // What is on the LAN sees the node's address and answers it.
    let vm = cluster.add_vm("pods-vm")?;
    vm.listen(8080)?;
    answered_by(
        &pod,
        vm.address(),
        8080,
        &BTreeSet::from(["pods-vm".to_owned()]),
    )
    .await?;

    // A Pod that is not ready gets no traffic.
    runner.get(ns, &first.name_any(), 8080, "/unready").await?;
    answered_by(
        &cluster.netns("node1")?,
        ip,
        80,
        &BTreeSet::from([second.name_any()]),
    )
    .await
}

async fn answered_by(
    from: &harvester_lb_testkit::Netns,
    to: Ipv4Addr,
    port: u16,
    names: &BTreeSet<String>,
) -> anyhow::Result<()> {
    eventually(&format!("{} to {to}:{port}", from.name()), SOON, || async {
        let tally = burst(from, to, port, 20, 4).await;
        let by: BTreeSet<String> = tally.by_body.keys().cloned().collect();
        ensure!(
            tally.failures.is_empty() && by == *names,
            "{tally:?}, not {names:?}"
        );
        Ok(Some(()))
    })
    .await
}

/// A webhook that is referred to by its Service, in a Pod of the Pod network, serves the API server over TLS; and its
/// certificate's files follow the Secret.
pub(crate) async fn pods_serve_webhooks_by_service(
    cluster: &TestCluster,
    runner: &PodRunner,
) -> anyhow::Result<()> {
    let (ns, name) = ("pods-webhook", "hook");
    namespace(cluster, ns).await?;
    let host = format!("{name}.{ns}.svc");
    let secret = |data: Value| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tls", "namespace": ns},
            "stringData": data,
        })
    };
    let (certificate, key) = cluster.issue(&[&host], &[])?;
    cluster
        .apply(&secret(json!({"tls.crt": certificate, "tls.key": key})))
        .await?;
    let container = serving(&json!({
        "ports": [{"name": "https", "containerPort": 8443}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "https", "scheme": "HTTPS"}, "periodSeconds": 1},
        "volumeMounts": [{"name": "tls", "mountPath": TLS}],
    }));
    let volumes = json!({"volumes": [{"name": "tls", "secret": {"secretName": "tls", "defaultMode": 0o400}}]});
    cluster
        .apply(&deployment(ns, name, 1, &container, &volumes))
        .await?;
    let ports = json!([{"port": 443, "targetPort": "https"}]);
    cluster.apply(&service(ns, name, &ports)).await?;
    let found = available(cluster, ns, name).await?;

    cluster
        .apply(&json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "pods-webhook"},
            "webhooks": [{
                "name": "pods.test.io", "failurePolicy": "Fail", "sideEffects": "None",
                "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ns}},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
                "clientConfig": {
                    "caBundle": k8s_openapi::ByteString(cluster.ca_pem().into_bytes()),
                    "service": {"name": name, "namespace": ns, "path": "/admit"},
                },
            }],
        }))
        .await?;
    let map = |name: &str, labels: Value| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": ns, "labels": labels},
        })
    };
    // The API server learns of the configuration a moment later.
    eventually("denial", SOON, || async {
        let denied = cluster.apply(&map("denied", json!({DENIED: "x"}))).await;
        let Err(error) = denied else {
            cluster
                .delete("v1", "ConfigMap", Some(ns), "denied")
                .await?;
            return Ok(None);
        };
        let text = format!("{error:#}");
        ensure!(text.contains("denied by the webhook in a Pod"), "{text}");
        Ok(Some(()))
    })
    .await?;
    cluster.apply(&map("allowed", json!({}))).await?;

    let (certificate, key) = cluster.issue(&[&host], &[])?;
    cluster
        .apply(&secret(json!({"tls.crt": certificate, "tls.key": key})))
        .await?;
    let pod = names(&found).remove(0);
    eventually("the new certificate in the Pod", SOON, || async {
        // The container serves HTTP too.
        let (code, text) = runner.get(ns, &pod, 8080, "/read/tls/tls.crt").await?;
        ensure!(code == 200, "{code} {text}");
        Ok((text == certificate).then_some(()))
    })
    .await?;
    cluster.apply(&map("allowed-again", json!({}))).await?;
    cluster
        .delete(
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            None,
            "pods-webhook",
        )
        .await
}

pub(crate) async fn pods_are_rolled_without_a_lost_request(
    cluster: &TestCluster,
    _runner: &PodRunner,
) -> anyhow::Result<()> {
    let (ns, name, vip) = ("pods-roll", "roll", lan(206));
    namespace(cluster, ns).await?;
    // It serves on after SIGTERM until the nodes know.
    let version = |version: &str| {
        let name = json!({"name": "POD_NAME", "value": version});
        let container = serving(&json!({"env": [name, {"name": "LINGER_MS", "value": "2500"}]}));
        let mut all = deployment(ns, "roll", 2, &container, &json!({}));
        all["spec"]["strategy"] = json!({"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}});
        all
    };
    cluster.apply(&version("old")).await?;
    let mut balancer = service(ns, name, &json!([{"port": 80, "targetPort": 8080}]));
    balancer["spec"]["type"] = "LoadBalancer".into();
    balancer["spec"]["loadBalancerIP"] = vip.to_string().into();
    cluster.apply(&balancer).await?;
    let old = available(cluster, ns, name).await?;
    let client = cluster.netns("client")?;
    answered_by(&client, vip, 80, &BTreeSet::from(["old".to_owned()])).await?;

    let traffic = Traffic::start(cluster, vip, 80, Duration::from_millis(50));
    let began = Instant::now();
    cluster.apply(&version("new")).await?;
    let new = available(cluster, ns, name).await?;
    ensure!(names(&new).iter().all(|pod| !names(&old).contains(pod)));
    answered_by(&client, vip, 80, &BTreeSet::from(["new".to_owned()])).await?;
    println!("rolled within {:.1?}", began.elapsed());
    for pod in names(&old) {
        super::gone(cluster, ns, &pod).await?;
    }
    let failed = traffic.into_failures().await;
    ensure!(failed.is_empty(), "{failed:?}");
    ensure!(
        pods(cluster, ns)
            .list(&ListParams::default())
            .await?
            .items
            .len()
            == 2
    );
    Ok(())
}
