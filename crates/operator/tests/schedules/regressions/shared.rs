//! Load balancers that share an address, or ask for one.

use super::parts::{SMOOTH, asking, held_up, lb, of_dhcp, of_ipv6, of_project, plan, pool, ranges};
use crate::acts::Act;
use crate::plan::{Plan, Style};
use crate::specs::Asked;

/// Load balancer 1 holds the address of pool 0 that 2 shares with it; the primary, 0, is gone.
pub(super) const PRIMARY_IS_GONE: [Act; 8] = [
    Act::CreateLb(0, lb(true, Some(0))),
    Act::CreateLb(1, lb(true, None)),
    Act::CreateLb(2, lb(true, None)),
    Act::Ask(1, Asked::Primary(0)),
    Act::Ask(2, Asked::Primary(0)),
    Act::TouchLb(1),
    Act::TouchLb(1),
    Act::DeleteLb(0),
];

pub(super) fn plans() -> Vec<(&'static str, Plan)> {
    vec![
        (
            "those that share an address are told of an edit of its pool",
            plan(
                SMOOTH,
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
                    ..SMOOTH
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
                    ..SMOOTH
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
                    ..SMOOTH
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
                    ..SMOOTH
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
                    ..SMOOTH
                },
                &[
                    Act::CreateLb(2, of_dhcp()),
                    Act::CreateLb(1, of_dhcp()),
                    Act::Ask(1, Asked::Primary(2)),
                    Act::Ask(2, Asked::Primary(1)),
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
                    ..SMOOTH
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
            "an IPv6 address that a primary of VM type has from one of cluster type is not shared",
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
                    ..SMOOTH
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
                    ..SMOOTH
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
            "a later load balancer of the name that gets the address others share names it before their Service has it",
            plan(
                Style {
                    watch: [100, 40, 10, 40, 2, 2, 2, 100],
                    take: 2_778,
                    progress: 66,
                    user: 7,
                    cluster: 2,
                    time: 3,
                    relist: 2,
                    recheck: 1,
                    late: 10,
                    stuck_moves: 400,
                    workers: 2,
                    ..SMOOTH
                },
                &[
                    Act::CreatePool(1, ranges(21, 22), 134, 1),
                    Act::CreateLb(0, lb(true, None)),
                    Act::CreateLb(1, lb(true, Some(1))),
                    Act::CreateLb(2, of_project(true, Some(0))),
                    Act::CreateLb(3, held_up(asking(of_dhcp()))),
                    Act::CreatePool(0, ranges(12, 14), 85, 1),
                    Act::ManualRelease(0, 0),
                    Act::NamePool(0, Some(1)),
                    Act::ShareService(0, 2),
                    Act::RecreateLb(2, of_project(true, None)),
                    Act::NamePool(0, Some(0)),
                    Act::Ask(2, Asked::Primary(1)),
                    Act::Node(2),
                    Act::RecreateLb(1, lb(false, Some(3))),
                ],
            ),
        ),
        (
            "an older one that joins after the primary has gone leaves the record with its owner",
            plan(
                SMOOTH,
                &[
                    pool(10, 14),
                    Act::CreateLb(2, lb(true, Some(0))),
                    Act::TouchLb(2),
                    Act::TouchLb(2),
                    Act::TouchLb(2),
                    Act::CreateLb(0, lb(true, Some(0))),
                    Act::CreateLb(1, lb(true, Some(0))),
                    Act::Ask(1, Asked::Primary(0)),
                    Act::TouchLb(1),
                    Act::TouchLb(1),
                    Act::DeleteLb(0),
                    Act::Ask(2, Asked::Primary(0)),
                ],
            ),
        ),
        (
            "the Service of a group without primary gets its label back",
            plan(
                SMOOTH,
                &[
                    &[pool(10, 14)][..],
                    &PRIMARY_IS_GONE,
                    &[Act::TouchLb(1), Act::EditService(0, 3)],
                ]
                .concat(),
            ),
        ),
        (
            "a Service whose only owner was written by hand makes no group",
            plan(
                Style {
                    watch: [2, 2, 10, 10, 2, 40, 2, 10],
                    take: 44,
                    progress: 72,
                    user: 6,
                    cluster: 24,
                    late: 5,
                    workers: 5,
                    ..SMOOTH
                },
                &[
                    Act::CreateLb(0, lb(true, None)),
                    Act::CreateVmi(1, 5, 2),
                    Act::CreateLb(2, of_dhcp()),
                    Act::CreateLb(1, held_up(of_dhcp())),
                    Act::Ask(0, Asked::Primary(1)),
                    Act::ShareService(1, 0),
                    Act::DeleteLb(1),
                    Act::RecreateLb(1, of_project(false, Some(1))),
                ],
            ),
        ),
        (
            "a primary that names itself and loses its pool keeps the Service of others",
            plan(
                SMOOTH,
                &[
                    pool(10, 13),
                    Act::CreateLb(0, lb(true, None)),
                    Act::CreateLb(2, lb(true, None)),
                    Act::Ask(2, Asked::Primary(0)),
                    Act::TouchLb(2),
                    Act::Ask(0, Asked::Primary(0)),
                    Act::NamePool(0, Some(3)),
                ],
            ),
        ),
        (
            "nobody joins an address of which a release is under way",
            plan(
                Style {
                    lost_answers: 300,
                    fence: 8,
                    ..SMOOTH
                },
                &[
                    pool(10, 11),
                    Act::CreateLb(1, lb(false, None)),
                    Act::NamePool(1, Some(3)),
                    Act::CreateLb(0, lb(false, Some(3))),
                    Act::Ask(0, Asked::Primary(1)),
                ],
            ),
        ),
        (
            "the last one of a group that leaves keeps the address until its status names it no longer",
            plan(
                SMOOTH,
                &[
                    pool(11, 13),
                    Act::CreateLb(0, lb(true, None)),
                    Act::CreateLb(2, lb(true, None)),
                    Act::Ask(2, Asked::Primary(0)),
                    Act::TouchLb(2),
                    Act::DeleteLb(0),
                    Act::TouchLb(2),
                    Act::Ask(2, Asked::Address),
                ],
            ),
        ),
        (
            "a recreated primary is not kept out by one that may not share any more",
            plan(
                SMOOTH,
                &[
                    Act::CreatePool(1, ranges(20, 22), 16, 1),
                    Act::CreateLb(1, lb(true, Some(1))),
                    Act::CreateLb(0, lb(true, None)),
                    Act::Ask(0, Asked::Primary(1)),
                    Act::TouchLb(0),
                    Act::RecreateLb(1, lb(true, Some(1))),
                    Act::NamePool(0, Some(0)),
                ],
            ),
        ),
        (
            "nobody joins the address of an earlier primary that the present one cannot have",
            plan(
                Style {
                    watch: [10, 10, 40, 40, 40, 40, 10, 40],
                    ..SMOOTH
                },
                &[
                    Act::CreateLb(1, lb(false, None)),
                    Act::CreatePool(0, of_ipv6(12, 13), 232, 0),
                    Act::RecreateLb(0, of_project(true, Some(0))),
                    Act::RecreateLb(1, of_project(true, Some(3))),
                    Act::Ask(0, Asked::Primary(1)),
                ],
            ),
        ),
        (
            "one that may not share any more leaves the address of an earlier primary that the present one cannot have",
            plan(
                SMOOTH,
                &[
                    Act::CreatePool(1, ranges(20, 22), 16, 1),
                    Act::CreateLb(1, lb(true, Some(1))),
                    Act::CreateLb(0, lb(true, None)),
                    Act::Ask(0, Asked::Primary(1)),
                    Act::TouchLb(0),
                    Act::RecreateLb(1, lb(true, Some(3))),
                    Act::TouchLb(0),
                    Act::NamePool(0, Some(0)),
                ],
            ),
        ),
        (
            "a Service that an owner was written into by hand stays while its slice is edited",
            plan(
                SMOOTH,
                &[
                    pool(10, 13),
                    Act::CreateLb(1, held_up(lb(true, None))),
                    Act::CreateLb(0, lb(false, Some(0))),
                    Act::TouchLb(1),
                    Act::DeleteLb(1),
                    Act::EditSlice(1),
                    Act::ShareService(1, 0),
                ],
            ),
        ),
    ]
}
