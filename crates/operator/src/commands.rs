//! Subcommands that run to completion.

pub mod check;
pub mod crd;
pub mod export;
mod list;
