//! Shared by the end-to-end tests and the demo: a test cluster with the operator, and helpers for its objects.
//!
//! A test binary has one [`world`]: one control plane, one operator. Its tests run concurrently, each in a separate
//! namespace and with separate pools.

pub mod audit;
pub mod check;
pub mod definitions;
pub mod documents;
pub mod exported;
pub mod fake_kube_vip;
pub mod foreign;
pub mod garbage;
pub mod go;
pub mod history_checker;
mod http;
pub mod image;
pub mod leases;
pub mod lives;
pub mod metrics_snapshot;
pub mod permissions;
pub mod policies;
pub mod prometheus;
pub mod quiet;
pub mod read;
pub mod requests;
pub mod reviewed;
pub mod runner;
pub mod scout;
pub mod seeds;
pub mod stage;
pub mod supervised;
pub mod waits;
pub mod webhook;
pub mod world;

pub use runner::{Phase, Test, audited_cluster_options, run, run_in_phases, run_in_turn};
pub use world::World;
