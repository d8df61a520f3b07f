//! The connect itself: one TCP handshake, nothing sent, reset at once.
//!
//! Owns the socket options. A socket lives exactly as long as the future of its connect.

use std::{
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
};

use socket2::SockRef;
use tokio::net::TcpSocket;

/// Something that can try a connection; the engine is written against it, so that scenarios run
/// without sockets.
pub trait Connector: Send + Sync + 'static {
    /// Connects to `addr` and closes again. The engine adds the timeout and drops the future when
    /// it is over, or when the target goes away.
    ///
    /// # Errors
    /// The error of the system as it is; the engine tells own faults from those of the target.
    fn connect(&self, addr: SocketAddr) -> impl Future<Output = io::Result<()>> + Send;
}

/// The real thing: a TCP connect on the runtime's reactor.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpConnector;

impl Connector for TcpConnector {
    async fn connect(&self, addr: SocketAddr) -> io::Result<()> {
        let socket = match addr.ip() {
            IpAddr::V4(_) => TcpSocket::new_v4()?,
            IpAddr::V6(_) => TcpSocket::new_v6()?,
        };
        // Close by RST: no TIME_WAIT here and no long lived conntrack entry, of which a probe
        // every few seconds to each of tens of thousands of targets would leave up to a million.
        socket.set_zero_linger()?;
        // The answer is known with the SYN-ACK; a delayed ACK lets the RST go out in its place.
        // Only saves a packet, so that a kernel that refuses it is no error.
        let _ = SockRef::from(&socket).set_tcp_quickack(false);
        socket.connect(addr).await.map(drop)
    }
}

#[cfg(test)]
pub(crate) mod tests;
