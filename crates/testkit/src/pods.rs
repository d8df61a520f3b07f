//! Owns the Pod runner: what a scheduler, kubelets and a container runtime do for the Pods of a test cluster, as far as
//! the Pods of a chart need it.
//!
//! [`PodRunner::start`] watches Pods and binds them to the test cluster's nodes. Each Pod gets a network namespace with
//! an address that all nodes and the API server can route to; each container is a process in namespaces of its own, with
//! the root file system of an [`Image`]. The controllers of Deployments, Jobs, DaemonSets, EndpointSlices and
//! PodDisruptionBudgets are those of the real controller manager, which sees the status that the runner reports. Tests
//! give images by name, and nothing is pulled.
//!
//! What is as with Kubernetes:
//! - command, arguments, environment (`fieldRef`, `secretKeyRef`, `configMapKeyRef`, `envFrom`), working directory, host
//!   name, `/etc/hosts`, `/etc/resolv.conf`;
//! - volumes of the types emptyDir, Secret, ConfigMap, downward API and projected; a changed Secret reaches its files
//!   within about a second, all files at once;
//! - tokens of ServiceAccounts, bound to the Pod, renewed in time;
//! - startup, readiness and liveness probes (HTTP, HTTPS, TCP, exec); restarts with a capped back-off, shorter than a
//!   kubelet's;
//! - preStop, SIGTERM, SIGKILL; the program is process 1 of its pid namespace, so it gets only the signals that it
//!   handles;
//! - exit codes, termination messages, restart counts, conditions;
//! - `kubectl logs`, so that helm prints the output of hooks: always the whole log, of earlier Pods of the name too.
//!
//! What cannot be had, or is not done:
//! - **Users.** Without root on the machine there is one user only, so each container sees it under the id it asks for
//!   (`pods/inside.rs`): `runAsUser` holds for the program, but all files in the container belong to it. A read-only
//!   root file system is one. There are no supplementary groups, and `fsGroup` is not needed.
//! - **Capabilities.** A container has none outside of its own user namespace: it cannot mount, change addresses, open
//!   raw sockets. One with user 0 that asks for capabilities or is privileged has all of them in the test cluster.
//!   Ports below 1024 need none, as with containerd.
//! - **Limits of CPU and memory** are not enforced. A cgroup of a container would need a cgroup that was delegated to the
//!   user of the test: version 2 refuses it in a user namespace otherwise, and with version 1 only root can make one,
//!   outside of the namespaces, where it would outlive a killed test. RLIMIT_AS counts address space and not memory, and
//!   an affinity gives whole CPUs. [`PodRunner::peak_memory_kib`] measures instead.
//! - The layer that a container writes to is an overlay mount, which needs Linux 5.11 in a user namespace.
//! - seccomp, AppArmor and NetworkPolicies have no effect. A DNS server is there if a test starts one ([`crate::Dns`]).
//! - A Pod that asks for the rest (`pods/supported.rs`) does not start; its status has the reason.
//!
//! ```no_run
//! # use harvester_lb_testkit::{Image, PodRunner, PodRunnerOptions, TestCluster};
//! # async fn test(cluster: &TestCluster) -> anyhow::Result<()> {
//! let image = Image::unpack("operator.tar".as_ref(), &cluster.folder().join("image"))?;
//! let runner = PodRunner::start(cluster, PodRunnerOptions::default()).await?;
//! runner.add_image("rancher/harvester-load-balancer:v1", image);
//! cluster.kubectl(&["apply", "-f", "deployment.yaml"]).await?;
//! cluster.kubectl(&["rollout", "status", "deployment/operator"]).await?;
//! # Ok(())
//! # }
//! ```

mod container;
mod context;
mod drain;
mod env;
mod etc;
mod fields;
mod host;
mod image;
pub(crate) mod inside;
mod kubelet;
mod launch;
mod manager;
mod network;
mod probe;
mod schedule;
mod sources;
mod state;
mod status;
mod supported;
mod volumes;
mod worker;

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use self::host::{Host, Machine};
use self::inside::Exec;
use self::launch::execute;
use self::manager::Manager;
use crate::layout::{GATEWAY, node_number};
use crate::netns::Netns;
use crate::test_cluster::TestCluster;
use crate::traffic::http_get;

pub use self::image::Image;

/// Timeout of [`PodRunner::get`].
const ANSWER: Duration = Duration::from_secs(5);
/// Timeout of a request of the runner to the API server.
const REQUEST: Duration = Duration::from_secs(15);
/// Longest silence of a watch: more than the API server lets one last, which is 290 s.
const WATCH: Duration = Duration::from_mins(5);

