//! The admin port (OPS-1): its clients can read three pages and nothing else, and no request or load has another
//! effect.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use futures::future::join_all;
use harvester_lb_e2e::World;
use harvester_lb_e2e::permissions::{self, User};
use harvester_lb_e2e::quiet::{audited, reset};
use harvester_lb_e2e::requests::{self, Request};
use harvester_lb_e2e::world::SOON;
use harvester_lb_fixtures::cluster_spec;
use harvester_lb_testkit::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::http::{self, LIMIT, exchange, request};
use crate::stage::{Operator, furnish};

/// Most connections of the port, and some descriptors for everything else.
const DESCRIPTORS: usize = 64 + 32;
/// Memory that the requests may cost, in KiB.
const MEMORY: u64 = 64 * 1024;

/// An idle operator, and its state before the test.
struct Target {
    world: Arc<World>,
    operator: Operator,
    user: User,
    writes: usize,
    memory: u64,
    descriptors: usize,
}

impl Target {
    async fn start(world: Arc<World>, name: &str, subnet: &str) -> anyhow::Result<Self> {
        reset(&world).await?;
        furnish(&world, name, subnet).await?;
        let user = User::create(&world, name, &permissions::all()?).await?;
        let operator = Operator::start(&world, &user, 8081, &[], "debug").await?;
        world.lb(name, "a", cluster_spec()).await?;
        world.lb_reason(name, "a", "Ready").await?;
        // After a slow write the pool's status comes late (POOL-3), which looks like idle.
        audited(&world, "node1", &[name]).await?;
        let mut target = Self {
            writes: 0,
            memory: operator.process.rss_kib()?,
            descriptors: 0,
            world,
            operator,
            user,
        };
        target.writes = target.writes()?.len();
        target.descriptors = target.descriptors()?;
        Ok(target)
    }

    fn at(&self) -> SocketAddr {
        self.operator.at
    }

    /// Its writes, without its Lease.
    fn writes(&self) -> anyhow::Result<Vec<Request>> {
        let mut all = requests::of(&self.world, &self.user.name)?;
        all.retain(|r| r.writes() && r.resource != "leases");
        Ok(all)
    }

    fn descriptors(&self) -> anyhow::Result<usize> {
        let folder = format!("/proc/{}/fd", self.operator.process.pid());
        Ok(std::fs::read_dir(folder)?.count())
    }

    /// It works as before, and no request caused a write.
    async fn unharmed(self) -> anyhow::Result<()> {
        ensure!(self.operator.process.is_running(), "it ended");
        for (path, wanted) in [
            ("/healthz", "ok\n"),
            ("/readyz", "ok\n"),
            ("/metrics", "\nharvester_lb_leader 1\n"),
        ] {
            let (code, body) = self.operator.get(path).await?;
            ensure!(
                code == 200 && body.contains(wanted),
                "{path}: {code}, {body}"
            );
        }
        let log = self.operator.process.log();
        ensure!(
            !log.contains("panicked"),
            "{}",
            self.operator.process.tail()
        );
        let memory = self.operator.process.rss_kib()?;
        eprintln!(
            "resident memory: {} KiB before, {memory} KiB after",
            self.memory
        );
        ensure!(memory < self.memory + MEMORY, "{memory} KiB");
        let writes = self.writes()?;
        let news = writes.get(self.writes..).unwrap_or_default();
        ensure!(news.is_empty(), "writes: {news:#?}");
        self.operator.stop().await
    }
}

pub async fn ops_1_the_admin_port_changes_nothing(world: Arc<World>) -> anyhow::Result<()> {
    let target = Target::start(world, "port-methods", "10.95.0.0/24").await?;
    let at = target.at();
    let pages = ["/healthz", "/readyz", "/metrics"];
    let others = [
        "/",
        "/debug",
        "/debug/pprof/",
        "/debug/pprof/profile?seconds=30",
        "/log-level",
        "/quitquitquit",
        "/healthz/",
        "/healthz/x",
        "//healthz",
        "/HEALTHZ",
        "/metrics/../healthz",
        "/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/..%2f..%2fetc%2fpasswd",
        "/%00",
        "/healthz%00",
        "/apis/loadbalancer.harvesterhci.io/v1beta1/ippools",
        "*",
    ];
    let methods = [
        "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW", "get", "PROPFIND",
    ];
    let mut asked = 0;
    for path in pages {
        for method in methods {
            let answer = request(at, method, path).await?;
            ensure!(answer.code() == Some(405), "{method} {path}: {answer:?}");
            asked += 1;
        }
        for method in ["GET", "HEAD"] {
            let answer = request(at, method, path).await?;
            ensure!(answer.code() == Some(200), "{method} {path}: {answer:?}");
        }
        // A query string has no meaning here.
        let answer = request(at, "GET", &format!("{path}?a=b&shutdown=1")).await?;
        ensure!(answer.code() == Some(200), "{path}: {answer:?}");
    }
    for path in others {
        for method in methods.iter().chain(&["GET", "HEAD"]) {
            let answer = request(at, method, path).await?;
            let code = answer.code().with_context(|| format!("{method} {path}"))?;
            ensure!(
                [400, 404, 405].contains(&code),
                "{method} {path}: {answer:?}"
            );
            asked += 1;
        }
    }
    for to in ["h:80", "/healthz", "*"] {
        let answer = request(at, "CONNECT", to).await?;
        let code = answer.code().context("CONNECT")?;
        ensure!((400..500).contains(&code), "CONNECT {to}: {answer:?}");
    }
    let upgrade = b"GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
                    HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n";
    let answer = exchange(at, upgrade).await?;
    ensure!(answer.code() == Some(200), "an upgrade: {answer:?}");
    eprintln!("{asked} requests that are none of the three pages");
    target.unharmed().await
}

