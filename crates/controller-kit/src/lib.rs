//! What the controllers of this project share, and what no controller is about: stores over watches, a work queue,
//! back-off, fenced writes, the leader's Lease, events, clients, telemetry and the admin port.
//!
//! | module | owns |
//! |---|---|
//! | [`stamp`] | which copy of an object, and what proves that resource versions have run backwards |
//! | [`decode_guard`] | objects of lists and watches, decoded each on its own |
//! | [`store`] | the newest known copy of each object of a kind |
//! | [`watch`] | the task that keeps a store true |
//! | [`queue`] | which objects are due, one worker at a time for each |
//! | [`work_queue`] | a queue with its workers: when an object is looked at again after a reconcile |
//! | [`backoff`] | how long to wait after a failure |
//! | [`throttle`] | how far apart the writes about one key are |
//! | [`token_bucket`] | at most so many in a time |
//! | [`writer`] | writes fenced by the Lease, requests bounded in time, told apart by what went wrong |
//! | [`cached_client`] | writes that are known before the next decision, conflicts that are followed by a live read |
//! | [`refused_writes`] | which objects the API server refuses to write |
//! | [`lease`] | who leads |
//! | [`events`] | Kubernetes Events, never in the way of work |
//! | [`client`] | clients for watches and for writes, counted |
//! | [`preflight`] | kinds and rights that a program needs |
//! | [`admin`] | `/healthz`, `/readyz`, `/metrics` |
//! | [`telemetry`] | the log |

pub mod admin;
pub mod backoff;
pub mod cached_client;
pub mod client;
pub mod decode_guard;
pub mod events;
pub mod lease;
pub mod preflight;
pub mod queue;
pub mod refused_writes;
pub mod stamp;
pub mod store;
pub mod telemetry;
pub mod throttle;
pub mod token_bucket;
pub mod watch;
pub mod work_queue;
pub mod writer;

pub use stamp::{Restored, Stamp};
