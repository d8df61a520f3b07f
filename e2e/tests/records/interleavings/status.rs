//! Status of LoadBalancers: the commit of an address, and the status when everything is ready.

use harvester_lb_testkit::proxy::Verb::{Delete as Remove, Patch};

use super::records::REMOVE;
use super::round::{ROW, Row, Write};
use super::step::Step::{
    Address, AddressIs, Announce, Delete, DropRecord, DropService, Forge, Guest, Holds, HoldsAny,
    Marked, NoNode, Node, OfGuest, Port, PortIs, Range, Remembered, Reports, Says, Shows, Total,
    Vm,
};

const COMMIT: Row = Row {
    trigger: &[Guest("a")],
    write: Write::Lb(Patch, "allocatedAddress"),
    ..ROW
};

const READY: Row = Row {
    given: &[Vm("a"), Holds("a", 2), Shows("a", 2)],
    trigger: &[Announce("a")],
    write: Write::Lb(Patch, "address"),
    ..ROW
};

/// Late status.
pub const ROWS: &[Row] = &[
    Row {
        name: "commit_nothing_has_happened",
        early: true,
        code: 200,
        led: &[Holds("a", 2)],
        ..COMMIT
    },
    Row {
        name: "commit_done_by_the_next",
        led: &[Holds("a", 2)],
        then: &[Holds("a", 2)],
        ..COMMIT
    },
    Row {
        name: "commit_owner_gone",
        unled: &[Delete("a")],
        led: &[Remembered(2, "a")],
        code: 404,
        then: &[Remembered(2, "a")],
        ..COMMIT
    },
    Row {
        name: "commit_owner_made_again",
        unled: &[Delete("a"), Guest("a")],
        led: &[Holds("a", 2)],
        then: &[Holds("a", 2)],
        ..COMMIT
    },
    Row {
        name: "commit_status_written_by_a_tenant",
        unled: &[Says("a", 9)],
        led: &[Holds("a", 2)],
        then: &[Holds("a", 2)],
        ..COMMIT
    },
    Row {
        name: "commit_address_written_by_the_guest",
        unled: &[Reports("a", "192.0.2.9")],
        led: &[Holds("a", 2)],
        then: &[Holds("a", 2), Address("a", "192.0.2.9")],
        ..COMMIT
    },
    Row {
        name: "commit_record_deleted_by_hand",
        unled: &[DropRecord(2)],
        led: &[HoldsAny("a")],
        then: &[HoldsAny("a")],
        ..COMMIT
    },
    Row {
        name: "commit_record_given_to_another_by_hand",
        unled: &[DropRecord(2), Guest("b"), Forge(2, "b")],
        led: &[Holds("b", 2), HoldsAny("a")],
        then: &[Holds("b", 2), HoldsAny("a")],
        ..COMMIT
    },
    Row {
        name: "commit_out_of_the_pool",
        unled: &[Range(3, 14)],
        led: &[Holds("a", 2)],
        // Back again: an address outside of the ranges does not count.
        then: &[Holds("a", 2), Range(2, 14), Total(13)],
        ..COMMIT
    },
    Row {
        name: "ready_done_by_the_next",
        led: &[AddressIs("a", 2)],
        then: &[AddressIs("a", 2)],
        ..READY
    },
    Row {
        name: "ready_service_made_again",
        unled: &[DropService("a")],
        led: &[Shows("a", 2)],
        code: 200,
        then: &[Address("a", "")],
        ..READY
    },
    Row {
        name: "ready_spec_edited",
        unled: &[Port("a", 81)],
        led: &[PortIs("a", 81)],
        then: &[PortIs("a", 81), AddressIs("a", 2)],
        ..READY
    },
    Row {
        name: "ready_owner_gone",
        unled: &[Delete("a")],
        code: 404,
        then: &[Remembered(2, "a")],
        ..READY
    },
    Row {
        name: "ready_owner_made_again",
        unled: &[Delete("a"), Vm("a")],
        led: &[Holds("a", 2), Shows("a", 2)],
        then: &[Holds("a", 2)],
        ..READY
    },
    Row {
        name: "delete_record_replaced_by_hand",
        unled: &[Range(2, 14), DropRecord(2), Guest("b"), Forge(2, "b")],
        led: &[Holds("b", 2)],
        then: &[Holds("b", 2)],
        ..REMOVE
    },
    Row {
        name: "delete_guest_made_again",
        given: &[OfGuest("a"), Holds("a", 2), Node, Marked("a")],
        trigger: &[NoNode],
        write: Write::Lb(Remove, ""),
        unled: &[Delete("a"), OfGuest("a")],
        led: &[Holds("a", 2)],
        then: &[Holds("a", 2)],
        ..ROW
    },
];
