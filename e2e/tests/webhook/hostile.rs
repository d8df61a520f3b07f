//! Clients that mean harm: half-open TLS connections, slow senders, bodies that are large, random or mutated. The webhook
//! answers others meanwhile, and its memory is bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::ensure;
use futures::future::join_all;
use harvester_lb_api::keys;
use harvester_lb_e2e::World;
use harvester_lb_e2e::webhook::{Replica, answers};
use harvester_lb_testkit::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::stage::{finish, one};
use crate::tls::{address, bundle, connect, connector, parse, post};

/// Resident memory that the webhook may reach, in KiB.
const MEMORY: u64 = 250 * 1024;
const PATHS: [&str; 3] = [
    "/v1/webhook/validation",
    "/v1/webhook/mutation",
    "/v1/webhook/conversion",
];
const MIB: usize = 1024 * 1024;

/// The largest resident memory of a replica while something happens.
struct Peak {
    kib: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Peak {
    fn of(replica: &Replica) -> Self {
        let kib = Arc::new(AtomicU64::new(0));
        let (process, peak) = (Arc::clone(&replica.process), Arc::clone(&kib));
        let task = tokio::spawn(async move {
            loop {
                if let Ok(now) = process.rss_kib() {
                    peak.fetch_max(now, Ordering::Relaxed);
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        Self { kib, task }
    }

    fn is_bounded(&self, what: &str) -> anyhow::Result<()> {
        self.task.abort();
        let kib = self.kib.load(Ordering::Relaxed);
        eprintln!("{what}: at most {kib} KiB resident");
        ensure!(kib < MEMORY, "{what}: {kib} KiB");
        Ok(())
    }
}

pub async fn section_1_hostile_connections(world: Arc<World>) -> anyhow::Result<()> {
    let replica = one(&world).await?;
    let at = address(&world, "node1")?;
    let trusted = connector(&bundle(&world).await?)?;
    let peak = Peak::of(&replica);
    // More connections without a handshake than the port has room for, renewed as they are closed.
    let mut open = Vec::new();
    for _ in 0..700 {
        if let Ok(mut stream) = TcpStream::connect(at).await {
            // The beginning of a handshake, and never the rest.
            let _ = stream.write_all(&[22, 3, 1, 1]).await;
            open.push(stream);
        }
    }
    let started = Instant::now();
    answers(&world).await?;
    ensure!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
    let connections = replica.metric("harvester_lb_webhook_connections").await?;
    ensure!(connections <= 512.0, "{connections}");
    // A half-open handshake ends by itself.
    let mut last = TcpStream::connect(at).await?;
    let started = Instant::now();
    let mut byte = [0];
    let closed = tokio::time::timeout(Duration::from_secs(20), last.read(&mut byte)).await;
    ensure!(closed.is_ok(), "a half-open handshake was left open");
    ensure!(started.elapsed() < Duration::from_secs(15));
    drop(open);

    // Slow heads and slow bodies, each with its time limit.
    let slow_head = async {
        let mut stream = connect(&trusted, at).await?;
        let started = Instant::now();
        let mut answer = Vec::new();
        for byte in b"POST /v1/webhook/validation HTTP/1.1\r\nX-Slow: aaaaaaaaaaaaaaaaaaaaaaaaaaa" {
            if stream.write_all(&[*byte]).await.is_err() || stream.flush().await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let _ = stream.read_to_end(&mut answer).await;
        let took = started.elapsed();
        ensure!((8..25).contains(&took.as_secs()), "a slow head: {took:?}");
        anyhow::Ok(())
    };
    let slow_body = async {
        let mut stream = connect(&trusted, at).await?;
        let head =
            "POST /v1/webhook/validation HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        stream.flush().await?;
        let started = Instant::now();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok();
        let (code, _) = parse(&answer)?;
        let took = started.elapsed();
        ensure!(
            code == 408 && (9..15).contains(&took.as_secs()),
            "{code} {took:?}"
        );
        anyhow::Ok(())
    };
    let others = async {
        for _ in 0..20 {
            answers(&world).await?;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        anyhow::Ok(())
    };
    let (head, body, others) = tokio::join!(slow_head, slow_body, others);
    head.and(body).and(others)?;

    // More slow bodies than there is room for.
    let slow = join_all((0..600).map(|_| async {
        let mut stream = connect(&trusted, at).await?;
        let head =
            "POST /v1/webhook/validation HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        stream.flush().await?;
        anyhow::Ok(stream)
    }))
    .await;
    let started = Instant::now();
    answers(&world).await?;
    let took = started.elapsed();
    ensure!(took < Duration::from_secs(8), "slow bodies: {took:?}");
    drop(slow);
    peak.is_bounded("connections")?;
    finish(&world, &[&replica]).await
}

/// Large requests whose responses are not read: they take memory until they are sent.
pub async fn section_1_responses_that_are_not_read(world: Arc<World>) -> anyhow::Result<()> {
    let replica = one(&world).await?;
    let at = address(&world, "node1")?;
    let trusted = connector(&bundle(&world).await?)?;
    let peak = Peak::of(&replica);
    let text = "x".repeat(3 * MIB - 2048);
    let body = format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{{"uid":"1","desiredAPIVersion":"loadbalancer.harvesterhci.io/v1beta1","objects":[{{"apiVersion":"loadbalancer.harvesterhci.io/v1alpha1","kind":"LoadBalancer","metadata":{{"name":"a","namespace":"b"}},"spec":{{"ipam":"pool","description":"{text}"}}}}]}}}}"#
    );
    let head = format!(
        "POST /v1/webhook/conversion HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let send = async || {
        let mut stream = connect(&trusted, at).await?;
        let sent = async {
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(body.as_bytes()).await?;
            stream.flush().await
        };
        // One that waits for memory is not received to its end.
        let _ = tokio::time::timeout(Duration::from_secs(1), sent).await;
        anyhow::Ok(stream)
    };
    let open = async {
        let mut open = Vec::new();
        for _ in 0..12 {
            open.extend(join_all((0..10).map(|_| send())).await);
        }
        open
    };
    let others = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        for _ in 0..10 {
            let started = Instant::now();
            answers(&world).await?;
            let took = started.elapsed();
            ensure!(
                took < Duration::from_secs(8),
                "an ordinary request: {took:?}"
            );
        }
        anyhow::Ok(())
    };
    let (open, others) = tokio::join!(open, others);
    others?;
    let left = async || replica.metric("harvester_lb_webhook_connections").await;
    eprintln!("{} connections", left().await?);
    // A response that is not read is given up.
    eventually("they are closed", Duration::from_secs(40), || async {
        Ok((left().await? < 40.0).then_some(()))
    })
    .await?;
    drop(open);
    answers(&world).await?;
    peak.is_bounded("responses that are not read")?;
    finish(&world, &[&replica]).await
}

/// A review whose object has this text as its spec.
fn review(spec: &str) -> Vec<u8> {
    annotated("LoadBalancer", "{}", spec)
}

/// A review of a new object of that kind with these texts as its annotations and its spec.
fn annotated(kind: &str, annotations: &str, spec: &str) -> Vec<u8> {
    format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"1","operation":"CREATE","kind":{{"group":"loadbalancer.harvesterhci.io","version":"v1beta1","kind":"{kind}"}},"namespace":"a","name":"b","object":{{"apiVersion":"loadbalancer.harvesterhci.io/v1beta1","kind":"{kind}","metadata":{{"name":"b","namespace":"a","annotations":{annotations}}},"spec":{spec}}}}}}}"#
    )
    .into_bytes()
}

