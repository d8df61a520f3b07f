//! Shared by the tests: replicas of the webhook behind its Service, and a cluster without one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_api::LoadBalancer;
use harvester_lb_e2e::World;
use harvester_lb_e2e::quiet::reset;
use harvester_lb_e2e::world::{SOON, TEST_TIMINGS, node_address, repository};
use harvester_lb_testkit::{Process, eventually};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub const NAMESPACE: &str = "harvester-system";
pub const SERVICE: &str = "harvester-load-balancer-webhook";
pub const CONFIGURATION: &str = SERVICE;
pub const DEFINITION: &str = "loadbalancers.loadbalancer.harvesterhci.io";
pub const VALIDATING: (&str, &str) = (
    "admissionregistration.k8s.io/v1",
    "ValidatingWebhookConfiguration",
);
pub const MUTATING: (&str, &str) = (
    "admissionregistration.k8s.io/v1",
    "MutatingWebhookConfiguration",
);
pub const HTTPS: u16 = 8443;
/// The operator of the same node has 8081.
const ADMIN: u16 = 8091;
/// Name of the webhook's ServiceAccount and roles in the example.
pub const ACCOUNT: &str = "harvester-lb-webhook";

/// A replica of the webhook on a node.
pub struct Replica {
    pub process: Arc<Process>,
    pub node: &'static str,
}

impl Replica {
    /// Starts one with the permissions of the example, and does not wait for it.
    pub async fn spawn(world: &World, node: &'static str, timings: &str) -> anyhow::Result<Self> {
        let kubeconfig = world
            .cluster
            .service_account_kubeconfig(NAMESPACE, ACCOUNT)
            .await?;
        let kubeconfig = kubeconfig.to_str().context("the path is no text")?;
        let admin = format!("0.0.0.0:{ADMIN}");
        let timings = format!("{TEST_TIMINGS},{timings}");
        let env = [
            ("KUBECONFIG", kubeconfig),
            ("ADMIN_ADDRESS", &*admin),
            ("HLB_TIMINGS", timings.trim_end_matches(',')),
            ("LOGLEVEL", "info,harvester_load_balancer=debug"),
            // As Harvester's chart sets it.
            ("HARVESTER_WEBHOOK_SERVER_HTTPS_PORT", "8443"),
            ("NAMESPACE", NAMESPACE),
        ];
        let process = world.cluster.spawn(
            node,
            world.binary(),
            &["webhook"],
            &env,
            &format!("webhook-{node}"),
        )?;
        Ok(Self { process, node })
    }

    /// Its admin port.
    pub fn admin(&self) -> anyhow::Result<SocketAddr> {
        Ok(SocketAddr::from((node_address(self.node)?, ADMIN)))
    }

    /// Reads from the admin port: status code and body.
    pub async fn get(&self, path: &str) -> anyhow::Result<(u16, String)> {
        let at = self.admin()?;
        let exchange = async {
            let mut stream = TcpStream::connect(at).await?;
            let request = format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            anyhow::Ok(answer)
        };
        let answer = tokio::time::timeout(Duration::from_secs(5), exchange).await??;
        let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
        let code = head.split(' ').nth(1).context("no status line")?.parse()?;
        Ok((code, body.to_owned()))
    }

    /// Waits until it is ready.
    pub async fn ready(&self) -> anyhow::Result<()> {
        self.process
            .ready(SOON, || async {
                Ok(self.get("/readyz").await.is_ok_and(|(code, _)| code == 200))
            })
            .await
    }

    /// Waits until this replica has seen all three objects as they must be.
    pub async fn registered(&self) -> anyhow::Result<()> {
        let names = ["validating", "mutating", "conversion"];
        let what = format!("{} is registered", self.node);
        eventually(&what, SOON, || async {
            let (_, text) = self.get("/metrics").await?;
            let is_registered = |object: &&str| {
                let series = format!("harvester_lb_webhook_registered{{object=\"{object}\"}} 1\n");
                text.contains(&series)
            };
            Ok(names.iter().all(is_registered).then_some(()))
        })
        .await
        .with_context(|| self.process.tail())
    }

    /// The value of a series; 0 if it does not exist.
    pub async fn metric(&self, series: &str) -> anyhow::Result<f64> {
        let (_, text) = self.get("/metrics").await?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(Ok(0.0), |value| Ok(value.trim().parse()?))
    }

    /// Fails if there was a panic, or if it has ended.
    pub fn is_unharmed(&self) -> anyhow::Result<()> {
        ensure!(
            self.process.is_running(),
            "it ended: {}",
            self.process.tail()
        );
        let log = self.process.log();
        ensure!(!log.contains("panicked"), "{}", self.process.tail());
        Ok(())
    }
}

/// A cluster without load balancers, pools and webhooks.
pub async fn bare(world: &World) -> anyhow::Result<()> {
    unregister(world).await?;
    // A test that failed may have left another one.
    store(world, "v1beta1").await?;
    reset(world).await?;
    if world
        .cluster
        .get("v1", "Namespace", None, NAMESPACE)
        .await?
        .is_none()
    {
        world.namespace(NAMESPACE).await?;
    }
    permissions(world).await
}

/// The permissions of the example.
pub async fn permissions(world: &World) -> anyhow::Result<()> {
    let rbac = repository().join("docs/examples/rbac-webhook.yaml");
    world
        .cluster
        .apply_yaml(&std::fs::read_to_string(rbac)?)
        .await?;
    Ok(())
}

