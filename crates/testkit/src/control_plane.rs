//! Owns etcd and the API server, and the list of all programs of the test cluster.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::data_path::DataPath;
use crate::kube_vip;
use crate::layout::Layout;
use crate::netns::Netns;
use crate::options::TestClusterOptions;
use crate::pki::{Pki, kubeconfig, token_of};
use crate::process::{Process, Start};
use crate::supply;

/// The name of each program in the combined binary.
const PROGRAMS: [&str; 6] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-vip",
    "kubectl",
];
/// Start timeout of one program. Far above the usual 1 to 4 s, for busy machines.
pub(crate) const START: Duration = Duration::from_mins(2);
const SERVICE_RANGE: &str = "10.53.0.0/16";
const PORT: u16 = 6443;

/// The running programs, by name.
pub(crate) struct ControlPlane {
    pub(crate) folder: PathBuf,
    pub(crate) pki: Pki,
    pub(crate) server: String,
    pub(crate) data_path: DataPath,
    pub(crate) kube_vip: kube_vip::Settings,
    pub(crate) processes: Vec<(String, Arc<Process>)>,
}

impl ControlPlane {
    /// Starts etcd and the API server and waits until the latter answers. [`Self::start_nodes`] starts the rest, once
    /// there is a client.
    pub(crate) fn start(
        folder: &Path,
        layout: &Layout,
        options: &TestClusterOptions,
    ) -> anyhow::Result<Self> {
        let binary = PathBuf::from(std::env::var_os(supply::PLANE).with_context(|| {
            format!("{} is not set: enter() comes first in main", supply::PLANE)
        })?);
        let bin = folder.join("bin");
        std::fs::create_dir_all(&bin)?;
        let other_kube_vip = std::env::var_os(supply::KUBE_VIP).map(PathBuf::from);
        for program in PROGRAMS {
            let other = other_kube_vip.as_ref().filter(|_| program == "kube-vip");
            symlink(other.unwrap_or(&binary), bin.join(program))?;
        }
        let kube_vip = match &other_kube_vip {
            Some(binary) => kube_vip::settings_of(binary)?,
            None => kube_vip::SETTINGS,
        };
        let address = layout.server();
        let mut plane = Self {
            folder: folder.to_path_buf(),
            pki: Pki::create(&folder.join("pki"), address)?,
            server: format!("https://{address}:{PORT}"),
            data_path: options.data_path,
            kube_vip,
            processes: Vec::new(),
        };
        let cp = layout.open("cp")?;
        let client_url = format!("http://{address}:2379");
        let peer_url = format!("http://{address}:2380");
        // Started together: the API server retries until etcd answers.
        plane.run(
            &cp,
            "etcd",
            "etcd",
            &[],
            &[
                "--unsafe-no-fsync".into(),
                "--log-level=warn".into(),
                format!("--data-dir={}", folder.join("etcd").display()),
                format!("--listen-client-urls={client_url}"),
                format!("--advertise-client-urls={client_url}"),
                format!("--listen-peer-urls={peer_url}"),
                format!("--initial-advertise-peer-urls={peer_url}"),
                format!("--initial-cluster=default={peer_url}"),
            ],
        )?;
        let args = plane.apiserver_args(&client_url, layout, options)?;
        plane.run(&cp, "kube-apiserver", "kube-apiserver", &[], &args)?;
        Ok(plane)
    }

