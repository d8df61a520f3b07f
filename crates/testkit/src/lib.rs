//! Test cluster: a real control plane and real network namespaces on one machine, removed when its process ends.
//!
//! A test binary has `harness = false` and calls [`enter`] first; the rest of it runs inside new user, network, mount
//! and pid namespaces. There [`TestCluster::start`] creates the network and starts etcd, kube-apiserver,
//! kube-controller-manager, and on each node kube-proxy and kube-vip.
//!
//! ```no_run
//! use harvester_lb_testkit::{TestCluster, TestClusterOptions, enter};
//!
//! fn main() -> anyhow::Result<()> {
//!     enter();
//!     tokio::runtime::Runtime::new()?.block_on(async {
//!         let bed = TestCluster::start(TestClusterOptions::default()).await?;
//!         let vm = bed.add_vm("vm1")?;
//!         vm.listen(8080)?;
//!         bed.kubectl(&["get", "nodes"]).await?;
//!         Ok(())
//!     })
//! }
//! ```
//!
//! Pods are run by a [`PodRunner`], on request.
//!
//! For faults of the API server, a [`proxy`] stands between it and one client: it delays, refuses, cuts and holds
//! single requests.
//!
//! Environment: `HLB_PLANE` (the control plane's binary, else built by `e2e/plane/build.sh`), `HLB_KUBE_VIP` (a binary of
//! kube-vip, instead of the one in the control plane's), `BED_TOOLS` (folder of `e2e/tools.sh`, else `target/tools`),
//! `BED_KEEP` (folder to keep logs in), `HLB_TEST_REPORT` (file that [`TestReport`] writes to).

mod control_plane;
mod data_path;
mod dhcp;
mod dns;
mod enter;
mod farm;
mod kube_vip;
mod layout;
mod netns;
mod nodes;
mod objects;
mod options;
mod pki;
mod pods;
mod poll;
mod process;
pub mod proxy;
mod report;
mod serve;
mod supply;
mod test_cluster;
mod traffic;
mod vm;

pub use data_path::DataPath;
pub use dhcp::Dhcp;
pub use dns::Dns;
pub use enter::{apart, enter, enter_with};
pub use farm::{Farm, Fault};
pub use layout::{CLIENT, GATEWAY, VLAN_INTERFACE, lan, vlan};
pub use netns::Netns;
pub use options::TestClusterOptions;
pub use pods::{Image, PodRunner, PodRunnerOptions};
pub use poll::{consistently, eventually};
pub use process::Process;
pub use report::TestReport;
pub use serve::Server;
pub use test_cluster::{Killed, TestCluster};
pub use traffic::{Failure, Record, Slowness, Tally, Traffic, burst};
pub use vm::Vm;
