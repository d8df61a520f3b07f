//! The connect itself: one TCP handshake, no data, immediate reset.
//!
//! Owns the socket options, and the distinction between faults of this machine and those of a target (HC-6): errors
//! returned by `socket` and `connect` come from this machine; the error that the socket holds afterwards (`SO_ERROR`)
//! came from the network, or from waiting for it. Tokio's connect merges the two, hence the system calls here. A socket
//! lives exactly as long as the future of its connect.

use std::{future::Future, io, net::SocketAddr, time::Duration};

use nix::errno::Errno;
use socket2::{Domain, Socket, Type};
use tokio::{io::Interest, net::TcpStream};

/// Tries a connection; the engine is generic over it, so that scenarios run without sockets.
pub trait Connector: Send + Sync + 'static {
    /// Connects to `addr` and closes again. The engine adds the timeout, and drops the future when it expires or the
    /// target is removed.
    ///
    /// # Errors
    /// The unchanged error of the system, and its origin.
    fn connect(&self, addr: SocketAddr) -> impl Future<Output = Result<(), ConnectError>> + Send;
}

/// Why a connect failed (HC-6).
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// This machine could not start the attempt: the error of `socket`, of `connect` itself, or of the reactor.
    #[error("the connection cannot be started on this host: {0}")]
    Local(#[source] io::Error),
    /// The attempt failed: `SO_ERROR` of the socket. A refusal, a reset, an ICMP message of a router, no answer to ARP.
    /// Loss of our own carrier is among these: the kernel waits for ARP in vain, as for a machine that is gone.
    #[error("the connection failed: {0}")]
    Remote(#[source] io::Error),
}

/// A TCP connect on the runtime's reactor.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpConnector;

impl Connector for TcpConnector {
    async fn connect(&self, addr: SocketAddr) -> Result<(), ConnectError> {
        let Some(socket) = begin(addr).map_err(ConnectError::Local)? else {
            return Ok(());
        };
        let socket = TcpStream::from_std(socket.into()).map_err(ConnectError::Local)?;
        // Writable: connected, or failed; then the error closes the socket for writes.
        let ready = socket.ready(Interest::WRITABLE).await;
        if !ready.map_err(ConnectError::Local)?.is_write_closed() {
            return Ok(());
        }
        match socket.take_error() {
            Ok(None) => Ok(()),
            Ok(Some(error)) => Err(ConnectError::Remote(error)),
            Err(error) => Err(ConnectError::Local(error)),
        }
    }
}

/// Starts a connect. `None` if it has completed already.
fn begin(addr: SocketAddr) -> io::Result<Option<Socket>> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(addr), kind, None)?;
    // Close by RST: no TIME_WAIT here and no long-lived conntrack entry. A probe every few seconds to each of tens of
    // thousands of targets would otherwise leave up to a million.
    socket.set_linger(Some(Duration::ZERO))?;
    // The result is known with the SYN-ACK; a delayed ACK lets the RST replace it. This only saves a packet, so a
    // kernel that rejects the option is no error.
    let _ = socket.set_tcp_quickack(false);
    match socket.connect(&addr.into()) {
        Ok(()) => Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::EINPROGRESS as i32) => Ok(Some(socket)),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
pub(crate) mod tests;
