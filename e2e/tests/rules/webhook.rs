//! The webhook in the path of the tests: started before them, looked at once they have ended, and uninstalled for those whose
//! objects it refuses.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use harvester_lb_e2e::{Test, World, reviewed};
use harvester_lb_fixtures::subnet;

use super::support::{RuleHelpers, one_operator};

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![section_10_every_write_was_reviewed]
}

type Done = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;

/// Starts the operator and the webhook, for the life of the test cluster.
pub(crate) fn operator_and_webhook(world: Arc<World>) -> Done {
    Box::pin(async move {
        one_operator(Arc::clone(&world)).await?;
        reviewed::start(world).await
    })
}

/// Uninstalls the webhook as an administrator does it, and ends it.
pub(crate) fn uninstalled(world: Arc<World>) -> Done {
    Box::pin(async move { reviewed::webhook()?.replica.retire(&world).await })
}

/// The last test while the webhook is there: it was asked, it never failed, and it has refused nothing.
async fn section_10_every_write_was_reviewed(world: Arc<World>) -> anyhow::Result<()> {
    // So that there is a write of each kind, also if this test runs alone.
    let (ns, pool) = ("reviewed", "reviewed");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.119.0.0/24")]).await?;
    world.served(ns, "guest", pool).await?;
    let webhook = reviewed::webhook()?;
    webhook.answered_all(&world).await?;
    webhook.refused_nothing(&world).await
}
