//! What a test cluster has: virtual machines, addresses that fail, DHCP servers, programs, service accounts.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_testkit::{Dhcp, Farm, Fault, TestCluster, eventually, lan};
use serde_json::Value;

use crate::support::{SOON, expose};

pub(crate) async fn vm_ports_links_and_addresses(cluster: &TestCluster) -> anyhow::Result<()> {
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

pub(crate) async fn vmi_object_is_kept_as_written(cluster: &TestCluster) -> anyhow::Result<()> {
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

pub(crate) async fn farm_breaks_single_addresses(cluster: &TestCluster) -> anyhow::Result<()> {
    let farm = Farm::start(cluster, &[8080])?;
    let node = cluster.netns("node1")?;
    let connect = |last: u8, limit: u64| {
        let to = (Ipv4Addr::new(10, 99, 0, last), 8080).into();
        node.run(|| {
            std::net::TcpStream::connect_timeout(&to, Duration::from_millis(limit))
                .map(drop)
                .map_err(|e| e.kind())
        })
    };
    // The kernel repeats a lost SYN after 1, 3 and 7 s: what is to succeed has the time for it.
    let (short, long) = (500, 10_000);
    ensure!(connect(1, long)?.is_ok());
    farm.fault(Fault::Blackhole, "10.99.0.1-10.99.0.9")?;
    farm.fault(Fault::Refuse, "10.99.0.20")?;
    ensure!(connect(1, short)? == Err(ErrorKind::TimedOut));
    ensure!(connect(20, long)? == Err(ErrorKind::ConnectionRefused));
    ensure!(connect(10, long)?.is_ok());
    farm.repair(Fault::Blackhole, "10.99.0.1-10.99.0.9")?;
    ensure!(connect(1, long)?.is_ok());
    Ok(())
}

pub(crate) async fn kube_vip_leases_from_both_dhcp_servers(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
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

pub(crate) async fn program_is_stopped_continued_and_killed(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
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
    for _ in 0..50 {
        program.stop()?;
        let stopped = state()?;
        ensure!(stopped == 'T', "{stopped} after SIGSTOP");
        program.stop()?;
        program.cont()?;
        eventually("running", SOON, || async {
            Ok((state()? != 'T').then_some(()))
        })
        .await?;
    }
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

pub(crate) async fn service_account_has_its_own_rights(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
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
