//! Load balancers that share an address: the primary moves, the holder goes, a spec is refused.

use super::parts::{SMOOTH, asking, held_up, lb, of_dhcp, of_project, plan, pool, ranges};
use super::shared::PRIMARY_IS_GONE;
use crate::acts::Act;
use crate::plan::{Plan, Style};
use crate::policy::Denied;
use crate::specs::Asked;

pub(super) fn plans() -> Vec<(&'static str, Plan)> {
    vec![
        (
            "one that names itself is refused as soon as it has no address of its own",
            plan(
                SMOOTH,
                &[
                    pool(10, 12),
                    Act::CreateLb(0, lb(false, None)),
                    Act::Ask(0, Asked::Primary(0)),
                    Act::NamePool(0, Some(1)),
                ],
            ),
        ),
        (
            "a primary of cluster type keeps the address that others have while it cannot move",
            plan(
                SMOOTH,
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
                    ..SMOOTH
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
                    ..SMOOTH
                },
                &[
                    Act::CreateLb(0, lb(true, Some(3))),
                    Act::CreateLb(1, asking(of_project(true, Some(0)))),
                    Act::CreateVmi(0, 2, 0),
                    pool(10, 13),
                    Act::ShareService(1, 0),
                    Act::RecreateLb(1, held_up(asking(of_dhcp()))),
                ],
            ),
        ),
        (
            "a holder that names another pool drops out, and the others go on",
            plan(
                SMOOTH,
                &[
                    &[pool(10, 14), Act::CreatePool(1, ranges(20, 24), 0, 0)][..],
                    &PRIMARY_IS_GONE,
                    &[Act::NamePool(1, Some(1))],
                ]
                .concat(),
            ),
        ),
        (
            "a holder that asks for a port of another one drops out, and the others go on",
            plan(
                SMOOTH,
                &[
                    &[pool(10, 14)][..],
                    &PRIMARY_IS_GONE,
                    &[
                        Act::BreakLb(2, false),
                        Act::TouchLb(1),
                        Act::TouchLb(1),
                        Act::BreakLb(1, false),
                    ],
                ]
                .concat(),
            ),
        ),
        (
            "the Service of a group whose primary is gone moves on although kube-vip ignores changes",
            plan(
                Style {
                    stuck_moves: 1_000,
                    ..SMOOTH
                },
                &[
                    pool(10, 14),
                    Act::CreatePool(1, ranges(20, 24), 0, 0),
                    Act::CreateLb(0, lb(true, Some(0))),
                    Act::CreateLb(1, lb(true, None)),
                    Act::Ask(1, Asked::Primary(0)),
                    Act::TouchLb(1),
                    Act::TouchLb(1),
                    Act::NamePool(0, Some(1)),
                    Act::DeleteLb(0),
                ],
            ),
        ),
        (
            "one whose spec is refused moves with the address that it shares",
            plan(
                SMOOTH,
                &[
                    pool(10, 14),
                    Act::CreatePool(1, ranges(20, 24), 0, 0),
                    Act::CreateLb(0, lb(true, Some(0))),
                    Act::CreateLb(1, lb(true, None)),
                    Act::Ask(1, Asked::Primary(0)),
                    Act::Wait,
                    Act::BreakLb(1, true),
                    Act::Wait,
                    Act::NamePool(0, Some(1)),
                ],
            ),
        ),
        (
            "the holder is gone before all have followed the move of a primary that is gone",
            plan(
                Style {
                    watch: [40, 40, 2, 40, 40, 2, 10, 10],
                    take: 23,
                    progress: 47,
                    user: 18,
                    cluster: 9,
                    time: 5,
                    late: 5,
                    stuck_moves: 400,
                    workers: 1,
                    ..SMOOTH
                },
                &[
                    pool(12, 15),
                    Act::CreatePool(1, ranges(20, 23), 0, 0),
                    Act::CreateLb(1, lb(false, Some(0))),
                    Act::CreateLb(2, lb(false, None)),
                    Act::CreateLb(0, lb(false, None)),
                    Act::Ask(0, Asked::Primary(1)),
                    Act::Ask(2, Asked::Primary(1)),
                    Act::Wait,
                    Act::NamePool(1, Some(1)),
                    Act::DeleteLb(1),
                    Act::RecreateLb(0, lb(false, None)),
                ],
            ),
        ),
        (
            "a primary that gets none of its ports moves with the address of the others",
            plan(
                Style {
                    stuck_moves: 1_000,
                    ..SMOOTH
                },
                &[
                    pool(10, 14),
                    Act::CreatePool(1, ranges(20, 24), 0, 0),
                    Act::CreateLb(1, lb(true, Some(0))),
                    Act::CreateLb(0, lb(true, None)),
                    Act::Ask(0, Asked::Primary(1)),
                    Act::TouchLb(1),
                    Act::TouchLb(1),
                    Act::BreakLb(1, false),
                    Act::NamePool(1, Some(1)),
                ],
            ),
        ),
        (
            "kube-vip that ignores a move does so no longer once the primary has lost its pool",
            plan(
                Style {
                    stuck_moves: 1000,
                    ..SMOOTH
                },
                &[
                    pool(12, 14),
                    Act::CreatePool(1, ranges(21, 23), 16, 1),
                    Act::CreateLb(0, lb(true, Some(0))),
                    Act::CreateLb(1, lb(true, Some(0))),
                    Act::NamePool(0, Some(1)),
                    Act::Ask(1, Asked::Primary(0)),
                    Act::NamePool(0, Some(3)),
                ],
            ),
        ),
        (
            "one that only asks is not the holder of what an earlier primary has left",
            plan(
                SMOOTH,
                &[
                    pool(10, 13),
                    Act::CreatePool(1, ranges(20, 22), 16, 1),
                    Act::CreateLb(0, lb(true, Some(0))),
                    Act::CreateLb(1, lb(true, None)),
                    Act::Ask(1, Asked::Primary(0)),
                    Act::TouchLb(1),
                    Act::DeleteLb(0),
                    Act::TouchLb(1),
                    Act::CreateLb(0, lb(true, Some(1))),
                    Act::BreakLb(0, true),
                    Act::CreateLb(4, lb(true, None)),
                    Act::Ask(4, Asked::Primary(0)),
                    Act::TouchLb(4),
                    Act::Ask(1, Asked::Nothing),
                ],
            ),
        ),
        (
            "a refused holder that leaves the group does not keep the address from being released",
            plan(
                SMOOTH,
                &[
                    pool(10, 13),
                    Act::CreateLb(0, lb(true, Some(0))),
                    Act::CreateLb(1, lb(true, None)),
                    Act::Ask(1, Asked::Primary(0)),
                    Act::TouchLb(1),
                    Act::DeleteLb(0),
                    Act::TouchLb(1),
                    Act::BreakLb(1, true),
                    Act::TouchLb(1),
                    Act::Ask(1, Asked::Nothing),
                ],
            ),
        ),
        (
            "a refused secondary that asks for another address does not keep that of a deleted primary",
            plan(
                SMOOTH,
                &[
                    pool(10, 13),
                    Act::CreateLb(0, lb(true, Some(0))),
                    Act::CreateLb(1, lb(true, None)),
                    Act::Ask(1, Asked::Primary(0)),
                    Act::TouchLb(1),
                    Act::TouchLb(0),
                    Act::BreakLb(1, true),
                    Act::TouchLb(1),
                    Act::Ask(1, Asked::Primary(2)),
                    Act::TouchLb(1),
                    Act::DeleteLb(0),
                ],
            ),
        ),
        (
            "the address of a group whose name a foreign Service takes stays in the status of its holder",
            plan(
                SMOOTH,
                &[
                    pool(10, 13),
                    Act::CreateLb(1, lb(true, Some(0))),
                    Act::CreateLb(0, lb(true, None)),
                    Act::Ask(0, Asked::Primary(1)),
                    Act::TouchLb(0),
                    Act::RecreateLb(1, lb(false, Some(0))),
                    Act::ForeignService(1),
                ],
            ),
        ),
        (
            "the Service of a group ends although the record of its last holder, which leaves it, was deleted by hand",
            plan(
                SMOOTH,
                &[
                    pool(11, 13),
                    Act::CreateLb(1, lb(true, Some(0))),
                    Act::CreateLb(0, lb(true, None)),
                    Act::Ask(0, Asked::Primary(1)),
                    Act::TouchLb(0),
                    Act::TouchLb(1),
                    Act::DeleteLb(1),
                    Act::TouchLb(0),
                    Act::Ask(0, Asked::Nothing),
                    Act::DeleteRecord(0),
                ],
            ),
        ),
        (
            "one that leaves a group whose Service is refused is not woken without end",
            plan(
                SMOOTH,
                &[
                    pool(10, 12),
                    Act::Deny(Some(Denied::Port(81))),
                    Act::CreateLb(1, lb(true, None)),
                    Act::CreateVmi(0, 2, 1),
                    Act::CreateLb(0, lb(true, Some(0))),
                    Act::Ask(1, Asked::Primary(0)),
                    Act::TouchLb(1),
                    Act::Deny(None),
                    Act::NamePool(1, Some(3)),
                    Act::Deny(Some(Denied::Addresses(false))),
                ],
            ),
        ),
    ]
}
