//! The admin port: `/healthz`, `/readyz` and `/metrics`, in plain text, for reading only.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus::{Encoder, Registry, TextEncoder};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Says what still keeps a program from being ready; nothing when it is.
pub trait Readiness: Send + Sync + 'static {
    /// One line for each thing that is waited for.
    fn waiting_for(&self) -> Vec<String>;
}

#[derive(Clone)]
struct Shared {
    readiness: Arc<dyn Readiness>,
    registry: Registry,
}

/// Binds the port. Answers the address, which tells the port when 0 was asked for.
pub async fn bind(address: SocketAddr) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("the admin port {address} cannot be bound"))?;
    let address = listener
        .local_addr()
        .context("the admin port has no address")?;
    Ok((listener, address))
}

/// Serves the port until `stop`.
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
        });
    axum::serve(listener, router)
        .with_graceful_shutdown(async move { stop.cancelled().await })
        .await
        .context("the admin port failed")
}

async fn readyz(State(shared): State<Shared>) -> Response {
    let waiting = shared.readiness.waiting_for();
    if waiting.is_empty() {
        "ok\n".into_response()
    } else {
        let mut text = String::from("not ready:\n");
        for line in waiting {
            text.push_str("- ");
            text.push_str(&line);
            text.push('\n');
        }
        (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
    }
}

async fn metrics(State(shared): State<Shared>) -> Response {
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