/// Options of a [`PodRunner`].
#[derive(Clone, Debug)]
pub struct PodRunnerOptions {
    /// The namespaces whose Pods it runs; all if empty.
    pub namespaces: Vec<String>,
    /// The images, by the names that Pods give.
    pub images: HashMap<String, Image>,
    /// The DNS server of the Pods. [`GATEWAY`], if a test starts one there.
    pub name_server: Ipv4Addr,
}

impl Default for PodRunnerOptions {
    fn default() -> Self {
        Self {
            namespaces: Vec::new(),
            images: HashMap::new(),
            name_server: GATEWAY,
        }
    }
}

/// Runs the Pods of a test cluster. Dropping it kills them, without a word to the API server; one at a time.
pub struct PodRunner {
    host: Arc<Host>,
    /// Dropping it ends the task.
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
    /// The ports of the nodes' kubelets.
    ports: JoinSet<()>,
}

impl std::fmt::Debug for PodRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pods: Vec<_> = self.host.live.lock().keys().cloned().collect();
        f.debug_struct("PodRunner")
            .field("pods", &pods)
            .finish_non_exhaustive()
    }
}

impl PodRunner {
    /// Starts running Pods. Requests of the runner come from the user `pod-runner`, in the audit log too.
    pub async fn start(cluster: &TestCluster, options: PodRunnerOptions) -> anyhow::Result<Self> {
        let mut machines = BTreeMap::new();
        for node in cluster.nodes() {
            let machine = machine(cluster, &node)?;
            network::masquerade(&machine).with_context(|| format!("Pod network of {node}"))?;
            machines.insert(node, Arc::new(machine));
        }
        let images = options.images.into_iter();
        let kubeconfig = cluster.kubeconfig("pod-runner")?;
        let host = Arc::new(Host {
            client: client(&kubeconfig, REQUEST).await?,
            machines,
            images: Mutex::new(
                images
                    .map(|(name, image)| (name, Arc::new(image)))
                    .collect(),
            ),
            logs: cluster.folder().join("pods"),
            // Not in the run folder, which can be on a disk: layers of containers and keys do not belong there.
            scratch: PathBuf::from("/run").join(cluster.layout.name("pods")),
            name_server: options.name_server,
            live: Mutex::default(),
        });
        let mut ports = JoinSet::new();
        for machine in host.machines.values() {
            let (certificate, key) = cluster.issue(&[&machine.name], &[machine.address])?;
            let identity = kubelet::identity(&certificate, &key)?;
            let listener = kubelet::listen(machine)?;
            let (host, machine) = (Arc::clone(&host), Arc::clone(machine));
            ports.spawn(kubelet::serve(listener, host, machine, identity));
        }
        let namespaces = options.namespaces.into_iter().collect();
        let (stop, stopped) = oneshot::channel();
        let watches = client(&kubeconfig, WATCH).await?;
        let manager = Manager::new(Arc::clone(&host), watches, namespaces);
        let task = tokio::spawn(manager.run(stopped));
        Ok(Self {
            host,
            stop,
            task,
            ports,
        })
    }

    /// Kills all Pods and removes their networks. Their objects remain as they are; another runner starts them again.
    pub async fn stop(mut self) {
        self.ports.shutdown().await;
        drop(self.stop);
        // An error is a panic, which has been printed.
        let _ = self.task.await;
    }

    /// Gives Pods another image; one of the same name is replaced, for containers that start from now on.
    pub fn add_image(&self, name: &str, image: Image) {
        let mut images = self.host.images.lock();
        images.insert(name.to_owned(), Arc::new(image));
    }

