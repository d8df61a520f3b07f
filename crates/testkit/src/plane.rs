//! Owns the control plane's programs: their flags, their order, and when each counts as ready.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::bed::BedOptions;
use crate::layout::Layout;
use crate::netns::Netns;
use crate::pki::{Pki, kubeconfig, token_of};
use crate::process::{Process, Start};
use crate::traffic::http_get;
use crate::{eventually, supply};

/// What the binary calls itself for each program.
const PROGRAMS: [&str; 6] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-vip",
    "kubectl",
];
/// Longest start of one program. Far above the usual 1 to 4 s, for machines that are busy.
const START: Duration = Duration::from_secs(120);
/// Longest answer to one question about readiness.
const ANSWER: Duration = Duration::from_secs(2);
const POD_RANGE: &str = "10.52.0.0/16";
const SERVICE_RANGE: &str = "10.53.0.0/16";
const PORT: u16 = 6443;

/// Rights kube-vip needs, no more.
const KUBE_VIP_ROLE: &str = r#"{
  "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "kube-vip"},
  "rules": [
    {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list", "watch", "update"]},
    {"apiGroups": [""], "resources": ["services/status"], "verbs": ["update"]},
    {"apiGroups": [""], "resources": ["nodes", "endpoints"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "list", "watch", "create", "update"]}
  ]}"#;

/// The running programs, by name.
pub(crate) struct Plane {
    folder: PathBuf,
    pub(crate) pki: Pki,
    pub(crate) server: String,
    pub(crate) processes: Vec<(String, Arc<Process>)>,
}

