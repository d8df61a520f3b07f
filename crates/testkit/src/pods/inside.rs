//! Owns what the first process of a container does before it becomes the container's program: its mounts, its host
//! name, its user; and the same for a command that is executed in a running container.
//!
//! Both are this test binary, executed again ([`crate::enter`] calls [`container`] and [`exec`]), as safe Rust cannot run
//! code between fork and exec. The process is the first one of a new pid namespace when it starts, and in the network
//! namespace of its Pod.
//!
//! The user: the namespaces of the test cluster map only one user, with id 0, and groups cannot be changed in them. So
//! each container has a user namespace below, in which that one user has the id that the Pod asks for. That needs no
//! root on the machine. The container's program has no capability outside of that namespace, and none at all unless its
//! id is 0. The price: everything in the container's file system belongs to its user.

use std::convert::Infallible;
use std::fs::{File, OpenOptions, create_dir, create_dir_all, remove_dir};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::Context;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl::set_no_new_privs;
use nix::unistd::{pivot_root, sethostname};
use serde::{Deserialize, Serialize};

/// Stage of [`crate::enter`]: become a container's program.
pub(crate) const CONTAINER: &str = "container";
/// Stage of [`crate::enter`]: execute a command in a running container.
pub(crate) const EXEC: &str = "exec";
/// The variable with the path of the [`Spec`], or with the [`Exec`] as JSON.
pub(crate) const WHAT: &str = "HLB_BED_CONTAINER";
/// Exit code of a container whose program could not be started, as containerd's.
pub(crate) const START_FAILED: i32 = 128;
/// Exit code of a command that could not be executed in a container, as a shell's.
const EXEC_FAILED: i32 = 126;
/// File in the container's folder with the reason why its program could not be started.
pub(crate) const FAILURE: &str = "failure";
/// Where the machine's root is until the mounts are complete.
const OLD: &str = "/.old-root";
/// Devices of every container.
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// A container, as this process has to make it.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Spec {
    /// The image's root file system; never written to.
    pub(crate) image: PathBuf,
    /// An empty folder for everything that this process needs to keep.
    pub(crate) folder: PathBuf,
    /// The root file system cannot be written to.
    pub(crate) read_only: bool,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) host_name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Has all capabilities in the test cluster's namespaces; `uid` must be 0.
    pub(crate) privileged: bool,
    pub(crate) no_new_privileges: bool,
    pub(crate) env: Vec<(String, String)>,
    /// The program and its arguments.
    pub(crate) args: Vec<String>,
    pub(crate) work_dir: PathBuf,
}

/// A file or folder of the machine at a path of the container.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Mount {
    pub(crate) source: PathBuf,
    /// Absolute.
    pub(crate) target: PathBuf,
    pub(crate) read_only: bool,
}

/// A command for a running container.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Exec {
    /// Process id of the container's program, as seen inside the test cluster.
    pub(crate) pid: i32,
    /// Path of the container's [`Spec`].
    pub(crate) spec: PathBuf,
    pub(crate) args: Vec<String>,
}

/// Becomes the container's program, so it returns only if that failed.
pub(crate) fn container() -> anyhow::Result<ExitStatus> {
    let path = std::env::var_os(WHAT).context("no container")?;
    let spec = Spec::read(Path::new(&path))?;
    // Opened now: out of reach once the root is the container's.
    let mut failure = File::create(spec.folder.join(FAILURE))?;
    let Err(error) = become_program(&spec);
    write!(failure, "{error:#}")?;
    Ok(exit_status(START_FAILED))
}

fn become_program(spec: &Spec) -> anyhow::Result<Infallible> {
    let flags = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC;
    unshare(flags).context("namespaces")?;
    // `ip netns` shares its mounts: without this, the end of the machine's root here would be the end of all named
    // network namespaces of the test cluster.
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    sethostname(&spec.host_name).context("host name")?;
    change_root(spec).context("root file system")?;
    mount_proc_and_dev()?;
    for volume in &spec.mounts {
        bind(volume).with_context(|| format!("mount {}", volume.target.display()))?;
    }
    create_dir_all(&spec.work_dir).context("working directory")?;
    umount2(OLD, MntFlags::MNT_DETACH).context("the machine's root file system")?;
    remove_dir(OLD)?;
    if spec.read_only {
        read_only(Path::new("/")).context("read-only root file system")?;
    }
    std::env::set_current_dir(&spec.work_dir).context("working directory")?;
    if !spec.privileged {
        change_user(spec).context("user namespace")?;
    }
    if spec.no_new_privileges {
        set_no_new_privs()?;
    }
    let (program, args) = spec.args.split_first().context("no program")?;
    let error = Command::new(program)
        .args(args)
        .env_clear()
        .envs(spec.env.iter().map(|(name, value)| (name, value)))
        .exec();
    Err(error).with_context(|| format!("cannot execute {program}"))
}

