//! Processes that lead in turn: DHCP processes, or operators. The leader is killed, ends or is paused, and another one takes over.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_e2e::World;
use harvester_lb_e2e::leases::operator::start_operator;
use harvester_lb_e2e::leases::{NODE, in_state, start_as};
use harvester_lb_e2e::metrics_snapshot::MetricsSnapshot;
use harvester_lb_e2e::world::SOON;
use harvester_lb_testkit::{Process, eventually};

/// The node of the first standby.
const OTHER: &str = "node2";

/// What the members run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Dhcp,
    Operator,
}

impl Program {
    async fn start(self, world: &World, node: &str, uid: &str) -> anyhow::Result<Arc<Process>> {
        match self {
            Self::Dhcp => start_as(world, node, "builtin", uid).await,
            Self::Operator => start_operator(world, node, uid, &[]).await,
        }
    }
}

/// A process on a node.
pub struct Member {
    pub node: &'static str,
    pub process: Arc<Process>,
    uid: String,
}

impl Member {
    /// What it has logged, without those before it in the same file.
    pub fn log(&self) -> anyhow::Result<String> {
        let log = self.process.log();
        let since = log.rfind("starting\",\"version\"").context("no start")?;
        Ok(log.get(since..).unwrap_or_default().to_owned())
    }
}

/// The leader, and perhaps a standby.
pub struct Group<'a> {
    world: &'a World,
    program: Program,
    pub leader: Member,
    standby: Option<Member>,
    started: u32,
}

impl<'a> Group<'a> {
    /// Starts the leader alone. It has the Lease when this returns.
    pub async fn start(world: &'a World, program: Program) -> anyhow::Result<Self> {
        let uid = "dhcp".to_owned();
        let process = program.start(world, NODE, &uid).await?;
        let leader = Member {
            node: NODE,
            process,
            uid,
        };
        let group = Self {
            world,
            program,
            leader,
            standby: None,
            started: 0,
        };
        group.leads().await?;
        Ok(group)
    }

    /// Starts a standby on the node without a leader, unless there is one.
    pub async fn stand_by(&mut self) -> anyhow::Result<()> {
        if self.standby.is_some() {
            return Ok(());
        }
        self.started += 1;
        // It is not the one that was killed, as far as the Lease shows.
        let uid = format!("standby-{}", self.started);
        let node = if self.leader.node == NODE {
            OTHER
        } else {
            NODE
        };
        let process = self.program.start(self.world, node, &uid).await?;
        self.standby = Some(Member { node, process, uid });
        Ok(())
    }

    /// Waits until the leader has its term.
    async fn leads(&self) -> anyhow::Result<()> {
        let what = format!("{:?} on {} leads", self.program, self.leader.node);
        eventually(&what, SOON, || async {
            let log = self.leader.log()?;
            Ok(log.contains("became leader").then_some(()))
        })
        .await
    }

    /// Stops all members (SIGSTOP): none acts before the leader is killed.
    pub fn stop(&self) -> anyhow::Result<()> {
        let standby = self.standby.iter();
        let mut all = std::iter::once(&self.leader).chain(standby);
        all.try_for_each(|member| member.process.stop())
    }

    /// Kills the leader. The standby leads when this returns, or without one the next process.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        self.leader.process.kill9()?;
        if let Some(standby) = self.standby.take() {
            standby.process.cont()?;
            self.leader = standby;
        } else {
            let Member { node, uid, .. } = &self.leader;
            self.leader.process = self.program.start(self.world, node, uid).await?;
        }
        self.leads().await
    }

    /// Ends the leader (SIGTERM). The standby leads when this returns.
    pub async fn hand_over(&mut self) -> anyhow::Result<()> {
        self.leader.process.end().await?;
        self.leader = self.standby.take().context("no standby")?;
        self.leads().await
    }

    /// Stops the leader (SIGSTOP). The standby leads when this returns.
    pub async fn pause(&mut self) -> anyhow::Result<Member> {
        self.leader.process.stop()?;
        let standby = self.standby.take().context("no standby")?;
        let paused = std::mem::replace(&mut self.leader, standby);
        self.leads().await?;
        Ok(paused)
    }

    /// Waits until so many clients of the leader are in a state.
    pub async fn in_state(&self, state: &str, count: u8) -> anyhow::Result<()> {
        in_state(self.world, self.leader.node, state, count).await
    }

    /// Messages that a member has sent to servers, by type.
    async fn sent(&self, member: &Member) -> anyhow::Result<BTreeMap<String, f64>> {
        let figures = MetricsSnapshot::read(self.world, member.node).await?;
        let name = "harvester_lb_dhcp_messages_sent_total";
        let sent = figures.0.iter().filter(|series| series.name == name);
        let sent = sent.map(|series| (series.label("type").to_owned(), series.value));
        Ok(sent.filter(|(kind, _)| kind != "arp_probe").collect())
    }

    /// Messages that the leader has sent to servers.
    pub async fn sent_by_leader(&self) -> anyhow::Result<f64> {
        Ok(self.sent(&self.leader).await?.values().sum())
    }

    /// Whether the messages of the leader are all that have come to the server.
    pub async fn only_the_leader_sends(&self, at_server: usize) -> anyhow::Result<()> {
        let sent = self.sent(&self.leader).await?;
        let (sum, at_server) = (
            sent.values().sum::<f64>(),
            f64::from(u32::try_from(at_server)?),
        );
        ensure!(
            sum > 0.5 && (sum - at_server).abs() < 0.5,
            "{sent:?} sent, {at_server} there: {}",
            self.leader.log()?
        );
        if let Some(standby) = &self.standby {
            let sent = self.sent(standby).await?;
            let sum: f64 = sent.values().sum();
            ensure!(sum < 0.5, "the standby has sent {sent:?}");
        }
        Ok(())
    }
}
