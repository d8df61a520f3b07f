//! Owns requests to the Services under test: single ones, bursts, and a steady background client whose records prove
//! from when on no request failed.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, timeout};

use crate::netns::Netns;
use crate::test_cluster::TestCluster;

/// Timeout of a request. A lost SYN is retransmitted after 1 s, so this tolerates one: [`Slowness`] tells of it.
const TIMEOUT: Duration = Duration::from_secs(2);
/// A request that takes longer has probably lost its first SYN.
const RESENT: Duration = Duration::from_millis(900);

/// An answer to a plain HTTP request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// One GET on a new connection from inside a namespace.
pub(crate) async fn http_get(
    netns: &Netns,
    to: SocketAddr,
    path: &str,
    limit: Duration,
) -> io::Result<Answer> {
    let exchange = async {
        let mut stream = netns.tcp()?.connect(to).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await?;
        parse(&bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no HTTP answer"))
    };
    timeout(limit, exchange)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn parse(bytes: &[u8]) -> Option<Answer> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head
        .strip_prefix("HTTP/1.")?
        .split(' ')
        .nth(1)?
        .parse()
        .ok()?;
    Some(Answer {
        status,
        body: body.to_owned(),
    })
}

/// A request that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// When it was sent.
    pub at: Instant,
    /// The error as seen by the client.
    pub error: String,
}

/// Results of the requests of a burst.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Number of answers by body, which is the name of the VM that answered.
    pub by_body: BTreeMap<String, usize>,
    /// The requests that failed.
    pub failures: Vec<Failure>,
}

impl TestCluster {
    /// One request on a new connection from the namespace `client`; returns the body, which is the name of the VM that
    /// answered.
    pub async fn client_get(&self, to: Ipv4Addr, port: u16) -> io::Result<String> {
        let answer = http_get(self.client_netns(), (to, port).into(), "/", TIMEOUT).await?;
        Ok(answer.body)
    }

    /// One datagram from the namespace `client`; returns the answer.
    pub async fn client_udp(&self, to: Ipv4Addr, port: u16, text: &str) -> io::Result<String> {
        let socket = self.client_netns().udp(0)?;
        socket.connect((to, port)).await?;
        socket.send(text.as_bytes()).await?;
        let mut buffer = vec![0; 2048];
        let length = timeout(TIMEOUT, socket.recv(&mut buffer))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        buffer.truncate(length);
        Ok(String::from_utf8_lossy(&buffer).into_owned())
    }

    /// `count` requests from the namespace `client`, `parallel` at a time, each on a new connection.
    pub async fn client_burst(
        &self,
        to: Ipv4Addr,
        port: u16,
        count: usize,
        parallel: usize,
    ) -> Tally {
        burst(self.client_netns(), to, port, count, parallel).await
    }
}

/// `count` requests from a namespace, `parallel` at a time, each on a new connection.
pub async fn burst(from: &Netns, to: Ipv4Addr, port: u16, count: usize, parallel: usize) -> Tally {
    let mut tally = Tally::default();
    let mut requests = futures::stream::iter(0..count)
        .map(|_| async {
            let answer = http_get(from, (to, port).into(), "/", TIMEOUT).await;
            (Instant::now(), answer)
        })
        .buffer_unordered(parallel.max(1));
    while let Some((at, outcome)) = requests.next().await {
        match outcome {
            Ok(answer) => *tally.by_body.entry(answer.body).or_default() += 1,
            Err(error) => tally.failures.push(Failure {
                at,
                error: error.to_string(),
            }),
        }
    }
    tally
}

/// One request of a [`Traffic`].
#[derive(Clone, Debug)]
pub struct Record {
    /// When it was sent.
    pub at: Instant,
    /// Time until the answer or the error.
    pub took: Duration,
    /// The body, or the error as seen by the client.
    pub outcome: Result<String, String>,
}

