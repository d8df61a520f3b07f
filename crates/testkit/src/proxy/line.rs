//! The proxy's listener, which can be closed, and its connections, which can be cut.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::mode::{Mode, Unavailable};
use crate::netns::Netns;

/// Concurrent connections; more wait in the listener's queue. An operator has about twenty.
const CONNECTIONS: usize = 1_024;
/// Pause after a failed accept or bind.
const PAUSE: Duration = Duration::from_millis(10);

/// The listener. There is none while the API server is unavailable in the refusing way.
pub(crate) struct Door {
    netns: Netns,
    port: u16,
    listener: Option<TcpListener>,
    mode: watch::Receiver<Mode>,
    places: Arc<Semaphore>,
}

impl Door {
    pub(crate) fn open(
        netns: Netns,
        port: u16,
        mode: watch::Receiver<Mode>,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::from_std(netns.listen(port)?)?;
        Ok(Self {
            netns,
            port,
            listener: Some(listener),
            mode,
            places: Arc::new(Semaphore::new(CONNECTIONS)),
        })
    }

    async fn next(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            let refusing =
                *self.mode.borrow_and_update() == Mode::Unavailable(Unavailable::Refused);
            if refusing {
                self.listener = None;
                // The sender lives as long as the proxy, which ends this task.
                let _ = self.mode.changed().await;
                continue;
            }
            if self.listener.is_none() {
                let listener = self.netns.listen(self.port).map_err(io::Error::other)?;
                self.listener = Some(TcpListener::from_std(listener)?);
            }
            let Some(listener) = &self.listener else {
                continue;
            };
            tokio::select! {
                accepted = listener.accept() => return accepted,
                _ = self.mode.changed() => {}
            }
        }
    }
}

impl Listener for Door {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            // The semaphore is never closed, so this only waits for a permit.
            let place = Arc::clone(&self.places).acquire_owned().await.ok();
            match self.next().await {
                Ok((stream, from)) => {
                    // Events are small and must arrive when they are sent.
                    let _ = stream.set_nodelay(true);
                    return (Connection::new(stream, self.mode.clone(), place), from);
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        let listener = self.listener.as_ref();
        listener.ok_or(io::ErrorKind::NotConnected)?.local_addr()
    }
}

/// The handle that cuts a connection.
#[derive(Clone, Default)]
pub(crate) struct Line {
    cut: Arc<AtomicBool>,
}

impl Line {
    /// Stops all output: the connection ends when the response is about to be written.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::Release);
    }
}

impl Connected<IncomingStream<'_, Door>> for Line {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Self {
        stream.io().line.clone()
    }
}

/// A connection from the client.
pub(crate) struct Connection {
    stream: TcpStream,
    line: Line,
    /// Completes when all connections are cut.
    gone: Pin<Box<dyn Future<Output = ()> + Send>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Connection {
    fn new(
        stream: TcpStream,
        mut mode: watch::Receiver<Mode>,
        place: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self {
            stream,
            line: Line::default(),
            gone: Box::pin(async move {
                // An error: the proxy is gone.
                let _ = mode.wait_for(|m| m.is_cut()).await;
            }),
            _place: place,
        }
    }

    fn check(&self) -> io::Result<()> {
        if self.line.cut.load(Ordering::Acquire) {
            Err(io::ErrorKind::ConnectionReset.into())
        } else {
            Ok(())
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.line.cut.load(Ordering::Acquire) && self.gone.as_mut().poll(cx).is_ready() {
            // Must not be polled again.
            self.line.cut();
        }
        self.check()?;
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