    fn apiserver_args(
        &self,
        etcd: &str,
        layout: &Layout,
        options: &TestClusterOptions,
    ) -> anyhow::Result<Vec<String>> {
        let file = |name: &str| self.pki.file(name).display().to_string();
        let mut args = vec![
            format!("--etcd-servers={etcd}"),
            format!("--secure-port={PORT}"),
            "--bind-address=0.0.0.0".into(),
            format!("--advertise-address={}", layout.server()),
            format!("--tls-cert-file={}", file("apiserver.crt")),
            format!("--tls-private-key-file={}", file("apiserver.key")),
            format!("--client-ca-file={}", file("ca.crt")),
            format!(
                "--cert-dir={}",
                self.folder.join("apiserver-certs").display()
            ),
            format!("--service-account-key-file={}", file("sa.pub")),
            format!("--service-account-signing-key-file={}", file("sa.key")),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-cluster-ip-range={SERVICE_RANGE}"),
            format!("--token-auth-file={}", file("tokens.csv")),
            "--authorization-mode=RBAC,Node".into(),
            "--allow-privileged=true".into(),
            // There is no kube-proxy beside the API server: it connects to the Pods of a Service itself, for webhooks.
            "--enable-aggregator-routing=true".into(),
            // The names of nodes cannot be resolved.
            "--kubelet-preferred-address-types=InternalIP".into(),
        ];
        if options.audit {
            let policy = self.folder.join("audit-policy.yaml");
            std::fs::write(&policy, AUDIT_POLICY)?;
            args.push(format!("--audit-policy-file={}", policy.display()));
            args.push(format!("--audit-log-path={}", self.audit_log().display()));
        }
        args.extend(options.apiserver_args.iter().cloned());
        Ok(args)
    }

    pub(crate) fn audit_log(&self) -> PathBuf {
        self.folder.join("audit.log")
    }

    /// Waits until the API server reports that it is ready.
    pub(crate) async fn apiserver_ready(&self, client: &kube::Client) -> anyhow::Result<()> {
        let etcd = self.process("etcd")?;
        let apiserver = self.process("kube-apiserver")?;
        let ready = apiserver.ready(START, || {
            let client = client.clone();
            let etcd = &etcd;
            async move {
                if let Some(status) = etcd.ended()? {
                    bail!("etcd ended: {status}; its log:\n{}", etcd.tail());
                }
                let request = http_request("/readyz")?;
                Ok(client.request_text(request).await? == "ok")
            }
        });
        ready.await
    }

    /// Writes the kubeconfig of one of the test cluster's users.
    pub(crate) fn kubeconfig(&self, user: &str) -> anyhow::Result<PathBuf> {
        self.write_kubeconfig(user, token_of(user)?)
    }

    pub(crate) fn write_kubeconfig(&self, user: &str, token: &str) -> anyhow::Result<PathBuf> {
        let path = self
            .folder
            .join(format!("{}.kubeconfig", user.replace([':', '/'], "-")));
        // Atomic: a program started earlier may be reading the previous file.
        let new = path.with_extension("new");
        std::fs::write(
            &new,
            kubeconfig(&self.server, &self.pki.file("ca.crt"), user, token),
        )?;
        std::fs::rename(&new, &path)?;
        Ok(path)
    }

    pub(crate) fn process(&self, name: &str) -> anyhow::Result<Arc<Process>> {
        let found = self.processes.iter().find(|(n, _)| n == name);
        found
            .map(|(_, p)| Arc::clone(p))
            .with_context(|| format!("the bed runs no {name}"))
    }

    pub(crate) fn run(
        &mut self,
        netns: &Netns,
        program: &str,
        name: &str,
        env: &[(&str, &str)],
        args: &[String],
    ) -> anyhow::Result<Arc<Process>> {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let process = Process::start(
            netns,
            &Start {
                program: &self.folder.join("bin").join(program),
                args: &args,
                env,
                clean: !env.is_empty(),
                name,
                folder: &self.folder,
            },
        )?;
        self.processes.retain(|(n, _)| n != name);
        self.processes.push((name.to_owned(), Arc::clone(&process)));
        Ok(process)
    }
}

/// Each request once, after its response, as metadata only: enough to prove which user wrote what, and when.
const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\n\
                            omitStages: [RequestReceived]\nrules: [{level: Metadata}]\n";

pub(crate) fn http_request(path: &str) -> anyhow::Result<http::Request<Vec<u8>>> {
    Ok(http::Request::get(path).body(Vec::new())?)
}
