//! The webhook at its own socket, on one core: admissions a second with the facts of 10,000 load balancers in 1,000 pools.
//!
//! Reviews are sent at fixed times over connections that stay open, as an API server does it, so that a slow answer delays
//! no other request, and its whole wait counts.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::PostParams;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::driver::{AS_SHIPPED, LIMIT, clients, cluster_lb, cpu_seconds, create_lb, spread};
use super::report::{Report, Row};
use harvester_lb_api::{IPAllocation, IPPool};
use harvester_lb_e2e::webhook::{HTTPS, NAMESPACE, SERVICE, endpoints};
use harvester_lb_e2e::world::World;
use harvester_lb_testkit::eventually;

const NODE: &str = "node1";
const POOLS: usize = 1_000;
/// LoadBalancers, and IPAllocations.
const COUNT: usize = 10_000;
const CONNECTIONS: usize = 16;
/// Reviews a second.
const RATE: u32 = 1_000;
const SECONDS: u32 = 20;
/// The core of the webhook.
const CORE: &str = "1";

/// The rows.
pub(crate) async fn run(world: &Arc<World>, report: &mut Report) -> anyhow::Result<()> {
    furnish(world).await?;
    world.namespace(NAMESPACE).await?;
    // Without an endpoint of its Service it does not register itself.
    endpoints(world, &[NODE]).await?;
    let kubeconfig = world.cluster.kubeconfig("admin")?;
    let kubeconfig = kubeconfig.to_str().context("no text")?;
    let program = world.binary().to_str().context("no text")?;
    let env = [AS_SHIPPED, &[("KUBECONFIG", kubeconfig)]].concat();
    let args = ["-c", CORE, program, "webhook"];
    let process = world
        .cluster
        .spawn(NODE, "taskset", &args, &env, "webhook")?;
    let bundle = eventually("the webhook is registered", LIMIT, || async {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(world.client());
        let webhooks = api.get(SERVICE).await?.webhooks.unwrap_or_default();
        let webhook = webhooks.into_iter().next().context("no webhook")?;
        Ok(webhook.client_config.ca_bundle.map(|bundle| bundle.0))
    })
    .await?;
    let at = SocketAddr::from((world.node_address(NODE)?, HTTPS));
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(Connection::open(&bundle, at).await?);
    }
    let cpu = cpu_seconds(process.pid())?;
    let began = Instant::now();
    let mut latencies = at_rate(connections).await?;
    let cores = (cpu_seconds(process.pid())? - cpu) / began.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let quantile = |of: usize| {
        let index = latencies.len() * of / 1_000;
        latencies[index.min(latencies.len() - 1)].as_secs_f64() * 1e3
    };
    let what = "webhook: 1,000 admissions a second with 10,000 LBs and 1,000 pools, 99 % within";
    let rss = f64::from(u32::try_from(process.rss_kib()?)?) / 1024.0;
    report.row(
        Row::one(what, "ms", quantile(990))
            .at_most(10.0)
            .note(format!(
                "half within {:.2} ms, the slowest {:.1} ms; over TLS, on one core",
                quantile(500),
                quantile(1_000)
            )),
    );
    report.row(Row::one("the same, CPU", "cores", cores).at_most(1.0));
    report.row(Row::one("the same, RSS", "MiB", rss));
    process.kill9()
}

