//! Shared by the tests: operators with separate users, and the LoadBalancers that they work on.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::ensure;
use harvester_lb_e2e::World;
use harvester_lb_e2e::permissions::User;
use harvester_lb_e2e::world::{SOON, TEST_TIMINGS};
use harvester_lb_fixtures as fixtures;
use harvester_lb_testkit::{Process, eventually};
use serde_json::json;

use crate::http;

/// The most verbose log level of every part of the program.
pub const LOUD: &str = "trace,kube_client=trace,kube_runtime=trace,hyper=trace,hyper_util=trace,rustls=trace,tower=trace,h2=trace,log=trace";

/// An operator with a separate port.
pub struct Operator {
    pub process: Arc<Process>,
    /// Address of its admin port.
    pub at: SocketAddr,
}

impl Operator {
    /// Starts one on the first node, without waiting for it.
    pub fn spawn(
        world: &World,
        kubeconfig: &str,
        port: u16,
        flags: &[&str],
        level: &str,
    ) -> anyhow::Result<Self> {
        let admin = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).to_string();
        let env = [
            ("KUBECONFIG", kubeconfig),
            ("LOGLEVEL", level),
            ("ADMIN_ADDRESS", &*admin),
            ("HLB_TIMINGS", TEST_TIMINGS),
        ];
        let process = world.cluster.spawn(
            "node1",
            world.binary(),
            flags,
            &env,
            &format!("operator-{port}"),
        )?;
        let at = SocketAddr::from((world.node_address("node1")?, port));
        Ok(Self { process, at })
    }

    /// Starts one and waits until it is leader.
    pub async fn start(
        world: &World,
        user: &User,
        port: u16,
        flags: &[&str],
        level: &str,
    ) -> anyhow::Result<Self> {
        let operator = Self::spawn(world, &user.kubeconfig, port, flags, level)?;
        operator.becomes_leader().await?;
        Ok(operator)
    }

    /// Waits until it is ready.
    pub async fn ready(&self) -> anyhow::Result<()> {
        self.process
            .ready(SOON, || async {
                Ok(self.get("/readyz").await.is_ok_and(|(code, _)| code == 200))
            })
            .await
    }

    /// Waits until it is leader.
    pub async fn becomes_leader(&self) -> anyhow::Result<()> {
        self.process
            .ready(SOON, || async {
                Ok(self
                    .get("/metrics")
                    .await
                    .is_ok_and(|(_, text)| text.contains("\nharvester_lb_leader 1\n")))
            })
            .await
    }

    /// Reads from the admin port: status code and body.
    pub async fn get(&self, path: &str) -> anyhow::Result<(u16, String)> {
        http::get(self.at, path).await
    }

    /// Waits until the log contains the text.
    pub async fn says(&self, text: &str) -> anyhow::Result<()> {
        eventually(&format!("the log says {text:?}"), SOON, || async {
            ensure!(
                self.process.is_running(),
                "it ended:\n{}",
                self.process.tail()
            );
            ensure!(self.process.log().contains(text), "{}", self.process.tail());
            Ok(Some(()))
        })
        .await
    }

    /// Sends SIGTERM and waits for the exit.
    pub async fn stop(&self) -> anyhow::Result<()> {
        self.process.end().await
    }
}

/// A namespace with a pool and a VirtualMachineInstance.
pub async fn furnish(world: &World, ns: &str, subnet: &str) -> anyhow::Result<()> {
    world.namespace(ns).await?;
    world.pool_for(ns, ns, &[fixtures::subnet(subnet)]).await?;
    world
        .fake_vmi(ns, "m", json!({"app": "web"}), Some("10.90.0.7"))
        .await?;
    Ok(())
}
