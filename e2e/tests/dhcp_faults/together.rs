//! Operator and DHCP process together: the operator is killed in each state of a lease; it is restarted, or a standby takes over; once it
//! ends and hands over (DHC-2 to DHC-4).

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_api::{LoadBalancer, Phase};
use harvester_lb_e2e::World;
use harvester_lb_e2e::fake_kube_vip::FakeKubeVip;
use harvester_lb_e2e::seeds::{Rounds, soaks};
use harvester_lb_testkit::Dhcp;
use serde_json::json;

use crate::group::{Group, Program};
use crate::killed::{SOAK, exactly, none_left};
use harvester_lb_e2e::leases::filter::{Filter, NO_REPLIES};
use harvester_lb_e2e::leases::operator::{served, unserved};
use harvester_lb_e2e::leases::{
    confirmed, delete, held, kea_renewed, lasting, leased, no_record, phase, set,
};

const NAME: &str = "web";
const RANGE: RangeInclusive<u8> = 200..=205;
/// Lifetime of Kea's leases; dnsmasq's are of two minutes at least.
const LIFETIME: Duration = Duration::from_secs(16);
/// T1 and T2 of Kea's leases, in seconds.
const TIMES: (u8, u8) = (4, 6);
/// The same of dnsmasq's. The next REQUEST after T1 is that at T2, when the kill must be over: the one after it comes after half of what
/// is left of the lease, nearly a minute.
const LONG_TIMES: (u8, u8) = (4, 14);

pub async fn dhc_2_operator_killed_in_each_state(world: Arc<World>) -> anyhow::Result<()> {
    let rounds = Rounds::from_env(1, SOAK);
    for seed in rounds.seeds() {
        let done = round(&world, seed).await;
        done.with_context(|| format!("HLB_SEED={seed}"))?;
    }
    Ok(())
}

/// One load balancer, its server, and both programs.
struct Round<'a> {
    world: &'a World,
    ns: String,
    server: Dhcp,
    /// Whether its leases are over within seconds.
    is_brief: bool,
    operators: Group<'a>,
    dhcp: Group<'a>,
    /// Whether a standby takes over at the next kill of the operator, instead of a restart: at every other one, and in the next round at
    /// the others.
    has_standby: bool,
}

async fn round(world: &World, seed: u64) -> anyhow::Result<()> {
    let ns = format!("together-{seed}");
    set(world, &ns).await?;
    let labels = json!({"app": "web"});
    world.fake_vmi(&ns, "vm", labels, Some("10.81.0.1")).await?;
    let _kube_vip = FakeKubeVip::start(&world.client());
    // Two rounds with Kea, one that begins with a restart and one with a standby, then two with dnsmasq.
    let is_brief = seed % 4 < 2;
    let server = if is_brief {
        kea_renewed(world, &RANGE, LIFETIME, TIMES).await?
    } else {
        lasting(world, "dnsmasq", &RANGE, Some(LONG_TIMES)).await?
    };
    let mut round = Round {
        world,
        ns,
        server,
        is_brief,
        operators: Group::start(world, Program::Operator).await?,
        dhcp: Group::start(world, Program::Dhcp).await?,
        has_standby: seed.is_multiple_of(2),
    };
    let lived = round.life().await;
    let lb = lived
        .with_context(|| format!("the DHCP process:\n{}", round.dhcp.leader.process.tail()))?;
    no_record(world, &lb).await?;
    none_left(world, &round.server, &RANGE, &[]).await
}

