//! Owns DHCP servers for the LAN: real dnsmasq and real Kea, in the namespace `gw`, and a second one in another namespace.
//!
//! Tests that use them pass their names to [`crate::enter_with`], so that they are installed.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};

use crate::layout::GATEWAY;
use crate::process::Process;
use crate::test_cluster::TestCluster;

const START: Duration = Duration::from_secs(20);

/// A running DHCP server, authoritative for the LAN unless said otherwise; one of a program at a time. Dropping it kills it.
#[derive(Debug)]
pub struct Dhcp {
    process: Arc<Process>,
    launch: Launch,
    leases: PathBuf,
}

/// How a server is started.
#[derive(Debug)]
struct Launch {
    netns: &'static str,
    program: &'static str,
    args: Vec<String>,
    env: Vec<(&'static str, String)>,
    /// What it logs once it answers.
    says: &'static str,
}

impl Dhcp {
    /// dnsmasq with the given range and its shortest lease time, 2 minutes.
    pub async fn dnsmasq(
        cluster: &TestCluster,
        first: Ipv4Addr,
        last: Ipv4Addr,
    ) -> anyhow::Result<Self> {
        Self::dnsmasq_with(cluster, first, last, &[]).await
    }

    /// The same with further flags, such as a reservation.
    pub async fn dnsmasq_with(
        cluster: &TestCluster,
        first: Ipv4Addr,
        last: Ipv4Addr,
        flags: &[&str],
    ) -> anyhow::Result<Self> {
        Self::dnsmasq_in(cluster, "gw", first, last, flags).await
    }

    /// The same in another namespace, beside a server in `gw`.
    pub async fn dnsmasq_in(
        cluster: &TestCluster,
        netns: &'static str,
        first: Ipv4Addr,
        last: Ipv4Addr,
        flags: &[&str],
    ) -> anyhow::Result<Self> {
        let flags = [flags, &["--dhcp-authoritative"]].concat();
        Self::dnsmasq_of(cluster, netns, first, last, &flags).await
    }

    /// dnsmasq in `gw` as it is without a setting: not authoritative. It says nothing to a client whose lease it does not know.
    pub async fn dnsmasq_not_authoritative(
        cluster: &TestCluster,
        first: Ipv4Addr,
        last: Ipv4Addr,
        flags: &[&str],
    ) -> anyhow::Result<Self> {
        Self::dnsmasq_of(cluster, "gw", first, last, flags).await
    }

    async fn dnsmasq_of(
        cluster: &TestCluster,
        netns: &'static str,
        first: Ipv4Addr,
        last: Ipv4Addr,
        flags: &[&str],
    ) -> anyhow::Result<Self> {
        let leases = cluster.folder().join("dnsmasq.leases");
        let args = [
            "--conf-file=/dev/null",
            "--keep-in-foreground",
            "--port=0",
            "--interface=eth0",
            "--bind-interfaces",
            "--except-interface=lo",
            &format!("--dhcp-range={first},{last},255.255.255.0,2m"),
            &format!("--dhcp-option=3,{GATEWAY}"),
            &format!("--dhcp-leasefile={}", leases.display()),
            "--pid-file=",
            // No group: a user namespace that was created without root cannot change groups.
            "--user=root",
            "--group=",
            "--log-dhcp",
            "--log-facility=-",
            // Otherwise it pings each address for 3 s before it offers it.
            "--no-ping",
        ];
        let launch = Launch {
            netns,
            program: "dnsmasq",
            args: args.iter().chain(flags).map(ToString::to_string).collect(),
            env: Vec::new(),
            says: "DHCP, sockets bound",
        };
        Self::start(cluster, launch, leases).await
    }

    /// Kea with the given range and any lease time.
    pub async fn kea(
        cluster: &TestCluster,
        first: Ipv4Addr,
        last: Ipv4Addr,
        lifetime: Duration,
    ) -> anyhow::Result<Self> {
        Self::kea_with(cluster, first, last, lifetime, &json!({})).await
    }

