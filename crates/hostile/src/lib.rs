//! Hostile input: objects as they should be, and mutations of them. All of it follows from a seed.
//!
//! | module | owns |
//! |---|---|
//! | `kind` | kinds of objects, whom they are meant for, how they come |
//! | `generator` | one object after another |
//! | `valid` | objects as users, KubeVirt and the operator write them |
//! | `values` | numbers and texts that nobody expects |
//! | `mutate` | changes of any JSON: wrong types, missing, many, deep, unknown |
//! | `wishes` | changes that make sense to somebody who means harm: the address of another, broken times, foreign labels |
//! | `text` | what no tree of JSON values can hold: numbers too large, nesting without end, keys that are there twice |

mod generator;
mod kind;
mod mutate;
mod text;
mod valid;
mod values;
mod wishes;

pub use generator::{Generator, Mutant};
pub use kind::{Kind, Targets, Way};

/// Whether the long form of a test was asked for (`HLB_SOAK`).
pub fn soaks() -> bool {
    std::env::var_os("HLB_SOAK").is_some_and(|v| !v.is_empty() && v != "0")
}

/// The seed of a run: `HLB_SEED`, else by chance in the soak, and else always the same: whoever changes the code must not
/// be told of what was there before.
pub fn seed() -> u64 {
    let given = std::env::var("HLB_SEED").ok().and_then(|v| v.parse().ok());
    given.unwrap_or_else(|| if soaks() { fastrand::u64(..) } else { 1 })
}

/// How many objects of each kind: `HLB_OBJECTS`, else so many in a test run and so many in the soak.
pub fn amount(test: usize, soak: usize) -> usize {
    let given = std::env::var("HLB_OBJECTS")
        .ok()
        .and_then(|v| v.parse().ok());
    given.unwrap_or_else(|| if soaks() { soak } else { test })
}

#[cfg(test)]
mod tests;
