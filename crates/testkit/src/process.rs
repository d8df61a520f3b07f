//! Owns the programs of a test cluster: started in a namespace, with a log file, signalled, waited for.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use parking_lot::Mutex;

use crate::netns::Netns;
use crate::{enter, eventually};

/// Lines of a log that go into an error message.
const TAIL_LINES: usize = 15;
/// How long a program may take to end once it was asked to.
const END: Duration = Duration::from_secs(30);

/// A running program. Dropping it kills the program.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    pid: Pid,
    child: Mutex<Child>,
}

/// What to start; tests use [`crate::TestCluster::spawn`].
#[derive(Debug)]
pub(crate) struct Start<'a> {
    pub(crate) program: &'a Path,
    pub(crate) args: &'a [&'a str],
    pub(crate) env: &'a [(&'a str, &'a str)],
    /// Start from an empty environment.
    pub(crate) clean: bool,
    pub(crate) name: &'a str,
    pub(crate) folder: &'a Path,
}

impl Process {
    /// Starts a program in a network namespace, with both its outputs appended to `<name>.log`.
    pub(crate) fn start(netns: &Netns, what: &Start<'_>) -> anyhow::Result<Arc<Self>> {
        let path = what.folder.join(format!("{}.log", what.name));
        let log = OpenOptions::new().create(true).append(true).open(&path)?;
        let mut command = Command::new(what.program);
        if what.clean {
            command.env_clear();
        }
        command
            .args(what.args)
            .envs(what.env.iter().copied())
            .env_remove(enter::STAGE)
            .stdin(Stdio::null())
            .stderr(log.try_clone()?)
            .stdout(log)
            // A separate process group: the program's children are killed with it.
            .process_group(0);
        let child = netns
            .run(|| {
                own_sys();
                command.spawn()
            })?
            .with_context(|| format!("cannot run {}", what.program.display()))?;
        let pid = Pid::from_raw(i32::try_from(child.id())?);
        Ok(Arc::new(Self {
            name: what.name.to_owned(),
            log: path,
            pid,
            child: Mutex::new(child),
        }))
    }

    /// Process id, as seen inside the test cluster.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Sends SIGTERM.
    pub fn term(&self) -> anyhow::Result<()> {
        self.signal(Signal::SIGTERM)
    }

    /// Sends SIGKILL; the program is gone when this returns.
    pub fn kill9(&self) -> anyhow::Result<()> {
        self.signal(Signal::SIGKILL)?;
        self.child.lock().wait()?;
        Ok(())
    }

    /// Stops the program (SIGSTOP), like a machine that hangs; none of its threads runs any more when this returns.
    pub fn stop(&self) -> anyhow::Result<()> {
        self.signal(Signal::SIGSTOP)?;
        // The kernel tells one thread, which tells the others once it is scheduled: on a busy machine they run on for some time.
        let begun = Instant::now();
        while !self.is_stopped()? {
            ensure!(begun.elapsed() < END, "{} runs on after SIGSTOP", self.name);
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Whether all its threads are stopped. An error if it has ended.
    fn is_stopped(&self) -> anyhow::Result<bool> {
        // Under the lock, as in `signal`. The state is not consumed: it stays until the program is continued.
        let _child = self.child.lock();
        let flags = WaitPidFlag::WSTOPPED
            | WaitPidFlag::WEXITED
            | WaitPidFlag::WNOHANG
            | WaitPidFlag::WNOWAIT;
        match waitid(Id::Pid(self.pid), flags)? {
            WaitStatus::Stopped(..) => Ok(true),
            WaitStatus::StillAlive => Ok(false),
            other => bail!("{} has ended: {other:?}", self.name),
        }
    }

    /// Continues a stopped program (SIGCONT).
    pub fn cont(&self) -> anyhow::Result<()> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        // Under the lock and only if not yet reaped, so that the id cannot belong to another program.
        let mut child = self.child.lock();
        if let Some(status) = child.try_wait()? {
            bail!("{} has already ended: {status}", self.name);
        }
        kill(self.pid, signal).with_context(|| format!("{signal} to {}", self.name))
    }

    /// Exit status of the program, if it has ended.
    pub fn ended(&self) -> anyhow::Result<Option<ExitStatus>> {
        Ok(self.child.lock().try_wait()?)
    }

    /// True while the program runs (or is stopped).
    pub fn is_running(&self) -> bool {
        matches!(self.ended(), Ok(None))
    }

    /// Waits for the end of the program.
    pub async fn wait(&self, timeout: Duration) -> anyhow::Result<ExitStatus> {
        eventually(&format!("end of {}", self.name), timeout, || async {
            self.ended()
        })
        .await
    }

    /// Asks the program to end (SIGTERM) and waits for that; fails unless it ends well.
    pub async fn end(&self) -> anyhow::Result<()> {
        self.term()?;
        let status = self.wait(END).await?;
        ensure!(
            status.success(),
            "{} after SIGTERM: {status}; its log:\n{}",
            self.name,
            self.tail()
        );
        Ok(())
    }

    /// Waits until `probe` says that the program is ready; an early end or the end of the time is
    /// an error with the tail of the log.
    pub async fn ready<F, Fut>(&self, timeout: Duration, mut probe: F) -> anyhow::Result<()>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = anyhow::Result<bool>>,
    {
        let what = format!("{} ready", self.name);
        let waited = eventually(&what, timeout, || {
            let asked = probe();
            async move {
                if let Some(status) = self.ended()? {
                    return Ok(Some(Err(anyhow!("{} ended: {status}", self.name))));
                }
                Ok(asked.await?.then_some(Ok(())))
            }
        });
        waited
            .await
            .and_then(|inner| inner)
            .map_err(|error| error.context(format!("log of {}:\n{}", self.name, self.tail())))
    }

    /// All output of the program so far.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The last lines of the log, as many as go into an error message.
    pub fn tail(&self) -> String {
        self.last_lines(TAIL_LINES)
    }

    /// The last lines of the log, at most this many.
    pub fn last_lines(&self, most: usize) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines
            .get(lines.len().saturating_sub(most)..)
            .unwrap_or_default()
            .join("\n")
    }

    /// Path of the log file.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// Resident memory in KiB.
    pub fn rss_kib(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let line = status
            .lines()
            .find_map(|l| l.strip_prefix("VmRSS:"))
            .context("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let child = self.child.get_mut();
        if matches!(child.try_wait(), Ok(None)) {
            // An error means that it has ended already.
            let _ = kill(Pid::from_raw(-self.pid.as_raw()), Signal::SIGKILL);
            let _ = child.wait();
        }
    }
}

/// Gives the calling thread, and its children, a `/sys` that shows its network namespace.
///
/// Without it `/sys/class/net` is the one of the machine. Best effort, as in `ip netns exec`: a container that masks
/// parts of `/sys` forbids the mount, and few programs read it.
fn own_sys() {
    let none: Option<&str> = None;
    if unshare(CloneFlags::CLONE_NEWNS).is_ok() {
        let safe = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        let _ = mount(Some("sysfs"), "/sys", Some("sysfs"), safe, none);
    }
}

/// A program's path given as any string type.
pub(crate) fn as_path<S: AsRef<OsStr> + ?Sized>(program: &S) -> &Path {
    Path::new(program.as_ref())
}