/// Makes the image the root, below a layer of the container's own.
fn change_root(spec: &Spec) -> anyhow::Result<()> {
    let folder = |name: &str| spec.folder.join(name);
    let (upper, work, root) = (folder("upper"), folder("work"), folder("root"));
    for path in [&upper, &work, &root] {
        create_dir(path)?;
    }
    let layers = format!(
        "lowerdir={},upperdir={},workdir={}",
        spec.image.display(),
        upper.display(),
        work.display()
    );
    let safe = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(
        Some("overlay"),
        &root,
        Some("overlay"),
        safe,
        Some(layers.as_str()),
    )
    .with_context(|| format!("overlay {layers}"))?;
    let old = root.join(OLD.trim_start_matches('/'));
    create_dir(&old)?;
    pivot_root(&root, &old)?;
    std::env::set_current_dir("/")?;
    Ok(())
}

fn mount_proc_and_dev() -> anyhow::Result<()> {
    let none: Option<&str> = None;
    let safe = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    create_dir_all("/proc")?;
    mount(
        Some("proc"),
        "/proc",
        Some("proc"),
        safe | MsFlags::MS_NODEV,
        none,
    )
    .context("mount /proc")?;
    create_dir_all("/dev")?;
    // The container's user owns everything, so only the mode keeps it from writing here.
    let options = Some("mode=555,size=64k");
    mount(Some("tmpfs"), "/dev", Some("tmpfs"), safe, options).context("mount /dev")?;
    for device in DEVICES {
        bind(&Mount {
            source: Path::new("/dev").join(device),
            target: Path::new("/dev").join(device),
            read_only: false,
        })
        .with_context(|| format!("/dev/{device}"))?;
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        symlink(target, Path::new("/dev").join(name))?;
    }
    create_dir("/dev/shm")?;
    let options = Some("mode=1777,size=64m");
    mount(Some("tmpfs"), "/dev/shm", Some("tmpfs"), safe, options).context("mount /dev/shm")
}

/// Mounts one file or folder of the machine, creating what the image lacks of the path.
fn bind(volume: &Mount) -> anyhow::Result<()> {
    let none: Option<&str> = None;
    let source = Path::new(OLD).join(volume.source.strip_prefix("/")?);
    if source.is_dir() {
        create_dir_all(&volume.target)?;
    } else {
        create_dir_all(volume.target.parent().context("mount of a file at /")?)?;
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&volume.target)?;
    }
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(&source), &volume.target, none, flags, none)?;
    if volume.read_only {
        read_only(&volume.target)?;
    }
    Ok(())
}

fn read_only(target: &Path) -> nix::Result<()> {
    let none: Option<&str> = None;
    let flags = MsFlags::MS_REMOUNT
        | MsFlags::MS_BIND
        | MsFlags::MS_RDONLY
        | MsFlags::MS_NOSUID
        | MsFlags::MS_NODEV;
    mount(none, target, none, flags, none)
}

/// Gives this process's user another id, in a user namespace of its own.
fn change_user(spec: &Spec) -> anyhow::Result<()> {
    unshare(CloneFlags::CLONE_NEWUSER)?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{} 0 1", spec.uid))?;
    std::fs::write("/proc/self/gid_map", format!("{} 0 1", spec.gid))?;
    Ok(())
}

/// Executes a command in a running container and returns how it ended.
pub(crate) fn exec() -> anyhow::Result<ExitStatus> {
    let what: Exec = serde_json::from_str(&std::env::var(WHAT).context("no command")?)?;
    let spec = Spec::read(&what.spec)?;
    let mut names = vec!["mnt", "uts", "ipc", "pid"];
    if !spec.privileged {
        // Last: in it there is no permission to enter the others.
        names.push("user");
    }
    let files = names
        .iter()
        .map(|name| File::open(format!("/proc/{}/ns/{name}", what.pid)))
        .collect::<Result<Vec<_>, _>>()
        .context("the container has ended")?;
    for (file, name) in files.iter().zip(&names) {
        setns(file, CloneFlags::empty()).with_context(|| format!("{name} namespace"))?;
    }
    if spec.no_new_privileges {
        set_no_new_privs()?;
    }
    let (program, args) = what.args.split_first().context("no command")?;
    // A child, as only children are in the pid namespace.
    let status = Command::new(program)
        .args(args)
        .env_clear()
        .envs(spec.env.iter().map(|(name, value)| (name, value)))
        .current_dir(&spec.work_dir)
        .stdin(Stdio::null())
        .status();
    match status {
        Ok(status) => Ok(status),
        Err(error) => {
            // Standard output is that of the command.
            writeln!(std::io::stdout(), "cannot execute {program}: {error}")?;
            Ok(exit_status(EXEC_FAILED))
        }
    }
}

fn exit_status(code: i32) -> ExitStatus {
    ExitStatus::from_raw(code << 8)
}

impl Spec {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read(path).with_context(|| path.display().to_string())?;
        Ok(serde_json::from_slice(&text)?)
    }
}
