//! Status of LoadBalancers: the commit of an address, and the status when everything is ready.

use harvester_lb_testkit::proxy::Verb::{Delete as Remove, Patch};

use super::records::REMOVE;
use super::round::{ROW, Row, Write};
use super::step::Step::{
    Address, AddressIs, Announce, CreateGuestLb, CreateGuestNode, CreateLb, CreateRecord,
    CreateVmLb, DeleteGuestNode, DeleteLb, DeleteRecord, DeleteService, EditListener, EditPool,
    GuestWrites, Holds, HoldsAny, InHistory, Marked, PortIs, Shows, Total, WriteAllocated,
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
        with_leader: &[Holds("a", 2)],
        ..COMMIT
    },
    Row {
        name: "commit_done_by_the_next",
        with_leader: &[Holds("a", 2)],
        finally: &[Holds("a", 2)],
        ..COMMIT
    },
    Row {
        name: "commit_owner_gone",
        before_leader: &[DeleteLb("a")],
        with_leader: &[InHistory(2, "a")],
        code: 404,
        finally: &[InHistory(2, "a")],
        ..COMMIT
    },
    Row {
        name: "commit_owner_made_again",
        before_leader: &[DeleteLb("a"), CreateLb("a")],
        with_leader: &[Holds("a", 2)],
        finally: &[Holds("a", 2)],
        ..COMMIT
    },
    Row {
        name: "commit_status_written_by_a_tenant",
        before_leader: &[WriteAllocated("a", 9)],
        with_leader: &[Holds("a", 2)],
        finally: &[Holds("a", 2)],
        ..COMMIT
    },
    Row {
        name: "commit_address_written_by_the_guest",
        before_leader: &[GuestWrites("a", "192.0.2.9")],
        with_leader: &[Holds("a", 2)],
        finally: &[Holds("a", 2), Address("a", "192.0.2.9")],
        ..COMMIT
    },
    Row {
        name: "commit_record_deleted_by_hand",
        before_leader: &[DeleteRecord(2)],
        with_leader: &[HoldsAny("a")],
        finally: &[HoldsAny("a")],
        ..COMMIT
    },
    Row {
        name: "commit_record_given_to_another_by_hand",
        before_leader: &[DeleteRecord(2), CreateLb("b"), CreateRecord(2, "b")],
        with_leader: &[Holds("b", 2), HoldsAny("a")],
        finally: &[Holds("b", 2), HoldsAny("a")],
        ..COMMIT
    },
    Row {
        name: "commit_out_of_the_pool",
        before_leader: &[EditPool(3, 14)],
        with_leader: &[Holds("a", 2)],
        // Back again: what is outside of the ranges is counted neither way.
        finally: &[Holds("a", 2), EditPool(2, 14), Total(13)],
        ..COMMIT
    },
    Row {
        name: "ready_done_by_the_next",
        with_leader: &[AddressIs("a", 2)],
        finally: &[AddressIs("a", 2)],
        ..READY
    },
    Row {
        name: "ready_service_made_again",
        before_leader: &[DeleteService("a")],
        with_leader: &[Shows("a", 2)],
        code: 200,
        finally: &[Address("a", "")],
        ..READY
    },
    Row {
        name: "ready_spec_edited",
        before_leader: &[EditListener("a", 81)],
        with_leader: &[PortIs("a", 81)],
        finally: &[PortIs("a", 81), AddressIs("a", 2)],
        ..READY
    },
    Row {
        name: "ready_owner_gone",
        before_leader: &[DeleteLb("a")],
        code: 404,
        finally: &[InHistory(2, "a")],
        ..READY
    },
    Row {
        name: "ready_owner_made_again",
        before_leader: &[DeleteLb("a"), CreateVmLb("a")],
        with_leader: &[Holds("a", 2), Shows("a", 2)],
        finally: &[Holds("a", 2)],
        ..READY
    },
    Row {
        name: "delete_record_replaced_by_hand",
        before_leader: &[
            EditPool(2, 14),
            DeleteRecord(2),
            CreateLb("b"),
            CreateRecord(2, "b"),
        ],
        with_leader: &[Holds("b", 2)],
        finally: &[Holds("b", 2)],
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
        before_leader: &[DeleteLb("a"), CreateGuestLb("a")],
        with_leader: &[Holds("a", 2)],
        finally: &[Holds("a", 2)],
        ..ROW
    },
];
