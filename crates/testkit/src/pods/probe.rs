//! Owns the requests of a kubelet to a container: probes and the hook before its end. HTTP and TCP come from the node.

mod http;
mod threshold;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, HTTPGetAction, LifecycleHandler, Probe, TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use self::http::Get;
use self::threshold::{Threshold, Timing};
use super::inside::Exec;
use super::launch::execute;
use crate::netns::Netns;

/// A running container, as the requests reach it.
pub(crate) struct Target<'a> {
    pub(crate) container: &'a Container,
    /// The node's network namespace.
    pub(crate) node: &'a Netns,
    /// The Pod's.
    pub(crate) netns: &'a Netns,
    pub(crate) address: IpAddr,
    /// Makes a command to execute in it.
    pub(crate) command: &'a (dyn Fn(&[String]) -> Exec + Sync),
}

impl Target<'_> {
    /// Runs a probe and gives each verdict to `decide`, until that returns something.
    pub(crate) async fn watch<T>(
        &self,
        probe: &Probe,
        mut decide: impl FnMut(Result<(), String>) -> Option<T>,
    ) -> T {
        let timing = Timing::of(probe);
        let mut threshold = Threshold::of(probe);
        sleep(timing.delay).await;
        let mut ticks = interval(timing.period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let result = self.once(probe, timing.timeout).await;
            if threshold.count(result.is_ok()).is_some()
                && let Some(decision) = decide(result.map_err(|error| format!("{error:#}")))
            {
                return decision;
            }
        }
    }

    async fn once(&self, probe: &Probe, limit: Duration) -> anyhow::Result<()> {
        let asked = async {
            if let Some(action) = &probe.http_get {
                self.http(action, limit).await
            } else if let Some(action) = &probe.tcp_socket {
                self.tcp(action).await
            } else if let Some(action) = &probe.exec {
                self.exec(action.command.as_deref(), limit).await
            } else {
                bail!("a probe without action")
            }
        };
        let answered = timeout(limit, asked).await;
        answered.with_context(|| format!("no answer within {limit:?}"))?
    }

    /// Runs the hook before the container's end; not longer than `limit`.
    pub(crate) async fn hook(
        &self,
        hook: &LifecycleHandler,
        limit: Duration,
    ) -> anyhow::Result<()> {
        let run = async {
            if let Some(action) = &hook.exec {
                self.exec(action.command.as_deref(), limit).await
            } else if let Some(action) = &hook.http_get {
                self.http(action, limit).await
            } else if let Some(action) = &hook.sleep {
                let seconds = u64::try_from(action.seconds).unwrap_or_default();
                sleep(Duration::from_secs(seconds)).await;
                Ok(())
            } else {
                bail!("a hook without action")
            }
        };
        timeout(limit, run).await.context("preStop hook")?
    }

    async fn http(&self, action: &HTTPGetAction, limit: Duration) -> anyhow::Result<()> {
        let headers = action.http_headers.iter().flatten();
        let get = Get {
            to: self.place(action.host.as_deref(), &action.port)?,
            tls: action.scheme.as_deref() == Some("HTTPS"),
            path: action.path.clone().unwrap_or_else(|| "/".into()),
            headers: headers.map(|h| (h.name.clone(), h.value.clone())).collect(),
            timeout: limit,
        };
        let node = self.node.clone();
        let answer = tokio::task::spawn_blocking(move || node.run(|| http::get(&get)));
        let code = answer.await???;
        ensure!((200..400).contains(&code), "status code {code}");
        Ok(())
    }

    async fn tcp(&self, action: &TCPSocketAction) -> anyhow::Result<()> {
        let to = self.place(action.host.as_deref(), &action.port)?;
        self.node.tcp()?.connect(to).await?;
        Ok(())
    }

    async fn exec(&self, command: Option<&[String]>, limit: Duration) -> anyhow::Result<()> {
        let command = (self.command)(command.unwrap_or_default());
        let (status, output) = execute(self.netns, &command, limit).await?;
        ensure!(status.success(), "{status}: {}", output.trim());
        Ok(())
    }

    fn place(&self, host: Option<&str>, port: &IntOrString) -> anyhow::Result<SocketAddr> {
        let host = host.filter(|host| !host.is_empty());
        let host = host.map_or(Ok(self.address), str::parse);
        let ports = self.container.ports.as_deref().unwrap_or_default();
        let number = number(port, ports).with_context(|| format!("no port {port:?}"))?;
        Ok((host.context("a host that is no address")?, number).into())
    }
}

/// A port by its number or its name.
fn number(port: &IntOrString, ports: &[ContainerPort]) -> Option<u16> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let named = ports.iter().find(|p| p.name.as_ref() == Some(name));
            named?.container_port
        }
    };
    u16::try_from(number).ok()
}
