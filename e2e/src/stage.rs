//! The setup of tests with faults of the API server: a probed LoadBalancer and others, all idle, an operator that is
//! restarted when it ends, and a history checker.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use harvester_lb_fixtures::{cluster_spec, for_everybody, quick_check, subnet, vm_spec, with};
use harvester_lb_testkit::{Vm, eventually};
use serde_json::json;

use crate::fake_kube_vip::FakeKubeVip;
use crate::history_checker::HistoryChecker;
use crate::metrics_snapshot::MetricsSnapshot;
use crate::quiet::{audited, reset};
use crate::supervised::Supervised;
use crate::world::World;

/// Name of the probed LoadBalancer: one backend of it answers, one does not.
pub const PROBED: &str = "probed";
/// Number of LoadBalancers of cluster type beside it, named `old0` and so on.
pub const OTHERS: usize = 30;
/// Node of the operator.
pub const NODE: &str = "node1";

/// The setup.
pub struct Stage {
    /// The test cluster.
    pub world: Arc<World>,
    /// Its namespace, also the name of its pool.
    pub ns: &'static str,
    /// The operator.
    pub operator: Supervised,
    history: HistoryChecker,
    _fake_kube_vip: FakeKubeVip,
    /// The backend that answers.
    pub up: Vm,
    _down: Vm,
}

impl Stage {
    /// Creates the setup and waits until everything is idle. Existing objects are deleted first.
    pub async fn set(
        world: &Arc<World>,
        ns: &'static str,
        flags: &[&str],
        env: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        reset(world).await?;
        world.namespace(ns).await?;
        // 512 addresses.
        let pool = json!({
            "ranges": [subnet("10.80.0.0/24"), subnet("10.80.1.0/24")],
            "selector": for_everybody(),
        });
        world.pool(ns, pool).await?;
        let web = [("app", "web")];
        let up = world.vm(ns, &format!("{ns}up"), &web, 8080).await?;
        let down = world.cluster.add_vm(&format!("{ns}down"))?;
        world.cluster.apply(&down.vmi_manifest(ns, &web)).await?;
        let fake_kube_vip = FakeKubeVip::start(&world.client());
        let history = HistoryChecker::start(&world.client());
        let operator = Supervised::start(world, NODE, flags, env)?;
        let probed = with(vm_spec("web"), json!({"healthCheck": quick_check()}));
        world.lb(ns, PROBED, probed).await?;
        for n in 0..OTHERS {
            cluster(world, ns, &format!("old{n}")).await?;
        }
        world.lb_reason(ns, PROBED, "Ready").await?;
        audited(world, NODE, &[ns]).await?;
        Ok(Self {
            world: Arc::clone(world),
            ns,
            operator,
            history,
            _fake_kube_vip: fake_kube_vip,
            up,
            _down: down,
        })
    }

    /// Number of successful health checks so far.
    pub async fn probes(&self) -> anyhow::Result<f64> {
        let metrics = MetricsSnapshot::read(&self.world, NODE).await?;
        Ok(metrics.sum("harvester_lb_probes_total", |s| {
            s.label("result") == "success"
        }))
    }

    /// Checks everything, and ends the operator. Returns the number of LoadBalancers, and how often the operator had
    /// ended by itself.
    pub async fn judge(self) -> anyhow::Result<(usize, usize)> {
        let found = audited(&self.world, NODE, &[self.ns]).await?;
        let findings = self.history.findings(&self.world).await?;
        ensure!(findings.is_empty(), "{findings:#?}");
        let restarts = self.operator.restarts();
        self.operator.finish().await?;
        Ok((found.load_balancers, restarts))
    }
}

/// Creates a LoadBalancer of cluster type.
pub async fn cluster(world: &World, ns: &str, name: &str) -> anyhow::Result<()> {
    world.lb(ns, name, cluster_spec()).await.map(|_| ())
}

/// Retries until the API server has done the request, now or at an earlier attempt.
pub async fn until_accepted<F, Fut>(what: &str, ask: F) -> anyhow::Result<()>
where
    F: Fn() -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    eventually(what, Duration::from_secs(90), || async {
        let asked = tokio::time::timeout(Duration::from_secs(5), ask()).await?;
        match asked {
            Err(error)
                if error.downcast_ref::<kube::Error>().is_some_and(|e| {
                    matches!(e, kube::Error::Api(s) if s.is_already_exists() || s.is_not_found())
                }) =>
            {
                Ok(Some(()))
            }
            other => other.map(Some),
        }
    })
    .await
}
