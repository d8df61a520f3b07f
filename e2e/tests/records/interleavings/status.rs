//! Status of LoadBalancers: the commit of an address, and the status when everything is ready.

use harvester_lb_testkit::proxy::Verb::{Delete as Remove, Patch};

use super::records::REMOVE;
use super::round::{ROW, Row, Write};
use super::step::Step::{
    Address, AddressIs, Announce, CreateGuestLb, CreateGuestNode, CreateLb, CreateRecord,
    CreateVmLb, DeleteGuestNode, DeleteLb, DeleteRecord, DeleteService, EditListener, EditPool,
    GuestWrites, Holds, HoldsAny, Marked, PortIs, Remembered, Shows, Total, WriteAllocated,
};

const COMMIT: Row = Row {
    trigger: &[CreateLb("a")],
    write: Write::Lb(Patch, "allocatedAddress"),
    ..ROW
};

const READY: Row = Row {
    given: &[CreateVmLb("a"), Holds("a", 2), Shows("a", 2)],
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
        unled: &[DeleteLb("a")],
        led: &[Remembered(2, "a")],
        code: 404,
        then: &[Remembered(2, "a")],
        ..COMMIT
    },
    Row {
        name: "commit_owner_made_again",
        unled: &[DeleteLb("a"), CreateLb("a")],
        led: &[Holds("a", 2)],
        then: &[Holds("a", 2)],
        ..COMMIT
    },
    Row {
        name: "commit_status_written_by_a_tenant",
        unled: &[WriteAllocated("a", 9)],
        led: &[Holds("a", 2)],
        then: &[Holds("a", 2)],
        ..COMMIT
    },
    Row {
        name: "commit_address_written_by_the_guest",
        unled: &[GuestWrites("a", "192.0.2.9")],
        led: &[Holds("a", 2)],
        then: &[Holds("a", 2), Address("a", "192.0.2.9")],
        ..COMMIT
    },
    Row {
        name: "commit_record_deleted_by_hand",
        unled: &[DeleteRecord(2)],
        led: &[HoldsAny("a")],
        then: &[HoldsAny("a")],
        ..COMMIT
    },
    Row {
        name: "commit_record_given_to_another_by_hand",
        unled: &[DeleteRecord(2), CreateLb("b"), CreateRecord(2, "b")],
        led: &[Holds("b", 2), HoldsAny("a")],
        then: &[Holds("b", 2), HoldsAny("a")],
        ..COMMIT
    },
    Row {
        name: "commit_out_of_the_pool",
        unled: &[EditPool(3, 14)],
        led: &[Holds("a", 2)],
        // Back again: what is outside of the ranges is counted neither way.
        then: &[Holds("a", 2), EditPool(2, 14), Total(13)],
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
        unled: &[DeleteService("a")],
        led: &[Shows("a", 2)],
        code: 200,
        then: &[Address("a", "")],
        ..READY
    },
    Row {
        name: "ready_spec_edited",
        unled: &[EditListener("a", 81)],
        led: &[PortIs("a", 81)],
        then: &[PortIs("a", 81), AddressIs("a", 2)],
        ..READY
    },
    Row {
        name: "ready_owner_gone",
        unled: &[DeleteLb("a")],
        code: 404,
        then: &[Remembered(2, "a")],
        ..READY
    },
    Row {
        name: "ready_owner_made_again",
        unled: &[DeleteLb("a"), CreateVmLb("a")],
        led: &[Holds("a", 2), Shows("a", 2)],
        then: &[Holds("a", 2)],
        ..READY
    },
    Row {
        name: "delete_record_replaced_by_hand",
        unled: &[
            EditPool(2, 14),
            DeleteRecord(2),
            CreateLb("b"),
            CreateRecord(2, "b"),
        ],
        led: &[Holds("b", 2)],
        then: &[Holds("b", 2)],
        ..REMOVE
    },
    Row {
        name: "delete_guest_made_again",
        given: &[
            CreateGuestLb("a"),
            Holds("a", 2),
            CreateGuestNode,
            Marked("a"),
        ],
        trigger: &[DeleteGuestNode],
        write: Write::Lb(Remove, ""),
        unled: &[DeleteLb("a"), CreateGuestLb("a")],
        led: &[Holds("a", 2)],
        then: &[Holds("a", 2)],
        ..ROW
    },
];
