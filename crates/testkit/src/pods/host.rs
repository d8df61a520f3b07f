//! Owns what the tasks of a Pod runner share: the nodes, the images, where things are kept, and which containers run.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::image::Image;
use super::inside::Exec;
use crate::netns::Netns;

/// Namespace and name of a Pod.
pub(crate) type PodKey = (String, String);

/// Shared by all tasks of a runner.
pub(crate) struct Host {
    pub(crate) client: Client,
    /// By name of the Node.
    pub(crate) machines: BTreeMap<String, Arc<Machine>>,
    /// By the name that Pods give.
    pub(crate) images: Mutex<HashMap<String, Arc<Image>>>,
    /// Logs of containers: `namespace/pod/container.log`.
    pub(crate) logs: PathBuf,
    /// Everything else that Pods need: `uid/...`, removed with each Pod.
    pub(crate) scratch: PathBuf,
    /// The only entry of resolv.conf, unless a Pod brings its own.
    pub(crate) name_server: Ipv4Addr,
    /// The Pods that run.
    pub(crate) live: Mutex<HashMap<PodKey, LivePod>>,
}

/// A Pod that runs.
pub(crate) struct LivePod {
    pub(crate) uid: String,
    pub(crate) machine: Arc<Machine>,
    pub(crate) netns: Netns,
    pub(crate) address: Ipv4Addr,
    /// Its containers that run, by name: a command for each, without arguments.
    pub(crate) running: BTreeMap<String, Exec>,
}

/// A node of the test cluster, as the machine that its Pods run on.
pub(crate) struct Machine {
    pub(crate) name: String,
    /// Nodes count from 1.
    pub(crate) number: u8,
    pub(crate) netns: Netns,
    /// Its address in the management network, the Node's InternalIP.
    pub(crate) address: Ipv4Addr,
    /// Prefix of the names of its Pods' network namespaces.
    pub(crate) prefix: String,
    /// False while a test has switched it off.
    pub(crate) power: watch::Sender<bool>,
    pub(crate) addresses: Mutex<Addresses>,
}

/// The addresses of one node's Pods, by their host part.
#[derive(Debug)]
pub(crate) struct Addresses {
    taken: BTreeSet<u8>,
    last: u8,
}

impl Addresses {
    /// Host part of the node itself.
    pub(crate) const NODE: u8 = 1;
    const LAST: u8 = 254;

    /// A free address. Not one that was free'd a moment ago, as others may still believe that a Pod has it.
    pub(crate) fn take(&mut self) -> Option<u8> {
        let after = self.last.saturating_add(1)..=Self::LAST;
        let host = after
            .chain(Self::NODE + 1..=Self::LAST)
            .find(|host| !self.taken.contains(host))?;
        self.taken.insert(host);
        self.last = host;
        Some(host)
    }

    pub(crate) fn free(&mut self, host: u8) {
        self.taken.remove(&host);
    }
}

impl Default for Addresses {
    fn default() -> Self {
        Self {
            taken: BTreeSet::new(),
            last: Self::NODE,
        }
    }
}

impl Host {
    /// A Pod that runs.
    pub(crate) fn live<T>(
        &self,
        namespace: &str,
        pod: &str,
        read: impl FnOnce(&LivePod) -> T,
    ) -> anyhow::Result<T> {
        let live = self.live.lock();
        live.get(&(namespace.to_owned(), pod.to_owned()))
            .map(read)
            .with_context(|| format!("Pod {namespace}/{pod} does not run"))
    }

    /// File with the output of a container, of all its restarts and of all Pods of that name.
    pub(crate) fn log(&self, namespace: &str, pod: &str, container: &str) -> PathBuf {
        let folder = self.logs.join(namespace).join(pod);
        folder.join(format!("{container}.log"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_used_again_as_late_as_possible() {
        let mut addresses = Addresses::default();
        assert_eq!((addresses.take(), addresses.take()), (Some(2), Some(3)));
        addresses.free(2);
        assert_eq!(addresses.take(), Some(4));
        for host in 5..=254 {
            assert_eq!(addresses.take(), Some(host));
        }
        assert_eq!(addresses.take(), Some(2));
        assert_eq!(addresses.take(), None);
    }
}
