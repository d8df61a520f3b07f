//! Options of a test cluster.

use crate::data_path::DataPath;

/// Options of a test cluster.
#[derive(Clone, Debug)]
pub struct TestClusterOptions {
    /// Number of nodes, each a network namespace.
    pub nodes: u8,
    /// kube-proxy on each node. Without it no Service has traffic, and nobody writes packet filter rules on each change.
    pub kube_proxy: bool,
    /// kube-vip on each node.
    pub kube_vip: bool,
    /// Settings of kube-proxy, kube-vip and the nodes' network.
    pub data_path: DataPath,
    /// Makes the API server write an audit log, see [`TestCluster::audit`](crate::TestCluster::audit).
    pub audit: bool,
    /// Additional flags of the API server.
    pub apiserver_args: Vec<String>,
}

impl Default for TestClusterOptions {
    fn default() -> Self {
        Self {
            nodes: 2,
            kube_proxy: true,
            kube_vip: true,
            data_path: DataPath::DEFAULT,
            audit: false,
            apiserver_args: Vec::new(),
        }
    }
}
