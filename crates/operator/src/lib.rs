//! The host operator: LoadBalancer and IPPool objects in; addresses, Services, EndpointSlices and health checks out.
//!
//! A change comes through a watch into the [`index`], which answers with keys that are due; a [`controllers`] worker
//! observes the copies, lets crate core decide what should exist, and writes the differences through the [`client`], which
//! tells the index what the API server answered. [`runtime`] wires it all together; [`commands`] are the subcommands that
//! end.

pub mod args;
pub mod client;
pub mod clock;
pub mod commands;
pub mod context;
pub mod controllers;
pub mod duration;
#[cfg(test)]
mod fake;
pub mod index;
pub mod metrics;
pub mod runtime;
pub mod throttles;
pub mod timings;