impl Plane {
    /// Starts etcd and the API server and waits until the latter answers. The rest follows with
    /// [`Self::start_nodes`], when there is a client.
    pub(crate) fn start(
        folder: &Path,
        layout: &Layout,
        options: &BedOptions,
    ) -> anyhow::Result<Self> {
        let binary = PathBuf::from(std::env::var_os(supply::PLANE).with_context(|| {
            format!("{} is not set: enter() comes first in main", supply::PLANE)
        })?);
        let bin = folder.join("bin");
        std::fs::create_dir_all(&bin)?;
        for program in PROGRAMS {
            symlink(&binary, bin.join(program))?;
        }
        let address = layout.server();
        let mut plane = Self {
            folder: folder.to_path_buf(),
            pki: Pki::create(&folder.join("pki"), address)?,
            server: format!("https://{address}:{PORT}"),
            processes: Vec::new(),
        };
        let cp = layout.open("cp")?;
        let client_url = format!("http://{address}:2379");
        let peer_url = format!("http://{address}:2380");
        // Started together: the API server tries again until etcd answers.
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
        options: &BedOptions,
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

    /// Waits until the API server says that it is ready.
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

    /// Makes the Node objects and starts the controller manager and each node's programs; returns
    /// when all are ready.
    pub(crate) async fn start_nodes(
        &mut self,
        layout: &Layout,
        options: &BedOptions,
        client: &kube::Client,
    ) -> anyhow::Result<()> {
        let cp = layout.open("cp")?;
        let kcm = self.kubeconfig("system:kube-controller-manager")?;
        self.run(
            &cp,
            "kube-controller-manager",
            "kube-controller-manager",
            &[],
            &[
                format!("--kubeconfig={}", kcm.display()),
                format!(
                    "--service-account-private-key-file={}",
                    self.pki.file("sa.key").display()
                ),
                format!("--root-ca-file={}", self.pki.file("ca.crt").display()),
                "--use-service-account-credentials=true".into(),
                "--leader-elect=false".into(),
                format!("--cluster-cidr={POD_RANGE}"),
                // Nodes are made by hand and have no kubelet that could renew their Leases; Services of
                // type LoadBalancer belong to kube-vip.
                "--controllers=*,-node-lifecycle-controller,-node-ipam-controller,\
             -cloud-node-lifecycle-controller,-service-lb-controller"
                    .into(),
                // The default is a folder of the machine, which it would create.
                format!(
                    "--flex-volume-plugin-dir={}",
                    self.folder.join("flex").display()
                ),
            ],
        )?;
        for node in 1..=layout.nodes() {
            make_node(client, layout, node).await?;
        }
        let proxy = self.kubeconfig("system:kube-proxy")?;
        for node in 1..=layout.nodes() {
            self.start_proxy(layout, node, &proxy)?;
        }
        if options.kube_vip {
            grant_kube_vip(client).await?;
            for node in 1..=layout.nodes() {
                self.start_kube_vip(layout, node)?;
            }
        }
        let proxies = (1..=layout.nodes()).map(|node| self.proxy_ready(layout, node));
        let (proxies, manager) = tokio::join!(
            futures::future::try_join_all(proxies),
            self.manager_ready(client)
        );
        proxies?;
        manager
    }

    pub(crate) fn start_proxy(
        &mut self,
        layout: &Layout,
        node: u8,
        kubeconfig: &Path,
    ) -> anyhow::Result<Arc<Process>> {
        let name = format!("kube-proxy-node{node}");
        self.run(
            &layout.open(&format!("node{node}"))?,
            "kube-proxy",
            &name,
            &[],
            &[
                format!("--kubeconfig={}", kubeconfig.display()),
                "--proxy-mode=nftables".into(),
                format!("--hostname-override=node{node}"),
                format!("--cluster-cidr={POD_RANGE}"),
                "--nodeport-addresses=primary".into(),
                "--healthz-bind-address=127.0.0.1:10256".into(),
                "--metrics-bind-address=127.0.0.1:10249".into(),
                // Limits of the whole machine, not writable here.
                "--conntrack-max-per-core=0".into(),
                "--conntrack-tcp-timeout-established=0".into(),
                "--conntrack-tcp-timeout-close-wait=0".into(),
            ],
        )
    }

    /// Starts (or starts again) kube-vip on a node.
    pub(crate) fn start_kube_vip(
        &mut self,
        layout: &Layout,
        node: u8,
    ) -> anyhow::Result<Arc<Process>> {
        let home = self.folder.join("kube-vip");
        std::fs::create_dir_all(home.join(".kube"))?;
        std::fs::copy(self.kubeconfig("kube-vip")?, home.join(".kube/config"))?;
        let (home, node_name) = (home.display().to_string(), format!("node{node}"));
        let env = [
            ("HOME", home.as_str()),
            ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
            ("vip_arp", "true"),
            ("svc_enable", "true"),
            ("cp_enable", "false"),
            ("vip_interface", "eth0"),
            ("vip_nodename", node_name.as_str()),
            ("cp_namespace", "kube-system"),
            ("enable_endpointslices", "true"),
            ("svc_election", "true"),
            ("vip_leaseduration", "5"),
            ("vip_renewdeadline", "3"),
            ("vip_retryperiod", "1"),
            // The least it takes: the first announcement is up to one period after winning.
            ("vip_arpRate", "500"),
            ("vip_loglevel", "-4"),
            ("prometheus_server", ":2112"),
        ];
        let name = format!("kube-vip-node{node}");
        self.run(
            &layout.open(&node_name)?,
            "kube-vip",
            &name,
            &env,
            &["manager".into()],
        )
    }

    async fn proxy_ready(&self, layout: &Layout, node: u8) -> anyhow::Result<()> {
        let netns = layout.open(&format!("node{node}"))?;
        let process = self.process(&format!("kube-proxy-node{node}"))?;
        process
            .ready(START, || async {
                let at = (std::net::Ipv4Addr::LOCALHOST, 10256).into();
                Ok(http_get(&netns, at, "/healthz", ANSWER).await?.status == 200)
            })
            .await
    }

    /// The controller manager works once it has made the default ServiceAccount.
    async fn manager_ready(&self, client: &kube::Client) -> anyhow::Result<()> {
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
            Api::namespaced(client.clone(), "default");
        let process = self.process("kube-controller-manager")?;
        process
            .ready(START, || async {
                Ok(accounts.get_opt("default").await?.is_some())
            })
            .await
    }

    /// Writes the kubeconfig of one of the bed's users.
    pub(crate) fn kubeconfig(&self, user: &str) -> anyhow::Result<PathBuf> {
        self.write_kubeconfig(user, token_of(user)?)
    }

    pub(crate) fn write_kubeconfig(&self, user: &str, token: &str) -> anyhow::Result<PathBuf> {
        let path = self
            .folder
            .join(format!("{}.kubeconfig", user.replace([':', '/'], "-")));
        std::fs::write(
            &path,
            kubeconfig(&self.server, &self.pki.file("ca.crt"), user, token),
        )?;
        Ok(path)
    }

    pub(crate) fn process(&self, name: &str) -> anyhow::Result<Arc<Process>> {
        let found = self.processes.iter().find(|(n, _)| n == name);
        found
            .map(|(_, p)| Arc::clone(p))
            .with_context(|| format!("the bed runs no {name}"))
    }

    fn run(
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

/// Each request once, when answered, with its head only: enough to prove who wrote what, and when.
const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\n\
                            omitStages: [RequestReceived]\nrules: [{level: Metadata}]\n";

pub(crate) fn http_request(path: &str) -> anyhow::Result<http::Request<Vec<u8>>> {
    Ok(http::Request::get(path).body(Vec::new())?)
}

async fn make_node(client: &kube::Client, layout: &Layout, node: u8) -> anyhow::Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    let name = format!("node{node}");
    let object = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}}
    }))?;
    api.create(&PostParams::default(), &object)
        .await
        .with_context(|| format!("Node {name}"))?;
    let status = json!({"status": {
        "addresses": [
            {"type": "InternalIP", "address": layout.node_mgmt(node).to_string()},
            {"type": "Hostname", "address": name},
        ],
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "TestBed", "message": "no kubelet",
            "lastHeartbeatTime": null, "lastTransitionTime": null,
        }],
    }});
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    Ok(())
}

async fn grant_kube_vip(client: &kube::Client) -> anyhow::Result<()> {
    use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
    let role: ClusterRole = serde_json::from_str(KUBE_VIP_ROLE)?;
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "kube-vip"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kube-vip"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "kube-vip"}],
    }))?;
    let create = PostParams::default();
    // The very first writes can meet a server that is still filling its own roles in.
    eventually("rights of kube-vip", START, || async {
        let roles: Api<ClusterRole> = Api::all(client.clone());
        if roles.get_opt("kube-vip").await?.is_none() {
            roles.create(&create, &role).await?;
        }
        let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
        if bindings.get_opt("kube-vip").await?.is_none() {
            bindings.create(&create, &binding).await?;
        }
        Ok(Some(()))
    })
    .await
}
