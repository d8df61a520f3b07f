//! Owns the entry into the namespaces: a test binary executes itself again inside new user, network, mount and pid
//! namespaces, so that it is root there and nowhere else, and so that every process that it starts ends with it.
//!
//! Three processes of the same binary are involved:
//! 1. the one that was started: creates the namespaces and waits;
//! 2. the first process inside: sets up the mounts, then only reaps. The kernel kills it with the first one (parent
//!    death signal), and every process in the namespaces with it;
//! 3. the one that continues with `main`. It is not the first process of its pid namespace, so that signals have their
//!    usual effect on it.
//!
//! The containers of [`crate::PodRunner`] begin as further processes of the same binary: `pods/inside.rs`.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};

use anyhow::{Context, anyhow, bail};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, getegid, geteuid, getpid};

use crate::pods::inside;
use crate::supply;

/// The stage that this process has reached; absent outside. Removed from the environment of
/// [`crate::TestCluster::spawn`].
pub(crate) const STAGE: &str = "HLB_BED_STAGE";
/// Process id of the outer process; the first process inside checks that it is still alive.
const OUTER: &str = "HLB_BED_OUTER";

/// Makes sure that this process runs inside the namespaces; call it first in `main`.
///
/// Outside, it builds what is missing (the control plane, tools), executes this binary again inside and exits with its
/// exit code, so it returns only inside. An error is reported and ends the process with code 1: a test cluster that
/// cannot start is a failure, never a skipped test.
///
/// With `--list` among the arguments it returns at once: listing tests needs no test cluster.
pub fn enter() {
    enter_with(&[]);
}

/// As [`enter`], for tests that need further programs on `PATH`: `dnsmasq`, `kea-dhcp4`, `promtool`. `e2e/tools.sh`
/// fetches a missing one, `e2e/helm/build.sh` builds `helm`; if that fails, the test fails.
pub fn enter_with(programs: &[&str]) {
    if std::env::args().any(|a| a == "--list") {
        return;
    }
    let result = match std::env::var(STAGE).ok().as_deref() {
        None => outer(programs),
        Some("init") => init(),
        Some(inside::CONTAINER) => inside::container(),
        Some(inside::EXEC) => inside::exec(),
        Some(_) => return,
    };
    let code = match result {
        Ok(status) => status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        Err(error) => {
            report(&error);
            1
        }
    };
    std::process::exit(code);
}

/// Gives `command`, a program that calls [`enter`], separate namespaces below the current ones.
pub fn apart(command: &mut Command) -> &mut Command {
    command.env_remove(STAGE)
}

#[allow(
    clippy::print_stderr,
    reason = "there is no other way to reach the user from here"
)]
fn report(error: &anyhow::Error) {
    eprintln!("test bed: {error:#}");
}

fn outer(programs: &[&str]) -> anyhow::Result<ExitStatus> {
    // There is no network inside, so everything is fetched now.
    let supply = supply::provide(programs)?;
    make_namespaces()?;
    again("init")
        .env(OUTER, getpid().to_string())
        .envs(supply.environment())
        .status()
        .context("cannot execute this binary inside the new namespaces")
}

fn again(stage: &str) -> Command {
    let mut args = std::env::args_os();
    let mut command = Command::new("/proc/self/exe");
    if let Some(name) = args.next() {
        command.arg0(name);
    }
    command.args(args).env(STAGE, stage);
    command
}

fn make_namespaces() -> anyhow::Result<()> {
    let (uid, gid) = (geteuid(), getegid());
    let flags = CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWPID;
    unshare(flags).map_err(|errno| {
        anyhow!(
            "the kernel refuses new user, network, mount and pid namespaces ({errno}): {}",
            refusal(errno)
        )
    })?;
    let write = |file: &str, text: String| {
        std::fs::write(file, text).with_context(|| {
            format!(
                "cannot write {file} of the new user namespace; {}",
                refusal(Errno::EPERM)
            )
        })
    };
    write("/proc/self/setgroups", "deny".into())?;
    write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    write("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// The most likely reason why no user namespace can be created, by the settings that can forbid it.
fn refusal(errno: Errno) -> String {
    let set = |file: &str, value: &str| {
        std::fs::read_to_string(Path::new("/proc/sys").join(file))
            .is_ok_and(|text| text.trim() == value)
    };
    if set("user/max_user_namespaces", "0") {
        "user namespaces are off, set the sysctl user.max_user_namespaces above 0".into()
    } else if set("kernel/unprivileged_userns_clone", "0") {
        "user namespaces are for root only, set the sysctl kernel.unprivileged_userns_clone to 1"
            .into()
    } else if set("kernel/apparmor_restrict_unprivileged_userns", "1") {
        "AppArmor takes the rights of an unprivileged user namespace away, set the sysctl \
         kernel.apparmor_restrict_unprivileged_userns to 0"
            .into()
    } else {
        match errno {
            Errno::ENOSPC => {
                "the limit on namespaces is reached, see the sysctls user.max_*_namespaces".into()
            }
            Errno::EINVAL => {
                "the kernel is built without one of them, or this process has several threads \
                 (enter() must come first in main)"
                    .into()
            }
            _ => "a container's seccomp filter or the kernel's policy forbids it; run outside the \
                  container, or one with unshare(2) allowed"
                .to_string(),
        }
    }
}

/// The first process inside.
fn init() -> anyhow::Result<ExitStatus> {
    set_pdeathsig(Signal::SIGKILL).context("parent death signal")?;
    // The outer process may have died before the parent death signal took effect. This /proc is still the outer one, so
    // it shows the parent from there.
    let outer = std::env::var(OUTER).unwrap_or_default();
    let status = std::fs::read_to_string("/proc/self/status")?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    if parent.map(str::trim) != Some(outer.as_str()) {
        bail!("the process that started this one is gone");
    }
    mounts()?;
    raise_file_limit()?;
    let up = Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status();
    if !up
        .context("cannot run ip (Debian package iproute2)")?
        .success()
    {
        bail!("cannot set the loopback interface up in the new network namespace");
    }
    let child = again("inside")
        .spawn()
        .context("cannot execute this binary")?;
    let child = Pid::from_raw(i32::try_from(child.id())?);
    loop {
        // Every orphan becomes a child of this process; all are reaped.
        match waitpid(Pid::from_raw(-1), None) {
            Ok(WaitStatus::Exited(pid, code)) if pid == child => {
                return Ok(ExitStatus::from_raw((code & 0xff) << 8));
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => {
                return Ok(ExitStatus::from_raw(signal as i32));
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => bail!("waiting for the process inside: {errno}"),
        }
    }
}

fn mounts() -> anyhow::Result<()> {
    let none: Option<&str> = None;
    // Without this the mounts below would propagate to the machine where / is shared.
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .context("cannot make the mounts private")?;
    let safe = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), safe, none).context(
        "cannot mount /proc for the new pid namespace; a container that masks parts of /proc \
         forbids it (Docker: --security-opt systempaths=unconfined)",
    )?;
    // `ip netns` keeps its names here, and the test clusters their files: removed with the namespace.
    let run = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), "/run", Some("tmpfs"), run, Some("mode=755"))
        .context("cannot mount a tmpfs over /run")?;
    // kube-vip prefers a kubeconfig in this folder to its own; a machine that is a Kubernetes node has one.
    if Path::new("/etc/kubernetes").is_dir() {
        mount(Some("tmpfs"), "/etc/kubernetes", Some("tmpfs"), safe, none)
            .context("cannot hide /etc/kubernetes")?;
    }
    Ok(())
}

fn raise_file_limit() -> anyhow::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("limit of open files")
}
