//! Owns the test cluster as a whole: its start, access to its parts, the tests' own programs, its end.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::{Context, bail};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::discovery::{ApiCapabilities, ApiResource};
use parking_lot::Mutex;

use crate::control_plane::ControlPlane;
use crate::data_path::DataPath;
use crate::enter;
use crate::layout::{FIRST_VM, Layout, MAX_NODES, node_number};
use crate::netns::Netns;
use crate::options::TestClusterOptions;
use crate::process::{Process, Start, as_path};
use crate::serve::Server;

/// Folder to keep the logs in; without it they are removed with the namespaces.
const KEEP: &str = "BED_KEEP";

/// The test clusters of one process are numbered.
static BEDS: AtomicU8 = AtomicU8::new(0);

/// Kinds that discovery has found so far.
type Resources = Mutex<HashMap<GroupVersionKind, (ApiResource, ApiCapabilities)>>;

/// A control plane with nodes, a LAN, a client on it and virtual machines. Dropping it ends it.
pub struct TestCluster {
    // Fields are dropped in this order: programs before the namespaces they run in.
    plane: Mutex<ControlPlane>,
    client: kube::Client,
    server: String,
    client_netns: Netns,
    folder: PathBuf,
    pub(crate) layout: Layout,
    next_vm: AtomicU8,
    pub(crate) resources: Resources,
}

impl std::fmt::Debug for TestCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestCluster")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

/// A program of the control plane that was killed, with its command line.
#[derive(Debug)]
pub struct Killed {
    name: String,
    args: Vec<String>,
}

impl TestCluster {
    /// Starts everything and returns when all of it is ready: about 8 s on two idle cores.
    pub async fn start(options: TestClusterOptions) -> anyhow::Result<Self> {
        if std::env::var_os(enter::STAGE).is_none() {
            bail!("not inside namespaces: enter() comes first in main");
        }
        if options.nodes > MAX_NODES {
            bail!("{} nodes; a bed can have {MAX_NODES}", options.nodes);
        }
        // An error means that another part of the process has set it, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let number = BEDS.fetch_add(1, Ordering::Relaxed);
        let folder = run_folder(number)?;
        let layout = Layout::create(number, options.nodes, &options.data_path)?;
        let mut plane = ControlPlane::start(&folder, &layout, &options)?;
        let client = client(&plane.kubeconfig("admin")?).await?;
        plane.apiserver_ready(&client).await?;
        plane.start_nodes(&layout, &options, &client).await?;
        Ok(Self {
            server: plane.server.clone(),
            plane: Mutex::new(plane),
            client,
            client_netns: layout.open("client")?,
            folder,
            layout,
            next_vm: AtomicU8::new(FIRST_VM),
            resources: Resources::default(),
        })
    }

    /// A client with all permissions, for use in this process.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// URL of the API server, reachable from this process, the nodes and the namespace `cp`.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Certificate of the authority that issued the API server's certificate.
    pub fn ca_pem(&self) -> String {
        self.plane.lock().pki.ca_pem()
    }

    /// A server certificate of the test cluster's authority and its key, both PEM.
    pub fn issue(
        &self,
        names: &[&str],
        addresses: &[std::net::Ipv4Addr],
    ) -> anyhow::Result<(String, String)> {
        self.plane.lock().pki.issue("test", names, addresses)
    }

    /// The run folder: logs, kubeconfigs, the control plane's data.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The API server's audit log, one JSON object per line, if enabled.
    pub fn audit(&self) -> PathBuf {
        self.plane.lock().audit_log()
    }

    /// A kubeconfig file for one of the test cluster's users: `admin`, `kube-vip`, `pod-runner`, `system:kube-proxy`.
    pub fn kubeconfig(&self, user: &str) -> anyhow::Result<PathBuf> {
        self.plane.lock().kubeconfig(user)
    }

