//! The steps of a simulation.

use harvester_lb_object::Key;

use super::kind::Kind;

/// A possible next step.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Deliver(usize, Kind),
    Ask(usize, Kind),
    List(usize, Kind),
    LookUp(usize, usize),
    Begin,
    TakeLb,
    TakePool,
    TakeHistory,
    Tell,
    Progress(usize, usize),
    User,
    Announce(Key),
    Collect(Kind, Key),
    Finalize(Kind, Key),
    Time,
    Relist(usize, Kind),
    Crash,
    Lose,
    Standby,
    Fence,
    Recheck,
    Land(usize),
}