impl Round<'_> {
    /// From its first message to the RELEASE, which the DHCP process sends that follows the killed one.
    async fn life(&mut self) -> anyhow::Result<LoadBalancer> {
        let lb = self.before_it_is_recorded().await?;
        self.while_it_lasts(&lb).await?;
        if self.is_brief {
            self.when_it_is_over(&lb).await?;
        }
        self.while_it_is_given_back(&lb).await?;
        Ok(lb)
    }

    /// Decides who leads next. Called before the state of the kill, which does not wait.
    async fn prepare(&mut self) -> anyhow::Result<()> {
        if self.has_standby {
            self.operators.stand_by().await?;
        }
        self.has_standby = !self.has_standby;
        Ok(())
    }

    /// Whether the Service is there.
    async fn has_service(&self) -> anyhow::Result<bool> {
        let service = self.world.services(&self.ns).get_opt(NAME).await?;
        Ok(service.is_some())
    }

    /// Before any OFFER; then between the ACK and the record.
    async fn before_it_is_recorded(&mut self) -> anyhow::Result<LoadBalancer> {
        self.prepare().await?;
        let silence = Filter::set(self.world, NO_REPLIES)?;
        let lb = leased(self.world, &self.ns, NAME).await?;
        self.dhcp.in_state("selecting", 1).await?;
        self.operators.kill().await?;
        unserved(self.world, &lb).await?;
        self.prepare().await?;
        drop(silence);
        self.dhcp.in_state("checking", 1).await?;
        self.dhcp.leader.process.stop()?;
        let had = held(&self.server, &RANGE);
        ensure!(had.len() == 1, "the server has {had:?}");
        phase(self.world, &lb, Phase::Pending).await?;
        self.operators.kill().await?;
        self.dhcp.kill().await?;
        served(self.world, &lb, had[0]).await?;
        exactly(&self.server, &RANGE, had)?;
        Ok(lb)
    }

    /// Before T1, after T1, and in the soak after T2, where the next kill is too; and when the operator ends: the Service stays.
    async fn while_it_lasts(&mut self, lb: &LoadBalancer) -> anyhow::Result<()> {
        let had = held(&self.server, &RANGE);
        let service = served(self.world, lb, had[0]).await?;
        let states = ["bound", "renewing", "rebinding"];
        // In REBINDING of a longer lease the next REQUEST comes after half of what is left of it, a minute.
        let count = if soaks() && self.is_brief { 3 } else { 2 };
        for state in states.into_iter().take(count) {
            self.prepare().await?;
            let silence = Filter::set(self.world, NO_REPLIES)?;
            self.dhcp.in_state(state, 1).await?;
            let before = phase(self.world, lb, Phase::Bound).await?;
            self.operators.kill().await?;
            drop(silence);
            confirmed(self.world, lb, &before).await?;
            let now = served(self.world, lb, had[0]).await?;
            ensure!(now == service, "{state}: the Service was made anew");
            exactly(&self.server, &RANGE, had.clone())?;
        }
        self.operators.stand_by().await?;
        let before = phase(self.world, lb, Phase::Bound).await?;
        self.operators.hand_over().await?;
        confirmed(self.world, lb, &before).await?;
        let now = served(self.world, lb, had[0]).await?;
        ensure!(
            now == service,
            "after the hand-over the Service was made anew"
        );
        exactly(&self.server, &RANGE, had)
    }

    /// After the expiry, with the Service that nobody has deleted yet.
    async fn when_it_is_over(&mut self, lb: &LoadBalancer) -> anyhow::Result<()> {
        let had = held(&self.server, &RANGE);
        let service = served(self.world, lb, had[0]).await?;
        self.prepare().await?;
        let silence = Filter::set(self.world, NO_REPLIES)?;
        self.dhcp.in_state("rebinding", 1).await?;
        self.operators.stop()?;
        self.dhcp.in_state("selecting", 1).await?;
        ensure!(self.has_service().await?, "who has deleted the Service?");
        self.operators.kill().await?;
        unserved(self.world, lb).await?;
        drop(silence);
        let now = served(self.world, lb, had[0]).await?;
        ensure!(now != service, "the Service outlived the lease");
        exactly(&self.server, &RANGE, had)
    }

    /// While the Service still shows the address, which a finalizer holds, and after that is gone.
    async fn while_it_is_given_back(&mut self, lb: &LoadBalancer) -> anyhow::Result<()> {
        let had = held(&self.server, &RANGE);
        let services = self.world.services(&self.ns);
        let finalizers = |all: &[&str]| json!({"metadata": {"finalizers": all}});
        self.prepare().await?;
        let held = finalizers(&["example.com/held"]);
        self.world.merge(&services, NAME, held).await?;
        delete(self.world, lb).await?;
        let world = self.world;
        let releasing = || phase(world, lb, Phase::Releasing);
        releasing().await.context("with a Service that is held")?;
        self.operators.kill().await?;
        ensure!(self.has_service().await?, "the Service is gone");
        releasing()
            .await
            .context("with the Service, after a kill")?;
        exactly(&self.server, &RANGE, had.clone())?;

        self.prepare().await?;
        self.dhcp.leader.process.stop()?;
        self.world.merge(&services, NAME, finalizers(&[])).await?;
        self.world.gone(&services, NAME).await?;
        self.operators.kill().await?;
        releasing()
            .await
            .context("without a Service, and nobody to give it back")?;
        exactly(&self.server, &RANGE, had)?;
        self.dhcp.kill().await
    }
}
