//! Pools: their status, and releases by hand. Two in a round: pools have two workers.

use super::round::{ROW, Row, Write};
use super::step::Step::{
    CreateLb, CreatePool, DeleteLb, DeletePool, Holds, ManualRelease, NoManualRelease, PoolHas,
};

/// The status of a pool is written late.
pub const STATUS: Row = Row {
    given: &[CreateLb("a"), Holds("a", 2), PoolHas(2)],
    trigger: &[CreateLb("b")],
    write: Write::Pool,
    ..ROW
};

/// Pools that are deleted.
pub const POOLS: &[Row] = &[
    Row {
        name: "pool_status_pool_gone",
        unled: &[DeletePool],
        led: &[Holds("a", 2), Holds("b", 3)],
        code: 404,
        then: &[CreatePool, PoolHas(2), PoolHas(3)],
        ..STATUS
    },
    Row {
        name: "pool_status_pool_made_again",
        unled: &[DeletePool, CreatePool],
        led: &[PoolHas(2), PoolHas(3)],
        then: &[PoolHas(2), PoolHas(3)],
        ..STATUS
    },
];

const RELEASE: Row = Row {
    given: &[CreateLb("a"), Holds("a", 2), PoolHas(2)],
    trigger: &[ManualRelease(2, "a")],
    write: Write::Pool,
    // The value to remove does not exist: the API server reports that before it checks the version.
    code: 422,
    ..ROW
};

/// Manual releases.
pub const MANUAL_RELEASES: &[Row] = &[
    Row {
        name: "manual_release_another_is_asked_for",
        unled: &[ManualRelease(9, "nobody")],
        led: &[NoManualRelease],
        then: &[NoManualRelease, Holds("a", 2)],
        ..RELEASE
    },
    Row {
        name: "manual_release_owner_gone",
        unled: &[DeleteLb("a")],
        led: &[NoManualRelease],
        then: &[NoManualRelease],
        ..RELEASE
    },
];
