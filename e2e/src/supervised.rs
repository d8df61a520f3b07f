//! An operator as it is kept in a cluster: one that has ended is started again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use harvester_lb_testkit::Process;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::world::World;

struct Inner {
    world: Arc<World>,
    node: String,
    flags: Vec<String>,
    env: Vec<(String, String)>,
    process: Mutex<Arc<Process>>,
    restarts: AtomicUsize,
}

impl Inner {
    fn spawn(&self) -> anyhow::Result<Arc<Process>> {
        spawn(&self.world, &self.node, &self.flags, &self.env)
    }
}

fn spawn(
    world: &World,
    node: &str,
    flags: &[String],
    env: &[(String, String)],
) -> anyhow::Result<Arc<Process>> {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let env: Vec<(&str, &str)> = env.iter().map(|(k, v)| (&**k, &**v)).collect();
    world.spawn_operator(node, &flags, &env)
}

/// An operator that is started again when it ends, until this is dropped.
pub struct Supervised {
    inner: Arc<Inner>,
    task: JoinHandle<()>,
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Supervised {
    /// Starts an operator on a node; does not wait until it is ready.
    pub fn start(
        world: &Arc<World>,
        node: &str,
        flags: &[&str],
        env: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let flags: Vec<String> = flags.iter().map(ToString::to_string).collect();
        let env: Vec<(String, String)> = env
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        let process = spawn(world, node, &flags, &env)?;
        let inner = Arc::new(Inner {
            world: Arc::clone(world),
            node: node.to_owned(),
            flags,
            env,
            process: Mutex::new(process),
            restarts: AtomicUsize::new(0),
        });
        let task = tokio::spawn(supervise(Arc::clone(&inner)));
        Ok(Self { inner, task })
    }

    /// Kills it, and starts it again after a while.
    pub async fn kill9(&self, away: Duration) -> anyhow::Result<()> {
        let mut process = self.inner.process.lock().await;
        if process.is_running() {
            process.kill9()?;
        }
        tokio::time::sleep(away).await;
        *process = self.inner.spawn()?;
        Ok(())
    }

    /// The present process.
    pub async fn process(&self) -> Arc<Process> {
        Arc::clone(&*self.inner.process.lock().await)
    }

    /// Asks it to end, and waits for that; it is not started again.
    pub async fn end(self) -> anyhow::Result<std::process::ExitStatus> {
        let process = self.inner.process.lock().await;
        process.term()?;
        let status = process.wait(Duration::from_secs(30)).await;
        self.task.abort();
        status.context("after SIGTERM")
    }

    /// Kills it for good. A drop alone kills it too, but some time later.
    pub async fn finish(self) -> anyhow::Result<()> {
        self.task.abort();
        let process = self.inner.process.lock().await;
        if process.is_running() {
            process.kill9()?;
        }
        Ok(())
    }

    /// How often it has ended by itself.
    pub fn restarts(&self) -> usize {
        self.inner.restarts.load(Ordering::Relaxed)
    }
}

#[allow(clippy::print_stderr)] // The way to the reader of a test.
async fn supervise(inner: Arc<Inner>) {
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let mut process = inner.process.lock().await;
        let Ok(Some(status)) = process.ended() else {
            continue;
        };
        eprintln!("  the operator ended: {status}; {}", last_line(&process));
        inner.restarts.fetch_add(1, Ordering::Relaxed);
        if let Ok(next) = inner.spawn() {
            *process = next;
        }
    }
}

fn last_line(process: &Process) -> String {
    process.tail().lines().last().unwrap_or_default().to_owned()
}
