//! A test cluster with our CRDs and the operator.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use harvester_lb_api::kubevirt::VirtualMachineInstance;
use harvester_lb_api::{IPAllocation, IPPool, LoadBalancer, keys};
use harvester_lb_fixtures::{for_namespace, machine};
use harvester_lb_testkit::{Process, TestCluster, TestClusterOptions, Vm};
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::http;

/// Timeout of every wait here. A machine under load is slow; a broken operator never succeeds.
pub const SOON: Duration = Duration::from_secs(30);

/// The variable with the path of the operator binary; `make test` sets it, having built everything at once.
const OPERATOR: &str = "HLB_OPERATOR";

/// Intervals of the operator in tests (its `timings`): shorter than in a cluster where no event can end the wait. The
/// resync is the same as there, so that it cannot hide a missed event; a test of the resync sets its own. The limits of moves
/// are equal, so that no test depends on what an earlier one has shown about kube-vip.
pub const TEST_TIMINGS: &str = "move-limit=3s,move-limit-followed=3s,move-limit-ignored=3s,preflight-pause=500ms,retry=200ms,retry-cap=2s,retry-unavailable-cap=1s,rare-refused=1s,pool-status-interval=200ms,pool-status-max-pause=1s,detail-interval=200ms";

/// Flags for a Lease that expires soon.
pub const QUICK_LEASE: [&str; 3] = [
    "--lease-duration=3s",
    "--lease-renew-deadline=2s",
    "--lease-retry-period=500ms",
];

/// Flags for a Lease that outlives all faults of the API server, so that the operator stays leader.
pub const PATIENT_LEASE: [&str; 2] = ["--lease-duration=900s", "--lease-renew-deadline=600s"];

/// Selects the operator's Services and EndpointSlices.
pub const OURS: &str = keys::SELECTOR_SERVICELB;

/// A test cluster with our CRDs and the operator.
pub struct World {
    /// The control plane and the network.
    pub cluster: TestCluster,
    binary: PathBuf,
    pub(crate) scout: OnceCell<Vm>,
}

