//! Subcommands that run to completion.

pub mod check;
pub mod clear_conditions;
pub mod crd;
mod deployment;
pub mod export;
mod lease_holder;
mod list;
pub mod stop_operator;
pub mod uninstall_webhook;
