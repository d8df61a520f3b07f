//! EndpointSlices, and finalizers of the Go operator.

use harvester_lb_testkit::proxy::Verb::{Create, Delete as Remove, Patch};

use super::others::STATUS;
use super::round::{ROW, Row, Write};
use super::step::Step::{
    AddFinalizer, Backends, CreateLb, CreateLegacyLb, CreateLegacyMachine, CreateVmLb, CreateVmi,
    DeleteLb, DeleteLegacyMachine, DeleteSlice, DeleteVmi, EditPool, Finalizers, Gone, Holds,
    InHistory, NamePool, NoSlice, PoolHas, Shows, StartDeleteLb, Total, Waits,
};

const CREATE: Row = Row {
    trigger: &[CreateVmLb("a")],
    write: Write::Slice(Create),
    ..ROW
};

const ALTER: Row = Row {
    given: &[
        CreateVmi("m1", 1),
        CreateVmLb("a"),
        Shows("a", 2),
        Backends("a", &[1]),
    ],
    trigger: &[CreateVmi("m2", 2)],
    write: Write::Slice(Patch),
    ..ROW
};

const REMOVE: Row = Row {
    given: &[
        CreateVmi("m1", 1),
        CreateVmLb("a"),
        Shows("a", 2),
        Backends("a", &[1]),
    ],
    trigger: &[NamePool("a", "missing")],
    write: Write::Slice(Remove),
    ..ROW
};

const VM: &str = "VirtualMachine";
const VMI: &str = "VirtualMachineInstance";
const KEPT: &str = "example.org/kept";

const STRIP: Row = Row {
    trigger: &[CreateLegacyMachine(VM)],
    write: Write::Machine("virtualmachines"),
    ..ROW
};

const STRIP_LB: Row = Row {
    while_stopped: &[CreateLegacyLb("a"), StartDeleteLb("a")],
    write: Write::Lb(Patch, "finalizers"),
    ..ROW
};

/// Late EndpointSlices and finalizers.
pub const ROWS: &[Row] = &[
    Row {
        name: "create_slice_done_by_the_next",
        with_leader: &[Shows("a", 2)],
        finally: &[Shows("a", 2)],
        ..CREATE
    },
    Row {
        name: "create_slice_owner_gone",
        before_leader: &[DeleteLb("a")],
        with_leader: &[InHistory(2, "a")],
        code: 201,
        finally: &[NoSlice("a")],
        ..CREATE
    },
    Row {
        name: "create_slice_owner_made_again",
        before_leader: &[DeleteLb("a"), CreateVmLb("a")],
        with_leader: &[Shows("a", 2)],
        finally: &[Shows("a", 2)],
        ..CREATE
    },
    Row {
        name: "create_slice_no_address",
        before_leader: &[NamePool("a", "missing")],
        with_leader: &[Waits("a", "PoolNotFound")],
        code: 201,
        finally: &[NoSlice("a"), NamePool("a", "p"), Shows("a", 2)],
        ..CREATE
    },
    Row {
        name: "alter_slice_done_by_the_next",
        with_leader: &[Backends("a", &[1, 2])],
        finally: &[Backends("a", &[1, 2])],
        ..ALTER
    },
    Row {
        name: "alter_slice_machine_gone",
        before_leader: &[DeleteVmi("m2")],
        with_leader: &[Backends("a", &[1])],
        code: 200,
        finally: &[Backends("a", &[1])],
        ..ALTER
    },
    Row {
        name: "alter_slice_another_machine",
        before_leader: &[CreateVmi("m3", 3)],
        with_leader: &[Backends("a", &[1, 2, 3])],
        finally: &[Backends("a", &[1, 2, 3])],
        ..ALTER
    },
    Row {
        name: "alter_slice_made_again",
        before_leader: &[DeleteSlice("a")],
        with_leader: &[Backends("a", &[1, 2])],
        finally: &[Backends("a", &[1, 2])],
        ..ALTER
    },
    Row {
        name: "alter_slice_owner_gone",
        before_leader: &[DeleteLb("a")],
        with_leader: &[NoSlice("a")],
        code: 404,
        finally: &[NoSlice("a")],
        ..ALTER
    },
    Row {
        name: "delete_slice_done_by_the_next",
        with_leader: &[NoSlice("a")],
        code: 404,
        finally: &[NoSlice("a"), NamePool("a", "p"), Shows("a", 2)],
        ..REMOVE
    },
    Row {
        name: "delete_slice_wanted_again",
        before_leader: &[NamePool("a", "p")],
        with_leader: &[Shows("a", 2), Backends("a", &[1])],
        code: 200,
        finally: &[Backends("a", &[1])],
        ..REMOVE
    },
    Row {
        name: "delete_slice_made_again",
        before_leader: &[NamePool("a", "p"), DeleteSlice("a")],
        with_leader: &[Shows("a", 2), Backends("a", &[1])],
        finally: &[Backends("a", &[1])],
        ..REMOVE
    },
    Row {
        name: "finalizers_done_by_the_next",
        with_leader: &[Finalizers(VM, &[KEPT])],
        finally: &[Finalizers(VM, &[KEPT])],
        ..STRIP
    },
    Row {
        name: "finalizers_one_more_of_somebody_else",
        before_leader: &[AddFinalizer(VM)],
        with_leader: &[Finalizers(VM, &[KEPT, "example.org/late"])],
        finally: &[Finalizers(VM, &[KEPT, "example.org/late"])],
        ..STRIP
    },
    Row {
        name: "finalizers_machine_gone",
        before_leader: &[DeleteLegacyMachine(VM)],
        code: 404,
        ..STRIP
    },
    Row {
        name: "finalizers_machine_made_again",
        trigger: &[CreateLegacyMachine(VMI)],
        write: Write::Machine("virtualmachineinstances"),
        before_leader: &[DeleteLegacyMachine(VMI), CreateLegacyMachine(VMI)],
        with_leader: &[Finalizers(VMI, &[KEPT])],
        finally: &[Finalizers(VMI, &[KEPT])],
        ..STRIP
    },
    Row {
        name: "finalizers_of_a_load_balancer_done_by_the_next",
        with_leader: &[Gone("a")],
        code: 404,
        ..STRIP_LB
    },
    Row {
        name: "finalizers_of_a_load_balancer_made_again",
        with_leader: &[Gone("a"), CreateLb("a"), Holds("a", 2)],
        finally: &[Holds("a", 2)],
        ..STRIP_LB
    },
    Row {
        name: "pool_status_done_by_the_next",
        with_leader: &[PoolHas(3)],
        finally: &[PoolHas(3)],
        ..STATUS
    },
    Row {
        name: "pool_status_pool_edited",
        before_leader: &[EditPool(2, 5)],
        with_leader: &[Total(4)],
        finally: &[Total(4), PoolHas(3)],
        ..STATUS
    },
];
