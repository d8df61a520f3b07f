//! Building blocks shared by the controllers, without any controller's logic: stores fed by watches, work queue,
//! back-off, fenced writes, leader election, Events, clients, telemetry and the admin port.
//!
//! | module | owns |
//! |---|---|
//! | [`stamp`] | identity and version of a copy, and the proof that resource versions went backwards |
//! | [`decode_guard`] | objects of lists and watches, each decoded on its own |
//! | [`store`] | the newest known copy of each object of a kind |
//! | [`watch`] | the task that keeps a store current |
//! | [`watch_health`] | which watches are failing, since when and why |
//! | [`queue`] | keys that are due, one worker at a time for each |
//! | [`work_queue`] | a queue with its workers: requeue, resync, back-off |
//! | [`backoff`] | the delay after a failure |
//! | [`throttle`] | the spacing of writes by key |
//! | [`token_bucket`] | a rate limit with a burst |
//! | [`writer`] | writes fenced by the Lease, requests with a timeout, typed errors |
//! | [`cached_client`] | writes that are cached before the next decision, a live read after each conflict |
//! | [`refused_writes`] | objects that the API server refuses to write |
//! | [`lease`] | leader election |
//! | [`events`] | Kubernetes Events, written without blocking a reconcile |
//! | [`client`] | clients for watches and for writes, counted |
//! | [`preflight`] | required kinds and permissions |
//! | [`listen`] | a port on all addresses of both families |
//! | [`admin`] | `/healthz`, `/readyz`, `/metrics` |
//! | [`telemetry`] | logging |

pub mod admin;
pub mod backoff;
pub mod cached_client;
mod catch_up;
pub mod client;
pub mod decode_guard;
pub mod events;
pub mod lease;
pub mod listen;
pub mod preflight;
pub mod queue;
pub mod refused_writes;
pub mod stamp;
pub mod store;
pub mod telemetry;
pub mod throttle;
pub mod token_bucket;
pub mod watch;
pub mod watch_health;
pub mod work_queue;
pub mod writer;

pub use stamp::{Restored, Stamp};