impl World {
    /// Builds the operator, unless `HLB_OPERATOR` names one. Runs outside of the test cluster, where the package
    /// registry can be reached. Together with an example, because only then its dependencies have the features of the
    /// workspace's tests; otherwise all of them would be built a second time.
    pub fn build() -> anyhow::Result<()> {
        if std::env::var_os(OPERATOR).is_some() {
            return Ok(());
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        // A cargo that inherits the variables that cargo sets about this package sees a change, and rebuilds every
        // package with a build script that reads such a variable: `ring`, and half of the crates that depend on it.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let of_package = [
                "CARGO_PKG_",
                "CARGO_MANIFEST_",
                "CARGO_BIN_",
                "CARGO_CRATE_",
            ];
            if text == "OUT_DIR" || of_package.iter().any(|prefix| text.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        let status = command
            .args(["build", "--quiet", "--locked", "--workspace"])
            // The profile of `cargo test`, so that nothing is built twice.
            .args(["--profile", "test"])
            .args(["--bin", "harvester-load-balancer", "--example", "ledger"])
            .current_dir(repository())
            .status()
            .context("cargo cannot be started")?;
        ensure!(status.success(), "the operator does not build");
        Ok(())
    }

    /// A test cluster with our CRDs, without an operator.
    pub async fn start(options: TestClusterOptions) -> anyhow::Result<Self> {
        let cluster = TestCluster::start(options).await?;
        cluster.apply_foreign_crds().await?;
        cluster
            .apply_crds(repository().join("crds/crds.yaml"))
            .await?;
        Ok(Self {
            cluster,
            binary: binary("harvester-load-balancer")?,
            scout: OnceCell::new(),
        })
    }

    /// Path of the operator binary.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Starts an operator on a node and waits until it is ready.
    pub async fn start_operator(&self, node: &str) -> anyhow::Result<Arc<Process>> {
        self.start_operator_with(node, &[], &[]).await
    }

    /// Starts an operator with additional flags and environment, and waits until it is ready.
    pub async fn start_operator_with(
        &self,
        node: &str,
        flags: &[&str],
        env: &[(&str, &str)],
    ) -> anyhow::Result<Arc<Process>> {
        let operator = self.spawn_operator(node, flags, env)?;
        operator
            .ready(SOON, || async move {
                Ok(self
                    .get(node, "/readyz")
                    .await
                    .is_ok_and(|(code, _)| code == 200))
            })
            .await?;
        Ok(operator)
    }

    /// Starts an operator without waiting for it.
    pub fn spawn_operator(
        &self,
        node: &str,
        flags: &[&str],
        env: &[(&str, &str)],
    ) -> anyhow::Result<Arc<Process>> {
        self.spawn(node, flags, env, &log_name(node))
    }

    /// Starts the DHCP process without waiting for it. One that follows it on the node takes its Lease over at once.
    pub fn spawn_dhcp(
        &self,
        node: &str,
        flags: &[&str],
        env: &[(&str, &str)],
    ) -> anyhow::Result<Arc<Process>> {
        let flags = [&["dhcp"], flags].concat();
        let env = [&[("POD_UID", "dhcp")], env].concat();
        self.spawn(node, &flags, &env, "dhcp")
    }

    fn spawn(
        &self,
        node: &str,
        flags: &[&str],
        env: &[(&str, &str)],
        log: &str,
    ) -> anyhow::Result<Arc<Process>> {
        let kubeconfig = self.cluster.kubeconfig("admin")?;
        let kubeconfig = kubeconfig
            .to_str()
            .context("the kubeconfig's path is no text")?;
        let mut all = vec![
            ("KUBECONFIG", kubeconfig),
            (
                "LOGLEVEL",
                "info,harvester_load_balancer=debug,harvester_lb_controller_kit=debug",
            ),
            // A release build ignores it.
            ("HLB_TIMINGS", TEST_TIMINGS),
        ];
        all.extend_from_slice(env);
        let program = self
            .binary
            .to_str()
            .context("the operator's path is no text")?;
        self.cluster.spawn(node, program, flags, &all, log)
    }

    /// The log of all operators that were ever started on a node.
    pub fn operator_log(&self, node: &str) -> PathBuf {
        self.cluster
            .folder()
            .join(format!("{}.log", log_name(node)))
    }

    /// Removes the validation from our CRDs, so that anything can be stored.
    pub async fn remove_crd_validation(&self) -> anyhow::Result<()> {
        self.cluster
            .apply_crds(repository().join("crds/crds.yaml"))
            .await?;
        let api = self
            .cluster
            .api("apiextensions.k8s.io/v1", "CustomResourceDefinition", None)
            .await?;
        for kind in ["loadbalancers", "ippools", "ipallocations"] {
            let name = format!("{kind}.loadbalancer.harvesterhci.io");
            let mut definition = api.get(&name).await?;
            let versions = definition.data["spec"]["versions"].as_array_mut();
            for version in versions.context("no versions")? {
                version["schema"] = json!({"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }});
            }
            definition.metadata.managed_fields = None;
            api.replace(&name, &PostParams::default(), &definition)
                .await?;
        }
        Ok(())
    }

    /// Sends a GET to the admin port of the operator on a node: status code and body.
    pub async fn get(&self, node: &str, path: &str) -> anyhow::Result<(u16, String)> {
        let at = SocketAddr::from((self.node_address(node)?, 8081));
        http::get(at, path).await
    }

    /// The address of a node in the network that it shares with the API server.
    pub fn node_address(&self, node: &str) -> anyhow::Result<Ipv4Addr> {
        let host = match node {
            "node1" => 11,
            "node2" => 12,
            _ => bail!("no node {node}"),
        };
        let server = self.cluster.server().trim_start_matches("https://");
        let server: SocketAddrV4 = server.parse().context("the API server's address")?;
        // The test clusters of a process differ in the number of the network.
        let [a, b, cluster, _] = server.ip().octets();
        Ok(Ipv4Addr::new(a, b, cluster, host))
    }

    /// One metric of the operator on a node, by the beginning of its line: name and labels.
    pub async fn metric(&self, node: &str, series: &str) -> anyhow::Result<Option<f64>> {
        let (_, text) = self.get(node, "/metrics").await?;
        for line in text.lines() {
            if let Some(value) = line
                .strip_prefix(series)
                .and_then(|rest| rest.strip_prefix(' '))
            {
                return Ok(Some(value.trim().parse()?));
            }
        }
        Ok(None)
    }

    /// A client with all permissions.
    pub fn client(&self) -> Client {
        self.cluster.client()
    }

    /// Creates a namespace.
    pub async fn namespace(&self, name: &str) -> anyhow::Result<()> {
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        self.namespaces()
            .create(&PostParams::default(), &namespace)
            .await?;
        Ok(())
    }

    /// Namespaces.
    pub fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.client())
    }

    /// LoadBalancers of a namespace.
    pub fn lbs(&self, namespace: &str) -> Api<LoadBalancer> {
        Api::namespaced(self.client(), namespace)
    }

    /// IPPools.
    pub fn pools(&self) -> Api<IPPool> {
        Api::all(self.client())
    }

    /// IPAllocations.
    pub fn records(&self) -> Api<IPAllocation> {
        Api::all(self.client())
    }

    /// Services of a namespace.
    pub fn services(&self, namespace: &str) -> Api<Service> {
        Api::namespaced(self.client(), namespace)
    }

    /// EndpointSlices of a namespace.
    pub fn slices(&self, namespace: &str) -> Api<EndpointSlice> {
        Api::namespaced(self.client(), namespace)
    }

    /// VirtualMachineInstances of a namespace.
    pub fn vmis(&self, namespace: &str) -> Api<VirtualMachineInstance> {
        Api::namespaced(self.client(), namespace)
    }

    /// Creates a pool from its spec.
    pub async fn pool(&self, name: &str, spec: Value) -> anyhow::Result<()> {
        let pool: IPPool =
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
        self.pools().create(&PostParams::default(), &pool).await?;
        Ok(())
    }

    /// Creates a pool for one namespace from subnets and `start-end` ranges within a /24.
    pub async fn pool_for(
        &self,
        namespace: &str,
        name: &str,
        ranges: &[Value],
    ) -> anyhow::Result<()> {
        self.pool(
            name,
            json!({"ranges": ranges, "selector": for_namespace(namespace)}),
        )
        .await
    }

    /// Creates a LoadBalancer from its spec.
    pub async fn lb(
        &self,
        namespace: &str,
        name: &str,
        spec: Value,
    ) -> anyhow::Result<LoadBalancer> {
        self.lb_with(json!({"namespace": namespace, "name": name}), spec)
            .await
    }

    /// Creates a LoadBalancer from its metadata and its spec.
    pub async fn lb_with(&self, metadata: Value, spec: Value) -> anyhow::Result<LoadBalancer> {
        let lb: LoadBalancer = serde_json::from_value(json!({"metadata": metadata, "spec": spec}))?;
        let namespace = lb.metadata.namespace.clone().context("no namespace")?;
        Ok(self
            .lbs(&namespace)
            .create(&PostParams::default(), &lb)
            .await?)
    }

    /// Deletes a LoadBalancer.
    pub async fn delete_lb(&self, namespace: &str, name: &str) -> anyhow::Result<()> {
        self.lbs(namespace)
            .delete(name, &DeleteParams::default())
            .await?;
        Ok(())
    }

    /// Applies a merge patch to any of our objects.
    pub async fn merge<K>(&self, api: &Api<K>, name: &str, patch: Value) -> anyhow::Result<K>
    where
        K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        Ok(api
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await?)
    }

