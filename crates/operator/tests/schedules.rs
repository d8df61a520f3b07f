//! The operator against random orders of events.
//!
//! Each schedule simulates a small cluster: a few load balancers, one or two small pools, users who create, edit and delete
//! objects, kube-vip, the garbage collector, stale watches, lost responses, requests that are applied late, processes that
//! crash and are replaced. The operator's own code runs in it, without sockets and in simulated time. An oracle, written from
//! the rules alone, checks every change, and the steady state at the end.
//!
//! Every run uses the same seeds. `HLB_SEED=n` runs one schedule and prints its trace. `HLB_SCHEDULES=n` sets the number of
//! schedules and starts at the given seed, else at a random one. `HLB_SURVEY=1` continues after a failure and counts failures
//! by rule. `HLB_TRACE=file` writes a digest of the operator's requests, of all schedules and of each; with `HLB_SEED=n`
//! every request and Event of that schedule.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test"
)]

#[path = "schedules/acts.rs"]
mod acts;
#[path = "schedules/answers.rs"]
mod answers;
#[path = "schedules/api.rs"]
mod api;
#[path = "schedules/at_rest.rs"]
mod at_rest;
#[path = "schedules/call.rs"]
mod call;
#[path = "schedules/defects.rs"]
mod defects;
#[path = "schedules/failure.rs"]
mod failure;
#[path = "schedules/groups.rs"]
mod groups;
#[path = "schedules/kind.rs"]
mod kind;
#[path = "schedules/kube_vip.rs"]
mod kube_vip;
#[path = "schedules/leader.rs"]
mod leader;
#[path = "schedules/leases.rs"]
mod leases;
#[path = "schedules/moves.rs"]
mod moves;
#[path = "schedules/oracle.rs"]
mod oracle;
#[path = "schedules/plan.rs"]
mod plan;
#[path = "schedules/play.rs"]
mod play;
#[path = "schedules/player.rs"]
mod player;
#[path = "schedules/policy.rs"]
mod policy;
#[path = "schedules/process.rs"]
mod process;
#[path = "schedules/regressions.rs"]
mod regressions;
#[path = "schedules/sent.rs"]
mod sent;
#[path = "schedules/simulation.rs"]
mod simulation;
#[path = "schedules/specs.rs"]
mod specs;
#[path = "schedules/statistics.rs"]
mod statistics;
#[path = "schedules/step.rs"]
mod step;
#[path = "schedules/wire.rs"]
mod wire;

/// Number of schedules in a test run; a soak runs millions.
const SCHEDULES: u64 = 3_000;

/// Addresses, conditions and wake-ups are correct for any order of events (ALC-5, ALC-8, IPA-3, IPA-5, IPA-6,
/// IPA-7, POOL-3, REC-5, REL-2 to REL-4, SEL-7, EXC-2, REQ-3, SHR-2, SHR-4, SHR-5, DHC-1, DHC-3).
#[test]
fn every_order_of_events_comes_to_the_same_rest() {
    let number = |name: &str| std::env::var(name).ok().map(|n| n.parse::<u64>().unwrap());
    match (number("HLB_SEED"), number("HLB_SCHEDULES")) {
        (Some(seed), None) => player::show(seed),
        // Without a seed each soak runs other schedules.
        (seed, Some(count)) => {
            player::play_all(seed.unwrap_or_else(|| u64::from(fastrand::u32(..))), count);
        }
        (None, None) => player::play_all(0, SCHEDULES),
    }
}

/// Number of orders in which each plan of [`regressions`] runs. Each defect showed within a few dozen.
const ORDERS: u64 = 100;

#[test]
fn what_was_wrong_once_is_right() {
    player::play_regressions(ORDERS);
}

/// Number of schedules in which an injected defect must be found. Most take some dozen, the rarest some thousand.
const DEFECT_SCHEDULES: u64 = 20_000;

#[test]
fn the_oracle_finds_injected_defects() {
    player::play_with_defects(DEFECT_SCHEDULES);
}
