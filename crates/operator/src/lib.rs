//! The host operator: LoadBalancer and IPPool objects in; addresses, Services, EndpointSlices and health checks out.
//!
//! A reconcile is a pipeline: what is observed (copies from the stores) is checked into types that cannot be wrong
//! ([`validation`], [`spec`]), turned into the objects that should exist ([`backends`], [`build`], [`judge`], [`status`]; all of it pure), and
//! applied by writing the differences ([`reconcile`], [`address`], [`release`], [`pools`]).

pub mod address;
pub mod address_index;
pub mod app;
pub mod args;
pub mod backends;
pub mod build;
pub mod children;
pub mod export;
#[cfg(test)]
mod fake;
pub mod guests;
pub mod handlers;
pub mod history;
pub mod hub;
pub mod judge;
pub mod kept;
pub mod lead;
pub mod leading;
pub mod legacy;
pub mod metrics;
pub mod needs;
pub mod objects;
pub mod pace;
pub mod pools;
pub mod reconcile;
pub mod refusal;
pub mod refused_writes;
pub mod release;
pub mod spacing;
pub mod spec;
pub mod start;
pub mod status;
pub mod term;
pub mod time;
pub mod timings;
pub mod undecodable;
pub mod unsupported;
pub mod validation;
pub mod workers;
pub mod writes;
