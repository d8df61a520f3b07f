//! Regression plans: schedules that once found a defect.

use super::acts::Act;
use super::leases::LeaseAct;
use super::plan::{Plan, Style};
use super::specs::{Asked, LbSpec, Ranges, V4, V6};

/// Plans that once found a defect, each reduced to the necessary acts.
pub(crate) fn regressions() -> Vec<(&'static str, Plan)> {
    let lb = |vm: bool, pool: Option<usize>| LbSpec {
        vm,
        dhcp: false,
        pool,
        project: false,
        held_up: false,
        asks: false,
    };
    let of_dhcp = LbSpec {
        dhcp: true,
        ..lb(true, None)
    };
    let asking = |lb: LbSpec| LbSpec { asks: true, ..lb };
    let held_up = |lb: LbSpec| LbSpec {
        held_up: true,
        ..lb
    };
    let of_project = |vm, pool| LbSpec {
        project: true,
        ..lb(vm, pool)
    };
    let ranges = |first: u8, last: u8| Ranges {
        first,
        last,
        gateway: 1,
        broken: false,
        of: &[V4],
    };
    let of_ipv6 = |first, last| Ranges {
        of: &[V6],
        ..ranges(first, last)
    };
    let pool = |first, last| Act::CreatePool(0, ranges(first, last), 0, 0);
    let smooth = Style {
        watch: [10; 8],
        take: 30,
        progress: 30,
        user: 8,
        cluster: 15,
        time: 1,
        relist: 0,
        crash: 0,
        lose: 0,
        standby: 0,
        fence: 0,
        recheck: 0,
        late: 20,
        lost_answers: 0,
        refusals: 0,
        stuck_moves: 0,
        service_finalizers: false,
        workers: 3,
        builtin_dhcp: false,
    };
    let plan = |style: Style, acts: &[Act]| Plan {
        acts: acts.to_vec(),
        style,
    };
    vec![
        (
            "a record that another's retry has found wakes its owner",
            plan(
                Style {
                    lost_answers: 300,
                    watch: [10, 10, 2, 10, 10, 10, 10, 10],
                    ..smooth
                },
                &[
                    pool(10, 12),
                    Act::CreateLb(0, lb(false, Some(0))),
                    Act::DeleteLb(0),
                    Act::CreateLb(1, lb(false, Some(0))),
                ],
            ),
        ),
        (
            "a record deleted by hand as its owner goes keeps nothing",
            plan(
                smooth,
                &[
                    pool(10, 10),
                    Act::CreateLb(0, lb(false, Some(0))),
                    Act::DeleteLb(0),
                    Act::DeleteRecord(0),
                    Act::CreateLb(1, lb(false, Some(0))),
                ],
            ),
        ),
        (
            "an edit of a pool reaches those whose address is on its way",
            plan(
                smooth,
                &[
                    pool(10, 12),
                    Act::CreateLb(0, lb(false, Some(0))),
                    Act::EditPool(0, ranges(12, 12)),
                ],
            ),
        ),
        (
            "a leader behind watches that lag takes nothing away",
            plan(
                Style {
                    standby: 15,
                    crash: 15,
                    watch: [10, 40, 2, 10, 10, 10, 10, 10],
                    ..smooth
                },
                &[
                    pool(10, 13),
                    Act::CreateLb(0, lb(true, Some(0))),
                    Act::CreateLb(1, lb(true, Some(0))),
                    Act::RecreateLb(1, lb(true, Some(0))),
                    Act::CreateLb(2, lb(true, Some(0))),
                    Act::NamePool(0, None),
                ],
            ),
        ),
        (
            "a new leader whose watches list again takes no Service down",
            plan(
                Style {
                    watch: [10, 10, 10, 40, 10, 10, 40, 40],
                    take: 52,
                    progress: 51,
                    user: 2,
                    cluster: 21,
                    time: 4,
                    relist: 15,
                    lose: 5,
                    standby: 8,
                    late: 5,
                    lost_answers: 138,
                    refusals: 26,
                    service_finalizers: true,
                    ..smooth
                },
                &[
                    pool(11, 12),
                    Act::CreateLb(3, lb(true, Some(0))),
                    Act::CreateLb(1, lb(true, None)),
                    Act::CreateVmi(0, 2, 2),
                ],
            ),
        ),
        (
            "a pool's counts follow the records of others after an overlap has ended",
            plan(
                smooth,
                &[
                    pool(10, 11),
                    Act::CreatePool(1, ranges(10, 12), 0, 0),
                    Act::CreateLb(0, lb(false, Some(1))),
                    Act::EditPool(1, ranges(12, 13)),
                    Act::DeleteLb(0),
                ],
            ),
        ),
        (
            "one that is broken before it was served keeps nothing",
            plan(
                smooth,
                &[
                    pool(10, 10),
                    Act::CreateLb(0, lb(true, Some(0))),
                    Act::RecreateLb(0, lb(true, Some(0))),
                    Act::BreakLb(0, true),
                    Act::CreateLb(1, lb(false, Some(0))),
                ],
            ),
        ),
        (
            "what is written during a list and deleted before it is made leaves nothing behind",
            plan(
                Style {
                    relist: 60,
                    ..smooth
                },
                &[
                    pool(10, 11),
                    Act::CreateLb(0, lb(false, Some(0))),
                    Act::DeleteLb(0),
                    Act::DeleteRecord(0),
                    Act::CreateLb(1, lb(false, Some(0))),
                    Act::DeleteLb(1),
                    Act::DeleteRecord(0),
                ],
            ),
        ),
        (
            "one that names itself is refused as soon as it has no address of its own",
            plan(
                smooth,
                &[
                    pool(10, 12),
                    Act::CreateLb(0, lb(false, None)),
                    Act::Ask(0, Asked::Primary(0)),
                    Act::NamePool(0, Some(1)),
                ],
            ),
        ),
        (
            "those that share an address are told of an edit of its pool",
            plan(
                smooth,
                &[
                    pool(10, 12),
                    Act::CreateLb(1, lb(false, Some(0))),
                    Act::CreateLb(2, lb(false, None)),
                    Act::Ask(2, Asked::Primary(1)),
                    Act::DeletePool(0),
                ],
            ),
        ),
        (
            "one that asks for the address of another one is told that this one is gone",
            plan(
                Style {
                    watch: [10, 10, 10, 1, 10, 10, 10, 10],
                    ..smooth
                },
                &[
                    Act::CreateLb(1, lb(true, None)),
                    Act::CreateLb(0, lb(true, None)),
                    Act::Ask(0, Asked::Primary(1)),
                    Act::DeleteLb(1),
                ],
            ),
        ),
        (
            "the status of a primary whose pool has gone names the address that the Service has for others",
            plan(
                Style {
                    watch: [10, 10, 40, 2, 40, 40, 10, 10],
                    ..smooth
                },
                &[
                    Act::CreateLb(0, lb(true, None)),
                    Act::CreatePool(1, ranges(22, 23), 60, 2),
                    Act::CreateLb(1, lb(true, None)),
                    Act::Ask(0, Asked::Primary(1)),
                    Act::NamePool(1, Some(3)),
                ],
            ),
        ),
        (
            "one that shares an address while another one asks for its own is not reconciled without end",
            plan(
                Style {
                    watch: [2, 2, 10, 10, 40, 40, 10, 2],
                    take: 56,
                    user: 6,
                    time: 4,
                    standby: 5,
                    workers: 4,
                    ..smooth
                },
                &[
                    Act::CreateLb(0, lb(false, Some(3))),
                    Act::CreateLb(1, of_project(false, Some(0))),
                    Act::CreatePool(0, ranges(12, 13), 147, 0),
                    Act::CreateLb(2, of_project(true, None)),
                    Act::NamePool(0, None),
                    Act::Ask(1, Asked::Primary(0)),
                    Act::Ask(2, Asked::Primary(1)),
                ],
            ),
        ),
        (
            "the address of a group ends with the last one that may share it",
            plan(
                Style {
                    watch: [40, 40, 40, 40, 40, 10, 2, 40],
                    take: 12,
                    progress: 71,
                    user: 4,
                    time: 0,
                    workers: 1,
                    ..smooth
                },
                &[
                    Act::CreateLb(1, lb(true, Some(1))),
                    Act::CreatePool(1, ranges(20, 21), 121, 2),
                    Act::Ask(1, Asked::Primary(0)),
                    Act::RecreateLb(0, of_project(true, Some(1))),
                    Act::DeleteLb(0),
                    Act::NamePool(1, Some(0)),
                ],
            ),
        ),
        (
            "two that lease an address and name each other do not wake each other without end",
            plan(
                Style {
                    watch: [10, 40, 40, 40, 40, 2, 40, 40],
                    take: 35,
                    progress: 64,
                    user: 4,
                    cluster: 16,
                    time: 4,
                    late: 5,
                    workers: 2,
                    builtin_dhcp: true,
                    ..smooth
                },
                &[
                    Act::CreateLb(2, of_dhcp),
                    Act::CreateLb(1, of_dhcp),
                    Act::Ask(1, Asked::Primary(2)),
                    Act::Ask(2, Asked::Primary(1)),
                ],
            ),
        ),
        (
            "a primary of cluster type keeps the address that others have while it cannot move",
            plan(
                smooth,
                &[
                    Act::CreatePool(1, ranges(20, 22), 194, 0),
                    Act::CreateLb(2, lb(false, Some(1))),
                    Act::CreateLb(1, lb(false, None)),
                    Act::Ask(1, Asked::Primary(2)),
                    Act::NamePool(2, Some(0)),
                ],
            ),
        ),
        (
            "what a load balancer leaves is released while others share the address that it moved to",
            plan(
                Style {
                    watch: [2, 40, 10, 40, 2, 40, 40, 2],
                    take: 56,
                    progress: 12,
                    user: 12,
                    cluster: 23,
                    time: 2,
                    crash: 3,
                    standby: 6,
                    recheck: 1,
                    late: 9,
                    ..smooth
                },
                &[
                    Act::CreatePool(1, ranges(21, 23), 171, 1),
                    Act::CreateLb(0, held_up(lb(true, None))),
                    Act::CreatePool(0, ranges(12, 13), 175, 1),
                    Act::CreateLb(2, held_up(lb(true, None))),
                    Act::NamePool(0, Some(0)),
                    Act::Ask(2, Asked::Primary(0)),
                    Act::DeleteLb(0),
                ],
            ),
        ),
        (
            "kube-vip that ignores changes does not keep the lease of an earlier load balancer",
            plan(
                Style {
                    watch: [10, 40, 40, 10, 2, 2, 2, 10],
                    take: 19,
                    progress: 48,
                    cluster: 6,
                    time: 0,
                    stuck_moves: 1000,
                    workers: 5,
                    ..smooth
                },
                &[
                    Act::CreateLb(0, of_dhcp),
                    Act::Lease(0, LeaseAct::Bind(1, true)),
                    Act::Lease(0, LeaseAct::Bind(2, true)),
                    Act::RestoreLb(0),
                ],
            ),
        ),
        (
            "the Service of an earlier load balancer goes although another object owns it too, and the later one is refused",
            plan(
                Style {
                    watch: [2, 10, 40, 10, 40, 40, 40, 10],
                    take: 47,
                    progress: 43,
                    cluster: 13,
                    time: 0,
                    late: 5,
                    service_finalizers: true,
                    workers: 1,
                    ..smooth
                },
                &[
                    Act::CreateLb(0, lb(true, Some(3))),
                    Act::CreateLb(1, asking(of_project(true, Some(0)))),
                    Act::CreateVmi(0, 2, 0),
                    pool(10, 13),
                    Act::ShareService(1, 0),
                    Act::RecreateLb(1, held_up(asking(of_dhcp))),
                ],
            ),
        ),
        (
            "the status of a primary names the address before the Service has it, also if the first write conflicts",
            plan(
                Style {
                    watch: [40, 40, 10, 2, 10, 40, 10, 40],
                    take: 44,
                    progress: 87,
                    user: 11,
                    late: 5,
                    workers: 4,
                    ..smooth
                },
                &[
                    Act::CreateLb(0, lb(true, Some(1))),
                    Act::CreatePool(1, ranges(22, 23), 197, 2),
                    Act::Exclude(0, "x"),
                    Act::NamePool(0, Some(0)),
                    Act::CreateLb(2, asking(lb(true, None))),
                    Act::Ask(2, Asked::Primary(0)),
                    Act::Ask(0, Asked::Nothing),
                ],
            ),
        ),
        (
            "an IPv6 address that a primary of VM type has from one of cluster type is shared without a Service",
            plan(
                Style {
                    watch: [40, 10, 40, 40, 10, 40, 10, 2],
                    take: 41,
                    progress: 87,
                    user: 14,
                    cluster: 23,
                    time: 4,
                    relist: 6,
                    crash: 2,
                    lose: 3,
                    lost_answers: 198,
                    refusals: 58,
                    ..smooth
                },
                &[
                    Act::CreatePool(0, of_ipv6(12, 14), 116, 2),
                    Act::CreateLb(2, asking(lb(true, None))),
                    Act::CreateLb(0, lb(false, Some(0))),
                    Act::DeleteLb(0),
                    Act::Ask(2, Asked::Primary(0)),
                    Act::CreateLb(0, asking(lb(true, None))),
                ],
            ),
        ),
        (
            "who shares the address of an earlier load balancer stays, whatever the type of the later one of its name",
            plan(
                Style {
                    watch: [10, 40, 10, 40, 40, 2, 40, 2],
                    take: 14,
                    progress: 19,
                    user: 3,
                    cluster: 22,
                    time: 0,
                    late: 5,
                    stuck_moves: 1000,
                    ..smooth
                },
                &[
                    Act::CreateLb(1, lb(true, Some(2))),
                    Act::CreateLb(2, of_project(true, Some(2))),
                    Act::CreatePool(2, ranges(30, 33), 78, 1),
                    Act::Ask(2, Asked::Primary(1)),
                    Act::RecreateLb(1, lb(false, Some(2))),
                ],
            ),
        ),
        (
            "the Service of an earlier load balancer that is still going does not hide that of the last one of the name",
            plan(
                Style {
                    watch: [40, 40, 40, 10, 2, 10, 40, 2],
                    take: 58,
                    progress: 69,
                    user: 10,
                    cluster: 4,
                    time: 0,
                    relist: 6,
                    lose: 10,
                    standby: 9,
                    late: 31,
                    service_finalizers: true,
                    workers: 4,
                    ..smooth
                },
                &[
                    Act::CreatePool(0, ranges(11, 11), 89, 2),
                    Act::CreateVmi(1, 0, 1),
                    Act::CreateLb(1, lb(true, Some(0))),
                    Act::CreateLb(0, of_project(true, Some(0))),
                    Act::CreatePool(1, ranges(22, 25), 60, 2),
                    Act::CreateLb(3, held_up(lb(true, Some(1)))),
                    Act::CreateLb(2, lb(true, Some(1))),
                    Act::CreateLb(4, lb(true, None)),
                    Act::DeleteLb(0),
                    Act::DeleteLb(4),
                    Act::DeleteService(1),
                    Act::RecreateLb(0, of_project(true, Some(1))),
                    Act::DeleteLb(0),
                ],
            ),
        ),
        (
            "a pool that the store does not have yet takes no address away",
            plan(
                Style {
                    watch: [40, 2, 40, 40, 10, 40, 2, 2],
                    take: 59,
                    progress: 73,
                    user: 3,
                    cluster: 6,
                    time: 5,
                    relist: 1,
                    crash: 4,
                    lose: 12,
                    standby: 3,
                    fence: 8,
                    late: 31,
                    lost_answers: 69,
                    ..smooth
                },
                &[
                    Act::CreateLb(0, lb(false, Some(0))),
                    Act::CreateLb(1, held_up(lb(true, Some(0)))),
                    Act::CreatePool(1, ranges(11, 12), 222, 1),
                    Act::CreateLb(2, held_up(lb(false, Some(1)))),
                    Act::CreatePool(0, ranges(12, 13), 220, 0),
                    Act::CreateVmi(1, 4, 1),
                    Act::CreateVmi(0, 0, 2),
                    Act::ReleaseRecord(1),
                    Act::DeleteLb(1),
                ],
            ),
        ),
        (
            "a later load balancer of the name that gets the address others share names it before their Service has it",
            plan(
                Style {
                    watch: [2, 10, 10, 2, 10, 40, 2, 2],
                    take: 9,
                    progress: 87,
                    user: 7,
                    cluster: 6,
                    time: 2,
                    recheck: 1,
                    late: 5,
                    workers: 2,
                    ..smooth
                },
                &[
                    Act::CreateVmi(0, 0, 0),
                    Act::CreateLb(1, lb(true, Some(0))),
                    Act::CreatePool(
                        0,
                        Ranges {
                            of: &[V4, V6],
                            ..ranges(12, 15)
                        },
                        235,
                        0,
                    ),
                    Act::CreateLb(2, of_project(true, Some(0))),
                    Act::CreateLb(0, lb(true, None)),
                    Act::Ask(2, Asked::Primary(1)),
                    Act::RecreateLb(1, asking(lb(true, None))),
                ],
            ),
        ),
    ]
}
