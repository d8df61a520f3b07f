//! The one operator of this program: most tests share it, some have it to themselves, or run only their own.

use std::sync::Arc;

use harvester_lb_e2e::World;
use harvester_lb_e2e::world::SOON;
use harvester_lb_testkit::Process;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The operator, once a test has needed it. Tests that share it hold a read lock.
static OPERATOR: RwLock<Option<Arc<Process>>> = RwLock::const_new(None);

/// Starts it. With the same pod uid it need not wait for the Lease of one that was killed.
async fn start(world: &World) -> anyhow::Result<Arc<Process>> {
    let env = [("POD_UID", "traffic")];
    world.start_operator_with("node1", &[], &env).await
}

/// The operator, shared with others for as long as this is held.
pub struct Shared(
    #[allow(dead_code, reason = "it is held")] RwLockReadGuard<'static, Option<Arc<Process>>>,
);

/// The operator, or none, without concurrent tests.
pub struct Alone(RwLockWriteGuard<'static, Option<Arc<Process>>>);

/// Waits for exclusive tests; starts the operator if there is none.
pub async fn shared(world: &World) -> anyhow::Result<Shared> {
    loop {
        let operator = OPERATOR.read().await;
        if operator.is_some() {
            return Ok(Shared(operator));
        }
        drop(operator);
        let mut operator = OPERATOR.write().await;
        if operator.is_none() {
            *operator = Some(start(world).await?);
        }
    }
}

/// Waits for all other tests, and restarts the operator.
pub async fn restarted(world: &World) -> anyhow::Result<Alone> {
    let mut alone = Alone(OPERATOR.write().await);
    alone.restart(world).await?;
    Ok(alone)
}

/// Waits for all other tests, and ends the operator gracefully, so that the Lease is free.
pub async fn without() -> anyhow::Result<Alone> {
    let mut operator = OPERATOR.write().await;
    if let Some(before) = operator.take() {
        before.end().await?;
    }
    Ok(Alone(operator))
}

impl Alone {
    /// Kills the operator, if there is one, and starts it again.
    pub async fn restart(&mut self, world: &World) -> anyhow::Result<()> {
        self.kill().await?;
        *self.0 = Some(start(world).await?);
        Ok(())
    }

    /// Kills the operator, if there is one.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(before) = self.0.take() {
            before.kill9()?;
            before.wait(SOON).await?;
        }
        Ok(())
    }
}
