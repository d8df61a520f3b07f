//! The webhook of a test cluster: its replicas, its Service, and what registers it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_api::{IPPool, keys};
use harvester_lb_fixtures::{listeners, network_attachment_definition};
use harvester_lb_testkit::{Process, eventually};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};

use crate::http;
use crate::world::{SOON, TEST_TIMINGS, World, repository};

/// Flag of the API server. Webhooks are reached at the addresses of their Service's endpoints: no kube-proxy runs where the
/// API server is.
pub const ROUTING: &str = "--enable-aggregator-routing=true";
/// Namespace of the webhook.
pub const NAMESPACE: &str = "harvester-system";
/// Its Service.
pub const SERVICE: &str = "harvester-load-balancer-webhook";
/// Name of both configurations.
pub const CONFIGURATION: &str = SERVICE;
/// The definition of LoadBalancers.
pub const DEFINITION: &str = "loadbalancers.loadbalancer.harvesterhci.io";
/// Version and kind of the configuration of validating webhooks.
pub const VALIDATING: (&str, &str) = (
    "admissionregistration.k8s.io/v1",
    "ValidatingWebhookConfiguration",
);
/// Version and kind of the configuration of mutating webhooks.
pub const MUTATING: (&str, &str) = (
    "admissionregistration.k8s.io/v1",
    "MutatingWebhookConfiguration",
);
/// Port of the reviews.
pub const HTTPS: u16 = 8443;
/// The operator of the same node has 8081.
const ADMIN: u16 = 8091;
/// The only interface that load balancers may name (KVA-2).
pub const INTERFACE: &str = "vlan20";
/// Name of the webhook's ServiceAccount and roles in the example.
pub const ACCOUNT: &str = "harvester-lb-webhook";

/// A replica of the webhook on a node.
pub struct Replica {
    /// Its process.
    pub process: Arc<Process>,
    /// Its node.
    pub node: &'static str,
    /// Its admin port.
    pub admin: SocketAddr,
}

impl Replica {
    /// Starts one with the permissions of the example, and does not wait for it.
    pub async fn spawn(world: &World, node: &'static str, timings: &str) -> anyhow::Result<Self> {
        let kubeconfig = world
            .cluster
            .service_account_kubeconfig(NAMESPACE, ACCOUNT)
            .await?;
        let kubeconfig = kubeconfig.to_str().context("the path is no text")?;
        let (https, admin) = (HTTPS.to_string(), format!("[::]:{ADMIN}"));
        let timings = format!("{TEST_TIMINGS},{timings}");
        let env = [
            ("KUBECONFIG", kubeconfig),
            ("ADMIN_ADDRESS", &*admin),
            ("HLB_TIMINGS", timings.trim_end_matches(',')),
            ("LOGLEVEL", "info,harvester_load_balancer=debug"),
            // Harvester's chart sets the second one; the first one counts.
            ("WEBHOOK_SERVER_HTTPS_PORT", &*https),
            ("HARVESTER_WEBHOOK_SERVER_HTTPS_PORT", "9443"),
            ("NAMESPACE", NAMESPACE),
            ("SERVICE_INTERFACES", INTERFACE),
        ];
        let process = world.cluster.spawn(
            node,
            world.binary(),
            &["webhook"],
            &env,
            &format!("webhook-{node}"),
        )?;
        let admin = SocketAddr::from((world.node_address(node)?, ADMIN));
        Ok(Self {
            process,
            node,
            admin,
        })
    }

    /// Starts one on `node1`, the only endpoint of the Service, and waits until the API server asks it.
    pub async fn start(world: &World, timings: &str) -> anyhow::Result<Self> {
        let node = "node1";
        permissions(world).await?;
        endpoints(world, &[node]).await?;
        let replica = Self::spawn(world, node, timings).await?;
        replica.ready().await?;
        replica.registered().await?;
        answers(world).await?;
        Ok(replica)
    }