    /// A kubeconfig file with a token of a ServiceAccount, to run a program with the permissions that its chart grants.
    pub async fn service_account_kubeconfig(
        &self,
        namespace: &str,
        name: &str,
    ) -> anyhow::Result<PathBuf> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), namespace);
        let spec = TokenRequestSpec {
            expiration_seconds: Some(86_400),
            ..Default::default()
        };
        let request = TokenRequest {
            spec,
            ..Default::default()
        };
        let answer = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await?;
        let token = answer.status.context("no token in the answer")?.token;
        self.plane
            .lock()
            .write_kubeconfig(&format!("{namespace}:{name}"), &token)
    }

    /// Runs kubectl as admin and returns its standard output.
    pub async fn kubectl(&self, args: &[&str]) -> anyhow::Result<String> {
        let output = tokio::process::Command::new(self.folder.join("bin/kubectl"))
            .args(args)
            .env("KUBECONFIG", self.kubeconfig("admin")?)
            .env("HOME", &self.folder)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .context("cannot run kubectl")?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            bail!(
                "kubectl {}: {}: {}",
                args.join(" "),
                output.status,
                error.trim()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A namespace of the test cluster: `lan`, `cp`, `gw`, `client`, `node1`, a VM's name.
    pub fn netns(&self, name: &str) -> anyhow::Result<Netns> {
        self.layout.open(name)
    }

    pub(crate) fn client_netns(&self) -> &Netns {
        &self.client_netns
    }

    /// Runs `ip` in a namespace, one command per line.
    pub fn ip(&self, netns: &str, commands: &str) -> anyhow::Result<()> {
        self.netns(netns)?.ip(&format!("{commands}\n"))
    }

    /// Settings of kube-proxy, kube-vip and the nodes' network.
    pub fn data_path(&self) -> DataPath {
        self.plane.lock().data_path
    }

    /// Names of the nodes.
    pub fn nodes(&self) -> Vec<String> {
        (1..=self.layout.nodes())
            .map(|n| format!("node{n}"))
            .collect()
    }

    /// Answers HTTP with `body` on a port of a namespace, as a program of that machine would.
    pub fn serve(&self, netns: &str, port: u16, body: &str) -> anyhow::Result<Server> {
        Server::http(&self.netns(netns)?, port, body, &Arc::default())
    }

    /// Pulls a node's cables (`false`) or plugs them in again (`true`).
    ///
    /// The kernel drops the routes of an interface that goes down, so they are created again.
    pub fn set_node_links(&self, node: &str, up: bool) -> anyhow::Result<()> {
        let state = if up { "up" } else { "down" };
        self.ip(
            node,
            &format!("link set eth0 {state}\nlink set mgmt0 {state}"),
        )?;
        if up {
            self.layout.node_routes(node_number(node)?)
        } else {
            Ok(())
        }
    }

    /// Starts a program in a namespace, with the environment of this process plus `env`. Its output goes to `<log>.log`
    /// in the run folder.
    pub fn spawn(
        &self,
        netns: &str,
        program: impl AsRef<OsStr>,
        args: &[&str],
        env: &[(&str, &str)],
        log: &str,
    ) -> anyhow::Result<Arc<Process>> {
        Process::start(
            &self.netns(netns)?,
            &Start {
                program: as_path(&program),
                args,
                env,
                clean: false,
                name: log,
                folder: &self.folder,
            },
        )
    }

    /// One of the test cluster's programs: `etcd`, `kube-apiserver`, `kube-controller-manager`, `kube-proxy-node1`,
    /// `kube-vip-node1`.
    pub fn process(&self, name: &str) -> anyhow::Result<Arc<Process>> {
        self.plane.lock().process(name)
    }

    /// Kills a program of the control plane: `etcd`, `kube-apiserver`, `kube-controller-manager`.
    pub fn kill(&self, name: &str) -> anyhow::Result<Killed> {
        let process = self.process(name)?;
        let command = std::fs::read(format!("/proc/{}/cmdline", process.pid()))?;
        let command = String::from_utf8(command)?;
        process.kill9()?;
        Ok(Killed {
            name: name.to_owned(),
            args: command
                .split_terminator('\0')
                .skip(1)
                .map(ToOwned::to_owned)
                .collect(),
        })
    }

    /// Restarts a program of the control plane with the same command line.
    pub fn restart(&self, killed: &Killed) -> anyhow::Result<Arc<Process>> {
        let netns = self.netns("cp")?;
        let Killed { name, args } = killed;
        self.plane.lock().run(&netns, name, name, &[], args)
    }

    /// Restarts kube-vip on a node, after it was ended.
    pub fn start_kube_vip(&self, node: u8) -> anyhow::Result<Arc<Process>> {
        self.plane.lock().start_kube_vip(&self.layout, node)
    }

    /// Host part of the next VM's address.
    pub(crate) fn next_vm(&self) -> u8 {
        self.next_vm.fetch_add(1, Ordering::Relaxed)
    }

    /// Resident memory of the test cluster's programs, in KiB.
    pub fn rss_kib(&self) -> Vec<(String, u64)> {
        let plane = self.plane.lock();
        let all = plane.processes.iter();
        all.map(|(name, process)| (name.clone(), process.rss_kib().unwrap_or(0)))
            .collect()
    }
}

fn run_folder(number: u8) -> anyhow::Result<PathBuf> {
    // On the tmpfs that enter() has mounted, unless the logs have to be kept.
    let folder = match std::env::var_os(KEEP) {
        None => PathBuf::from(format!("/run/bed{number}")),
        Some(keep) => {
            // The process id inside is the same in every run, so the time distinguishes runs.
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
            PathBuf::from(keep).join(format!("bed-{}-{number}", now.as_millis()))
        }
    };
    std::fs::create_dir_all(&folder).with_context(|| format!("run folder {}", folder.display()))?;
    Ok(folder)
}

async fn client(kubeconfig: &Path) -> anyhow::Result<kube::Client> {
    let text = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(text, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}
