//! EndpointSlices, and finalizers of the Go operator.

use harvester_lb_testkit::proxy::Verb::{Create, Delete as Remove, Patch};

use super::others::STATUS;
use super::round::{ROW, Row, Write};
use super::step::Step::{
    AddFinalizer, Ask, Backends, Delete, DropSlice, Finalizers, Gone, Guest, Holds, Machine,
    NoMachine, NoOldMachine, NoSlice, Old, OldMachine, PoolHas, Range, Remembered, Shows, Total,
    Use, Vm, Waits,
};

const CREATE: Row = Row {
    trigger: &[Vm("a")],
    write: Write::Slice(Create),
    ..ROW
};

const ALTER: Row = Row {
    given: &[
        Machine("m1", 1),
        Vm("a"),
        Shows("a", 2),
        Backends("a", &[1]),
    ],
    trigger: &[Machine("m2", 2)],
    write: Write::Slice(Patch),
    ..ROW
};

const REMOVE: Row = Row {
    given: &[
        Machine("m1", 1),
        Vm("a"),
        Shows("a", 2),
        Backends("a", &[1]),
    ],
    trigger: &[Use("a", "missing")],
    write: Write::Slice(Remove),
    ..ROW
};

const VM: &str = "VirtualMachine";
const VMI: &str = "VirtualMachineInstance";
const KEPT: &str = "example.org/kept";

const STRIP: Row = Row {
    trigger: &[OldMachine(VM)],
    write: Write::Machine("virtualmachines"),
    ..ROW
};

const STRIP_LB: Row = Row {
    unseen: &[Old("a"), Ask("a")],
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
        unled: &[Delete("a")],
        led: &[Remembered(2, "a")],
        code: 201,
        then: &[NoSlice("a")],
        ..CREATE
    },
    Row {
        name: "create_slice_owner_made_again",
        unled: &[Delete("a"), Vm("a")],
        led: &[Shows("a", 2)],
        then: &[Shows("a", 2)],
        ..CREATE
    },
    Row {
        name: "create_slice_no_address",
        unled: &[Use("a", "missing")],
        led: &[Waits("a", "PoolNotFound")],
        code: 201,
        then: &[NoSlice("a"), Use("a", "p"), Shows("a", 2)],
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
        unled: &[NoMachine("m2")],
        led: &[Backends("a", &[1])],
        code: 200,
        then: &[Backends("a", &[1])],
        ..ALTER
    },
    Row {
        name: "alter_slice_another_machine",
        unled: &[Machine("m3", 3)],
        led: &[Backends("a", &[1, 2, 3])],
        then: &[Backends("a", &[1, 2, 3])],
        ..ALTER
    },
    Row {
        name: "alter_slice_made_again",
        unled: &[DropSlice("a")],
        led: &[Backends("a", &[1, 2])],
        then: &[Backends("a", &[1, 2])],
        ..ALTER
    },
    Row {
        name: "alter_slice_owner_gone",
        unled: &[Delete("a")],
        led: &[NoSlice("a")],
        code: 404,
        then: &[NoSlice("a")],
        ..ALTER
    },
    Row {
        name: "delete_slice_done_by_the_next",
        led: &[NoSlice("a")],
        code: 404,
        then: &[NoSlice("a"), Use("a", "p"), Shows("a", 2)],
        ..REMOVE
    },
    Row {
        name: "delete_slice_wanted_again",
        unled: &[Use("a", "p")],
        led: &[Shows("a", 2), Backends("a", &[1])],
        code: 200,
        then: &[Backends("a", &[1])],
        ..REMOVE
    },
    Row {
        name: "delete_slice_made_again",
        unled: &[Use("a", "p"), DropSlice("a")],
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
        unled: &[NoOldMachine(VM)],
        code: 404,
        ..STRIP
    },
    Row {
        name: "finalizers_machine_made_again",
        trigger: &[OldMachine(VMI)],
        write: Write::Machine("virtualmachineinstances"),
        unled: &[NoOldMachine(VMI), OldMachine(VMI)],
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
        led: &[Gone("a"), Guest("a"), Holds("a", 2)],
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
        unled: &[Range(2, 5)],
        led: &[Total(4)],
        then: &[Total(4), PoolHas(3)],
        ..STATUS
    },
];
