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
        before_leader: &[DeletePool],
        with_leader: &[Holds("a", 2), Holds("b", 3)],
        code: 404,
        finally: &[CreatePool, PoolHas(2), PoolHas(3)],
        ..STATUS
    },
    Row {
        name: "pool_status_pool_made_again",
        before_leader: &[DeletePool, CreatePool],
        with_leader: &[PoolHas(2), PoolHas(3)],
        finally: &[PoolHas(2), PoolHas(3)],
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
        before_leader: &[ManualRelease(9, "nobody")],
        with_leader: &[NoManualRelease],
        finally: &[NoManualRelease, Holds("a", 2)],
        ..RELEASE
    },
    Row {
        name: "manual_release_owner_gone",
        before_leader: &[DeleteLb("a")],
        with_leader: &[NoManualRelease],
        finally: &[NoManualRelease],
        ..RELEASE
    },
];