/// Reviews of objects whose annotations are as long, or as many, as a request has room for.
fn annotated_without_end() -> [Vec<u8>; 5] {
    const SPEC: &str =
        r#"{"listeners":[{"name":"a","port":80,"protocol":"TCP","backendPort":80}]}"#;
    let long = |key: &str, unit: &str| {
        let text = unit.repeat((3 * MIB - 2048) / unit.len());
        format!(r#"{{"{key}":"{text}"}}"#)
    };
    let many = |key: &dyn Fn(usize) -> String| {
        let all: Vec<String> = (0..MIB / 32).map(key).collect();
        format!("{{{}}}", all.join(","))
    };
    [
        annotated(
            "IPPool",
            &long(keys::ANNOTATION_EXCLUDE, "10.0.0.1,"),
            r#"{"ranges":[{"subnet":"10.0.0.0/24"}]}"#,
        ),
        annotated(
            "LoadBalancer",
            &long(keys::ANNOTATION_REQUESTED_ADDRESS, "10.0.0.1"),
            SPEC,
        ),
        annotated("LoadBalancer", &long(keys::ANNOTATION_PRIMARY, "a"), SPEC),
        annotated(
            "LoadBalancer",
            &long(keys::ANNOTATION_KUBE_VIP_INTERFACE, "eth0"),
            SPEC,
        ),
        // Each of them is warned of, and the warnings of a response are bounded.
        annotated(
            "LoadBalancer",
            &many(&|n| format!(r#""kube-vip.io/a{n}":"b""#)),
            SPEC,
        ),
    ]
}

pub async fn section_1_objects_of_many_values(world: Arc<World>) -> anyhow::Result<()> {
    let replica = one(&world).await?;
    let at = address(&world, "node1")?;
    let trusted = connector(&bundle(&world).await?)?;
    let peak = Peak::of(&replica);
    let fill = |unit: &str, size: usize| format!("[{}0]", unit.repeat(size / unit.len()));
    let bodies = [
        review(&fill(r#"{"":0},"#, 3 * MIB - 1024)),
        review(&fill("0,", 3 * MIB - 1024)),
        review(&format!(r#"{{"a":{}}}"#, fill("[],", 2 * MIB))),
        review(&fill(r#"{"a":"b"},"#, 256 * 1024)),
        review(&format!(
            r#"{{"listeners":{}}}"#,
            fill(r#"{"name":"a","port":1},"#, MIB)
        )),
        review(&format!(r#""{}""#, "x".repeat(3 * MIB - 1024))),
        review(&format!("{}{}", "[".repeat(MIB), "]".repeat(MIB))),
        fill("{},", 3 * MIB - 1024).into_bytes(),
    ];
    let bodies: Vec<Vec<u8>> = bodies.into_iter().chain(annotated_without_end()).collect();
    for round in 0..3 {
        let requests = bodies.iter().flat_map(|body| {
            PATHS
                .iter()
                .map(|path| post(&trusted, at, path, body))
                .collect::<Vec<_>>()
        });
        for answer in join_all(requests).await {
            let (code, _) = answer?;
            ensure!(
                [200, 400, 413, 503].contains(&code),
                "round {round}: {code}"
            );
        }
    }
    // Larger than the limit: the answer arrives although the client is still sending.
    for size in [3 * MIB + 1, 8 * MIB] {
        let body = vec![b' '; size];
        for path in PATHS {
            let (code, _) = post(&trusted, at, path, &body).await?;
            ensure!(code == 413, "{size}: {code}");
        }
    }
    let (code, _) = post(&trusted, at, "/", b"").await?;
    ensure!(code == 404, "{code}");
    answers(&world).await?;
    peak.is_bounded("bodies")?;
    let rejected = replica
        .metric("harvester_lb_webhook_rejected_requests_total{reason=\"too_large\"}")
        .await?;
    ensure!(rejected >= 6.0, "{rejected}");
    finish(&world, &[&replica]).await
}

pub async fn section_1_hostile_bodies(world: Arc<World>) -> anyhow::Result<()> {
    let replica = one(&world).await?;
    let at = address(&world, "node1")?;
    let trusted = connector(&bundle(&world).await?)?;
    let peak = Peak::of(&replica);
    let conversion = br#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"1","desiredAPIVersion":"loadbalancer.harvesterhci.io/v1beta1","objects":[{"apiVersion":"loadbalancer.harvesterhci.io/v1alpha1","kind":"LoadBalancer","metadata":{"name":"a","namespace":"b"},"spec":{"ipam":"pool","backendServers":["10.0.0.1"]},"status":{"address":"10.0.0.2"}}]}}"#;
    let admission = annotated(
        "LoadBalancer",
        r#"{"loadbalancer.harvesterhci.io/requested-address":"10.0.0.9","loadbalancer.harvesterhci.io/primary-load-balancer":"c","loadbalancer.harvesterhci.io/dhcp-hardware-address":"02:00:5e:10:00:01","kube-vip.io/serviceInterface":"eth0"}"#,
        r#"{"listeners":[{"name":"a","port":80,"protocol":"TCP","backendPort":80}],"healthCheck":{"port":80}}"#,
    );
    let pool = annotated(
        "IPPool",
        r#"{"loadbalancer.harvesterhci.io/exclude":"10.0.0.5,10.0.0.8-10.0.0.12,fd00::/120"}"#,
        r#"{"ranges":[{"subnet":"10.0.0.0/24"}]}"#,
    );
    let seed = harvester_lb_e2e::seeds::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut codes = std::collections::BTreeMap::<u16, usize>::new();
    for round in 0..300 {
        let mut body = match round % 4 {
            0 => conversion.to_vec(),
            1 => admission.clone(),
            2 => pool.clone(),
            _ => (0..random.usize(..2_000)).map(|_| random.u8(..)).collect(),
        };
        // Bytes changed, cut, doubled.
        for _ in 0..random.usize(..6) {
            if body.is_empty() {
                break;
            }
            let at = random.usize(..body.len());
            match random.u8(..4) {
                0 => body[at] = random.u8(..),
                1 => body.truncate(at),
                2 => body.insert(at, *random.choice(br#"{}[]",:0-e\"#).unwrap_or(&b' ')),
                _ => {
                    let part = body[at..].to_vec();
                    body.extend(part);
                }
            }
        }
        let requests = PATHS.map(|path| post(&trusted, at, path, &body));
        for answer in join_all(requests).await {
            let (code, text) = answer?;
            ensure!(
                [200, 400].contains(&code),
                "seed {seed}, round {round}: {code}"
            );
            if code == 200 {
                serde_json::from_slice::<serde_json::Value>(&text)?;
            }
            *codes.entry(code).or_default() += 1;
        }
    }
    eprintln!("{codes:?}");
    ensure!(codes.len() == 2, "{codes:?}");
    answers(&world).await?;
    peak.is_bounded("random bodies")?;
    finish(&world, &[&replica]).await
}