    /// Reads from the admin port: status code and body.
    pub async fn get(&self, path: &str) -> anyhow::Result<(u16, String)> {
        http::get(self.admin, path).await
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

    /// Uninstalls the webhook as an administrator does it, and ends this replica.
    pub async fn retire(&self, world: &World) -> anyhow::Result<()> {
        uninstall(world).await?;
        is_unasked(world).await?;
        if self.process.is_running() {
            self.process.kill9()?;
        }
        Ok(())
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

/// The webhook's namespace, and the permissions of the example.
pub async fn permissions(world: &World) -> anyhow::Result<()> {
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    world.cluster.apply(&namespace).await?;
    let rbac = repository().join("docs/examples/rbac-webhook.yaml");
    world
        .cluster
        .apply_yaml(&std::fs::read_to_string(rbac)?)
        .await?;
    Ok(())
}

/// The definitions.
pub async fn definition(world: &World) -> anyhow::Result<Api<DynamicObject>> {
    world
        .cluster
        .api("apiextensions.k8s.io/v1", "CustomResourceDefinition", None)
        .await
}

/// The Service of the webhook, with endpoints on these nodes.
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
    let addresses = nodes.iter().map(|node| world.node_address(node));
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

/// Writes a pool of this range, which is not stored.
async fn try_pool(world: &World, subnet: &str) -> Result<IPPool, kube::Error> {
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::apply("test-bed").force()
    };
    let pool = json!({
        "apiVersion": harvester_lb_api::API_VERSION, "kind": "IPPool",
        "metadata": {"name": "probe-of-the-webhook"},
        "spec": {"ranges": [{"subnet": subnet}]},
    });
    let api = world.pools();
    api.patch("probe-of-the-webhook", &params, &Patch::Apply(pool))
        .await
}

/// No subnet: the webhook refuses it, the schema does not.
const NO_SUBNET: &str = "x";

/// Whether the webhook has completed a pool (WM-5).
fn is_completed(pool: &IPPool) -> bool {
    let labels = pool.metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key(keys::LABEL_VID))
}

/// Waits until the API server asks the webhook, and gets an answer: it learns of configurations and endpoints some time
/// after they were written.
pub async fn answers(world: &World) -> anyhow::Result<()> {
    eventually("the webhook answers", SOON, || async {
        let wrong = try_pool(world, NO_SUBNET).await;
        let is_refused = matches!(&wrong, Err(kube::Error::Api(status)) if status.code == 422);
        let right = try_pool(world, "203.0.113.0/24").await;
        let is_right = right.as_ref().is_ok_and(is_completed);
        ensure!(is_refused && is_right, "{wrong:?}, {right:?}");
        Ok(Some(()))
    })
    .await?;
    // The definition's stanza is in effect once an object of the other version is accepted.
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "loadbalancer.harvesterhci.io/v1alpha1", "kind": "LoadBalancer",
        "metadata": {"namespace": "default", "name": "probe-of-the-webhook"},
        "spec": {"ipam": "pool", "backendServers": ["10.10.1.11"], "listeners": listeners()},
    }))?;
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    eventually("conversion answers", SOON, || async {
        let api = alpha(world, "default").await?;
        api.create(&params, &object).await?;
        Ok(Some(()))
    })
    .await
}

/// Waits until the API server asks no webhook: it learns that configurations are gone some time later.
pub async fn is_unasked(world: &World) -> anyhow::Result<()> {
    eventually("no webhook is asked", SOON, || async {
        let pool = try_pool(world, NO_SUBNET).await?;
        ensure!(!is_completed(&pool), "{pool:?}");
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

/// Runs `uninstall-webhook` as an administrator.
pub async fn uninstall(world: &World) -> anyhow::Result<()> {
    let kubeconfig = world.cluster.kubeconfig("admin")?;
    let kubeconfig = kubeconfig.to_str().context("the path is no text")?;
    let env = [("KUBECONFIG", kubeconfig), ("NAMESPACE", NAMESPACE)];
    let flags = ["uninstall-webhook"];
    let process = world
        .cluster
        .spawn("node2", world.binary(), &flags, &env, "uninstall")?;
    let status = process.wait(Duration::from_mins(1)).await?;
    ensure!(status.success(), "{status}: {}", process.tail());
    Ok(())
}

/// Makes a NetworkAttachmentDefinition: the network of a pool must be one (WM-5). Answers how pools name it.
pub async fn network(world: &World, ns: &str, name: &str) -> anyhow::Result<String> {
    let object = network_attachment_definition(ns, name, &json!({}), "{}");
    world.cluster.apply(&object).await?;
    Ok(format!("{ns}/{name}"))
}
