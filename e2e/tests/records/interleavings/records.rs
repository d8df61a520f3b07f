//! IPAllocations: late creates (IPA-6), and late changes of existing ones (IPA-5).

use harvester_lb_testkit::proxy::Verb::{Create, Delete as Remove, Patch};

use super::round::{ROW, Row, Write};
use super::step::Step::{
    CreateGuestLb, CreateGuestNode, CreateLb, CreateRecord, DeleteLb, DeletePool, DeleteRecord,
    EditPool, GuestWrites, Holds, InHistory, Marked, NamePool, NoRecord, StartDeleteLb, Waits,
    WriteAllocated,
};

const CREATE: Row = Row {
    trigger: &[CreateLb("a")],
    write: Write::Record(Create, 2),
    ..ROW
};

/// An IPAllocation is created late.
pub const CREATIONS: &[Row] = &[
    Row {
        name: "create_record_done_by_the_next",
        with_leader: &[Holds("a", 2)],
        finally: &[Holds("a", 2)],
        ..CREATE
    },
    Row {
        name: "create_record_taken_by_another",
        before_leader: &[DeleteLb("a"), CreateLb("b")],
        with_leader: &[Holds("b", 2)],
        finally: &[Holds("b", 2)],
        ..CREATE
    },
    Row {
        name: "create_record_made_by_hand_for_another",
        before_leader: &[CreateLb("b"), CreateRecord(2, "b")],
        with_leader: &[Holds("b", 2), Holds("a", 3)],
        finally: &[Holds("b", 2), Holds("a", 3)],
        ..CREATE
    },
    Row {
        name: "create_record_owner_gone",
        before_leader: &[DeleteLb("a")],
        code: 201,
        finally: &[InHistory(2, "a")],
        ..CREATE
    },
    Row {
        name: "create_record_owner_made_again_before_anybody_leads",
        before_leader: &[DeleteLb("a"), CreateLb("a")],
        early: true,
        code: 201,
        with_leader: &[Holds("a", 2)],
        ..CREATE
    },
    Row {
        name: "create_record_owner_made_again_elsewhere",
        before_leader: &[DeleteLb("a"), CreateLb("a"), EditPool(3, 14)],
        with_leader: &[Holds("a", 3), EditPool(2, 14)],
        code: 201,
        finally: &[InHistory(2, "a"), Holds("a", 3)],
        ..CREATE
    },
    Row {
        name: "create_record_second_of_a_uid",
        before_leader: &[EditPool(3, 14)],
        with_leader: &[Holds("a", 3), EditPool(2, 14)],
        code: 201,
        finally: &[InHistory(2, "a"), Holds("a", 3)],
        ..CREATE
    },
    Row {
        name: "create_record_second_of_a_uid_lower_is_kept",
        before_leader: &[CreateRecord(3, "a")],
        early: true,
        code: 201,
        with_leader: &[Holds("a", 2), InHistory(3, "a")],
        ..CREATE
    },
    Row {
        name: "create_record_second_of_a_uid_named_is_kept",
        before_leader: &[CreateRecord(3, "a"), WriteAllocated("a", 3)],
        early: true,
        code: 201,
        with_leader: &[Holds("a", 3), InHistory(2, "a")],
        ..CREATE
    },
    Row {
        name: "create_record_other_pool_wanted",
        before_leader: &[NamePool("a", "q")],
        with_leader: &[Holds("a", 102)],
        code: 201,
        finally: &[InHistory(2, "a"), Holds("a", 102)],
        ..CREATE
    },
    Row {
        name: "create_record_no_pool_serves",
        before_leader: &[NamePool("a", "missing")],
        with_leader: &[Waits("a", "PoolNotFound")],
        code: 201,
        finally: &[InHistory(2, "a"), NamePool("a", "p"), Holds("a", 2)],
        ..CREATE
    },
    Row {
        name: "create_record_pool_gone",
        before_leader: &[NamePool("a", "q"), DeletePool],
        with_leader: &[Holds("a", 102)],
        code: 201,
        finally: &[NoRecord(2), Holds("a", 102)],
        ..CREATE
    },
    Row {
        name: "delete_record_done_by_the_next",
        with_leader: &[NoRecord(2)],
        code: 404,
        ..REMOVE
    },
    Row {
        name: "mark_guest_owner_gone",
        before_leader: &[DeleteLb("a")],
        code: 404,
        ..MARK
    },
];

const TAKE: Row = Row {
    given: &[
        CreateLb("a"),
        Holds("a", 2),
        DeleteLb("a"),
        InHistory(2, "a"),
    ],
    trigger: &[CreateLb("a")],
    write: Write::Record(Patch, 2),
    ..ROW
};

const ADOPT: Row = Row {
    given: &[CreateLb("a"), Holds("a", 2)],
    while_stopped: &[DeleteLb("a"), CreateLb("a")],
    write: Write::Record(Patch, 2),
    ..ROW
};

const RELEASE: Row = Row {
    given: &[CreateLb("a"), Holds("a", 2)],
    trigger: &[DeleteLb("a")],
    write: Write::Record(Patch, 2),
    ..ROW
};

const SURPLUS: Row = Row {
    range: (2, 2),
    given: &[CreateLb("a"), Holds("a", 2)],
    write: Write::Record(Patch, 2),
    ..ROW
};

/// A released IPAllocation that is outside of the pool's range now. One in a round: one worker deletes history.
pub const REMOVE: Row = Row {
    given: &[
        CreateLb("a"),
        Holds("a", 2),
        DeleteLb("a"),
        InHistory(2, "a"),
    ],
    trigger: &[EditPool(3, 14)],
    write: Write::Record(Remove, 2),
    ..ROW
};

