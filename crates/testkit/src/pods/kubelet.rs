//! Owns the port of the kubelet on each node, as far as `kubectl logs` and helm, which prints the output of hooks, need it:
//! the API server passes their requests on to it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::host::{Host, Machine};

/// The port that the API server assumes.
const PORT: u16 = 10250;
/// Most open connections of a node.
const CONNECTIONS: usize = 8;
/// Timeout of each read and write.
const IDLE: Duration = Duration::from_secs(10);
/// Pause after a failed accept, which can mean that there are no more files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Longest head of a request, in bytes.
const HEAD: usize = 16 << 10;

/// The identity of a node's port, from a certificate and its key, both PEM. The API server does not verify it.
pub(crate) fn identity(certificate: &str, key: &str) -> anyhow::Result<Arc<ServerConfig>> {
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    Ok(Arc::new(config))
}

/// Listens on a node.
pub(crate) fn listen(machine: &Machine) -> anyhow::Result<TcpListener> {
    let listener = machine.netns.listen(PORT)?;
    Ok(TcpListener::from_std(listener)?)
}

/// Answers until dropped. A node without power answers nothing.
pub(crate) async fn serve(
    listener: TcpListener,
    host: Arc<Host>,
    machine: Arc<Machine>,
    tls: Arc<ServerConfig>,
) {
    let mut open = JoinSet::new();
    loop {
        if open.len() >= CONNECTIONS {
            let _ = open.join_next().await;
        }
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        if !*machine.power.borrow() {
            continue;
        }
        let (host, tls) = (Arc::clone(&host), Arc::clone(&tls));
        // A client that hangs up sees that itself.
        open.spawn_blocking(move || stream.into_std().map(|stream| answer(stream, tls, &host)));
        while open.try_join_next().is_some() {}
    }
}

/// Answers one request.
fn answer(stream: TcpStream, tls: Arc<ServerConfig>, host: &Host) -> anyhow::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_write_timeout(Some(IDLE))?;
    let mut stream = StreamOwned::new(ServerConnection::new(tls)?, stream);
    let head = head(&mut stream)?;
    let target = head.split(' ').nth(1).context("no target")?;
    let (status, body) = logs(target, host);
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    stream.write_all(&body)?;
    stream.conn.send_close_notify();
    stream.flush()?;
    Ok(())
}

/// Status line and body for a target. The whole log, whatever part of it is asked for.
fn logs(target: &str, host: &Host) -> (&'static str, Vec<u8>) {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parts: Vec<&str> = path.split('/').collect();
    let ["", "containerLogs", namespace, pod, container] = parts.as_slice() else {
        return ("404 Not Found", Vec::new());
    };
    if query.split('&').any(|part| part == "follow=true") {
        let text = "the Pod runner does not follow logs\n";
        return ("400 Bad Request", text.as_bytes().to_vec());
    }
    // A container that has not started has no log.
    let log = std::fs::read(host.log(namespace, pod, container)).unwrap_or_default();
    ("200 OK", log)
}

fn head(stream: &mut impl Read) -> anyhow::Result<String> {
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        ensure!(head.len() < HEAD, "the head is too long");
        let length = stream.read(&mut buffer)?;
        ensure!(length > 0, "the connection ends in the middle");
        head.extend_from_slice(buffer.get(..length).unwrap_or_default());
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}
