//! Clients of the webhook's own port, beside the API server: with TLS as the API server would do it, and raw.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_e2e::World;
use harvester_lb_e2e::webhook::{CONFIGURATION, HTTPS, NAMESPACE, SERVICE};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ALL_VERSIONS, ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Longest time of an exchange: above every limit of the port for one request.
const LIMIT: Duration = Duration::from_secs(40);

/// Address of the port on a node.
pub fn address(world: &World, node: &str) -> anyhow::Result<SocketAddr> {
    Ok(SocketAddr::from((world.node_address(node)?, HTTPS)))
}

/// The bundle by which the API server judges the webhook.
pub async fn bundle(world: &World) -> anyhow::Result<Vec<u8>> {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(world.client());
    let webhooks = api.get(CONFIGURATION).await?.webhooks.unwrap_or_default();
    let webhook = webhooks.into_iter().next().context("no webhook")?;
    Ok(webhook.client_config.ca_bundle.context("no bundle")?.0)
}

/// A client that trusts this bundle.
pub fn connector(bundle: &[u8]) -> anyhow::Result<TlsConnector> {
    connector_of(bundle, ALL_VERSIONS)
}

/// A client that trusts this bundle, and offers these versions of TLS.
pub fn connector_of(
    bundle: &[u8],
    versions: &[&'static SupportedProtocolVersion],
) -> anyhow::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle) {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// A handshake.
pub async fn connect(
    connector: &TlsConnector,
    at: SocketAddr,
) -> anyhow::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(format!("{SERVICE}.{NAMESPACE}.svc"))?;
    let stream = TcpStream::connect(at).await?;
    Ok(connector.connect(name, stream).await?)
}

/// Sends a request and reads its answer: status code and body.
pub async fn post(
    connector: &TlsConnector,
    at: SocketAddr,
    path: &str,
    body: &[u8],
) -> anyhow::Result<(u16, Vec<u8>)> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let exchange = async {
        let stream = connect(connector, at).await?;
        let (mut read, mut write) = tokio::io::split(stream);
        let sending = async {
            write.write_all(head.as_bytes()).await?;
            write.write_all(body).await?;
            write.flush().await?;
            anyhow::Ok(write)
        };
        let reading = async {
            let mut answer = Vec::new();
            // The server ends the connection; some do it without a TLS message.
            let _ = read.read_to_end(&mut answer).await;
            answer
        };
        let (sent, answer) = tokio::join!(sending, reading);
        sent.context("the request could not be sent in full")?;
        anyhow::Ok(answer)
    };
    let answer = tokio::time::timeout(LIMIT, exchange)
        .await
        .context("no answer in time")??;
    parse(&answer)
}

/// Status and body of an answer.
pub fn parse(answer: &[u8]) -> anyhow::Result<(u16, Vec<u8>)> {
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n");
    let end = end.context("no HTTP answer")?;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    ensure!(head.starts_with("HTTP/1.1 "), "{head}");
    let code = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok((code, answer[end + 4..].to_vec()))
}
