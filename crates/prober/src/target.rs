//! The input and output types of the prober.

use std::{borrow::Borrow, fmt, net::IpAddr, ops::Deref, sync::Arc};

use crate::ProbeResult;

/// Name of a group: the backends of one LoadBalancer, probed by one health check. Cheap to clone. The text is the
/// caller's (`namespace/name`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(Arc<str>);

impl GroupId {
    /// The text it was made from.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for GroupId {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for GroupId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for GroupId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for GroupId {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for GroupId {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

/// A backend to probe. Together with the group and the port of its check, `id` and `addr` are its identity: the same
/// address with another id is a new target (EPS-1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Uid of the VirtualMachineInstance.
    pub id: Arc<str>,
    /// Address to connect to.
    pub addr: IpAddr,
    /// Initial verdict of a new target: the current `ready` of its endpoint (EPS-1, HC-3). Ignored for a known target.
    pub ready: bool,
}

impl Target {
    /// A target; see the fields.
    pub fn new(id: impl Into<Arc<str>>, addr: IpAddr, ready: bool) -> Self {
        Self {
            id: id.into(),
            addr,
            ready,
        }
    }
}

/// Current state of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetView {
    /// Uid of the VirtualMachineInstance.
    pub id: Arc<str>,
    /// Address that is probed.
    pub addr: IpAddr,
    /// The current verdict.
    pub ready: bool,
    /// The last result since the target was added or restarted, own faults excluded (HC-6); `None` before the first.
    pub last: Option<ProbeResult>,
    /// The failure by which the failure threshold was first reached since the last time the success threshold was (or
    /// since the target was added or restarted); `None` if it was not.
    pub failure: Option<ProbeResult>,
    /// Whether the verdict is stale: for as many consecutive probes as make a failure, this machine could not start the
    /// connect (HC-6).
    pub stale: bool,
}

/// Statistics of the whole prober at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Groups known.
    pub groups: usize,
    /// Targets in all groups.
    pub targets: usize,
    /// Targets whose verdict is ready.
    pub up: usize,
    /// Targets whose verdict is stale: for as many consecutive probes as make a failure, this machine could not start
    /// the connect (HC-6). They are included in the count of their verdict.
    pub unknown: usize,
    /// Connects in flight, including those of removed targets that are being aborted.
    pub in_flight: usize,
}

impl Snapshot {
    /// Targets whose verdict is not ready.
    pub const fn down(&self) -> usize {
        self.targets.saturating_sub(self.up)
    }
}