/// How slow requests were. For people to read: a request whose first SYN was lost takes a second and succeeds, but so may one on a busy
/// machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slowness {
    /// All requests.
    pub sent: usize,
    /// Those that took so long that their first SYN was probably lost.
    pub resent: usize,
    /// The longest time until an answer or an error.
    pub slowest: Duration,
}

impl Slowness {
    /// Of these requests.
    pub fn of(records: &[Record]) -> Self {
        let took = records.iter().map(|record| record.took);
        Self {
            sent: records.len(),
            resent: took.clone().filter(|took| *took > RESENT).count(),
            slowest: took.max().unwrap_or_default(),
        }
    }
}

impl fmt::Display for Slowness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            sent,
            resent,
            slowest,
        } = self;
        write!(
            f,
            "{resent} of {sent} requests took longer than {RESENT:?}, the slowest one {slowest:.1?}"
        )
    }
}

/// A client that sends a request every interval until stopped, regardless of earlier ones. Dropping it stops it.
#[derive(Debug)]
pub struct Traffic {
    records: Arc<Mutex<Vec<Record>>>,
    stop: Arc<tokio::sync::Notify>,
    task: Option<JoinHandle<()>>,
}

impl Traffic {
    /// Starts from the namespace `client`.
    pub fn start(cluster: &TestCluster, to: Ipv4Addr, port: u16, interval: Duration) -> Self {
        let records = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(tokio::sync::Notify::new());
        let task = tokio::spawn(send_all(
            cluster.client_netns().clone(),
            (to, port).into(),
            interval,
            Arc::clone(&records),
            Arc::clone(&stop),
        ));
        Self {
            records,
            stop,
            task: Some(task),
        }
    }

    /// The requests that have ended so far, in the order they were sent.
    pub fn records(&self) -> Vec<Record> {
        let mut records = self.records.lock().clone();
        records.sort_by_key(|r| r.at);
        records
    }

    /// Requests sent at or after `from` that failed.
    pub fn failures_since(&self, from: Instant) -> Vec<Record> {
        let mut records = self.records();
        records.retain(|r| r.at >= from && r.outcome.is_err());
        records
    }

    /// Stops sending, waits for the last answers and returns all records.
    pub async fn stop(mut self) -> Vec<Record> {
        self.stop.notify_one();
        if let Some(task) = self.task.take() {
            let _ = task.await;
        }
        self.records()
    }

    /// Stops as [`Self::stop`] does, and returns the requests that failed.
    pub async fn into_failures(self) -> Vec<Record> {
        let mut records = self.stop().await;
        records.retain(|r| r.outcome.is_err());
        records
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

async fn send_all(
    netns: Netns,
    to: SocketAddr,
    interval: Duration,
    records: Arc<Mutex<Vec<Record>>>,
    stop: Arc<tokio::sync::Notify>,
) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Bounded by the timeout of a request divided by the interval.
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                let (netns, records) = (netns.clone(), Arc::clone(&records));
                open.spawn(async move {
                    let at = Instant::now();
                    let answer = http_get(&netns, to, "/", TIMEOUT).await;
                    let outcome = answer.map(|a| a.body).map_err(|e| e.to_string());
                    records.lock().push(Record { at, took: at.elapsed(), outcome });
                });
            }
            () = stop.notified() => break,
        }
        while open.try_join_next().is_some() {}
    }
    while open.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_lost_its_first_syn_is_counted() {
        let record = |millis| Record {
            at: Instant::now(),
            took: Duration::from_millis(millis),
            outcome: Ok(String::new()),
        };
        assert_eq!(Slowness::of(&[]), Slowness::default());
        let slowness = Slowness::of(&[record(3), record(1_004), record(900)]);
        let (sent, resent, slowest) = (3, 1, Duration::from_millis(1_004));
        assert_eq!(
            slowness,
            Slowness {
                sent,
                resent,
                slowest
            }
        );
        assert_eq!(
            slowness.to_string(),
            "1 of 3 requests took longer than 900ms, the slowest one 1.0s"
        );
    }
}
