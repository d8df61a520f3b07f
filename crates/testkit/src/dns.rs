//! Owns a DNS server for Pods: real dnsmasq, in the namespace `gw`, where the resolvers of Pods look for it
//! ([`crate::PodRunnerOptions`]). It answers as the DNS of a cluster does: names that it does not know do not exist.
//!
//! Tests that use it pass `dnsmasq` to [`crate::enter_with`], so that it is installed.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use crate::process::Process;
use crate::test_cluster::TestCluster;

const START: Duration = Duration::from_secs(20);

/// A running DNS server; one at a time. Dropping it kills it.
#[derive(Debug)]
pub struct Dns {
    process: Arc<Process>,
}

impl Dns {
    /// dnsmasq with these names, in full.
    pub async fn dnsmasq(
        cluster: &TestCluster,
        names: &[(&str, Ipv4Addr)],
    ) -> anyhow::Result<Self> {
        let records: Vec<String> = names
            .iter()
            .map(|(name, address)| format!("--host-record={name},{address}"))
            .collect();
        let mut args = vec![
            "--conf-file=/dev/null",
            "--keep-in-foreground",
            "--port=53",
            "--interface=eth0",
            "--bind-interfaces",
            "--except-interface=lo",
            "--no-resolv",
            "--no-hosts",
            // All other names: NXDOMAIN, and not a refusal, after which a resolver waits and asks again.
            "--address=/#/",
            "--pid-file=",
            // No group: a user namespace that was created without root cannot change groups.
            "--user=root",
            "--group=",
            "--log-queries",
            "--log-facility=-",
        ];
        args.extend(records.iter().map(String::as_str));
        let process = cluster.spawn("gw", "dnsmasq", &args, &[], "dns")?;
        let started = || async { Ok(process.log().contains("started, version")) };
        process.ready(START, started).await?;
        Ok(Self { process })
    }

    /// The server process; its log has each question and each answer.
    pub fn process(&self) -> &Arc<Process> {
        &self.process
    }
}
