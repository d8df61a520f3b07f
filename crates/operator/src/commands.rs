//! Subcommands that run to completion.

pub mod check;
pub mod clear_conditions;
pub mod crd;
pub mod export;
mod list;
pub mod uninstall_webhook;
