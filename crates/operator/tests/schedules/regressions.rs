//! Regression plans: schedules that once found a defect.

#[path = "regressions/moved.rs"]
mod moved;
#[path = "regressions/parts.rs"]
mod parts;
#[path = "regressions/shared.rs"]
mod shared;
#[path = "regressions/single.rs"]
mod single;

use super::plan::Plan;

/// Plans that once found a defect, each reduced to the necessary acts.
pub(crate) fn regressions() -> Vec<(&'static str, Plan)> {
    [single::plans(), shared::plans(), moved::plans()].concat()
}
