//! IPAllocations: late creates (IPA-6), and late changes of existing ones (IPA-5).

use harvester_lb_testkit::proxy::Verb::{Create, Delete as Remove, Patch};

use super::round::{ROW, Row, Write};
use super::step::Step::{
    Ask, Delete, DropRecord, Forge, Guest, Holds, Marked, NoPool, NoRecord, Node, OfGuest, Range,
    Remembered, Reports, Says, Use, Waits,
};

const CREATE: Row = Row {
    trigger: &[Guest("a")],
    write: Write::Record(Create, 2),
    ..ROW
};

/// An IPAllocation is created late.
pub const CREATIONS: &[Row] = &[
    Row {
        name: "create_record_done_by_the_next",
        led: &[Holds("a", 2)],
        then: &[Holds("a", 2)],
        ..CREATE
    },
    Row {
        name: "create_record_taken_by_another",
        unled: &[Delete("a"), Guest("b")],
        led: &[Holds("b", 2)],
        then: &[Holds("b", 2)],
        ..CREATE
    },
    Row {
        name: "create_record_made_by_hand_for_another",
        unled: &[Guest("b"), Forge(2, "b")],
        led: &[Holds("b", 2), Holds("a", 3)],
        then: &[Holds("b", 2), Holds("a", 3)],
        ..CREATE
    },
    Row {
        name: "create_record_owner_gone",
        unled: &[Delete("a")],
        code: 201,
        then: &[Remembered(2, "a")],
        ..CREATE
    },
    Row {
        name: "create_record_owner_made_again_before_anybody_leads",
        unled: &[Delete("a"), Guest("a")],
        early: true,
        code: 201,
        led: &[Holds("a", 2)],
        ..CREATE
    },
    Row {
        name: "create_record_owner_made_again_elsewhere",
        unled: &[Delete("a"), Guest("a"), Range(3, 14)],
        led: &[Holds("a", 3), Range(2, 14)],
        code: 201,
        then: &[Remembered(2, "a"), Holds("a", 3)],
        ..CREATE
    },
    Row {
        name: "create_record_second_of_a_uid",
        unled: &[Range(3, 14)],
        led: &[Holds("a", 3), Range(2, 14)],
        code: 201,
        then: &[Remembered(2, "a"), Holds("a", 3)],
        ..CREATE
    },
    Row {
        name: "create_record_second_of_a_uid_lower_is_kept",
        unled: &[Forge(3, "a")],
        early: true,
        code: 201,
        led: &[Holds("a", 2), Remembered(3, "a")],
        ..CREATE
    },
    Row {
        name: "create_record_second_of_a_uid_named_is_kept",
        unled: &[Forge(3, "a"), Says("a", 3)],
        early: true,
        code: 201,
        led: &[Holds("a", 3), Remembered(2, "a")],
        ..CREATE
    },
    Row {
        name: "create_record_other_pool_wanted",
        unled: &[Use("a", "q")],
        led: &[Holds("a", 102)],
        code: 201,
        then: &[Remembered(2, "a"), Holds("a", 102)],
        ..CREATE
    },
    Row {
        name: "create_record_no_pool_serves",
        unled: &[Use("a", "missing")],
        led: &[Waits("a", "PoolNotFound")],
        code: 201,
        then: &[Remembered(2, "a"), Use("a", "p"), Holds("a", 2)],
        ..CREATE
    },
    Row {
        name: "create_record_pool_gone",
        unled: &[Use("a", "q"), NoPool],
        led: &[Holds("a", 102)],
        code: 201,
        then: &[NoRecord(2), Holds("a", 102)],
        ..CREATE
    },
    Row {
        name: "delete_record_done_by_the_next",
        led: &[NoRecord(2)],
        code: 404,
        ..REMOVE
    },
    Row {
        name: "mark_guest_owner_gone",
        unled: &[Delete("a")],
        code: 404,
        ..MARK
    },
];

const TAKE: Row = Row {
    given: &[Guest("a"), Holds("a", 2), Delete("a"), Remembered(2, "a")],
    trigger: &[Guest("a")],
    write: Write::Record(Patch, 2),
    ..ROW
};

const ADOPT: Row = Row {
    given: &[Guest("a"), Holds("a", 2)],
    unseen: &[Delete("a"), Guest("a")],
    write: Write::Record(Patch, 2),
    ..ROW
};

const RELEASE: Row = Row {
    given: &[Guest("a"), Holds("a", 2)],
    trigger: &[Delete("a")],
    write: Write::Record(Patch, 2),
    ..ROW
};

const SURPLUS: Row = Row {
    range: (2, 2),
    given: &[Guest("a"), Holds("a", 2)],
    write: Write::Record(Patch, 2),
    ..ROW
};

/// A released IPAllocation that is outside of the pool's range now. One in a round: one worker deletes history.
pub const REMOVE: Row = Row {
    given: &[Guest("a"), Holds("a", 2), Delete("a"), Remembered(2, "a")],
    trigger: &[Range(3, 14)],
    write: Write::Record(Remove, 2),
    ..ROW
};

