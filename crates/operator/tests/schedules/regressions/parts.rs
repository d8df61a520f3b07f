//! What the plans are made of: a style without faults, load balancers, ranges.

use crate::acts::Act;
use crate::plan::{Plan, Style};
use crate::specs::{LbSpec, Ranges, V4, V6};

/// No fault, and watches of the same pace.
pub(super) const SMOOTH: Style = Style {
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

pub(super) fn plan(style: Style, acts: &[Act]) -> Plan {
    Plan {
        acts: acts.to_vec(),
        style,
    }
}

pub(super) const fn lb(vm: bool, pool: Option<usize>) -> LbSpec {
    LbSpec {
        vm,
        dhcp: false,
        pool,
        project: false,
        held_up: false,
        asks: false,
    }
}

pub(super) const fn of_dhcp() -> LbSpec {
    LbSpec {
        dhcp: true,
        ..lb(true, None)
    }
}

pub(super) const fn of_project(vm: bool, pool: Option<usize>) -> LbSpec {
    LbSpec {
        project: true,
        ..lb(vm, pool)
    }
}

pub(super) const fn asking(lb: LbSpec) -> LbSpec {
    LbSpec { asks: true, ..lb }
}

pub(super) const fn held_up(lb: LbSpec) -> LbSpec {
    LbSpec {
        held_up: true,
        ..lb
    }
}

pub(super) const fn ranges(first: u8, last: u8) -> Ranges {
    Ranges {
        first,
        last,
        gateway: 1,
        broken: false,
        of: &[V4],
    }
}

pub(super) const fn of_ipv6(first: u8, last: u8) -> Ranges {
    Ranges {
        of: &[V6],
        ..ranges(first, last)
    }
}

pub(super) const fn pool(first: u8, last: u8) -> Act {
    Act::CreatePool(0, ranges(first, last), 0, 0)
}
