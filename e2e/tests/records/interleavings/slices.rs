//! EndpointSlices, and finalizers of the Go operator.

use harvester_lb_testkit::proxy::Verb::{Create, Delete as Remove, Patch};

use super::others::STATUS;
use super::round::{ROW, Row, Write};
use super::step::Step::{
    AddFinalizer, Backends, CreateLb, CreateLegacyLb, CreateLegacyMachine, CreateVmLb, CreateVmi,
    DeleteLb, DeleteLegacyMachine, DeleteSlice, DeleteVmi, EditPool, Finalizers, Gone, Holds,
    NamePool, NoSlice, PoolHas, Remembered, Shows, StartDeleteLb, Total, Waits,
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
    unseen: &[CreateLegacyLb("a"), StartDeleteLb("a")],
    write: Write::Lb(Patch, "finalizers"),
    ..ROW
};

/// Late EndpointSlices and finalizers.
pub const ROWS: &[Row] = &[
    Row {
        name: "create_slice_done_by_the_next",
        led: &[Shows("a", 2)],
        then: &[Shows("a", 2)],
        ..CREATE
    },
    Row {
        name: "create_slice_owner_gone",
        unled: &[DeleteLb("a")],
        led: &[Remembered(2, "a")],
        code: 201,
        then: &[NoSlice("a")],
        ..CREATE
    },
    Row {
        name: "create_slice_owner_made_again",
        unled: &[DeleteLb("a"), CreateVmLb("a")],
        led: &[Shows("a", 2)],
        then: &[Shows("a", 2)],
        ..CREATE
    },
    Row {
        name: "create_slice_no_address",
        unled: &[NamePool("a", "missing")],
        led: &[Waits("a", "PoolNotFound")],
        code: 201,
        then: &[NoSlice("a"), NamePool("a", "p"), Shows("a", 2)],
        ..CREATE
    },
    Row {
        name: "alter_slice_done_by_the_next",
        led: &[Backends("a", &[1, 2])],
        then: &[Backends("a", &[1, 2])],
        ..ALTER
    },
    Row {
        name: "alter_slice_machine_gone",
        unled: &[DeleteVmi("m2")],
        led: &[Backends("a", &[1])],
        code: 200,
        then: &[Backends("a", &[1])],
        ..ALTER
    },
    Row {
        name: "alter_slice_another_machine",
        unled: &[CreateVmi("m3", 3)],
        led: &[Backends("a", &[1, 2, 3])],
        then: &[Backends("a", &[1, 2, 3])],
        ..ALTER
    },
    Row {
        name: "alter_slice_made_again",
        unled: &[DeleteSlice("a")],
        led: &[Backends("a", &[1, 2])],
        then: &[Backends("a", &[1, 2])],
        ..ALTER
    },
    Row {
        name: "alter_slice_owner_gone",
        unled: &[DeleteLb("a")],
        led: &[NoSlice("a")],
        code: 404,
        then: &[NoSlice("a")],
        ..ALTER
    },
    Row {
        name: "delete_slice_done_by_the_next",
        led: &[NoSlice("a")],
        code: 404,
        then: &[NoSlice("a"), NamePool("a", "p"), Shows("a", 2)],
        ..REMOVE
    },
    Row {
        name: "delete_slice_wanted_again",
        unled: &[NamePool("a", "p")],
        led: &[Shows("a", 2), Backends("a", &[1])],
        code: 200,
        then: &[Backends("a", &[1])],
        ..REMOVE
    },
    Row {
        name: "delete_slice_made_again",
        unled: &[NamePool("a", "p"), DeleteSlice("a")],
        led: &[Shows("a", 2), Backends("a", &[1])],
        then: &[Backends("a", &[1])],
        ..REMOVE
    },
    Row {
        name: "finalizers_done_by_the_next",
        led: &[Finalizers(VM, &[KEPT])],
        then: &[Finalizers(VM, &[KEPT])],
        ..STRIP
    },
    Row {
        name: "finalizers_one_more_of_somebody_else",
        unled: &[AddFinalizer(VM)],
        led: &[Finalizers(VM, &[KEPT, "example.org/late"])],
        then: &[Finalizers(VM, &[KEPT, "example.org/late"])],
        ..STRIP
    },
    Row {
        name: "finalizers_machine_gone",
        unled: &[DeleteLegacyMachine(VM)],
        code: 404,
        ..STRIP
    },
    Row {
        name: "finalizers_machine_made_again",
        trigger: &[CreateLegacyMachine(VMI)],
        write: Write::Machine("virtualmachineinstances"),
        unled: &[DeleteLegacyMachine(VMI), CreateLegacyMachine(VMI)],
        led: &[Finalizers(VMI, &[KEPT])],
        then: &[Finalizers(VMI, &[KEPT])],
        ..STRIP
    },
    Row {
        name: "finalizers_of_a_load_balancer_done_by_the_next",
        led: &[Gone("a")],
        code: 404,
        ..STRIP_LB
    },
    Row {
        name: "finalizers_of_a_load_balancer_made_again",
        led: &[Gone("a"), CreateLb("a"), Holds("a", 2)],
        then: &[Holds("a", 2)],
        ..STRIP_LB
    },
    Row {
        name: "pool_status_done_by_the_next",
        led: &[PoolHas(3)],
        then: &[PoolHas(3)],
        ..STATUS
    },
    Row {
        name: "pool_status_pool_edited",
        unled: &[EditPool(2, 5)],
        led: &[Total(4)],
        then: &[Total(4), PoolHas(3)],
        ..STATUS
    },
];
