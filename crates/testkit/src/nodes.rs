//! Owns the programs that start after the API server: the controller manager, and on each node the Node object,
//! kube-proxy and kube-vip; their flags and their readiness checks.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::control_plane::{ControlPlane, START};
use crate::data_path::DataPath;
use crate::eventually;
use crate::layout::{Layout, POD_RANGE, pod};
use crate::options::TestClusterOptions;
use crate::process::Process;
use crate::supply;
use crate::traffic::http_get;

/// Timeout of one readiness check.
const ANSWER: Duration = Duration::from_secs(2);

/// The permissions that kube-vip's chart gives it, except those on Secrets, for WireGuard. Version 0.9 needs fewer.
const KUBE_VIP_ROLE: &str = r#"{
  "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "kube-vip"},
  "rules": [
    {"apiGroups": [""], "resources": ["services", "endpoints"], "verbs": ["get", "list", "watch", "update"]},
    {"apiGroups": [""], "resources": ["services/status"], "verbs": ["update"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "update", "patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch", "update"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "list", "watch", "create", "update"]}
  ]}"#;

impl ControlPlane {
    /// Creates the Node objects and starts the controller manager and each node's programs; returns when all are ready.
    pub(crate) async fn start_nodes(
        &mut self,
        layout: &Layout,
        options: &TestClusterOptions,
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
                // The Nodes are created by the test cluster and have no kubelet that could renew their Leases; Services
                // of type LoadBalancer belong to kube-vip.
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
        let proxies = if options.kube_proxy {
            layout.nodes()
        } else {
            0
        };
        let proxy = self.kubeconfig("system:kube-proxy")?;
        for node in 1..=proxies {
            self.start_proxy(layout, node, &proxy)?;
        }
        if options.kube_vip {
            grant_kube_vip(client).await?;
            for node in 1..=layout.nodes() {
                self.start_kube_vip(layout, node)?;
            }
        }
        let proxies = (1..=proxies).map(|node| self.proxy_ready(layout, node));
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
                format!("--proxy-mode={}", self.data_path.proxy_mode),
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

    /// Starts or restarts kube-vip on a node.
    pub(crate) fn start_kube_vip(
        &mut self,
        layout: &Layout,
        node: u8,
    ) -> anyhow::Result<Arc<Process>> {
        let home = self.folder.join("kube-vip");
        std::fs::create_dir_all(home.join(".kube"))?;
        std::fs::copy(self.kubeconfig("kube-vip")?, home.join(".kube/config"))?;
        let (home, node_name) = (home.display().to_string(), format!("node{node}"));
        let DataPath {
            vip_interface,
            service_election,
            service_security,
            ..
        } = self.data_path;
        let service_election = service_election.to_string();
        let service_security = service_security.to_string();
        let mut env = vec![
            ("HOME", home.as_str()),
            ("vip_arp", "true"),
            ("svc_enable", "true"),
            ("cp_enable", "false"),
            ("vip_interface", vip_interface),
            ("vip_nodename", node_name.as_str()),
            ("cp_namespace", "kube-system"),
            ("enable_endpointslices", "true"),
            ("svc_election", service_election.as_str()),
            ("enable_service_security", service_security.as_str()),
            ("vip_leaseduration", "5"),
            ("vip_renewdeadline", "3"),
            ("vip_retryperiod", "1"),
            // The minimum: the first announcement comes up to one period after the election.
            ("vip_arpRate", "500"),
            ("prometheus_server", ":2112"),
        ];
        env.extend(self.kube_vip);
        // It calls iptables-legacy.
        let tools = supply::variables();
        env.extend(tools.iter().map(|(name, value)| (*name, value.as_str())));
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
                let at = (Ipv4Addr::LOCALHOST, 10256).into();
                Ok(http_get(&netns, at, "/healthz", ANSWER).await?.status == 200)
            })
            .await
    }

    /// The controller manager is ready once it has created the default ServiceAccount.
    async fn manager_ready(&self, client: &kube::Client) -> anyhow::Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
        let process = self.process("kube-controller-manager")?;
        process
            .ready(START, || async {
                Ok(accounts.get_opt("default").await?.is_some())
            })
            .await
    }
}

async fn make_node(client: &kube::Client, layout: &Layout, node: u8) -> anyhow::Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    let name = format!("node{node}");
    let object = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
        "spec": {"podCIDR": format!("{}/24", pod(node, 0))},
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
    let params = PatchParams::default();
    api.patch_status(&name, &params, &Patch::Merge(&status))
        .await?;
    // The API server gives each new Node the taint of one that is not ready, for the controller of node lifecycles to
    // remove.
    let ready = json!({"spec": {"taints": null}});
    api.patch(&name, &params, &Patch::Merge(&ready)).await?;
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
    // The first writes can meet an API server that is still creating its default roles.
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
