//! An operator that is restarted when it ends, as in a cluster. A panic is always reported at the end, even if only a
//! task died of it and the operator continued.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
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
    /// Where its part of the log begins: earlier operators have written to the same file.
    log_from: u64,
}

impl Inner {
    fn spawn(&self) -> anyhow::Result<Arc<Process>> {
        spawn(&self.world, &self.node, &self.flags, &self.env)
    }

    /// The output of all its processes, also of those that have ended, as they share one file.
    fn log(&self) -> anyhow::Result<String> {
        written_since(&self.world.operator_log(&self.node), self.log_from)
    }

    /// Fails with the first panic of any of its processes.
    fn no_panic(&self) -> anyhow::Result<()> {
        let log = self.log().context("the log")?;
        let panic = first_panic(&log);
        ensure!(
            panic.is_none(),
            "{}: {}",
            self.node,
            panic.unwrap_or_default()
        );
        Ok(())
    }
}

/// The content of a file from an offset on.
fn written_since(path: &Path, from: u64) -> anyhow::Result<String> {
    let mut file = std::fs::File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The first line that reports a panic, with the message, which is in the next line.
fn first_panic(log: &str) -> Option<String> {
    let mut lines = log.lines().skip_while(|line| !line.contains("panicked"));
    let first = lines.next()?;
    Some(format!("{first} {}", lines.next().unwrap_or_default()))
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

/// An operator that is restarted when it ends, until this is dropped.
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
        let log_from = std::fs::metadata(world.operator_log(node)).map_or(0, |file| file.len());
        let process = spawn(world, node, &flags, &env)?;
        let inner = Arc::new(Inner {
            world: Arc::clone(world),
            node: node.to_owned(),
            flags,
            env,
            process: Mutex::new(process),
            restarts: AtomicUsize::new(0),
            log_from,
        });
        let task = tokio::spawn(supervise(Arc::clone(&inner)));
        Ok(Self { inner, task })
    }

    /// Kills it, and restarts it after a pause.
    pub async fn kill9(&self, downtime: Duration) -> anyhow::Result<()> {
        let mut process = self.inner.process.lock().await;
        if process.is_running() {
            process.kill9()?;
        }
        tokio::time::sleep(downtime).await;
        *process = self.inner.spawn()?;
        Ok(())
    }

    /// The current process.
    pub async fn process(&self) -> Arc<Process> {
        Arc::clone(&*self.inner.process.lock().await)
    }

    /// Sends SIGTERM and waits for the exit; it is not restarted. Fails if there was a panic.
    pub async fn end(self) -> anyhow::Result<std::process::ExitStatus> {
        let process = self.inner.process.lock().await;
        let status = match process.term() {
            Ok(()) => process.wait(Duration::from_secs(30)).await,
            Err(error) => Err(error),
        };
        self.task.abort();
        self.inner.no_panic()?;
        status.context("after SIGTERM")
    }

    /// Kills it for good. A drop kills it too, but some time later. Fails if there was a panic.
    pub async fn finish(self) -> anyhow::Result<()> {
        self.task.abort();
        let process = self.inner.process.lock().await;
        if process.is_running() {
            process.kill9()?;
        }
        self.inner.no_panic()
    }

    /// Number of times it has ended by itself.
    pub fn restarts(&self) -> usize {
        self.inner.restarts.load(Ordering::Relaxed)
    }
}

#[allow(clippy::print_stderr, reason = "the way to the reader of a test")]
async fn supervise(inner: Arc<Inner>) {
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let mut process = inner.process.lock().await;
        let Ok(Some(status)) = process.ended() else {
            continue;
        };
        let log = inner.log().unwrap_or_default();
        let why = first_panic(&log);
        let why = why.as_deref().or_else(|| log.lines().next_back());
        eprintln!(
            "  the operator ended: {status}; {}",
            why.unwrap_or_default()
        );
        inner.restarts.fetch_add(1, Ordering::Relaxed);
        if let Ok(next) = inner.spawn() {
            *process = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_panic_is_found() {
        assert_eq!(first_panic("one\ntwo\n"), None);
        let log = "one\nthread 'x' panicked at a.rs:1:2:\nsaid\nthread 'y' panicked at b.rs:1:2:\n";
        let found = first_panic(log);
        assert_eq!(
            found.as_deref(),
            Some("thread 'x' panicked at a.rs:1:2: said")
        );
    }

    #[test]
    fn only_what_was_written_since_is_read() {
        let path = std::env::temp_dir().join(format!("written-since-{}", std::process::id()));
        std::fs::write(&path, "before\nafter").unwrap();
        assert_eq!(written_since(&path, 7).unwrap(), "after");
        std::fs::remove_file(&path).unwrap();
        // A missing log must not count as a log without a panic.
        assert!(written_since(&path, 7).is_err());
    }
}