/// A guest cluster is removed. One in a round: guest clusters have one worker.
pub const MARK: Row = Row {
    given: &[CreateGuestLb("a"), Holds("a", 2)],
    trigger: &[CreateGuestNode],
    write: Write::Lb(Patch, "guest-removed"),
    ..ROW
};

/// An IPAllocation is taken over, replaced, released or deleted late.
pub const CHANGES: &[Row] = &[
    Row {
        name: "take_over_done_by_the_next",
        with_leader: &[Holds("a", 2)],
        finally: &[Holds("a", 2)],
        ..TAKE
    },
    Row {
        name: "take_over_taken_by_another",
        range: (2, 2),
        before_leader: &[DeleteLb("a"), CreateLb("b")],
        with_leader: &[Holds("b", 2)],
        finally: &[Holds("b", 2)],
        ..TAKE
    },
    Row {
        name: "take_over_owner_gone",
        before_leader: &[DeleteLb("a")],
        code: 200,
        finally: &[InHistory(2, "a")],
        ..TAKE
    },
    Row {
        name: "take_over_record_deleted_by_hand",
        before_leader: &[DeleteRecord(2)],
        with_leader: &[Holds("a", 3)],
        code: 404,
        finally: &[Holds("a", 3)],
        ..TAKE
    },
    Row {
        name: "take_over_record_and_owner_gone",
        before_leader: &[DeleteLb("a"), DeleteRecord(2)],
        code: 404,
        ..TAKE
    },
    Row {
        name: "take_over_out_of_the_pool",
        before_leader: &[EditPool(3, 14)],
        with_leader: &[Holds("a", 3), NoRecord(2)],
        code: 404,
        finally: &[Holds("a", 3)],
        ..TAKE
    },
    Row {
        name: "replace_owner_done_by_the_next",
        with_leader: &[Holds("a", 2)],
        finally: &[Holds("a", 2)],
        ..ADOPT
    },
    Row {
        name: "replace_owner_made_again",
        before_leader: &[DeleteLb("a"), CreateLb("a")],
        with_leader: &[Holds("a", 2)],
        finally: &[Holds("a", 2)],
        ..ADOPT
    },
    Row {
        name: "replace_owner_gone",
        before_leader: &[DeleteLb("a")],
        with_leader: &[InHistory(2, "a")],
        finally: &[InHistory(2, "a")],
        ..ADOPT
    },
    Row {
        name: "replace_owner_taken_by_another",
        range: (2, 2),
        before_leader: &[DeleteLb("a"), CreateLb("b")],
        with_leader: &[Holds("b", 2)],
        finally: &[Holds("b", 2)],
        ..ADOPT
    },
    Row {
        name: "replace_owner_record_deleted_by_hand",
        before_leader: &[DeleteRecord(2)],
        with_leader: &[Holds("a", 3)],
        code: 404,
        finally: &[Holds("a", 3)],
        ..ADOPT
    },
    Row {
        name: "release_done_by_the_next",
        with_leader: &[InHistory(2, "a")],
        finally: &[InHistory(2, "a")],
        ..RELEASE
    },
    Row {
        name: "release_owner_made_again",
        before_leader: &[CreateLb("a")],
        with_leader: &[Holds("a", 2)],
        finally: &[Holds("a", 2)],
        ..RELEASE
    },
    Row {
        name: "release_owner_made_again_before_anybody_leads",
        before_leader: &[CreateLb("a")],
        early: true,
        code: 200,
        with_leader: &[Holds("a", 2)],
        ..RELEASE
    },
    Row {
        name: "release_owner_restored_from_a_backup",
        before_leader: &[CreateLb("a"), WriteAllocated("a", 2)],
        with_leader: &[Holds("a", 2)],
        finally: &[Holds("a", 2)],
        ..RELEASE
    },
    Row {
        name: "release_taken_by_another",
        range: (2, 2),
        before_leader: &[CreateLb("b")],
        with_leader: &[Holds("b", 2)],
        finally: &[Holds("b", 2)],
        ..RELEASE
    },
    Row {
        name: "release_record_deleted_by_hand",
        before_leader: &[DeleteRecord(2)],
        code: 404,
        ..RELEASE
    },
    Row {
        name: "release_surplus_moved_back",
        trigger: &[NamePool("a", "q")],
        before_leader: &[NamePool("a", "p"), CreateLb("b")],
        with_leader: &[Holds("a", 2), Waits("b", "NoAvailableIP")],
        finally: &[
            Holds("a", 2),
            Waits("b", "NoAvailableIP"),
            StartDeleteLb("b"),
        ],
        ..SURPLUS
    },
    Row {
        name: "release_surplus_pool_serves_again",
        trigger: &[NamePool("a", "missing")],
        before_leader: &[NamePool("a", "p"), CreateLb("b")],
        with_leader: &[Holds("a", 2), Waits("b", "NoAvailableIP")],
        finally: &[
            Holds("a", 2),
            Waits("b", "NoAvailableIP"),
            StartDeleteLb("b"),
        ],
        ..SURPLUS
    },
    Row {
        name: "delete_record_taken_over_again",
        before_leader: &[EditPool(2, 14), CreateLb("a")],
        with_leader: &[Holds("a", 2)],
        finally: &[Holds("a", 2)],
        ..REMOVE
    },
    Row {
        name: "mark_guest_status_written_by_it",
        before_leader: &[GuestWrites("a", "192.0.2.9")],
        with_leader: &[Marked("a")],
        finally: &[Marked("a")],
        ..MARK
    },
];