/// Removes what registers the webhook, as an administrator does it manually.
pub async fn unregister(world: &World) -> anyhow::Result<()> {
    for (version, kind) in [VALIDATING, MUTATING] {
        world
            .cluster
            .delete(version, kind, None, CONFIGURATION)
            .await?;
    }
    let patch = json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}});
    definition(world)
        .await?
        .patch(DEFINITION, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    for secret in [format!("{SERVICE}-ca"), format!("{SERVICE}-tls")] {
        world
            .cluster
            .delete("v1", "Secret", Some(NAMESPACE), &secret)
            .await?;
    }
    Ok(())
}

/// Makes a version the one that is stored.
pub async fn store(world: &World, version: &str) -> anyhow::Result<()> {
    let api = definition(world).await?;
    let mut object = api.get(DEFINITION).await?;
    let versions = object.data["spec"]["versions"].as_array_mut();
    let mut is_changed = false;
    for of in versions.context("no versions")? {
        let is_stored = json!(of["name"] == version);
        is_changed |= of["storage"] != is_stored;
        of["storage"] = is_stored;
    }
    if is_changed {
        object.metadata.managed_fields = None;
        let params = PostParams::default();
        api.replace(DEFINITION, &params, &object).await?;
    }
    Ok(())
}

/// The definitions.
pub async fn definition(world: &World) -> anyhow::Result<Api<DynamicObject>> {
    world
        .cluster
        .api("apiextensions.k8s.io/v1", "CustomResourceDefinition", None)
        .await
}

/// The Service of the webhook, with ready endpoints on these nodes.
pub async fn endpoints(world: &World, nodes: &[&str]) -> anyhow::Result<()> {
    endpoints_that_are(world, nodes, true).await
}

/// The Service of the webhook, with endpoints on these nodes, which are ready or not.
pub async fn endpoints_that_are(world: &World, nodes: &[&str], ready: bool) -> anyhow::Result<()> {
    world
        .cluster
        .apply(&json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"namespace": NAMESPACE, "name": SERVICE},
            "spec": {"ports": [{"name": "https", "port": 443, "targetPort": HTTPS, "protocol": "TCP"}]},
        }))
        .await?;
    let addresses = nodes.iter().map(|node| node_address(node));
    let addresses: Vec<_> = addresses.collect::<Result<_, _>>()?;
    let endpoints: Vec<Value> = addresses
        .iter()
        .map(|address| json!({"addresses": [address.to_string()], "conditions": {"ready": ready}}))
        .collect();
    world
        .cluster
        .apply(&json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "namespace": NAMESPACE, "name": SERVICE,
                "labels": {"kubernetes.io/service-name": SERVICE},
            },
            "addressType": "IPv4",
            "ports": [{"name": "https", "port": HTTPS, "protocol": "TCP"}],
            "endpoints": endpoints,
        }))
        .await?;
    Ok(())
}

/// A bare cluster with one replica, which is registered and answers.
pub async fn one(world: &World) -> anyhow::Result<Replica> {
    one_with(world, "").await
}

/// The same, with further timings.
pub async fn one_with(world: &World, timings: &str) -> anyhow::Result<Replica> {
    bare(world).await?;
    endpoints(world, &["node1"]).await?;
    let replica = Replica::spawn(world, "node1", timings).await?;
    replica.ready().await?;
    replica.registered().await?;
    answers(world).await?;
    Ok(replica)
}

/// Waits until the API server asks the webhook, and gets an answer: it learns of configurations and endpoints some time
/// after they were written.
pub async fn answers(world: &World) -> anyhow::Result<()> {
    let params = PatchParams::apply("test-bed").force();
    let pool = |subnet: &str| {
        Patch::Apply(json!({
            "apiVersion": harvester_lb_api::API_VERSION, "kind": "IPPool",
            "metadata": {"name": "probe-of-the-webhook"},
            "spec": {"ranges": [{"subnet": subnet}]},
        }))
    };
    let dry = PatchParams {
        dry_run: true,
        ..params
    };
    eventually("the webhook answers", SOON, || async {
        // Refused by the webhook alone, and not by the schema.
        let wrong = world
            .pools()
            .patch("probe-of-the-webhook", &dry, &pool("x"))
            .await;
        let is_refused = matches!(&wrong, Err(kube::Error::Api(status)) if status.code == 422);
        let right = world
            .pools()
            .patch("probe-of-the-webhook", &dry, &pool("203.0.113.0/24"))
            .await;
        ensure!(is_refused && right.is_ok(), "{wrong:?}, {right:?}");
        Ok(Some(()))
    })
    .await?;
    // The definition's stanza is in effect once another version can be listed.
    eventually("conversion answers", SOON, || async {
        let api = alpha(world, "default").await?;
        api.list(&ListParams::default()).await?;
        Ok(Some(()))
    })
    .await
}

/// LoadBalancers in the version v1alpha1.
pub async fn alpha(world: &World, namespace: &str) -> anyhow::Result<Api<DynamicObject>> {
    world
        .cluster
        .api(
            "loadbalancer.harvesterhci.io/v1alpha1",
            "LoadBalancer",
            Some(namespace),
        )
        .await
}

/// Ends a replica, and leaves a cluster without webhook.
pub async fn finish(world: &World, replicas: &[&Replica]) -> anyhow::Result<()> {
    for replica in replicas {
        if replica.process.is_running() {
            replica.is_unharmed()?;
            replica.process.kill9()?;
        }
    }
    unregister(world).await?;
    let all: Api<LoadBalancer> = Api::all(world.client());
    for lb in all.list(&ListParams::default()).await? {
        let name = lb.metadata.name.unwrap_or_default();
        let namespace = lb.metadata.namespace.unwrap_or_default();
        let api = world.lbs(&namespace);
        let _ = api.delete(&name, &DeleteParams::default()).await;
    }
    Ok(())
}
