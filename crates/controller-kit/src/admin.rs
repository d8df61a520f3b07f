//! The admin port: `/healthz`, `/readyz` and `/metrics`, plain text, read-only (OPS-1).
//!
//! Any client that can reach the port can keep it busy, so everything is bounded: the life of a connection, the number
//! of connections, the size of a request's head, and concurrent gatherings of metrics. Reconciles are not slowed by it.

use std::collections::VecDeque;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use prometheus::{Encoder, Registry, TextEncoder};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::debug;

use crate::listen::listen_on_all;

/// Most concurrent connections. One more closes the oldest: a well-behaved client is answered within milliseconds, so
/// an old connection is idle or slow.
const MOST_CONNECTIONS: usize = 64;
/// Longest life of a connection, from accept to the last byte of its one answer. Equals Prometheus' default scrape
/// timeout.
const CONNECTION_LIMIT: Duration = Duration::from_secs(10);
/// Largest request head, and the read-ahead limit, in bytes.
const READ_LIMIT: usize = 16 * 1024;
/// Pause after a failed accept. The usual cause is a lack of file descriptors, which passes after a moment.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Reports what keeps a program from being ready; empty when it is ready.
pub trait Readiness: Send + Sync + 'static {
    /// One line for each dependency that is still missing.
    fn waiting_for(&self) -> Vec<String>;

    /// One line for each problem that does not affect readiness.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }
}

#[derive(Clone)]
struct Shared {
    readiness: Arc<dyn Readiness>,
    registry: Registry,
    /// Gathering metrics occupies a thread; one at a time leaves the others to reconciles.
    gathering: Arc<Mutex<()>>,
}

/// Binds the port. Returns the bound address, which holds the chosen port when 0 was requested. `[::]` means all addresses of
/// both families, or of IPv4 alone on a machine without IPv6; `0.0.0.0` means those of IPv4.
pub async fn bind(address: SocketAddr) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let bound = if address.ip() == Ipv6Addr::UNSPECIFIED {
        listen_on_all(address.port())
    } else {
        TcpListener::bind(address).await
    };
    let listener = bound.with_context(|| format!("the admin port {address} cannot be bound"))?;
    let address = listener
        .local_addr()
        .context("the admin port has no address")?;
    Ok((listener, address))
}

/// Serves the port until `stop`; requests in flight are then cut off.
pub async fn serve(
    listener: TcpListener,
    registry: Registry,
    readiness: Arc<dyn Readiness>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(Shared {
            readiness,
            registry,
            gathering: Arc::default(),
        });
    let mut connections = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let connection = tokio::spawn(answer(stream, router.clone()));
                keep(&mut connections, AbortOnDropHandle::new(connection));
            }
            Err(error) => {
                debug!(%error, "admin port: accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Adds a connection to the live ones and closes the oldest if there are too many.
fn keep(connections: &mut VecDeque<AbortOnDropHandle<()>>, new: AbortOnDropHandle<()>) {
    connections.retain(|connection| !connection.is_finished());
    if connections.len() >= MOST_CONNECTIONS {
        connections.pop_front();
    }
    connections.push_back(new);
}

/// Answers the single request of a connection.
async fn answer(stream: TcpStream, router: Router) {
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(READ_LIMIT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    match tokio::time::timeout(CONNECTION_LIMIT, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "admin port: connection failed"),
        Err(_) => debug!("admin port: connection timed out"),
    }
}

async fn readyz(State(shared): State<Shared>) -> Response {
    let waiting = shared.readiness.waiting_for();
    let (status, mut text, lines) = if waiting.is_empty() {
        let text = String::from("ok\n");
        (StatusCode::OK, text, shared.readiness.remarks())
    } else {
        let text = String::from("not ready:\n");
        (StatusCode::SERVICE_UNAVAILABLE, text, waiting)
    };
    for line in lines {
        text.push_str("- ");
        text.push_str(&line);
        text.push('\n');
    }
    (status, text).into_response()
}

async fn metrics(State(shared): State<Shared>) -> Response {
    let _one_at_a_time = shared.gathering.lock().await;
    let mut text = Vec::new();
    let encoder = TextEncoder::new();
    match encoder.encode(&shared.registry.gather(), &mut text) {
        Ok(()) => (
            [(header::CONTENT_TYPE, encoder.format_type().to_owned())],
            text,
        )
            .into_response(),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("metrics: {error}\n"),
        )
            .into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Ready(Vec<String>);

    impl Readiness for Ready {
        fn waiting_for(&self) -> Vec<String> {
            self.0.clone()
        }

        fn remarks(&self) -> Vec<String> {
            vec!["Service ns/a".to_owned()]
        }
    }

    #[tokio::test]
    async fn ops_1_the_unspecified_ipv6_address_is_every_address_of_both_families() {
        let has_ipv6 = TcpListener::bind("[::1]:0").await.is_ok();
        for (unspecified, is_both) in [("0.0.0.0:0", false), ("[::]:0", true)] {
            let (_listener, bound) = bind(unspecified.parse().unwrap()).await.unwrap();
            let reaches = async |ip: &str| {
                let address = SocketAddr::new(ip.parse().unwrap(), bound.port());
                TcpStream::connect(address).await.is_ok()
            };
            assert!(reaches("127.0.0.1").await, "{unspecified}");
            assert_eq!(reaches("::1").await, is_both && has_ipv6, "{unspecified}");
        }
        // An address is that address alone.
        let (_listener, bound) = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        assert_eq!(bound.ip().to_string(), "127.0.0.1");
    }

    #[tokio::test]
    async fn run_1_remarks_keep_nothing_from_being_ready() {
        let answer = async |waiting: &[&str]| {
            let waiting = waiting.iter().map(ToString::to_string).collect();
            let shared = Shared {
                readiness: Arc::new(Ready(waiting)),
                registry: Registry::new(),
                gathering: Arc::default(),
            };
            let response = readyz(State(shared)).await;
            let status = response.status();
            let body = axum::body::to_bytes(response.into_body(), 1024)
                .await
                .unwrap();
            (status, String::from_utf8(body.to_vec()).unwrap())
        };
        let (status, text) = answer(&[]).await;
        assert_eq!((status, &*text), (StatusCode::OK, "ok\n- Service ns/a\n"));
        let (status, text) = answer(&["a list"]).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(text, "not ready:\n- a list\n");
    }

    #[tokio::test]
    async fn one_connection_too_many_ends_the_oldest() {
        let idle = || AbortOnDropHandle::new(tokio::spawn(std::future::pending()));
        let mut connections = VecDeque::new();
        let oldest = idle();
        let ended = oldest.abort_handle();
        keep(&mut connections, oldest);
        for _ in 1..MOST_CONNECTIONS {
            keep(&mut connections, idle());
        }
        tokio::task::yield_now().await;
        assert!(!ended.is_finished());
        keep(&mut connections, idle());
        tokio::task::yield_now().await;
        assert!(ended.is_finished());
        assert_eq!(connections.len(), MOST_CONNECTIONS);
    }

    #[tokio::test]
    async fn those_that_have_ended_do_not_count() {
        let mut connections = VecDeque::new();
        for _ in 0..10 * MOST_CONNECTIONS {
            let done = tokio::spawn(async {});
            tokio::task::yield_now().await;
            keep(&mut connections, AbortOnDropHandle::new(done));
        }
        assert!(connections.len() <= 2);
    }
}