/// A guest cluster is removed. One in a round: guest clusters have one worker.
pub const MARK: Row = Row {
    given: &[OfGuest("a"), Holds("a", 2)],
    trigger: &[Node],
    write: Write::Lb(Patch, "guest-removed"),
    ..ROW
};

/// An IPAllocation is taken over, replaced, released or deleted late.
pub const CHANGES: &[Row] = &[
    Row {
        name: "take_over_done_by_the_next",
        led: &[Holds("a", 2)],
        then: &[Holds("a", 2)],
        ..TAKE
    },
    Row {
        name: "take_over_taken_by_another",
        range: (2, 2),
        unled: &[Delete("a"), Guest("b")],
        led: &[Holds("b", 2)],
        then: &[Holds("b", 2)],
        ..TAKE
    },
    Row {
        name: "take_over_owner_gone",
        unled: &[Delete("a")],
        code: 200,
        then: &[Remembered(2, "a")],
        ..TAKE
    },
    Row {
        name: "take_over_record_deleted_by_hand",
        unled: &[DropRecord(2)],
        led: &[Holds("a", 3)],
        code: 404,
        then: &[Holds("a", 3)],
        ..TAKE
    },
    Row {
        name: "take_over_record_and_owner_gone",
        unled: &[Delete("a"), DropRecord(2)],
        code: 404,
        ..TAKE
    },
    Row {
        name: "take_over_out_of_the_pool",
        unled: &[Range(3, 14)],
        led: &[Holds("a", 3), NoRecord(2)],
        code: 404,
        then: &[Holds("a", 3)],
        ..TAKE
    },
    Row {
        name: "replace_owner_done_by_the_next",
        led: &[Holds("a", 2)],
        then: &[Holds("a", 2)],
        ..ADOPT
    },
    Row {
        name: "replace_owner_made_again",
        unled: &[Delete("a"), Guest("a")],
        led: &[Holds("a", 2)],
        then: &[Holds("a", 2)],
        ..ADOPT
    },
    Row {
        name: "replace_owner_gone",
        unled: &[Delete("a")],
        led: &[Remembered(2, "a")],
        then: &[Remembered(2, "a")],
        ..ADOPT
    },
    Row {
        name: "replace_owner_taken_by_another",
        range: (2, 2),
        unled: &[Delete("a"), Guest("b")],
        led: &[Holds("b", 2)],
        then: &[Holds("b", 2)],
        ..ADOPT
    },
    Row {
        name: "replace_owner_record_deleted_by_hand",
        unled: &[DropRecord(2)],
        led: &[Holds("a", 3)],
        code: 404,
        then: &[Holds("a", 3)],
        ..ADOPT
    },
    Row {
        name: "release_done_by_the_next",
        led: &[Remembered(2, "a")],
        then: &[Remembered(2, "a")],
        ..RELEASE
    },
    Row {
        name: "release_owner_made_again",
        unled: &[Guest("a")],
        led: &[Holds("a", 2)],
        then: &[Holds("a", 2)],
        ..RELEASE
    },
    Row {
        name: "release_owner_made_again_before_anybody_leads",
        unled: &[Guest("a")],
        early: true,
        code: 200,
        led: &[Holds("a", 2)],
        ..RELEASE
    },
    Row {
        name: "release_owner_restored_from_a_backup",
        unled: &[Guest("a"), Says("a", 2)],
        led: &[Holds("a", 2)],
        then: &[Holds("a", 2)],
        ..RELEASE
    },
    Row {
        name: "release_taken_by_another",
        range: (2, 2),
        unled: &[Guest("b")],
        led: &[Holds("b", 2)],
        then: &[Holds("b", 2)],
        ..RELEASE
    },
    Row {
        name: "release_record_deleted_by_hand",
        unled: &[DropRecord(2)],
        code: 404,
        ..RELEASE
    },
    Row {
        name: "release_surplus_moved_back",
        trigger: &[Use("a", "q")],
        unled: &[Use("a", "p"), Guest("b")],
        led: &[Holds("a", 2), Waits("b", "NoAvailableIP")],
        then: &[Holds("a", 2), Waits("b", "NoAvailableIP"), Ask("b")],
        ..SURPLUS
    },
    Row {
        name: "release_surplus_pool_serves_again",
        trigger: &[Use("a", "missing")],
        unled: &[Use("a", "p"), Guest("b")],
        led: &[Holds("a", 2), Waits("b", "NoAvailableIP")],
        then: &[Holds("a", 2), Waits("b", "NoAvailableIP"), Ask("b")],
        ..SURPLUS
    },
    Row {
        name: "delete_record_taken_over_again",
        unled: &[Range(2, 14), Guest("a")],
        led: &[Holds("a", 2)],
        then: &[Holds("a", 2)],
        ..REMOVE
    },
    Row {
        name: "mark_guest_status_written_by_it",
        unled: &[Reports("a", "192.0.2.9")],
        led: &[Marked("a")],
        then: &[Marked("a")],
        ..MARK
    },
];