    /// Makes a running virtual machine without a network behind it.
    pub async fn fake_vmi(
        &self,
        namespace: &str,
        name: &str,
        labels: Value,
        address: Option<&str>,
    ) -> anyhow::Result<VirtualMachineInstance> {
        self.cluster
            .apply(&machine(namespace, name, &labels, address))
            .await?;
        Ok(self.vmis(namespace).get(name).await?)
    }

    /// Creates a virtual machine: a namespace on the LAN with a listener, and its VirtualMachineInstance.
    pub async fn vm(
        &self,
        namespace: &str,
        name: &str,
        labels: &[(&str, &str)],
        port: u16,
    ) -> anyhow::Result<Vm> {
        let vm = self.cluster.add_vm(name)?;
        vm.listen(port)?;
        self.cluster
            .apply(&vm.vmi_manifest(namespace, labels))
            .await?;
        Ok(vm)
    }
}

fn log_name(node: &str) -> String {
    format!("operator-{node}")
}

/// The root folder of this repository.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Path of the operator binary: `HLB_OPERATOR`, else the one beside the running program.
fn binary(name: &str) -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os(OPERATOR) {
        return Ok(PathBuf::from(path));
    }
    let this = std::env::current_exe().context("this program has no path")?;
    let found = this
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join(name))
        .find(|p| p.is_file());
    found.with_context(|| format!("{name} is not beside {}", this.display()))
}