    /// All output of a container, of its restarts and of earlier Pods of the same name; also once it is gone.
    pub fn log(&self, namespace: &str, pod: &str, container: &str) -> String {
        let bytes = std::fs::read(self.host.log(namespace, pod, container)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Address of a Pod that runs.
    pub fn address(&self, namespace: &str, pod: &str) -> anyhow::Result<Ipv4Addr> {
        self.host.live(namespace, pod, |live| live.address)
    }

    /// Network namespace of a Pod that runs.
    pub fn netns(&self, namespace: &str, pod: &str) -> anyhow::Result<Netns> {
        self.host.live(namespace, pod, |live| live.netns.clone())
    }

    /// Process id of a container's program, as seen inside the test cluster.
    pub fn pid(&self, namespace: &str, pod: &str, container: &str) -> anyhow::Result<i32> {
        Ok(self.running(namespace, pod, container)?.pid)
    }

    fn running(&self, namespace: &str, pod: &str, container: &str) -> anyhow::Result<Exec> {
        let running = self
            .host
            .live(namespace, pod, |live| live.running.get(container).cloned())?;
        running.with_context(|| format!("container {container} of {namespace}/{pod} does not run"))
    }

    /// Executes a command in a container, as `kubectl exec` does: exit code, and both its outputs.
    ///
    /// # Errors
    /// If it takes longer than `limit`; it is killed then.
    pub async fn exec(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        args: &[&str],
        limit: Duration,
    ) -> anyhow::Result<(i32, String)> {
        let netns = self.netns(namespace, pod)?;
        let command = Exec {
            args: args.iter().map(|text| (*text).to_owned()).collect(),
            ..self.running(namespace, pod, container)?
        };
        let (status, output) = execute(&netns, &command, limit).await?;
        let code = status.code().context("ended by a signal")?;
        Ok((code, output))
    }

    /// Kills a container (SIGKILL), as the kernel does when memory is short. It is started again, as its Pod says.
    pub fn kill9(&self, namespace: &str, pod: &str, container: &str) -> anyhow::Result<()> {
        let pid = self.pid(namespace, pod, container)?;
        kill(Pid::from_raw(pid), Signal::SIGKILL).context("SIGKILL")
    }

    /// Largest resident memory that a container's program has had so far, in KiB.
    pub fn peak_memory_kib(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
    ) -> anyhow::Result<u64> {
        let pid = self.pid(namespace, pod, container)?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
        let line = line.context("no VmHWM")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }

    /// Sends a GET to a port of a Pod from its node: status code and body.
    pub async fn get(
        &self,
        namespace: &str,
        pod: &str,
        port: u16,
        path: &str,
    ) -> anyhow::Result<(u16, String)> {
        let (node, address) = self.host.live(namespace, pod, |live| {
            (live.machine.netns.clone(), live.address)
        })?;
        let answer = http_get(&node, (address, port).into(), path, ANSWER).await?;
        Ok((answer.status, answer.body))
    }

    /// Switches a node off: its Pods' processes are killed, and the API server is not told. The Node object stays as it
    /// is, and so do the node's other programs and its cables ([`TestCluster::set_node_links`]).
    pub fn power_off(&self, node: &str) -> anyhow::Result<()> {
        self.power(node, false)
    }

    /// Switches a node on again; its Pods are started again, or end if they were deleted meanwhile.
    pub fn power_on(&self, node: &str) -> anyhow::Result<()> {
        self.power(node, true)
    }

    fn power(&self, node: &str, on: bool) -> anyhow::Result<()> {
        let machine = self.host.machines.get(node);
        let machine = machine.with_context(|| format!("no node {node:?}"))?;
        machine.power.send_replace(on);
        Ok(())
    }

    /// Keeps new Pods from a node; those that it has stay.
    pub async fn cordon(&self, node: &str) -> anyhow::Result<()> {
        Ok(drain::cordon(&self.host.client, node, true).await?)
    }

    /// Reverts [`Self::cordon`] and the cordon of [`Self::drain`].
    pub async fn uncordon(&self, node: &str) -> anyhow::Result<()> {
        Ok(drain::cordon(&self.host.client, node, false).await?)
    }

    /// Evicts a Pod; false if a PodDisruptionBudget forbids it now. Other clients repeat a refused eviction for minutes.
    pub async fn evict(&self, namespace: &str, pod: &str) -> anyhow::Result<bool> {
        drain::evict(&self.host.client, namespace, pod).await
    }

    /// Cordons a node and evicts its Pods but those of DaemonSets, as `kubectl drain` does; returns when they are gone.
    ///
    /// # Errors
    /// After `limit`, for instance because of a PodDisruptionBudget.
    pub async fn drain(&self, node: &str, limit: Duration) -> anyhow::Result<()> {
        drain::drain(&self.host.client, node, limit).await
    }
}

fn machine(cluster: &TestCluster, node: &str) -> anyhow::Result<Machine> {
    let number = node_number(node)?;
    Ok(Machine {
        name: node.to_owned(),
        number,
        netns: cluster.netns(node)?,
        address: cluster.layout.node_mgmt(number),
        prefix: cluster.layout.name(&format!("pod{number}")),
        power: watch::Sender::new(true),
        addresses: Mutex::default(),
    })
}

/// A client whose requests fail at once, for the runner retries them itself: an eviction is refused with 429.
async fn client(kubeconfig: &Path, silence: Duration) -> anyhow::Result<kube::Client> {
    let text = Kubeconfig::read_from(kubeconfig)?;
    let mut config =
        kube::Config::from_custom_kubeconfig(text, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    config.read_timeout = Some(silence);
    Ok(kube::Client::try_from(config)?)
}