    /// The same with further settings of the subnet, such as reservations; they replace those that are here.
    pub async fn kea_with(
        cluster: &TestCluster,
        first: Ipv4Addr,
        last: Ipv4Addr,
        lifetime: Duration,
        of_subnet: &Value,
    ) -> anyhow::Result<Self> {
        let leases = cluster.folder().join("kea-leases.csv");
        let mut subnet = json!({
            "id": 1, "interface": "eth0", "subnet": "192.168.100.0/24",
            "pools": [{"pool": format!("{first}-{last}")}],
            "option-data": [{"name": "routers", "data": GATEWAY.to_string()}],
        });
        for (name, value) in of_subnet.as_object().into_iter().flatten() {
            subnet[name] = value.clone();
        }
        let config = json!({"Dhcp4": {
            "authoritative": true,
            "interfaces-config": {"interfaces": ["eth0"], "dhcp-socket-type": "raw"},
            // The interval of the helper program that compacts the file.
            "lease-database": {
                "type": "memfile", "persist": true, "name": leases, "lfc-interval": 0,
            },
            "valid-lifetime": lifetime.as_secs(),
            // In seconds, instead of a day: a test may have addresses declined again and again.
            "decline-probation-period": 30,
            "subnet4": [subnet],
            "loggers": [{
                "name": "kea-dhcp4", "severity": "DEBUG", "debuglevel": 15,
                "output_options": [{"output": "stdout"}],
            }],
        }});
        let path = cluster.folder().join("kea.json");
        std::fs::write(&path, serde_json::to_vec(&config)?)?;
        let folder = cluster.folder().display().to_string();
        let launch = Launch {
            netns: "gw",
            program: "kea-dhcp4",
            args: vec!["-c".to_owned(), path.display().to_string()],
            env: vec![
                ("KEA_PIDFILE_DIR", folder.clone()),
                ("KEA_LOCKFILE_DIR", folder),
            ],
            says: "DHCP4_STARTED",
        };
        Self::start(cluster, launch, leases).await
    }

    async fn start(cluster: &TestCluster, launch: Launch, leases: PathBuf) -> anyhow::Result<Self> {
        Ok(Self {
            process: launch.start(cluster).await?,
            launch,
            leases,
        })
    }

    /// Starts the server again, after its process has ended: with the same settings, and with the leases that are in its file.
    pub async fn restart(&mut self, cluster: &TestCluster) -> anyhow::Result<()> {
        ensure!(
            !self.process.is_running(),
            "{} still runs",
            self.launch.program
        );
        self.process = self.launch.start(cluster).await?;
        Ok(())
    }

    /// The server process: its log has each exchange; stop it to test a server that is unreachable.
    pub fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// The server's lease file, in its native format.
    pub fn leases(&self) -> String {
        std::fs::read_to_string(&self.leases).unwrap_or_default()
    }

    /// The addresses that are leased, each as often as the server has it.
    pub fn held(&self) -> Vec<Ipv4Addr> {
        let leases = self.leases();
        if leases.starts_with("address,") {
            return held_by_kea(&leases);
        }
        let lines = leases.lines().filter_map(|line| {
            let address = line.split_whitespace().nth(2)?;
            address.parse().ok()
        });
        lines.collect()
    }

    /// The address that is leased to a hardware address.
    pub fn held_by(&self, hardware: &str) -> Option<Ipv4Addr> {
        let held = self.held();
        let leases = self.leases();
        let is_its = |line: &&str| line.contains(hardware);
        let mut addresses = leases.lines().filter(is_its).filter_map(|line| {
            let mut cells = line.split([',', ' ']);
            cells.find_map(|cell| cell.parse().ok())
        });
        addresses.rfind(|address| held.contains(address))
    }
}

impl Launch {
    /// Starts the server, and waits until it says so. The servers of a test cluster write into one log, one after another.
    async fn start(&self, cluster: &TestCluster) -> anyhow::Result<Arc<Process>> {
        let (program, says) = (self.program, self.says);
        let log = cluster.folder().join(format!("{program}.log"));
        let times = || {
            let log = std::fs::read(&log).unwrap_or_default();
            String::from_utf8_lossy(&log).matches(says).count()
        };
        let earlier = times();
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        let env: Vec<(&str, &str)> = self.env.iter().map(|(name, it)| (*name, &**it)).collect();
        let process = cluster.spawn(self.netns, program, &args, &env, program)?;
        let is_started = || async { Ok(times() > earlier) };
        process.ready(START, is_started).await?;
        Ok(process)
    }
}

/// Kea appends a row for each change: the last one of an address counts. A lease that was given back has the lifetime 0, and one in
/// another state than 0 was declined or has expired.
fn held_by_kea(leases: &str) -> Vec<Ipv4Addr> {
    let mut held = BTreeMap::new();
    for line in leases.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        if let [address, _, _, lifetime, _, _, _, _, _, state, ..] = cells[..]
            && let Ok(address) = address.parse()
        {
            held.insert(address, lifetime != "0" && state == "0");
        }
    }
    let held = held.into_iter().filter(|(_, is_held)| *is_held);
    held.map(|(address, _)| address).collect()
}