/// 1,000 pools of 29 addresses, with ten of each allocated to a LoadBalancer.
async fn furnish(world: &Arc<World>) -> anyhow::Result<()> {
    let driver = clients(world).await?;
    spread(&driver, POOLS, |client, number| async move {
        let pool: IPPool = serde_json::from_value(json!({
            "metadata": {"name": format!("pool-{number}")},
            "spec": {"ranges": [{"subnet": format!("{}/27", address(number, 0))}]},
        }))?;
        let api: Api<IPPool> = Api::all(client);
        api.create(&PostParams::default(), &pool).await?;
        anyhow::Ok(())
    })
    .await?;
    spread(&driver, COUNT, |client, number| async move {
        let pool = number % POOLS;
        let address = address(pool, 2 + number / POOLS).to_string();
        let mut lb = cluster_lb(&format!("lb-{number}"))?;
        lb.spec.ip_pool = Some(format!("pool-{pool}"));
        let lb = create_lb(&client, &lb).await?;
        let record: IPAllocation = serde_json::from_value(json!({
            "metadata": {"name": address},
            "spec": {
                "address": address, "pool": format!("pool-{pool}"), "phase": "Bound",
                "owner": {"namespace": lb.metadata.namespace, "name": lb.metadata.name, "uid": lb.metadata.uid},
                "boundAt": "2026-01-01T00:00:00Z",
            },
        }))?;
        let api: Api<IPAllocation> = Api::all(client);
        api.create(&PostParams::default(), &record).await?;
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

/// An address of a pool, by its place in the subnet.
fn address(pool: usize, place: usize) -> Ipv4Addr {
    let number = pool * 32 + place;
    let byte = |shift: usize| u8::try_from((number >> shift) & 255).unwrap_or_default();
    Ipv4Addr::new(10, 64, byte(8), byte(0))
}

/// The reviews, in turn: a LoadBalancer that is completed and validated, a pool that is compared with all others, and one
/// whose ranges change around its allocated addresses.
fn reviews() -> Vec<(&'static str, Vec<u8>)> {
    let review = |kind: &str, operation: &str, object: Value, old: Value| {
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "0a1b2c3d-0000-4000-8000-00000000000f", "operation": operation,
                "kind": {"group": "loadbalancer.harvesterhci.io", "version": "v1beta1", "kind": kind},
                "name": object["metadata"]["name"], "namespace": object["metadata"]["namespace"],
                "object": object, "oldObject": old,
            },
        })
        .to_string()
        .into_bytes()
    };
    let lb = json!({
        "apiVersion": harvester_lb_api::API_VERSION, "kind": "LoadBalancer",
        "metadata": {"name": "new", "namespace": "default"},
        "spec": {
            "listeners": [{"name": "http", "port": 8080, "protocol": "TCP", "backendPort": 8080}],
            "backendServerSelector": {"app": ["web"]}, "healthCheck": {"port": 8080},
        },
    });
    let mut checked = lb.clone();
    checked["spec"]["healthCheck"] = json!({
        "port": 8080, "successThreshold": 1, "failureThreshold": 3, "periodSeconds": 5, "timeoutSeconds": 3,
    });
    let pool = |name: &str, subnet: String| {
        json!({
            "apiVersion": harvester_lb_api::API_VERSION, "kind": "IPPool",
            "metadata": {"name": name}, "spec": {"ranges": [{"subnet": subnet}]},
        })
    };
    let new = pool("new", "10.200.0.0/24".to_owned());
    let old = pool("pool-7", format!("{}/27", address(7, 0)));
    let mut changed = old.clone();
    changed["spec"]["ranges"][0]["rangeEnd"] = json!(address(7, 20).to_string());
    let (validation, mutation) = ("/v1/webhook/validation", "/v1/webhook/mutation");
    vec![
        (mutation, review("LoadBalancer", "CREATE", lb, Value::Null)),
        (
            validation,
            review("LoadBalancer", "CREATE", checked, Value::Null),
        ),
        (validation, review("IPPool", "CREATE", new, Value::Null)),
        (validation, review("IPPool", "UPDATE", changed, old)),
    ]
}

/// Sends the reviews at the fixed rate; the time from when each was due to its answer.
async fn at_rate(connections: Vec<Connection>) -> anyhow::Result<Vec<Duration>> {
    let start = Instant::now() + Duration::from_millis(100);
    let each = connections.into_iter().enumerate();
    let all = try_join_all(each.map(|(n, mut connection)| {
        tokio::spawn(async move {
            let reviews = reviews();
            let mut latencies = Vec::new();
            for number in (n..usize::try_from(RATE * SECONDS)?).step_by(CONNECTIONS) {
                let due = start + u32::try_from(number)? * (Duration::from_secs(1) / RATE);
                tokio::time::sleep_until(due).await;
                let (path, body) = &reviews[number / CONNECTIONS % reviews.len()];
                connection.post(path, body).await?;
                latencies.push(due.elapsed());
            }
            anyhow::Ok(latencies)
        })
    }))
    .await?;
    let mut latencies = Vec::new();
    for of in all {
        latencies.extend(of?);
    }
    Ok(latencies)
}

/// A connection that stays open.
struct Connection {
    stream: TlsStream<TcpStream>,
    buffer: Vec<u8>,
}

impl Connection {
    async fn open(bundle: &[u8], at: SocketAddr) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(bundle) {
            roots.add(certificate?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(format!("{SERVICE}.{NAMESPACE}.svc"))?;
        let stream = TcpStream::connect(at).await?;
        stream.set_nodelay(true)?;
        let connector = TlsConnector::from(Arc::new(config));
        Ok(Self {
            stream: connector.connect(name, stream).await?,
            buffer: Vec::new(),
        })
    }

    /// Sends a review; it must be allowed.
    async fn post(&mut self, path: &str, body: &[u8]) -> anyhow::Result<()> {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.stream
            .write_all(&[head.as_bytes(), body].concat())
            .await?;
        self.stream.flush().await?;
        self.buffer.clear();
        loop {
            if let Some(end) = self.buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.buffer[..end]).to_ascii_lowercase();
                let length = head
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: "))
                    .context("no length")?;
                let whole = end + 4 + length.trim().parse::<usize>()?;
                if self.buffer.len() >= whole {
                    let body = String::from_utf8_lossy(&self.buffer[end + 4..whole]);
                    ensure!(body.contains("\"allowed\":true"), "{path}: {head}: {body}");
                    return Ok(());
                }
            }
            let read = self.stream.read_buf(&mut self.buffer).await?;
            ensure!(read > 0, "the connection was closed");
        }
    }
}
