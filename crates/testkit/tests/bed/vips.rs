//! Traffic through an address of kube-vip: to all ready endpoints, to none, after the death of a node.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_testkit::{TestCluster, Traffic, eventually, lan};
use tokio::time::Instant;

use crate::support::{SOON, endpoint, expose, slice};

async fn ingress(cluster: &TestCluster, name: &str) -> anyhow::Result<()> {
    eventually(&format!("address of Service {name}"), SOON, || async {
        let service = cluster
            .get("v1", "Service", None, name)
            .await?
            .context("no Service")?;
        Ok(service
            .data
            .pointer("/status/loadBalancer/ingress/0/ip")
            .map(|_| ()))
    })
    .await
}

async fn answers_from(cluster: &TestCluster, vip: Ipv4Addr, names: &[&str]) -> anyhow::Result<()> {
    eventually(&format!("answers from {names:?}"), SOON, || async {
        let tally = cluster.client_burst(vip, 80, 20, 4).await;
        let seen: Vec<&str> = tally.by_body.keys().map(String::as_str).collect();
        ensure!(tally.failures.is_empty() && seen == names, "{tally:?}");
        Ok(Some(()))
    })
    .await
}

pub(crate) async fn vip_reaches_both_vms_and_follows_readiness(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let (a, b) = (cluster.add_vm("ready-a")?, cluster.add_vm("ready-b")?);
    a.listen(8080)?;
    b.listen(8080)?;
    let vip = lan(201);
    expose(
        cluster,
        "both",
        vip,
        Some(vec![
            endpoint(a.address(), true),
            endpoint(b.address(), true),
        ]),
    )
    .await?;
    ingress(cluster, "both").await?;
    answers_from(cluster, vip, &["ready-a", "ready-b"]).await?;

    let traffic = Traffic::start(cluster, vip, 80, Duration::from_millis(50));
    slice(
        cluster,
        "both",
        vec![endpoint(a.address(), false), endpoint(b.address(), true)],
    )
    .await?;
    let changed = Instant::now();
    answers_from(cluster, vip, &["ready-b"]).await?;
    println!("traffic moved within {:.1?}", changed.elapsed());
    let records = traffic.stop().await;
    ensure!(!records.is_empty(), "no request was sent");
    let failed: Vec<_> = records.iter().filter(|r| r.outcome.is_err()).collect();
    ensure!(
        failed.is_empty(),
        "requests failed while an endpoint was drained: {failed:?}"
    );
    Ok(())
}

