//! Owns the listeners inside namespaces: HTTP and UDP, each a task on the test's runtime.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::netns::Netns;

/// Concurrent connections of one VM; more wait in the listener's queue.
const CONNECTIONS: usize = 512;
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// A client that connects and sends nothing (a probe that does not close) is dropped after this.
const IDLE: Duration = Duration::from_secs(10);
/// A listener. Dropping it closes the port.
#[derive(Debug)]
pub struct Server {
    task: JoinHandle<()>,
}

impl Server {
    /// Counts the answered requests in `served`, which several servers can share.
    pub(crate) fn http(
        netns: &Netns,
        port: u16,
        body: &str,
        served: &Arc<AtomicUsize>,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::from_std(netns.listen(port)?)?;
        let task = tokio::spawn(serve(listener, body.into(), Arc::clone(served)));
        Ok(Self { task })
    }

    pub(crate) fn udp(netns: &Netns, port: u16, name: &str) -> anyhow::Result<Self> {
        let task = tokio::spawn(echo(netns.udp(port)?, name.to_owned()));
        Ok(Self { task })
    }

    /// Closes the port; connections are refused when this returns.
    pub async fn close(mut self) {
        self.task.abort();
        // The socket is closed when the task has ended.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Accepts until aborted. Open connections are ignored then.
async fn serve(listener: TcpListener, name: Arc<str>, served: Arc<AtomicUsize>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        // Errors of accept concern one connection (it was reset before), or the limit of open files, which passes; the
        // pause avoids a busy loop.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (name, served) = (Arc::clone(&name), Arc::clone(&served));
        tokio::spawn(async move {
            // A client that hangs up sees that itself.
            let _ = timeout(IDLE, answer(stream, &name, &served)).await;
            drop(place);
        });
    }
}

/// Answers one request. A client that closes without one, like a probe, is not counted.
async fn answer(mut stream: TcpStream, name: &str, served: &AtomicUsize) -> io::Result<()> {
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.windows(4).any(|w| w == b"\r\n\r\n") {
        let length = stream.read(&mut buffer).await?;
        if length == 0 || head.len() > 16 * 1024 {
            return Ok(());
        }
        head.extend_from_slice(buffer.get(..length).unwrap_or_default());
    }
    let text = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{name}",
        name.len()
    );
    // Counted first, so that a client that has its answer finds it counted.
    served.fetch_add(1, Ordering::Relaxed);
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await
}

async fn echo(socket: UdpSocket, name: String) {
    let mut buffer = vec![0; 2048];
    loop {
        // An error is an ICMP message about an earlier answer.
        if let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            let mut text = format!("{name} ").into_bytes();
            text.extend_from_slice(buffer.get(..length).unwrap_or_default());
            let _ = socket.send_to(&text, from).await;
        }
    }
}
