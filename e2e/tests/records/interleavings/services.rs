//! Services: created, changed and deleted late.

use harvester_lb_testkit::proxy::Verb::{Create, Delete as Remove, Patch};

use super::records::REMOVE;
use super::round::{ROW, Row, Write};
use super::step::Step::{
    CreateGuestLb, CreateGuestNode, CreateLb, CreateVmLb, DeleteGuestNode, DeleteLb, DeleteService,
    EditListener, EditPool, EditService, ForeignService, Gone, Holds, InHistory, Marked, NamePool,
    NoRecord, NoService, NoSlice, Noted, PortIs, Shows, Waits,
};

const CREATE: Row = Row {
    trigger: &[CreateVmLb("a")],
    write: Write::Service(Create),
    ..ROW
};

const ALTER: Row = Row {
    given: &[CreateVmLb("a"), Holds("a", 2), Shows("a", 2)],
    trigger: &[EditListener("a", 81)],
    write: Write::Service(Patch),
    ..ROW
};

const REMOVE_SERVICE: Row = Row {
    given: &[CreateVmLb("a"), Holds("a", 2), Shows("a", 2)],
    trigger: &[NamePool("a", "missing")],
    write: Write::Service(Remove),
    ..ROW
};

/// Late Services.
pub const ROWS: &[Row] = &[
    Row {
        name: "create_service_done_by_the_next",
        with_leader: &[Shows("a", 2)],
        finally: &[Shows("a", 2)],
        ..CREATE
    },
    Row {
        name: "create_service_owner_gone",
        before_leader: &[DeleteLb("a")],
        with_leader: &[InHistory(2, "a")],
        code: 201,
        finally: &[NoService("a"), NoSlice("a"), InHistory(2, "a")],
        ..CREATE
    },
    Row {
        name: "create_service_address_given_on",
        range: (2, 2),
        before_leader: &[DeleteLb("a"), CreateLb("b")],
        with_leader: &[Holds("b", 2)],
        code: 201,
        finally: &[NoService("a"), NoSlice("a"), Holds("b", 2)],
        ..CREATE
    },
    Row {
        name: "create_service_owner_made_again",
        before_leader: &[DeleteLb("a"), CreateVmLb("a")],
        with_leader: &[Holds("a", 2), Shows("a", 2)],
        finally: &[Shows("a", 2)],
        ..CREATE
    },
    Row {
        name: "create_service_owner_made_again_before_anybody_leads",
        before_leader: &[DeleteLb("a"), CreateVmLb("a")],
        early: true,
        code: 201,
        with_leader: &[Holds("a", 2), Shows("a", 2)],
        finally: &[Shows("a", 2)],
        ..CREATE
    },
    Row {
        name: "create_service_owner_made_again_without_an_address",
        before_leader: &[DeleteLb("a"), CreateVmLb("a"), NamePool("a", "missing")],
        with_leader: &[Waits("a", "PoolNotFound")],
        code: 201,
        finally: &[NoService("a"), NamePool("a", "p"), Shows("a", 2)],
        ..CREATE
    },
    Row {
        name: "create_service_other_address",
        before_leader: &[NamePool("a", "q")],
        with_leader: &[Shows("a", 102)],
        finally: &[Shows("a", 102), InHistory(2, "a")],
        ..CREATE
    },
    Row {
        name: "create_service_no_address",
        range: (2, 2),
        before_leader: &[NamePool("a", "missing"), CreateLb("b")],
        with_leader: &[Waits("a", "PoolNotFound"), Holds("b", 2)],
        code: 201,
        finally: &[
            NoService("a"),
            NoSlice("a"),
            Holds("b", 2),
            NamePool("a", "q"),
            Shows("a", 102),
        ],
        ..CREATE
    },
    Row {
        name: "create_service_of_somebody_else",
        before_leader: &[ForeignService("a")],
        early: true,
        with_leader: &[
            Waits("a", "NameConflict"),
            DeleteService("a"),
            Shows("a", 2),
        ],
        ..CREATE
    },
    Row {
        name: "alter_service_nothing_has_happened",
        early: true,
        code: 200,
        with_leader: &[PortIs("a", 81)],
        ..ALTER
    },
    Row {
        name: "alter_service_done_by_the_next",
        with_leader: &[PortIs("a", 81)],
        finally: &[PortIs("a", 81)],
        ..ALTER
    },
    Row {
        name: "alter_service_spec_edited_again",
        before_leader: &[EditListener("a", 82)],
        with_leader: &[PortIs("a", 82)],
        finally: &[PortIs("a", 82)],
        ..ALTER
    },
    Row {
        name: "alter_service_made_again",
        before_leader: &[DeleteService("a")],
        with_leader: &[Shows("a", 2), PortIs("a", 81)],
        finally: &[PortIs("a", 81)],
        ..ALTER
    },
    Row {
        name: "alter_service_written_by_others",
        before_leader: &[EditService("a")],
        with_leader: &[PortIs("a", 81)],
        finally: &[PortIs("a", 81), Noted("a")],
        ..ALTER
    },
    Row {
        name: "alter_service_other_address",
        before_leader: &[NamePool("a", "q")],
        with_leader: &[Shows("a", 102)],
        finally: &[Shows("a", 102), PortIs("a", 81)],
        ..ALTER
    },
    Row {
        name: "alter_service_owner_gone",
        before_leader: &[DeleteLb("a")],
        with_leader: &[NoService("a")],
        code: 404,
        finally: &[NoService("a"), InHistory(2, "a")],
        ..ALTER
    },
    Row {
        name: "delete_service_done_by_the_next",
        with_leader: &[NoService("a")],
        code: 404,
        finally: &[NoService("a"), NamePool("a", "p"), Shows("a", 2)],
        ..REMOVE_SERVICE
    },
    Row {
        name: "delete_service_wanted_again",
        before_leader: &[NamePool("a", "p")],
        with_leader: &[Holds("a", 2), Shows("a", 2)],
        code: 200,
        finally: &[Holds("a", 2), Shows("a", 2)],
        ..REMOVE_SERVICE
    },
    Row {
        name: "delete_service_made_again",
        before_leader: &[NamePool("a", "p"), DeleteService("a")],
        with_leader: &[Shows("a", 2)],
        finally: &[Shows("a", 2)],
        ..REMOVE_SERVICE
    },
    Row {
        name: "delete_service_written_by_others",
        before_leader: &[NamePool("a", "p"), EditService("a")],
        with_leader: &[Shows("a", 2)],
        finally: &[Shows("a", 2), Noted("a")],
        ..REMOVE_SERVICE
    },
    Row {
        name: "delete_service_other_address",
        before_leader: &[NamePool("a", "q")],
        with_leader: &[Shows("a", 102)],
        finally: &[Shows("a", 102)],
        ..REMOVE_SERVICE
    },
    Row {
        name: "delete_record_pool_has_it_again",
        before_leader: &[EditPool(2, 14)],
        code: 200,
        finally: &[NoRecord(2)],
        ..REMOVE
    },
    Row {
        name: "delete_guest_done_by_the_next",
        given: &[
            CreateGuestLb("a"),
            Holds("a", 2),
            CreateGuestNode,
            Marked("a"),
        ],
        trigger: &[DeleteGuestNode],
        write: Write::Lb(Remove, ""),
        with_leader: &[Gone("a"), InHistory(2, "a")],
        code: 404,
        finally: &[InHistory(2, "a")],
        ..ROW
    },
];
