//! What a test asks of a bed.

/// What a bed is to have.
#[derive(Clone, Debug)]
pub struct BedOptions {
    /// Number of nodes, each a namespace with kube-proxy.
    pub nodes: u8,
    /// kube-vip on each node.
    pub kube_vip: bool,
    /// Let the API server write an audit log, see [`Bed::audit`](crate::Bed::audit).
    pub audit: bool,
    /// Further flags for the API server.
    pub apiserver_args: Vec<String>,
}

impl Default for BedOptions {
    fn default() -> Self {
        Self {
            nodes: 2,
            kube_vip: true,
            audit: false,
            apiserver_args: Vec::new(),
        }
    }
}
