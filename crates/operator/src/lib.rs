//! The host operator: LoadBalancer and IPPool objects in; addresses, Services, EndpointSlices and health checks out.
//!
//! A reconcile is a pipeline: what is observed (copies from the stores) becomes what should exist (crate core, which is pure),
//! and is applied by writing the differences ([`reconcile`], [`address`], [`release`], [`pools`]).

pub mod address;
pub mod app;
pub mod args;
pub mod children;
pub mod clock;
pub mod duration;
pub mod export;
#[cfg(test)]
mod fake;
pub mod guests;
pub mod handlers;
pub mod history;
pub mod hub;
pub mod kept;
pub mod lead;
pub mod leading;
pub mod legacy;
pub mod metrics;
pub mod needs;
pub mod pace;
pub mod pools;
pub mod queues;
pub mod reconcile;
pub mod release;
pub mod spacing;
pub mod start;
pub mod tell;
pub mod term;
pub mod timings;
pub mod undecodable;
pub mod workers;
pub mod writes;
