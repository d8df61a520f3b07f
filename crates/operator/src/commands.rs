//! Subcommands that end.

pub mod crd;
pub mod export;
