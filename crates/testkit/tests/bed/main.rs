//! Tests of the test cluster: real traffic through a real VIP, faults, several test clusters, and that nothing outlives
//! a test cluster; and of the proxy in front of its API server ([`proxy`]).
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::Ipv4Addr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use harvester_lb_testkit::{
    Dhcp, Farm, Fault, TestCluster, TestClusterOptions, TestReport, Traffic, apart, enter_with,
    eventually, lan,
};
use libtest_mimic::{Arguments, Trial};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::time::Instant;

mod proxy;

use proxy::{
    cuts_lists_and_pages, ends_watches, ends_with_its_handle, held_request_outlives_its_sender,
    holds_a_request_before_and_after, is_reached_from_a_node, is_unavailable,
    loses_answers_of_what_was_done, passes_everything_on_with_the_senders_rights,
    refuses_in_the_api_servers_words, shares_delays_and_counts, swallows_events_of_a_watch,
};

/// Set in a second process of this binary, to its task.
const ROLE: &str = "BED_TEST_ROLE";
/// Marks the second process and its children.
const MARKER: &str = "BED_TEST_MARKER";
const SOON: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    enter_with(&["dnsmasq", "kea-dhcp4"]);
    // The tests share a test cluster, and one of them disconnects a node.
    arguments.test_threads = Some(1);
    let runtime = Arc::new(Runtime::new().unwrap());
    if let Ok(role) = std::env::var(ROLE) {
        return runtime.block_on(second_process(&role));
    }
    if arguments.list {
        libtest_mimic::run(&arguments, trials(&runtime, &Arc::default())).exit();
    }
    let cluster = Arc::default();
    let conclusion = libtest_mimic::run(&arguments, trials(&runtime, &cluster));
    // Before the runtime, on which its tasks run.
    drop(cluster);
    conclusion.exit_code()
}

/// Started by the first test that needs it.
type Shared = tokio::sync::OnceCell<TestCluster>;

async fn shared(cell: &Shared) -> anyhow::Result<&TestCluster> {
    cell.get_or_try_init(|| async {
        let start = Instant::now();
        let cluster = TestCluster::start(TestClusterOptions::default()).await?;
        println!("bed ready after {:.1?}", start.elapsed());
        cluster.apply_foreign_crds().await?;
        Ok(cluster)
    })
    .await
}

fn trials(runtime: &Arc<Runtime>, cluster: &Arc<Shared>) -> Vec<Trial> {
    macro_rules! trial {
        ($name:ident) => {{
            let (runtime, cluster) = (Arc::clone(runtime), Arc::clone(cluster));
            Trial::test(stringify!($name), move || {
                let mut report = TestReport::begin(stringify!($name));
                let result = runtime.block_on(async {
                    let cluster = shared(&cluster).await?;
                    report.set_up_done();
                    $name(cluster).await
                });
                report
                    .end(result)
                    .map_err(|e: anyhow::Error| format!("{e:#}").into())
            })
        }};
    }
    vec![
        trial!(vip_reaches_both_vms_and_follows_readiness),
        trial!(vip_without_ready_endpoint_refuses),
        trial!(vip_moves_when_a_node_dies),
        trial!(vm_ports_links_and_addresses),
        trial!(vmi_object_is_kept_as_written),
        trial!(farm_breaks_single_addresses),
        trial!(kube_vip_leases_from_both_dhcp_servers),
        trial!(program_is_stopped_continued_and_killed),
        trial!(service_account_has_its_own_rights),
        trial!(two_beds_in_one_process),
        trial!(two_beds_in_two_processes_and_nothing_outlives_a_kill),
        trial!(nothing_outlives_a_panic),
        trial!(passes_everything_on_with_the_senders_rights),
        trial!(is_reached_from_a_node),
        trial!(refuses_in_the_api_servers_words),
        trial!(loses_answers_of_what_was_done),
        trial!(shares_delays_and_counts),
        trial!(holds_a_request_before_and_after),
        trial!(held_request_outlives_its_sender),
        trial!(ends_watches),
        trial!(swallows_events_of_a_watch),
        trial!(cuts_lists_and_pages),
        trial!(is_unavailable),
        trial!(ends_with_its_handle),
    ]
}

