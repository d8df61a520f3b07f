//! The webhook in the path of all tests of a program: started before them, and judged by what the API server and the webhook
//! have counted meanwhile.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, bail, ensure};

use crate::metrics_snapshot::{MetricsSnapshot, Series};
use crate::webhook::{CONFIGURATION, Replica};
use crate::world::World;

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

/// The webhook of the program.
static WEBHOOK: OnceLock<Reviewed> = OnceLock::new();

/// Starts it on the first node, for the life of the test cluster: a set-up.
pub fn start(world: Arc<World>) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>> {
    Box::pin(async move {
        let replica = Replica::start(&world, "").await?;
        let before = Counts::read(&world, &replica).await?;
        if WEBHOOK.set(Reviewed { replica, before }).is_err() {
            bail!("the webhook was started twice");
        }
        Ok(())
    })
}

/// The webhook of this program.
///
/// # Errors
/// It was not started.
pub fn webhook() -> anyhow::Result<&'static Reviewed> {
    WEBHOOK.get().context("no webhook")
}

/// A replica, and what was counted when it was ready: the first requests are made before it is reached.
pub struct Reviewed {
    /// The replica.
    pub replica: Replica,
    before: Counts,
}

impl Reviewed {
    /// Fails unless it was asked about both kinds, and every request was answered.
    pub async fn answered_all(&self, world: &World) -> anyhow::Result<()> {
        self.replica.is_unharmed()?;
        let increase = self.increase(world).await?;
        for kind in ["LoadBalancer", "IPPool"] {
            for admission in ["mutating", "validating"] {
                let allowed = increase.of(ANSWERED, |s| {
                    s.label("kind") == kind
                        && s.label("admission") == admission
                        && s.label("result") == "allowed"
                });
                ensure!(allowed > 0.5, "no {admission} review of a {kind}");
            }
        }
        let asked = increase.of(ASKED, |s| is_ours(s) && s.label("code") == "200");
        ensure!(asked > 0.5, "the API server has asked nothing");
        let failed = |s: &Series| is_ours(s) && !["200", "422"].contains(&s.label("code"));
        self.none(&[
            ("rejected requests", increase.of(REJECTED, |_| true)),
            ("failed requests", increase.of(ASKED, failed)),
            (
                "requests that were not answered",
                increase.of(IGNORED, is_ours),
            ),
        ])
    }

    /// Fails if it has refused something.
    pub async fn refused_nothing(&self, world: &World) -> anyhow::Result<()> {
        let increase = self.increase(world).await?;
        let is_refusal = |s: &Series| s.label("result") != "allowed";
        let rejected = |s: &Series| is_ours(s) && s.label("rejected") == "true";
        self.none(&[
            (
                "reviews that were not allowed",
                increase.of(ANSWERED, is_refusal),
            ),
            (
                "conversions that failed",
                increase.of(CONVERTED, is_refusal),
            ),
            ("refused writes", increase.of(ASKED, rejected)),
        ])
    }

    async fn increase(&self, world: &World) -> anyhow::Result<Increase<'_>> {
        Ok(Increase {
            before: &self.before,
            now: Counts::read(world, &self.replica).await?,
        })
    }

    /// Fails unless all counts are 0.
    fn none(&self, counts: &[(&str, f64)]) -> anyhow::Result<()> {
        for (what, count) in counts {
            ensure!(
                *count < 0.5,
                "{count} {what}: {}",
                self.replica.process.tail()
            );
        }
        Ok(())
    }
}

/// Whether a series of the API server is about our webhooks.
fn is_ours(series: &Series) -> bool {
    series.label("name").ends_with(CONFIGURATION)
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
}

/// What was counted since the start.
struct Increase<'a> {
    before: &'a Counts,
    now: Counts,
}

impl Increase<'_> {
    /// The increase of the series of a name for which `wanted` holds.
    fn of(&self, name: &str, wanted: impl Fn(&Series) -> bool) -> f64 {
        let sum =
            |counts: &Counts| counts.server.sum(name, &wanted) + counts.webhook.sum(name, &wanted);
        sum(&self.now) - sum(self.before)
    }
}
