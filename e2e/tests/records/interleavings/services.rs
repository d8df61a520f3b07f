//! Services: created, changed and deleted late.

use harvester_lb_testkit::proxy::Verb::{Create, Delete as Remove, Patch};

use super::records::REMOVE;
use super::round::{ROW, Row, Write};
use super::step::Step::{
    CreateGuestLb, CreateGuestNode, CreateLb, CreateVmLb, DeleteGuestNode, DeleteLb, DeleteService,
    EditListener, EditPool, EditService, ForeignService, Gone, Holds, Marked, NamePool, NoRecord,
    NoService, NoSlice, Noted, PortIs, Remembered, Shows, Waits,
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
        led: &[Shows("a", 2)],
        then: &[Shows("a", 2)],
        ..CREATE
    },
    Row {
        name: "create_service_owner_gone",
        unled: &[DeleteLb("a")],
        led: &[Remembered(2, "a")],
        code: 201,
        then: &[NoService("a"), NoSlice("a"), Remembered(2, "a")],
        ..CREATE
    },
    Row {
        name: "create_service_address_given_on",
        range: (2, 2),
        unled: &[DeleteLb("a"), CreateLb("b")],
        led: &[Holds("b", 2)],
        code: 201,
        then: &[NoService("a"), NoSlice("a"), Holds("b", 2)],
        ..CREATE
    },
    Row {
        name: "create_service_owner_made_again",
        unled: &[DeleteLb("a"), CreateVmLb("a")],
        led: &[Holds("a", 2), Shows("a", 2)],
        then: &[Shows("a", 2)],
        ..CREATE
    },
    Row {
        name: "create_service_owner_made_again_before_anybody_leads",
        unled: &[DeleteLb("a"), CreateVmLb("a")],
        early: true,
        code: 201,
        led: &[Holds("a", 2), Shows("a", 2)],
        then: &[Shows("a", 2)],
        ..CREATE
    },
    Row {
        name: "create_service_owner_made_again_without_an_address",
        unled: &[DeleteLb("a"), CreateVmLb("a"), NamePool("a", "missing")],
        led: &[Waits("a", "PoolNotFound")],
        code: 201,
        then: &[NoService("a"), NamePool("a", "p"), Shows("a", 2)],
        ..CREATE
    },
    Row {
        name: "create_service_other_address",
        unled: &[NamePool("a", "q")],
        led: &[Shows("a", 102)],
        then: &[Shows("a", 102), Remembered(2, "a")],
        ..CREATE
    },
    Row {
        name: "create_service_no_address",
        range: (2, 2),
        unled: &[NamePool("a", "missing"), CreateLb("b")],
        led: &[Waits("a", "PoolNotFound"), Holds("b", 2)],
        code: 201,
        then: &[
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
        unled: &[ForeignService("a")],
        early: true,
        led: &[
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
        led: &[PortIs("a", 81)],
        ..ALTER
    },
    Row {
        name: "alter_service_done_by_the_next",
        led: &[PortIs("a", 81)],
        then: &[PortIs("a", 81)],
        ..ALTER
    },
    Row {
        name: "alter_service_spec_edited_again",
        unled: &[EditListener("a", 82)],
        led: &[PortIs("a", 82)],
        then: &[PortIs("a", 82)],
        ..ALTER
    },
    Row {
        name: "alter_service_made_again",
        unled: &[DeleteService("a")],
        led: &[Shows("a", 2), PortIs("a", 81)],
        then: &[PortIs("a", 81)],
        ..ALTER
    },
    Row {
        name: "alter_service_written_by_others",
        unled: &[EditService("a")],
        led: &[PortIs("a", 81)],
        then: &[PortIs("a", 81), Noted("a")],
        ..ALTER
    },
    Row {
        name: "alter_service_other_address",
        unled: &[NamePool("a", "q")],
        led: &[Shows("a", 102)],
        then: &[Shows("a", 102), PortIs("a", 81)],
        ..ALTER
    },
    Row {
        name: "alter_service_owner_gone",
        unled: &[DeleteLb("a")],
        led: &[NoService("a")],
        code: 404,
        then: &[NoService("a"), Remembered(2, "a")],
        ..ALTER
    },
    Row {
        name: "delete_service_done_by_the_next",
        led: &[NoService("a")],
        code: 404,
        then: &[NoService("a"), NamePool("a", "p"), Shows("a", 2)],
        ..REMOVE_SERVICE
    },
    Row {
        name: "delete_service_wanted_again",
        unled: &[NamePool("a", "p")],
        led: &[Holds("a", 2), Shows("a", 2)],
        code: 200,
        then: &[Holds("a", 2), Shows("a", 2)],
        ..REMOVE_SERVICE
    },
    Row {
        name: "delete_service_made_again",
        unled: &[NamePool("a", "p"), DeleteService("a")],
        led: &[Shows("a", 2)],
        then: &[Shows("a", 2)],
        ..REMOVE_SERVICE
    },
    Row {
        name: "delete_service_written_by_others",
        unled: &[NamePool("a", "p"), EditService("a")],
        led: &[Shows("a", 2)],
        then: &[Shows("a", 2), Noted("a")],
        ..REMOVE_SERVICE
    },
    Row {
        name: "delete_service_other_address",
        unled: &[NamePool("a", "q")],
        led: &[Shows("a", 102)],
        then: &[Shows("a", 102)],
        ..REMOVE_SERVICE
    },
    Row {
        name: "delete_record_pool_has_it_again",
        unled: &[EditPool(2, 14)],
        code: 200,
        then: &[NoRecord(2)],
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
        led: &[Gone("a"), Remembered(2, "a")],
        code: 404,
        then: &[Remembered(2, "a")],
        ..ROW
    },
];
