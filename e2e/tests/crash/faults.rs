//! A proxy between the operator and its API server injects all kinds of API server faults. Meanwhile LoadBalancers are
//! created and deleted; health checks continue undisturbed, and ten seconds after the end of the faults everything is
//! consistent.
//!
//! `HLB_SEED` repeats a run, `HLB_SOAK` makes some of the faults last longer.

use harvester_lb_e2e::{Test, tests};

mod churn;
mod fault_run;
mod gauge;
mod mixed;
mod refused;
mod unavailable;
mod watches;

use mixed::{alc_8_every_fault_at_once, alc_8_writes_are_slow};
use refused::{alc_8_a_third_is_refused, alc_8_answers_are_lost, alc_8_one_resource_is_refused};
use unavailable::alc_8_api_server_is_unavailable;
use watches::alc_8_watches_and_lists_are_cut;

/// All fault runs.
pub fn all() -> Vec<Test> {
    tests![
        alc_8_api_server_is_unavailable,
        alc_8_writes_are_slow,
        alc_8_a_third_is_refused,
        alc_8_answers_are_lost,
        alc_8_one_resource_is_refused,
        alc_8_watches_and_lists_are_cut,
        alc_8_every_fault_at_once,
    ]
}
