//! Subcommands that run to completion.

pub mod crd;
pub mod export;