pub async fn ops_1_the_admin_port_takes_no_nonsense(world: Arc<World>) -> anyhow::Result<()> {
    let target = Target::start(world, "port-nonsense", "10.96.0.0/24").await?;
    let at = target.at();
    let head = |rest: &str| format!("GET /healthz HTTP/1.1\r\nHost: h\r\n{rest}\r\n").into_bytes();
    let long = |bytes: usize| "a".repeat(bytes);
    let refused: Vec<(&str, Vec<u8>)> = vec![
        ("nothing but blanks", b"\r\n\r\n\r\n \r\n\r\n".to_vec()),
        ("HTTP/0.9", b"GET /healthz\r\n\r\n".to_vec()),
        (
            "HTTP/3.7",
            b"GET /healthz HTTP/3.7\r\nHost: h\r\n\r\n".to_vec(),
        ),
        (
            "HTTP/2",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec(),
        ),
        (
            "TLS",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".repeat(9),
        ),
        ("zeroes", vec![0; 4096]),
        ("high bytes", vec![0xff; 4096]),
        ("no path", b"GET HTTP/1.1\r\nHost: h\r\n\r\n".to_vec()),
        (
            "blanks in the path",
            b"GET /healthz /x HTTP/1.1\r\nHost: h\r\n\r\n".to_vec(),
        ),
        ("a header without colon", head("nonsense\r\n")),
        ("a folded header", head("X: a\r\n b\r\n")),
        ("a blank before the colon", head("X : a\r\n")),
        ("a zero in a header", head("X: a\0b\r\n")),
        (
            "a path of 1 MiB",
            format!("GET /{} HTTP/1.1\r\n\r\n", long(1 << 20)).into_bytes(),
        ),
        (
            "a method of 1 MiB",
            format!("{} / HTTP/1.1\r\n\r\n", long(1 << 20)).into_bytes(),
        ),
        (
            "a header of 1 MiB",
            head(&format!("X: {}\r\n", long(1 << 20))),
        ),
        (
            "a name of 1 MiB",
            head(&format!("{}: x\r\n", long(1 << 20))),
        ),
        ("1,000 headers", head(&"X: a\r\n".repeat(1_000))),
        ("100,000 headers", head(&"X: a\r\n".repeat(100_000))),
        ("a length that is no number", head("Content-Length: -1\r\n")),
        (
            "two lengths",
            head("Content-Length: 1\r\nContent-Length: 2\r\n"),
        ),
        (
            "an unknown encoding",
            head("Transfer-Encoding: xchunked\r\n"),
        ),
    ];
    for (what, bytes) in &refused {
        let answer = exchange(at, bytes)
            .await
            .with_context(|| (*what).to_owned())?;
        let fine = answer
            .code()
            .is_none_or(|code| (400..500).contains(&code) || code == 505);
        ensure!(fine && answer.count() <= 1, "{what}: {answer:?}");
        eprintln!("{what}: {:?}", answer.code());
    }
    // One request within another: whatever a proxy in between may parse, there is one answer and the connection ends.
    let inner = "DELETE /metrics HTTP/1.1\r\nHost: h\r\n\r\n";
    let chunk = format!("{:x}\r\n{inner}\r\n0\r\n\r\n{inner}", inner.len());
    let length = format!("Content-Length: {}\r\n", inner.len());
    let smuggled: Vec<(&str, String)> = vec![
        (
            "pipelined",
            "GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n".repeat(50),
        ),
        (
            "pipelined, writing",
            format!(
                "GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n{}",
                inner.repeat(50)
            ),
        ),
        (
            "a body that is a request",
            format!("POST /healthz HTTP/1.1\r\nHost: h\r\n{length}\r\n{inner}{inner}"),
        ),
        (
            "length and chunks",
            format!(
                "POST /healthz HTTP/1.1\r\nHost: h\r\n{length}Transfer-Encoding: chunked\r\n\r\n{chunk}"
            ),
        ),
        (
            "chunks and length",
            format!(
                "GET /healthz HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n{length}\r\n{chunk}"
            ),
        ),
        (
            "chunked twice",
            format!(
                "GET /healthz HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n{chunk}"
            ),
        ),
        (
            "a length of zero before a body",
            format!("GET /healthz HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n{inner}"),
        ),
        (
            "line feeds alone",
            format!("GET /healthz HTTP/1.1\nHost: h\n\n{inner}"),
        ),
        (
            "Expect",
            format!(
                "POST /healthz HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n{length}\r\n{inner}"
            ),
        ),
    ];
    for (what, text) in &smuggled {
        let answer = exchange(at, text.as_bytes())
            .await
            .with_context(|| (*what).to_owned())?;
        ensure!(answer.count() <= 1, "{what}: {answer:?}");
        eprintln!("{what}: {:?}", answer.code());
    }
    // Unexpected bodies.
    let body = vec![b'x'; 10 << 20];
    let chunks = format!("{:x}\r\n", body.len()).into_bytes();
    for path in ["/healthz", "/metrics", "/"] {
        for method in ["GET", "POST"] {
            let start = format!("{method} {path} HTTP/1.1\r\nHost: h\r\n");
            let plain = format!("{start}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
            let chunked = format!("{start}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
            for all in [
                [plain, body.clone()].concat(),
                [
                    chunked,
                    chunks.clone(),
                    body.clone(),
                    b"\r\n0\r\n\r\n".to_vec(),
                ]
                .concat(),
            ] {
                let answer = exchange(at, &all).await?;
                let wanted = match (method, path) {
                    (_, "/") => 404,
                    ("GET", _) => 200,
                    _ => 405,
                };
                // A client that is cut off while it sends may never see the answer.
                let fine = answer.code().is_none_or(|code| code == wanted);
                ensure!(fine && answer.count() <= 1, "{method} {path}: {answer:?}");
            }
        }
    }
    target.unharmed().await
}

pub async fn ops_1_the_admin_port_is_bounded(world: Arc<World>) -> anyhow::Result<()> {
    let target = Target::start(world, "port-bounds", "10.97.0.0/24").await?;
    let at = target.at();
    let began = Instant::now();
    let mut slow = Vec::new();
    for n in 0..400 {
        let mut stream = TcpStream::connect(at).await?;
        if n % 2 == 0 {
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ").await;
        }
        slow.push(tokio::spawn(byte_by_byte(stream)));
    }
    let mut longest = Duration::ZERO;
    let mut most = 0;
    for path in ["/healthz", "/readyz", "/metrics"].repeat(10) {
        let asked = Instant::now();
        let (code, _) = http::get(at, path).await?;
        ensure!(code == 200, "{path}: {code}");
        longest = longest.max(asked.elapsed());
        most = most.max(target.descriptors()?);
    }
    eprintln!(
        "with 400 slow connections: the longest answer took {longest:.1?}; {} descriptors before, {most} at most",
        target.descriptors
    );
    ensure!(
        longest < Duration::from_secs(5),
        "an answer took {longest:?}"
    );
    ensure!(
        most < target.descriptors + DESCRIPTORS,
        "{most} descriptors"
    );
    for ended in join_all(slow).await {
        ended??;
    }
    eprintln!("all of them were ended within {:.1?}", began.elapsed());

    // Many concurrent requests for the expensive page.
    let all = join_all((0..300).map(|_| http::get(at, "/metrics"))).await;
    let answered = all
        .iter()
        .filter(|a| a.as_ref().is_ok_and(|(code, _)| *code == 200))
        .count();
    eprintln!("of 300 readers at a time {answered} were answered");
    ensure!(answered > 0, "nobody was");
    eventually("its descriptors are back", SOON, || async {
        let now = target.descriptors()?;
        ensure!(
            now <= target.descriptors + 8,
            "{now}, not {}",
            target.descriptors
        );
        Ok(Some(()))
    })
    .await?;
    target.unharmed().await
}

/// Sends a byte now and then and waits for the other side to close.
async fn byte_by_byte(stream: TcpStream) -> anyhow::Result<()> {
    let (mut read, mut write) = stream.into_split();
    let sending = async {
        while write.write_all(b"a").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        std::future::pending::<()>().await;
    };
    let ending = async {
        let mut answer = Vec::new();
        let _ = read.read_to_end(&mut answer).await;
    };
    tokio::select! {
        () = sending => {}
        () = ending => {}
        () = tokio::time::sleep(LIMIT) => bail!("a slow connection was left open"),
    }
    Ok(())
}
