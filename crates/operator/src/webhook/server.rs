//! The webhook's port: accepts connections, and bounds their number, their memory and the time of everything that a client
//! may delay. What is answered is up to a [`Handler`].
//!
//! Shutdown has two steps. While it is *leaving*, new connections are accepted and requests answered as before, because
//! the API server and kube-proxy learn only after a while that this replica is gone; each response closes its connection.
//! Then it *stops*: idle connections are closed, requests in flight end.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::webhook::body::Held;
use crate::webhook::connections::{Connection, Connections, Open};

/// Largest request head, and the read-ahead limit, in bytes. Above the least that hyper accepts, 8 KiB.
const READ_LIMIT: usize = 16 * 1024;
/// Pause after a failed accept. The usual cause is a lack of file descriptors, which passes after a moment.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time for requests in flight once the port is closed. Above every limit of a single request that is not stuck.
const LAST_REQUESTS: Duration = Duration::from_secs(12);

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request. Must not take long: its own limits apply to everything that it waits for. The memory counts
    /// until the response is sent.
    fn answer(
        self: Arc<Self>,
        request: Request<Arriving>,
    ) -> impl Future<Output = (Response<Full<Bytes>>, Option<Held>)> + Send;
}

/// The steps of the shutdown.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    /// Answers close their connections.
    pub leaving: CancellationToken,
    /// Nothing new is accepted.
    pub stopped: CancellationToken,
}

/// Serves until `shutdown` is complete and the requests in flight have ended.
pub async fn serve<H: Handler>(
    listener: TcpListener,
    tls: TlsAcceptor,
    handler: Arc<H>,
    connections: Arc<Connections>,
    shutdown: Shutdown,
) {
    loop {
        let accepted = tokio::select! {
            () = shutdown.stopped.cancelled() => break,
            accepted = accept(&listener, &connections) => accepted,
        };
        match accepted {
            Ok(stream) => {
                let open = connections.add();
                let (tls, handler) = (tls.clone(), Arc::clone(&handler));
                let (all, shutdown) = (Arc::clone(&connections), shutdown.clone());
                tokio::spawn(async move {
                    if connection(stream, &open, tls, handler, shutdown).await {
                        all.count_evicted();
                    }
                });
            }
            Err(error) => {
                debug!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    // Whatever has not ended by then is cut off with the process.
    let _ = tokio::time::timeout(LAST_REQUESTS, connections.none()).await;
}

async fn accept(listener: &TcpListener, connections: &Connections) -> io::Result<TcpStream> {
    connections.room().await;
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Serves one connection. Returns whether it was closed to make room.
async fn connection<H: Handler>(
    stream: TcpStream,
    open: &Open,
    tls: TlsAcceptor,
    handler: Arc<H>,
    shutdown: Shutdown,
) -> bool {
    let connection = &open.connection;
    let mut handshake = pin!(tls.accept(stream));
    let stream = loop {
        tokio::select! {
            accepted = handshake.as_mut() => match accepted {
                Ok(stream) => break stream,
                Err(error) => {
                    debug!(%error, "TLS handshake failed");
                    return false;
                }
            },
            () = connection.changed() => if connection.is_victim() {
                return true;
            },
            () = tokio::time::sleep_until(connection.deadline()) => {
                debug!("TLS handshake timed out");
                return false;
            }
            () = shutdown.stopped.cancelled() => return false,
        }
    };
    connection.is_ready();
    let stream = Observed {
        inner: stream,
        connection: Arc::clone(connection),
    };
    let service = service_fn(|request: Request<Incoming>| {
        connection.begins();
        let request = request.map(|body| Arriving::new(body, Arc::clone(connection)));
        let (handler, leaving) = (Arc::clone(&handler), shutdown.leaving.clone());
        async move {
            let (mut response, held) = handler.answer(request).await;
            if leaving.is_cancelled() {
                let headers = response.headers_mut();
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            connection.is_answered(held);
            Ok::<_, Infallible>(response)
        }
    });
    let mut serving = pin!(
        http1::Builder::new()
            // The phases of the connection have their own limits; this one would close idle connections.
            .header_read_timeout(None)
            .max_buf_size(READ_LIMIT)
            .serve_connection(TokioIo::new(stream), service)
    );
    let mut is_stopping = false;
    loop {
        tokio::select! {
            ended = serving.as_mut() => {
                if let Err(error) = ended {
                    debug!(%error, "connection failed");
                }
                return false;
            }
            () = connection.changed() => if connection.is_victim() {
                return true;
            },
            () = tokio::time::sleep_until(connection.deadline()) => {
                debug!(phase = ?connection.phase(), "connection timed out");
                return false;
            }
            () = shutdown.stopped.cancelled(), if !is_stopping => {
                is_stopping = true;
                serving.as_mut().graceful_shutdown();
            }
        }
    }
}

/// The body of a request, which tells its connection when it is complete.
#[derive(Debug)]
pub struct Arriving {
    body: Incoming,
    connection: Arc<Connection>,
}

impl Arriving {
    fn new(body: Incoming, connection: Arc<Connection>) -> Self {
        let arriving = Self { body, connection };
        arriving.note();
        arriving
    }

    fn note(&self) {
        if self.body.is_end_stream() {
            self.connection.has_body();
        }
    }
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(None) => self.connection.has_body(),
            Poll::Ready(Some(_)) => self.note(),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream that tells its connection what was received, and when everything is sent.
struct Observed<S> {
    inner: S,
    connection: Arc<Connection>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Observed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.connection.has_received();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Observed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(cx);
        // The HTTP implementation flushes once it has written whatever it has.
        if matches!(polled, Poll::Ready(Ok(()))) {
            self.connection.has_flushed();
        }
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests;