/// A Service with an address of the LAN and, if given, an EndpointSlice with these endpoints.
async fn expose(
    cluster: &TestCluster,
    name: &str,
    vip: Ipv4Addr,
    endpoints: Option<Vec<Value>>,
) -> anyhow::Result<()> {
    let ports = json!([{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]);
    cluster.apply(&json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
        "spec": {"type": "LoadBalancer", "loadBalancerIP": vip.to_string(), "ports": ports},
    }))
    .await?;
    match endpoints {
        Some(endpoints) => slice(cluster, name, endpoints).await,
        None => Ok(()),
    }
}

async fn slice(cluster: &TestCluster, name: &str, endpoints: Vec<Value>) -> anyhow::Result<()> {
    cluster.apply(&json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": endpoints,
    }))
    .await?;
    Ok(())
}

fn endpoint(address: Ipv4Addr, ready: bool) -> Value {
    json!({"addresses": [address.to_string()], "conditions": {"ready": ready}})
}

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

async fn vip_reaches_both_vms_and_follows_readiness(cluster: &TestCluster) -> anyhow::Result<()> {
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
/// docs/decisions/0005-dummy-endpoint.md.
async fn vip_without_ready_endpoint_refuses(cluster: &TestCluster) -> anyhow::Result<()> {
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
        answers_from(cluster, vip, &["unready"]).await?;
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

async fn vip_moves_when_a_node_dies(cluster: &TestCluster) -> anyhow::Result<()> {
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

async fn vm_ports_links_and_addresses(cluster: &TestCluster) -> anyhow::Result<()> {
    let vm = cluster.add_vm("ports")?;
    let refused = cluster
        .client_get(vm.address(), 8080)
        .await
        .map_err(|e| e.kind());
    ensure!(refused == Err(ErrorKind::ConnectionRefused), "{refused:?}");
    vm.listen(8080)?;
    vm.listen_udp(5353)?;
    ensure!(cluster.client_get(vm.address(), 8080).await? == "ports");
    ensure!(cluster.client_udp(vm.address(), 5353, "hello").await? == "ports hello");
    ensure!(vm.served() == 1, "{}", vm.served());
    vm.close(8080).await;
    let refused = cluster
        .client_get(vm.address(), 8080)
        .await
        .map_err(|e| e.kind());
    ensure!(refused == Err(ErrorKind::ConnectionRefused), "{refused:?}");
    vm.listen(8080)?;
    vm.set_address(lan(190))?;
    ensure!(cluster.client_get(lan(190), 8080).await? == "ports");
    vm.set_link(false)?;
    ensure!(cluster.client_get(vm.address(), 8080).await.is_err());
    vm.set_link(true)?;
    eventually("answer after the cable is back", SOON, || async {
        Ok(cluster.client_get(vm.address(), 8080).await.ok())
    })
    .await?;
    Ok(())
}

async fn vmi_object_is_kept_as_written(cluster: &TestCluster) -> anyhow::Result<()> {
    let vm = cluster.add_vm("object")?;
    let vmi = cluster
        .apply(&vm.vmi_manifest("default", &[("app", "web")]))
        .await?;
    ensure!(vmi.metadata.uid.is_some());
    let address = vmi
        .data
        .pointer("/status/interfaces/0/ipAddress")
        .and_then(Value::as_str);
    ensure!(address == Some(&vm.address().to_string()), "{address:?}");
    let listed = cluster
        .kubectl(&["get", "vmi", "-l", "app=web", "-o", "name"])
        .await?;
    ensure!(listed.contains("/object"), "{listed}");
    cluster
        .delete("kubevirt.io/v1", "VirtualMachineInstance", None, "object")
        .await?;
    cluster
        .delete("kubevirt.io/v1", "VirtualMachineInstance", None, "object")
        .await?;
    ensure!(
        cluster
            .get("kubevirt.io/v1", "VirtualMachineInstance", None, "object")
            .await?
            .is_none()
    );
    Ok(())
}

async fn farm_breaks_single_addresses(cluster: &TestCluster) -> anyhow::Result<()> {
    let farm = Farm::start(cluster, &[8080])?;
    let node = cluster.netns("node1")?;
    let connect = |last: u8| {
        let to = (Ipv4Addr::new(10, 99, 0, last), 8080).into();
        let limit = Duration::from_millis(500);
        node.run(|| {
            std::net::TcpStream::connect_timeout(&to, limit)
                .map(drop)
                .map_err(|e| e.kind())
        })
    };
    ensure!(connect(1)?.is_ok());
    farm.fault(Fault::Blackhole, "10.99.0.1-10.99.0.9")?;
    farm.fault(Fault::Refuse, "10.99.0.20")?;
    ensure!(connect(1)? == Err(ErrorKind::TimedOut));
    ensure!(connect(20)? == Err(ErrorKind::ConnectionRefused));
    ensure!(connect(10)?.is_ok());
    farm.repair(Fault::Blackhole, "10.99.0.1-10.99.0.9")?;
    ensure!(connect(1)?.is_ok());
    Ok(())
}

async fn kube_vip_leases_from_both_dhcp_servers(cluster: &TestCluster) -> anyhow::Result<()> {
    for (name, first) in [("dnsmasq", 220), ("kea", 230)] {
        let last = lan(first + 5);
        let server = match name {
            "kea" => Dhcp::kea(cluster, lan(first), last, Duration::from_secs(30)).await?,
            _ => Dhcp::dnsmasq(cluster, lan(first), last).await?,
        };
        expose(cluster, name, Ipv4Addr::UNSPECIFIED, None).await?;
        let address: Ipv4Addr = eventually("leased address", SOON, || async {
            let service = cluster
                .get("v1", "Service", None, name)
                .await?
                .context("no Service")?;
            let ip = service.data.pointer("/status/loadBalancer/ingress/0/ip");
            Ok(ip.and_then(Value::as_str).and_then(|ip| ip.parse().ok()))
        })
        .await?;
        ensure!(
            (lan(first)..=last).contains(&address),
            "{address} is not of {name}"
        );
        ensure!(
            server.leases().contains(&address.to_string()),
            "{}",
            server.leases()
        );
        cluster.delete("v1", "Service", None, name).await?;
    }
    Ok(())
}

async fn program_is_stopped_continued_and_killed(cluster: &TestCluster) -> anyhow::Result<()> {
    let script = "echo started $WORD; while :; do read -t 1 x </dev/null; sleep 0.05; done";
    let program = cluster.spawn(
        "node1",
        "sh",
        &["-c", script],
        &[("WORD", "here")],
        "program",
    )?;
    eventually("its output", SOON, || async {
        Ok(program.log().contains("started here").then_some(()))
    })
    .await?;
    let state = || {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", program.pid()))?;
        let state = text
            .rsplit(')')
            .next()
            .and_then(|t| t.trim().chars().next());
        state.context("no state")
    };
    program.stop()?;
    eventually("stopped", SOON, || async {
        Ok((state()? == 'T').then_some(()))
    })
    .await?;
    program.cont()?;
    eventually("running", SOON, || async {
        Ok((state()? != 'T').then_some(()))
    })
    .await?;
    ensure!(program.is_running());
    program.kill9()?;
    ensure!(!program.is_running() && program.term().is_err());
    let ended = cluster.spawn("node1", "sh", &["-c", "echo no luck; exit 3"], &[], "ended")?;
    let error = ended
        .ready(SOON, || async { Ok(false) })
        .await
        .err()
        .context("ready?")?;
    ensure!(format!("{error:#}").contains("no luck"), "{error:#}");
    Ok(())
}

async fn service_account_has_its_own_rights(cluster: &TestCluster) -> anyhow::Result<()> {
    let path = cluster
        .service_account_kubeconfig("default", "default")
        .await?;
    let path = path.to_str().context("path")?;
    let error = cluster
        .kubectl(&["--kubeconfig", path, "get", "nodes"])
        .await
        .err();
    let text = error.map(|e| format!("{e:#}")).unwrap_or_default();
    ensure!(
        text.contains("system:serviceaccount:default:default"),
        "{text}"
    );
    Ok(())
}

async fn two_beds_in_one_process(cluster: &TestCluster) -> anyhow::Result<()> {
    let options = TestClusterOptions {
        nodes: 1,
        kube_vip: false,
        audit: true,
        ..Default::default()
    };
    let other = TestCluster::start(options).await?;
    let audit = std::fs::read_to_string(other.audit())?;
    ensure!(
        audit.contains("\"username\":\"system:kube-proxy\""),
        "{audit}"
    );
    let (vm, twin) = (cluster.add_vm("twin")?, other.add_vm("twin")?);
    vm.listen(8080)?;
    ensure!(other.kubectl(&["get", "nodes", "-o", "name"]).await?.trim() == "node/node1");
    let refused = other
        .client_get(twin.address(), 8080)
        .await
        .map_err(|e| e.kind());
    ensure!(refused == Err(ErrorKind::ConnectionRefused), "{refused:?}");
    let pid = other.process("etcd")?.pid();
    drop(other);
    ensure!(
        !std::path::Path::new(&format!("/proc/{pid}")).exists(),
        "etcd outlives its bed"
    );
    ensure!(cluster.client_get(vm.address(), 8080).await? == "twin");
    Ok(())
}

/// The task of a second process of this binary, in a separate test cluster.
async fn second_process(role: &str) -> ExitCode {
    let cluster = TestCluster::start(TestClusterOptions {
        nodes: 1,
        ..Default::default()
    })
    .await
    .unwrap();
    println!("ready {}", cluster.nodes().len());
    assert!(role != "panic", "as told");
    std::future::pending().await
}

fn start_second(role: &str, marker: &str) -> anyhow::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    apart(&mut command)
        .env(ROLE, role)
        .env(MARKER, marker)
        .stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
    if line.trim() != "ready 1" {
        bail!("the second process said {line:?}");
    }
    Ok(child)
}

/// Number of processes with the marker in their environment. Processes of inner pid namespaces appear in the outer
/// /proc too.
fn marked(marker: &str) -> anyhow::Result<usize> {
    let wanted = format!("{MARKER}={marker}");
    let mut count = 0;
    for entry in std::fs::read_dir("/proc")? {
        // A process can end while its files are read.
        let environ = std::fs::read(entry?.path().join("environ")).unwrap_or_default();
        count += usize::from(environ.split(|b| *b == 0).any(|v| v == wanted.as_bytes()));
    }
    Ok(count)
}

async fn none_left(marker: &str) -> anyhow::Result<()> {
    eventually("nothing outlives the bed", SOON, || async {
        let left = marked(marker)?;
        ensure!(left == 0, "{left} processes left");
        Ok(Some(()))
    })
    .await
}

async fn two_beds_in_two_processes_and_nothing_outlives_a_kill(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let mut child = start_second("hold", "killed")?;
    // Three of this binary, etcd, API server, controller manager, proxy; kube-vip has a different environment.
    let count = marked("killed")?;
    ensure!(count >= 7, "only {count} processes are marked");
    ensure!(
        cluster
            .kubectl(&["get", "nodes", "-o", "name"])
            .await?
            .contains("node2")
    );
    child.kill()?;
    child.wait()?;
    none_left("killed").await
}

async fn nothing_outlives_a_panic(_bed: &TestCluster) -> anyhow::Result<()> {
    let mut child = start_second("panic", "panicked")?;
    let status = child.wait()?;
    ensure!(!status.success(), "{status}");
    none_left("panicked").await
}
