//! Pools: their status, and what an administrator asks of them. Two in a round: there are two workers for them.

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

/// Pools that go.
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
    // What it was to take off is not there: the API server says so before it looks at the version.
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