/// A client's view of a VIP without ready endpoints, by the content of the EndpointSlice. The facts behind
/// docs/internals/decisions/0005-dummy-endpoint.md.
pub(crate) async fn vip_without_ready_endpoint_refuses(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let vm = cluster.add_vm("unready")?;
    vm.listen(8080)?;
    // The nodes listen on the Service's port and on its backends', so that traffic that ends up on a node is seen.
    let mut servers = Vec::new();
    for node in cluster.nodes() {
        for port in [80, 8080] {
            servers.push(cluster.serve(&node, port, "node")?);
        }
    }
    let dummy = endpoint(Ipv4Addr::new(10, 52, 0, 255), true);
    let unready = endpoint(vm.address(), false);
    let cases = [
        ("only-unready", Some(vec![unready.clone()])),
        ("no-endpoints", Some(vec![])),
        ("no-slice", None),
        ("dummy-alone", Some(vec![dummy.clone()])),
        ("dummy-and-unready", Some(vec![dummy, unready])),
    ];
    for (i, (name, endpoints)) in (0_u8..).zip(cases) {
        let vip = lan(210 + i);
        // First with a backend that answers, so that the result is known to be the effect of the change.
        expose(cluster, name, vip, Some(vec![endpoint(vm.address(), true)])).await?;
        ingress(cluster, name).await?;
        let early = reaches_a_node(cluster, vip).await;
        println!("{name}: a node answers for {early:.1?}, until kube-proxy has rules");
        answers_from(cluster, vip, &["unready"]).await?;
        let unused = cluster.client_get(vip, 8080).await;
        ensure!(
            unused.is_err() == cluster.data_path().service_security,
            "{name}: a port that the Service does not have: {unused:?}"
        );
        let with_dummy = name.starts_with("dummy");
        match endpoints {
            Some(endpoints) => slice(cluster, name, endpoints).await?,
            None => {
                cluster
                    .delete("discovery.k8s.io/v1", "EndpointSlice", None, name)
                    .await?;
            }
        }
        eventually("the backend is gone", SOON, || async {
            Ok(cluster.client_get(vip, 80).await.err())
        })
        .await?;
        // Refusals are ICMP messages. The kernel limits those to one client: 6 at once, then one a second; connections
        // without one time out.
        let limited = outcomes(cluster, vip).await;
        for node in cluster.nodes() {
            cluster
                .netns(&node)?
                .sysctl("net/ipv4/icmp_ratelimit", "0")?;
        }
        let unlimited = outcomes(cluster, vip).await;
        for node in cluster.nodes() {
            cluster
                .netns(&node)?
                .sysctl("net/ipv4/icmp_ratelimit", "1000")?;
        }
        println!("{name}: {limited:?}; without the limit on refusals: {unlimited:?}");
        for seen in [&limited, &unlimited] {
            let answered: Vec<_> = seen.keys().filter(|k| k.starts_with("answer")).collect();
            ensure!(answered.is_empty(), "{name}: traffic reaches {answered:?}");
        }
        let all_refused = unlimited.keys().all(|k| k.contains("refused"));
        ensure!(with_dummy != all_refused, "{name}: {unlimited:?}");
    }
    Ok(())
}

/// How long requests to a new address reach a node, because kube-proxy has no rules for it yet.
async fn reaches_a_node(cluster: &TestCluster, vip: Ipv4Addr) -> Duration {
    let begun = Instant::now();
    let mut last = Duration::ZERO;
    while begun.elapsed() < SOON {
        match cluster.client_get(vip, 80).await {
            Ok(body) if body == "node" => last = begun.elapsed(),
            Ok(_) => break,
            Err(_) => {}
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    last
}

/// 20 concurrent requests, by outcome.
async fn outcomes(cluster: &TestCluster, vip: Ipv4Addr) -> BTreeMap<String, usize> {
    let tally = cluster.client_burst(vip, 80, 20, 20).await;
    let mut all: BTreeMap<String, usize> = tally
        .by_body
        .into_iter()
        .map(|(body, n)| (format!("answer from {body}"), n))
        .collect();
    for failure in tally.failures {
        *all.entry(failure.error).or_default() += 1;
    }
    all
}

pub(crate) async fn vip_moves_when_a_node_dies(cluster: &TestCluster) -> anyhow::Result<()> {
    let vm = cluster.add_vm("survivor")?;
    vm.listen(8080)?;
    let vip = lan(205);
    expose(
        cluster,
        "failover",
        vip,
        Some(vec![endpoint(vm.address(), true)]),
    )
    .await?;
    ingress(cluster, "failover").await?;
    answers_from(cluster, vip, &["survivor"]).await?;
    let holder = eventually("holder of the address", SOON, || async {
        let service = cluster
            .get("v1", "Service", None, "failover")
            .await?
            .context("no Service")?;
        Ok(service
            .metadata
            .annotations
            .and_then(|a| a.get("kube-vip.io/vipHost").cloned()))
    })
    .await?;
    let traffic = Traffic::start(cluster, vip, 80, Duration::from_millis(100));
    cluster.set_node_links(&holder, false)?;
    let cut = Instant::now();
    eventually("failure seen", SOON, || async {
        Ok((!traffic.failures_since(cut).is_empty()).then_some(()))
    })
    .await?;
    answers_from(cluster, vip, &["survivor"]).await?;
    println!("{holder} cut off; traffic back after {:.1?}", cut.elapsed());
    cluster.set_node_links(&holder, true)
}
