//! Services: created, changed and deleted late.

use harvester_lb_testkit::proxy::Verb::{Create, Delete as Remove, Patch};

use super::records::REMOVE;
use super::round::{ROW, Row, Write};
use super::step::Step::{
    Delete, DropService, ForeignService, Gone, Guest, Holds, Marked, NoNode, NoRecord, NoService,
    NoSlice, Node, NoteService, Noted, OfGuest, Port, PortIs, Range, Remembered, Shows, Use, Vm,
    Waits,
};

const CREATE: Row = Row {
    trigger: &[Vm("a")],
    write: Write::Service(Create),
    ..ROW
};

const ALTER: Row = Row {
    given: &[Vm("a"), Holds("a", 2), Shows("a", 2)],
    trigger: &[Port("a", 81)],
    write: Write::Service(Patch),
    ..ROW
};

const REMOVE_SERVICE: Row = Row {
    given: &[Vm("a"), Holds("a", 2), Shows("a", 2)],
    trigger: &[Use("a", "missing")],
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
        unled: &[Delete("a")],
        led: &[Remembered(2, "a")],
        code: 201,
        then: &[NoService("a"), NoSlice("a"), Remembered(2, "a")],
        ..CREATE
    },
    Row {
        name: "create_service_address_given_on",
        range: (2, 2),
        unled: &[Delete("a"), Guest("b")],
        led: &[Holds("b", 2)],
        code: 201,
        then: &[NoService("a"), NoSlice("a"), Holds("b", 2)],
        ..CREATE
    },
    Row {
        name: "create_service_owner_made_again",
        unled: &[Delete("a"), Vm("a")],
        led: &[Holds("a", 2), Shows("a", 2)],
        then: &[Shows("a", 2)],
        ..CREATE
    },
    Row {
        name: "create_service_owner_made_again_before_anybody_leads",
        unled: &[Delete("a"), Vm("a")],
        early: true,
        code: 201,
        led: &[Holds("a", 2), Shows("a", 2)],
        then: &[Shows("a", 2)],
        ..CREATE
    },
    Row {
        name: "create_service_owner_made_again_without_an_address",
        unled: &[Delete("a"), Vm("a"), Use("a", "missing")],
        led: &[Waits("a", "PoolNotFound")],
        code: 201,
        then: &[NoService("a"), Use("a", "p"), Shows("a", 2)],
        ..CREATE
    },
    Row {
        name: "create_service_other_address",
        unled: &[Use("a", "q")],
        led: &[Shows("a", 102)],
        then: &[Shows("a", 102), Remembered(2, "a")],
        ..CREATE
    },
    Row {
        name: "create_service_no_address",
        range: (2, 2),
        unled: &[Use("a", "missing"), Guest("b")],
        led: &[Waits("a", "PoolNotFound"), Holds("b", 2)],
        code: 201,
        then: &[
            NoService("a"),
            NoSlice("a"),
            Holds("b", 2),
            Use("a", "q"),
            Shows("a", 102),
        ],
        ..CREATE
    },
    Row {
        name: "create_service_of_somebody_else",
        unled: &[ForeignService("a")],
        early: true,
        led: &[Waits("a", "NameConflict"), DropService("a"), Shows("a", 2)],
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
        unled: &[Port("a", 82)],
        led: &[PortIs("a", 82)],
        then: &[PortIs("a", 82)],
        ..ALTER
    },
    Row {
        name: "alter_service_made_again",
        unled: &[DropService("a")],
        led: &[Shows("a", 2), PortIs("a", 81)],
        then: &[PortIs("a", 81)],
        ..ALTER
    },
    Row {
        name: "alter_service_written_by_others",
        unled: &[NoteService("a")],
        led: &[PortIs("a", 81)],
        then: &[PortIs("a", 81), Noted("a")],
        ..ALTER
    },
    Row {
        name: "alter_service_other_address",
        unled: &[Use("a", "q")],
        led: &[Shows("a", 102)],
        then: &[Shows("a", 102), PortIs("a", 81)],
        ..ALTER
    },
    Row {
        name: "alter_service_owner_gone",
        unled: &[Delete("a")],
        led: &[NoService("a")],
        code: 404,
        then: &[NoService("a"), Remembered(2, "a")],
        ..ALTER
    },
    Row {
        name: "delete_service_done_by_the_next",
        led: &[NoService("a")],
        code: 404,
        then: &[NoService("a"), Use("a", "p"), Shows("a", 2)],
        ..REMOVE_SERVICE
    },
    Row {
        name: "delete_service_wanted_again",
        unled: &[Use("a", "p")],
        led: &[Holds("a", 2), Shows("a", 2)],
        code: 200,
        then: &[Holds("a", 2), Shows("a", 2)],
        ..REMOVE_SERVICE
    },
    Row {
        name: "delete_service_made_again",
        unled: &[Use("a", "p"), DropService("a")],
        led: &[Shows("a", 2)],
        then: &[Shows("a", 2)],
        ..REMOVE_SERVICE
    },
    Row {
        name: "delete_service_written_by_others",
        unled: &[Use("a", "p"), NoteService("a")],
        led: &[Shows("a", 2)],
        then: &[Shows("a", 2), Noted("a")],
        ..REMOVE_SERVICE
    },
    Row {
        name: "delete_service_other_address",
        unled: &[Use("a", "q")],
        led: &[Shows("a", 102)],
        then: &[Shows("a", 102)],
        ..REMOVE_SERVICE
    },
    Row {
        name: "delete_record_pool_has_it_again",
        unled: &[Range(2, 14)],
        code: 200,
        then: &[NoRecord(2)],
        ..REMOVE
    },
    Row {
        name: "delete_guest_done_by_the_next",
        given: &[OfGuest("a"), Holds("a", 2), Node, Marked("a")],
        trigger: &[NoNode],
        write: Write::Lb(Remove, ""),
        led: &[Gone("a"), Remembered(2, "a")],
        code: 404,
        then: &[Remembered(2, "a")],
        ..ROW
    },
];
