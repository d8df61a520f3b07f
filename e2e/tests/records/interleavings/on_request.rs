//! Addresses on request: the address of a group passes to the next holder late (SHR-5), a load balancer joins its Service late (SHR-3),
//! the Service of a lost lease is deleted late (DHC-3).

use harvester_lb_testkit::proxy::Verb::{Delete as Remove, Patch};

use super::round::{ROW, Row, Write};
use super::step::Step::{
    Carries, CreateDhcpLb, CreateSharingLb, CreateVmLb, DeleteLb, EditService, ExpireLease, Holds,
    InHistory, Lease, NoService, NoSlice, Noted, Owns, Shows, StartDeleteLb, StopSharing, Waits,
};

/// The ports of a Service that `a` and `b` share.
const SHARED: &[&str] = &["80-tcp", "81-tcp"];

/// `b` shares the address of `a`, which is deleted.
const HAND_OVER: Row = Row {
    given: &[
        CreateVmLb("a"),
        Holds("a", 2),
        CreateSharingLb("b", 81),
        Carries("a", SHARED),
    ],
    trigger: &[DeleteLb("a")],
    write: Write::Record(Patch, 2),
    ..ROW
};

/// `b` joins the Service of `a`.
const JOIN: Row = Row {
    given: &[CreateVmLb("a"), Holds("a", 2), Shows("a", 2)],
    trigger: &[CreateSharingLb("b", 81)],
    write: Write::Service(Patch),
    ..ROW
};

const EXPIRE: Row = Row {
    given: &[CreateDhcpLb("a"), Lease("a", 200), Shows("a", 200)],
    trigger: &[ExpireLease("a")],
    write: Write::Service(Remove),
    ..ROW
};

/// Late writes about shared addresses and leases.
pub const ROWS: &[Row] = &[
    Row {
        name: "hand_over_done_by_the_next",
        with_leader: &[Owns("b", 2), Carries("a", &["81-tcp"])],
        finally: &[Owns("b", 2), Carries("a", &["81-tcp"])],
        ..HAND_OVER
    },
    Row {
        name: "hand_over_nobody_is_left",
        before_leader: &[DeleteLb("b")],
        with_leader: &[InHistory(2, "a")],
        finally: &[InHistory(2, "a"), NoService("a"), NoSlice("b")],
        ..HAND_OVER
    },
    Row {
        name: "hand_over_nobody_is_left_before_anybody_leads",
        before_leader: &[DeleteLb("b")],
        early: true,
        code: 200,
        with_leader: &[InHistory(2, "b"), NoService("a"), NoSlice("b")],
        ..HAND_OVER
    },
    Row {
        name: "hand_over_next_holder_leaves",
        before_leader: &[StopSharing("b")],
        with_leader: &[InHistory(2, "a"), Holds("b", 3)],
        finally: &[InHistory(2, "a"), Holds("b", 3), NoService("a")],
        ..HAND_OVER
    },
    Row {
        name: "hand_over_primary_made_again",
        before_leader: &[CreateVmLb("a")],
        with_leader: &[Owns("b", 2), Waits("a", "NameConflict")],
        finally: &[
            Owns("b", 2),
            Carries("a", &["81-tcp"]),
            Waits("a", "NameConflict"),
            StartDeleteLb("a"),
        ],
        ..HAND_OVER
    },
    Row {
        name: "join_service_nothing_has_happened",
        early: true,
        code: 200,
        with_leader: &[Carries("a", SHARED)],
        ..JOIN
    },
    Row {
        name: "join_service_done_by_the_next",
        with_leader: &[Carries("a", SHARED)],
        finally: &[Carries("a", SHARED)],
        ..JOIN
    },
    Row {
        name: "join_service_joiner_gone",
        before_leader: &[DeleteLb("b")],
        code: 200,
        finally: &[Carries("a", &["http"]), Holds("a", 2), NoSlice("b")],
        ..JOIN
    },
    Row {
        name: "join_service_joiner_leaves",
        before_leader: &[StopSharing("b")],
        with_leader: &[Shows("b", 3)],
        code: 200,
        finally: &[Carries("a", &["http"]), Carries("b", &["http"])],
        ..JOIN
    },
    Row {
        name: "join_service_written_by_others",
        before_leader: &[EditService("a")],
        with_leader: &[Carries("a", SHARED)],
        finally: &[Carries("a", SHARED), Noted("a")],
        ..JOIN
    },
    Row {
        name: "delete_leased_service_done_by_the_next",
        with_leader: &[NoService("a"), Waits("a", "WaitingForLease")],
        code: 404,
        finally: &[NoService("a"), Lease("a", 200), Shows("a", 200)],
        ..EXPIRE
    },
    Row {
        name: "delete_leased_service_renewed",
        before_leader: &[Lease("a", 200)],
        code: 200,
        finally: &[Shows("a", 200)],
        ..EXPIRE
    },
    Row {
        name: "delete_leased_service_another_address",
        before_leader: &[Lease("a", 201)],
        with_leader: &[Shows("a", 201)],
        finally: &[Shows("a", 201)],
        ..EXPIRE
    },
];
