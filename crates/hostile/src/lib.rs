//! Hostile input: valid objects, and mutations of them. Everything is derived from a seed.
//!
//! | module | owns |
//! |---|---|
//! | `kind` | kinds of objects, their targets, how they arrive |
//! | `generator` | a stream of objects |
//! | `valid` | objects as users, KubeVirt and the operator write them |
//! | `requests` | annotations that request, share, lease or exclude addresses, and those of kube-vip |
//! | `values` | odd numbers and texts |
//! | `mutate` | generic changes of JSON: wrong types, missing, many, deep, unknown |
//! | `attacks` | changes with an attacker's intent: the address of another object, requests that no one may have, invalid times, foreign labels |
//! | `text` | JSON that no tree of values can hold: numbers too large, unlimited nesting, duplicate keys |

mod attacks;
mod generator;
mod kind;
mod mutate;
mod requests;
mod text;
mod valid;
mod values;

pub use generator::{Generator, Mutant};
pub use kind::{Kind, Source, Targets};
pub use requests::annotations;

/// Whether the long form of a test is requested (`HLB_SOAK`).
pub fn soaks() -> bool {
    std::env::var_os("HLB_SOAK").is_some_and(|v| !v.is_empty() && v != "0")
}

/// The seed of a run: `HLB_SEED`, else random in the soak, and otherwise constant, so that a change of the code is not
/// blamed for an older defect.
pub fn seed() -> u64 {
    let given = std::env::var("HLB_SEED").ok().and_then(|v| v.parse().ok());
    given.unwrap_or_else(|| if soaks() { fastrand::u64(..) } else { 1 })
}

/// Number of objects of each kind: `HLB_OBJECTS`, else `test` in a test run and `soak` in the soak.
pub fn amount(test: usize, soak: usize) -> usize {
    let given = std::env::var("HLB_OBJECTS")
        .ok()
        .and_then(|v| v.parse().ok());
    given.unwrap_or_else(|| if soaks() { soak } else { test })
}

#[cfg(test)]
mod tests;
