//! Owns the processes of containers as seen from outside: started in their namespaces, signalled, and commands executed
//! beside them.

use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use super::inside::{self, CONTAINER, EXEC, Exec, Spec, WHAT};
use crate::enter::STAGE;
use crate::netns::Netns;

/// Name of a process that has not become its container's program yet.
const BEFORE: &str = "hlb-container";
/// Timeout of everything that precedes the program.
const START: Duration = Duration::from_secs(30);
/// Pause between two looks at a process that is about to become its program.
const LOOK: Duration = Duration::from_millis(5);

/// A container's process. Dropping it kills the process, and everything that it has started with it.
#[derive(Debug)]
pub(crate) struct Launched {
    child: Child,
    pid: i32,
    spec: PathBuf,
}

impl Launched {
    /// Starts a container in a network namespace, its output appended to `log`; returns once its program runs, or has
    /// ended.
    pub(crate) async fn start(netns: &Netns, spec: &Spec, log: &Path) -> anyhow::Result<Self> {
        let path = spec.folder.join("spec.json");
        std::fs::write(&path, serde_json::to_vec(spec)?)?;
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        let mut command = this_binary(CONTAINER);
        command
            .env(WHAT, &path)
            .stderr(log.try_clone()?)
            .stdout(log);
        let child = spawn(netns, command, CloneFlags::CLONE_NEWPID)?;
        let pid = i32::try_from(child.id().context("it has no process id")?)?;
        let mut launched = Self {
            child,
            pid,
            spec: path,
        };
        let deadline = Instant::now() + START;
        while launched.child.try_wait()?.is_none() && is_before(pid) {
            if Instant::now() > deadline {
                bail!("the container's program was not reached within {START:?}");
            }
            sleep(LOOK).await;
        }
        Ok(launched)
    }

    /// Waits for the end of the program.
    pub(crate) async fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        Ok(self.child.wait().await?)
    }

    /// Sends a signal to the program; nothing if it has ended.
    pub(crate) fn signal(&self, signal: Signal) {
        // Not yet waited for, so the id cannot belong to another process. An error means that it has just ended.
        if self.child.id().is_some() {
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }

    /// What [`execute`] needs to know, without arguments.
    pub(crate) fn command(&self) -> Exec {
        Exec {
            pid: self.pid,
            spec: self.spec.clone(),
            args: Vec::new(),
        }
    }
}

/// Executes a command in a running container; its result and both its outputs.
pub(crate) async fn execute(
    netns: &Netns,
    what: &Exec,
    limit: Duration,
) -> anyhow::Result<(ExitStatus, String)> {
    let mut command = this_binary(EXEC);
    command
        .env(WHAT, serde_json::to_string(what)?)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = spawn(netns, command, CloneFlags::empty())?;
    let group = child.id().map(i32::try_from).transpose()?;
    let Ok(output) = timeout(limit, child.wait_with_output()).await else {
        if let Some(group) = group {
            // An error means that it has just ended.
            let _ = kill(Pid::from_raw(-group), Signal::SIGKILL);
        }
        bail!("not done within {limit:?}");
    };
    let output = output?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok((output.status, text))
}

fn this_binary(stage: &str) -> Command {
    let mut command = std::process::Command::new("/proc/self/exe");
    command
        .arg0(BEFORE)
        .env(STAGE, stage)
        .stdin(Stdio::null())
        .process_group(0);
    let mut command = Command::from(command);
    command.kill_on_drop(true);
    command
}

fn spawn(netns: &Netns, mut command: Command, new: CloneFlags) -> anyhow::Result<Child> {
    let runtime = Handle::current();
    let child = netns.run(|| -> anyhow::Result<Child> {
        let _entered = runtime.enter();
        // Of this thread, which ends now: a pid namespace is for its children only.
        unshare(new)?;
        Ok(command.spawn()?)
    })?;
    child.context("cannot execute this binary")
}

/// True while the process is this binary.
fn is_before(pid: i32) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).next() == Some(BEFORE.as_bytes())
}

/// Why the container's program could not be started; empty if it could.
pub(crate) fn failure(folder: &Path) -> String {
    std::fs::read_to_string(folder.join(inside::FAILURE)).unwrap_or_default()
}
