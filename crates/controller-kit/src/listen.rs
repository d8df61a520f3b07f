//! Listening on all addresses of a machine, whichever families it has: on a cluster whose first family is IPv6 the kubelet
//! reaches Pods at their IPv6 address.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::errno::Errno;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::Ipv6V6Only;
use tokio::net::{TcpListener, TcpSocket};

/// Connections that wait to be accepted, at most: what tokio asks for too.
const BACKLOG: u32 = 1024;

/// Listens on all addresses: of both families, or of IPv4 alone on a machine without IPv6.
///
/// # Errors
/// The port is taken, or may not be bound.
pub fn listen_on_all(port: u16) -> io::Result<TcpListener> {
    match listen_on_both_families(port) {
        Err(error) if lacks_ipv6(&error) => {
            let socket = TcpSocket::new_v4()?;
            listen(socket, (Ipv4Addr::UNSPECIFIED, port).into())
        }
        listening => listening,
    }
}

fn listen_on_both_families(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v6()?;
    // The default is a setting of the machine (bindv6only).
    setsockopt(&socket, Ipv6V6Only, &false)?;
    listen(socket, (Ipv6Addr::UNSPECIFIED, port).into())
}

fn listen(socket: TcpSocket, address: SocketAddr) -> io::Result<TcpListener> {
    // A process that starts again need not wait for the end of the connections before.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn lacks_ipv6(error: &io::Error) -> bool {
    let cause = error.raw_os_error().map(Errno::from_raw);
    matches!(cause, Some(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn section_1_the_port_answers_on_the_addresses_of_both_families() {
        let listener = listen_on_all(0).unwrap();
        let address = listener.local_addr().unwrap();
        TcpStream::connect((Ipv4Addr::LOCALHOST, address.port()))
            .await
            .unwrap();
        // A machine without IPv6 has the other address.
        let can_bind = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.is_ok();
        assert!(address.is_ipv6() || !can_bind, "{address}");
        if can_bind {
            TcpStream::connect((Ipv6Addr::LOCALHOST, address.port()))
                .await
                .unwrap();
        }
        for (code, lacks) in [
            (Errno::EAFNOSUPPORT, true),
            (Errno::EADDRNOTAVAIL, true),
            (Errno::EADDRINUSE, false),
        ] {
            assert_eq!(lacks_ipv6(&code.into()), lacks, "{code}");
        }
        // Taken is taken: no other family is tried.
        let error = listen_on_all(address.port()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
