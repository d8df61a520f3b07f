//! Pools: their status, and releases by hand. Two in a round: pools have two workers.

use super::round::{ROW, Row, Write};
use super::step::Step::{Delete, Guest, Holds, NoPool, NoWish, Pool, PoolHas, Wish};

/// The status of a pool is written late.
pub const STATUS: Row = Row {
    given: &[Guest("a"), Holds("a", 2), PoolHas(2)],
    trigger: &[Guest("b")],
    write: Write::Pool,
    ..ROW
};

/// Pools that are deleted.
pub const POOLS: &[Row] = &[
    Row {
        name: "pool_status_pool_gone",
        unled: &[NoPool],
        led: &[Holds("a", 2), Holds("b", 3)],
        code: 404,
        then: &[Pool, PoolHas(2), PoolHas(3)],
        ..STATUS
    },
    Row {
        name: "pool_status_pool_made_again",
        unled: &[NoPool, Pool],
        led: &[PoolHas(2), PoolHas(3)],
        then: &[PoolHas(2), PoolHas(3)],
        ..STATUS
    },
];

const RELEASE: Row = Row {
    given: &[Guest("a"), Holds("a", 2), PoolHas(2)],
    trigger: &[Wish(2, "a")],
    write: Write::Pool,
    // The value to remove does not exist: the API server reports that before it checks the version.
    code: 422,
    ..ROW
};

/// Releases by hand.
pub const WISHES: &[Row] = &[
    Row {
        name: "wish_another_is_asked_for",
        unled: &[Wish(9, "nobody")],
        led: &[NoWish],
        then: &[NoWish, Holds("a", 2)],
        ..RELEASE
    },
    Row {
        name: "wish_owner_gone",
        unled: &[Delete("a")],
        led: &[NoWish],
        then: &[NoWish],
        ..RELEASE
    },
];
