//! The webhook in the path of the tests: started before them, looked at once they have ended, and uninstalled for those whose
//! objects it refuses.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, bail, ensure};
use harvester_lb_e2e::metrics_snapshot::{MetricsSnapshot, Series};
use harvester_lb_e2e::webhook::{Replica, is_unasked, uninstall};
use harvester_lb_e2e::{Test, World};
use harvester_lb_fixtures::subnet;

use super::support::{RuleHelpers, one_operator};

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![section_10_every_write_was_reviewed]
}

/// The API server's requests to webhooks, with the code of the answer. A refusal has the code of the webhook's answer.
const ASKED: &str = "apiserver_admission_webhook_request_total";
/// Its requests to a webhook that failed, and whose failure is ignored.
const IGNORED: &str = "apiserver_admission_webhook_fail_open_count";
/// The webhook's answers about admission.
const ANSWERED: &str = "harvester_lb_admission_requests_total";
/// Its answers about conversion.
const CONVERTED: &str = "harvester_lb_conversion_requests_total";
/// What it did not look at.
const REJECTED: &str = "harvester_lb_webhook_rejected_requests_total";

/// The replica, and what was counted when it was ready: the first requests are made before it is reached.
static WEBHOOK: OnceLock<(Replica, Counts)> = OnceLock::new();

type Done = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;

/// Starts the operator and the webhook, for the life of the test cluster.
pub(crate) fn operator_and_webhook(world: Arc<World>) -> Done {
    Box::pin(async move {
        one_operator(Arc::clone(&world)).await?;
        let replica = Replica::start(&world, "").await?;
        let counts = Counts::read(&world, &replica).await?;
        if WEBHOOK.set((replica, counts)).is_err() {
            bail!("the webhook was started twice");
        }
        Ok(())
    })
}

/// Uninstalls the webhook as an administrator does it, and ends it.
pub(crate) fn uninstalled(world: Arc<World>) -> Done {
    Box::pin(async move {
        let (replica, _) = WEBHOOK.get().context("no webhook")?;
        uninstall(&world).await?;
        is_unasked(&world).await?;
        if replica.process.is_running() {
            replica.process.kill9()?;
        }
        Ok(())
    })
}

/// What the API server and the webhook count.
struct Counts {
    server: MetricsSnapshot,
    webhook: MetricsSnapshot,
}

impl Counts {
    async fn read(world: &World, replica: &Replica) -> anyhow::Result<Self> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let text = world.client().request_text(request).await?;
        // Thousands of other series are of no use here.
        let about_webhooks = text
            .lines()
            .filter(|line| line.starts_with("apiserver_admission_webhook_"));
        let server = about_webhooks.collect::<Vec<_>>().join("\n");
        let (code, webhook) = replica.get("/metrics").await?;
        ensure!(code == 200, "/metrics answers {code}");
        Ok(Self {
            server: MetricsSnapshot::parse(&server)?,
            webhook: MetricsSnapshot::parse(&webhook)?,
        })
    }

    /// The increase of the series of a name for which `wanted` holds.
    fn since(&self, before: &Self, name: &str, wanted: impl Fn(&Series) -> bool) -> f64 {
        let sum =
            |counts: &Self| counts.server.sum(name, &wanted) + counts.webhook.sum(name, &wanted);
        sum(self) - sum(before)
    }
}

/// The last test while the webhook is there: it was asked, it never failed, and it has refused nothing.
async fn section_10_every_write_was_reviewed(world: Arc<World>) -> anyhow::Result<()> {
    let (replica, before) = WEBHOOK.get().context("no webhook")?;
    // So that there is a write of each kind, also if this test runs alone.
    let (ns, pool) = ("reviewed", "reviewed");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.119.0.0/24")]).await?;
    world.served(ns, "guest", pool).await?;
    let now = Counts::read(&world, replica).await?;
    replica.is_unharmed()?;
    for kind in ["LoadBalancer", "IPPool"] {
        for admission in ["mutating", "validating"] {
            let allowed = now.since(before, ANSWERED, |s| {
                s.label("kind") == kind
                    && s.label("admission") == admission
                    && s.label("result") == "allowed"
            });
            ensure!(allowed > 0.5, "no {admission} review of a {kind}");
        }
    }
    let is_ours = |s: &Series| s.label("name").ends_with("harvester-load-balancer-webhook");
    let asked = now.since(before, ASKED, |s| is_ours(s) && s.label("code") == "200");
    ensure!(asked > 0.5, "the API server has asked nothing");
    let failures = [
        (
            "reviews that were not allowed",
            now.since(before, ANSWERED, |s| s.label("result") != "allowed"),
        ),
        (
            "conversions that failed",
            now.since(before, CONVERTED, |s| s.label("result") != "allowed"),
        ),
        ("rejected requests", now.since(before, REJECTED, |_| true)),
        (
            "answers other than 200",
            now.since(before, ASKED, |s| is_ours(s) && s.label("code") != "200"),
        ),
        (
            "refused writes",
            now.since(before, ASKED, |s| {
                is_ours(s) && s.label("rejected") == "true"
            }),
        ),
        (
            "requests that were not answered",
            now.since(before, IGNORED, is_ours),
        ),
    ];
    for (what, count) in failures {
        ensure!(
            count < 0.5,
            "{count} {what}: {:#?}, {:#?}",
            now.server,
            replica.process.tail()
        );
    }
    Ok(())
}
