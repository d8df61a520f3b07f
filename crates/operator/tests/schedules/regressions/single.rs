//! Load balancers with an address of their own.

use super::parts::{SMOOTH, held_up, lb, of_dhcp, of_project, plan, pool, ranges};
use crate::acts::Act;
use crate::leases::LeaseAct;
use crate::plan::{Plan, Style};

pub(super) fn plans() -> Vec<(&'static str, Plan)> {
    vec![
        (
            "a record that another's retry has found wakes its owner",
            plan(
                Style {
                    lost_answers: 300,
                    watch: [10, 10, 2, 10, 10, 10, 10, 10],
                    ..SMOOTH
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
                SMOOTH,
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
                SMOOTH,
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
                    ..SMOOTH
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
                    ..SMOOTH
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
            "one that is broken before it was served keeps nothing",
            plan(
                SMOOTH,
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
                    ..SMOOTH
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
                    ..SMOOTH
                },
                &[
                    Act::CreateLb(0, of_dhcp()),
                    Act::Lease(0, LeaseAct::Bind(1, true)),
                    Act::Lease(0, LeaseAct::Bind(2, true)),
                    Act::RestoreLb(0),
                ],
            ),
        ),
        (
            "the Service of an earlier load balancer that is still going does not hide that of the last one of the name",
            plan(
                Style {
                    watch: [40, 40, 10, 10, 2, 10, 100, 100],
                    take: 234,
                    progress: 558,
                    user: 10,
                    cluster: 4,
                    time: 0,
                    relist: 3,
                    lose: 10,
                    standby: 9,
                    late: 62,
                    service_finalizers: true,
                    workers: 5,
                    ..SMOOTH
                },
                &[
                    Act::CreatePool(0, ranges(11, 11), 89, 2),
                    Act::CreateVmi(1, 0, 1),
                    Act::CreateLb(1, lb(true, Some(0))),
                    Act::CreateLb(0, of_project(true, Some(0))),
                    Act::CreateVmi(0, 3, 2),
                    Act::CreatePool(1, ranges(22, 25), 60, 2),
                    Act::CreateLb(3, held_up(lb(true, Some(1)))),
                    Act::CreateLb(2, lb(true, Some(1))),
                    Act::DeleteLb(0),
                    Act::DeleteLb(4),
                    Act::DeleteService(1),
                    Act::DeletePool(0),
                    Act::EditService(3, 1),
                    Act::RecreateLb(0, of_project(true, Some(1))),
                    Act::DeleteLb(0),
                ],
            ),
        ),
        (
            "a pool's counts follow the records of others after an overlap has ended",
            plan(
                SMOOTH,
                &[
                    pool(10, 11),
                    Act::CreatePool(1, ranges(10, 12), 0, 0),
                    Act::CreateLb(0, lb(false, Some(1))),
                    Act::EditPool(1, ranges(12, 13)),
                    Act::DeleteLb(0),
                ],
            ),
        ),
    ]
}
