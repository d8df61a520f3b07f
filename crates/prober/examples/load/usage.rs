//! Resource usage of this process: time, memory, descriptors; and CPU pinning.

use std::error::Error;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::unistd::Pid;

/// One of the cores that this process may use.
#[derive(Clone, Copy)]
pub(crate) enum Core {
    First,
    Last,
}

/// Pins this process, and the threads that it starts from now on, to one core.
pub(crate) fn pin(core: Core) -> Result<(), Box<dyn Error>> {
    let this = Pid::from_raw(0);
    let allowed = sched_getaffinity(this)?;
    let mut cores = (0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap_or(false));
    let core = match core {
        Core::First => cores.next(),
        Core::Last => cores.next_back(),
    };
    let mut one = CpuSet::new();
    one.set(core.ok_or("no core is allowed")?)?;
    Ok(sched_setaffinity(this, &one)?)
}

/// CPU time so far, user and system.
pub(crate) fn cpu() -> Result<Duration, Box<dyn Error>> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let of = |time: TimeVal| -> Result<Duration, Box<dyn Error>> {
        Ok(Duration::from_secs(time.tv_sec().try_into()?)
            + Duration::from_micros(time.tv_usec().try_into()?))
    };
    Ok(of(usage.user_time())? + of(usage.system_time())?)
}

/// Resident memory in KiB now.
pub(crate) fn resident() -> Result<u64, Box<dyn Error>> {
    status("VmRSS:")
}

/// Peak resident memory in KiB.
pub(crate) fn most_resident() -> Result<u64, Box<dyn Error>> {
    status("VmHWM:")
}

fn status(field: &str) -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let text = line.unwrap_or_default().trim().trim_end_matches("kB");
    Ok(text.trim().parse()?)
}

/// Open descriptors.
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}
