//! The host operator: reconciles LoadBalancer and IPPool objects into addresses, Services, EndpointSlices and health checks.
//!
//! A watch passes a change to the [`index`], which queues the affected keys. A worker of the [`controllers`] reads the cached
//! objects, computes the desired state with crate core and writes the differences through the [`client`], which updates the
//! index with the responses. [`runtime`] starts and stops everything; [`commands`] are the subcommands that run to
//! completion.
//!
//! The [`webhook`] is another process of the same program: admission and conversion for the API server. So is [`dhcp`], which
//! leases addresses.

pub mod args;
pub mod client;
pub mod clock;
pub mod commands;
pub mod context;
pub mod controllers;
pub mod dhcp;
pub mod duration;
#[cfg(test)]
mod fake;
pub mod index;
pub mod metrics;
pub mod permissions;
pub mod process_metrics;
pub mod runtime;
pub mod settings;
pub mod throttles;
pub mod timings;
pub mod webhook;
pub mod webhook_names;
