use std::net::{Ipv4Addr, Ipv6Addr};

use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::{OwnFault, ProbeResult};

/// Time limit for conditions that come soon.
const BOUND: Duration = Duration::from_secs(20);

/// Sockets of this machine in TIME_WAIT with `port` on either end.
fn time_wait(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let ends_at = |address: &str| address.ends_with(&format!(":{port:04X}"));
    let lines = table
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines
        .filter(|f| f[3] == "06" && (ends_at(f[1]) || ends_at(f[2])))
        .count()
}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

#[tokio::test]
async fn hc_completed_handshake_is_success_without_the_listener_accepting() {
    let (_listener, addr) = listener().await;
    TcpConnector.connect(addr).await.unwrap();
}

#[tokio::test]
async fn hc_ipv6_connects_too() {
    // Without IPv6 on the machine the only possible result is an own fault.
    match TcpListener::bind("[::1]:0").await {
        Ok(listener) => TcpConnector
            .connect(listener.local_addr().unwrap())
            .await
            .unwrap(),
        Err(error) => {
            let result = ProbeResult::of_connect(&Err(ConnectError::Local(error)));
            assert_eq!(result.verdict(), None, "{result:?}");
        }
    }
}

#[tokio::test]
async fn hc_closed_port_refuses() {
    let (listener, addr) = listener().await;
    drop(listener);
    let outcome = TcpConnector.connect(addr).await;
    assert!(
        matches!(&outcome, Err(ConnectError::Remote(_))),
        "{outcome:?}"
    );
    assert_eq!(ProbeResult::of_connect(&outcome), ProbeResult::Refused);
}

#[tokio::test]
async fn hc_6_what_connect_itself_answers_is_told_apart() {
    // Connects that no kernel starts: to a broadcast address, and to a link-local address without a scope.
    let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    let networks = [OwnFault::Network, OwnFault::Permission];
    // Where IPv6 is off, the network is missing.
    let others = [OwnFault::Other, OwnFault::Network, OwnFault::LocalAddress];
    for (addr, faults) in [
        (SocketAddr::from((Ipv4Addr::BROADCAST, 80)), &networks[..]),
        (SocketAddr::from((link_local, 80)), &others[..]),
    ] {
        let outcome = TcpConnector.connect(addr).await;
        let Err(ConnectError::Local(error)) = &outcome else {
            panic!("{addr}: {outcome:?}");
        };
        let result = ProbeResult::of_connect(&outcome);
        assert!(
            matches!(result, ProbeResult::OwnFault(fault) if faults.contains(&fault)),
            "{addr}: {error}, {result:?}"
        );
    }
}

#[tokio::test]
async fn hc_probes_leave_no_time_wait() {
    let (listener, addr) = listener().await;
    let server = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    for _ in 0..50 {
        TcpConnector.connect(addr).await.unwrap();
    }
    assert_eq!(time_wait(addr.port()), 0);
    // An ordinary close leaves one, so the check above can fail.
    drop(TcpStream::connect(addr).await.unwrap());
    let seen = async {
        while time_wait(addr.port()) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(BOUND, seen).await.unwrap();
    server.abort();
}

/// A listener whose queue is full, so that the kernel drops further SYNs as a dead host would. The caller must keep the
/// returned sockets open.
pub(crate) async fn deaf_listener(addr: SocketAddr) -> (SocketAddr, Socket, Vec<TcpStream>) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&addr.into()).unwrap();
    socket.listen(0).unwrap();
    let addr = socket.local_addr().unwrap().as_socket().unwrap();
    let mut filling = Vec::new();
    let patience = Duration::from_millis(300);
    while let Ok(stream) = tokio::time::timeout(patience, TcpStream::connect(addr)).await {
        filling.push(stream.unwrap());
        assert!(filling.len() < 100, "a queue of length 0 takes everything");
    }
    (addr, socket, filling)
}

#[tokio::test]
async fn hc_silent_target_gives_no_answer() {
    let (addr, _socket, _filling) = deaf_listener((Ipv4Addr::LOCALHOST, 0).into()).await;
    let connect = TcpConnector.connect(addr);
    assert!(
        tokio::time::timeout(Duration::from_millis(300), connect)
            .await
            .is_err()
    );
}
