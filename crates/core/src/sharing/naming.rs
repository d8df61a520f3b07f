//! The names of the ports of a shared Service (SHR-3, SHR-4): `<port>-<protocol>` once there are two members, and each listener's own
//! while the load balancer is alone.
//!
//! kube-proxy joins an EndpointSlice to a Service by the name of the port, and sees both through watches of their own: it is told of
//! a change of one up to [`SETTLE`] before or after that of the other. So a slice has both names before the Service changes to the
//! new one, and until kube-proxy has seen that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::ports::{PROTOCOLS, Served};

/// Time after which kube-proxy has seen a change: it synchronises once a second, and its watches lag little more.
pub const SETTLE: Duration = Duration::from_secs(3);

/// The name of a port that a group serves.
pub fn shared_name(port: Served) -> String {
    format!("{}-{}", port.port, port.protocol.to_lowercase())
}

/// The port that has this name in a group; `None`: it is that of a listener.
pub fn port_of(name: &str) -> Option<Served> {
    let (port, protocol) = name.split_once('-')?;
    let protocol = PROTOCOLS
        .into_iter()
        .find(|it| it.eq_ignore_ascii_case(protocol))?;
    let port = Served {
        port: port.parse().ok()?,
        protocol,
    };
    (shared_name(port) == name).then_some(port)
}

/// The names of one load balancer's ports, as the API server has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// In the Service; those that it does not carry are absent.
    pub service: BTreeMap<Served, String>,
    /// In the EndpointSlice.
    pub slice: BTreeMap<Served, BTreeSet<String>>,
}

/// How long the API server has held them, as far as this process knows. Times are those of a monotonic clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    stored: Stored,
    service_since: Duration,
    slice_since: Duration,
}

impl Observed {
    /// What is observed now, after what was observed before. A process that starts waits anew.
    #[must_use]
    pub fn after(before: Option<&Self>, stored: Stored, now: Duration) -> Self {
        let since = |is_same: fn(&Stored, &Stored) -> bool, since: fn(&Self) -> Duration| {
            let same = before.filter(|it| is_same(&it.stored, &stored));
            same.map_or(now, since)
        };
        Self {
            service_since: since(|a, b| a.service == b.service, |it| it.service_since),
            slice_since: since(|a, b| a.slice == b.slice, |it| it.slice_since),
            stored,
        }
    }
}

/// The names to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// Into the EndpointSlice; written first.
    pub slice: BTreeMap<Served, BTreeSet<String>>,
    /// Into the Service.
    pub service: BTreeMap<Served, String>,
    /// When to look again, if nothing else happens; `None` if all have the wanted names alone.
    pub again_in: Option<Duration>,
}

/// The next step towards these names. A port that the Service does not carry has its name at once: nobody uses it yet.
pub fn next(wanted: &BTreeMap<Served, String>, observed: &Observed, now: Duration) -> Names {
    let left = |since: Duration| (since + SETTLE).saturating_sub(now);
    let service_left = left(observed.service_since);
    let slice_left = left(observed.slice_since);
    let stored = &observed.stored;
    let mut names = Names {
        slice: BTreeMap::new(),
        service: BTreeMap::new(),
        again_in: None,
    };
    let mut wait = |time: Duration| {
        let sooner = names
            .again_in
            .map_or(time, |known: Duration| known.min(time));
        names.again_in = Some(sooner);
    };
    for (port, name) in wanted {
        let mut in_slice = BTreeSet::from([name.clone()]);
        let present = stored.service.get(port);
        let slice = stored.slice.get(port);
        let has_both = slice.is_some_and(|it| it.contains(name));
        let next = match present {
            Some(other) if other != name => {
                in_slice.insert(other.clone());
                if has_both && slice_left.is_zero() {
                    wait(SETTLE);
                    name
                } else {
                    wait(if has_both { slice_left } else { SETTLE });
                    other
                }
            }
            Some(_) => {
                // kube-proxy may still look for the other name.
                let others = slice.into_iter().flatten().filter(|it| *it != name);
                if !service_left.is_zero() {
                    let before = in_slice.len();
                    in_slice.extend(others.cloned());
                    if in_slice.len() > before {
                        wait(service_left);
                    }
                }
                name
            }
            None => name,
        };
        names.slice.insert(*port, in_slice);
        names.service.insert(*port, next.clone());
    }
    names
}

#[cfg(test)]
mod tests;
