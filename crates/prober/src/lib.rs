//! TCP health checks of the backends of LoadBalancers (rules, section 8.5; HC-1 to HC-6).
//!
//! The crate knows neither Kubernetes nor metrics. A caller sets groups (one group = the backends of one LoadBalancer),
//! receives the groups whose verdicts changed, and reads the verdicts back:
//!
//! ```no_run
//! # async fn example() -> Result<(), harvester_lb_prober::PortOutOfRange> {
//! use std::sync::Arc;
//! use harvester_lb_prober::{HealthCheck, Prober, Settings, Target};
//!
//! let (prober, mut changes) = Prober::start(Settings::for_file_limit(65_536), Arc::new(()));
//! if let Some(check) = HealthCheck::new(Some(8080), None, None, None, None)? {
//!     let backend = Target::new("3f0c-uid", [10, 10, 1, 7].into(), false);
//!     prober.set_group("shop/web", check, vec![backend]);
//! }
//! while let Some(groups) = changes.next().await {
//!     for group in groups {
//!         let _backends = prober.group(&group);
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Two layers:
//! - pure, with the time as an argument: `threshold` (results to verdicts), `timetable` (when to probe which target),
//!   the registry of groups, and the gathering of verdict changes;
//! - the engine ([`Prober`], [`VerdictChanges`]): one timer task and one task per connect in flight, on the tokio
//!   runtime in which it is started.
//!
//! A probe opens a TCP connection, sends nothing and resets it. Backends may log such resets.

mod check;
mod connect;
mod engine;
mod gather;
mod observer;
mod phase;
mod registry;
mod result;
mod settings;
mod slots;
mod target;
mod threshold;
mod timetable;

pub use check::{HealthCheck, PortOutOfRange};
pub use connect::{ConnectError, Connector, TcpConnector};
pub use engine::{Prober, VerdictChanges};
pub use gather::GATHER;
pub use observer::Observer;
pub use result::{OwnFault, ProbeResult};
pub use settings::{MAX_IN_FLIGHT, Settings};
pub use target::{GroupId, Snapshot, Target, TargetView};
