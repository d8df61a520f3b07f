//! The DHCP leases, by their records (DHC-1).

use std::collections::BTreeMap;

use harvester_lb_core::cached::Allocation;
use harvester_lb_core::dhcp::record::{LeasePhase, LeaseSpec};
use harvester_lb_ipam::Micros;

use prometheus::{GaugeVec, IntGaugeVec};

use crate::context::Context;

/// Values of the label `state`; each has a series, so that an alert has something to compare.
const STATES: [&str; 6] = [
    "pending",
    "bound",
    "rebinding",
    "expired",
    "releasing",
    "released",
];

/// Counts the leases by state at this time, and exports when each expires.
pub(super) fn fill(ctx: &Context, leases: &IntGaugeVec, expiry: &GaugeVec, now: Micros) {
    let mut counts: BTreeMap<&str, i64> = STATES.into_iter().map(|it| (it, 0)).collect();
    ctx.index.stores.allocations.for_each(|_, stored| {
        let Allocation::Lease(record) = stored else {
            return;
        };
        *counts.entry(state(&record.spec, now)).or_default() += 1;
        if let LeasePhase::Bound(lease) = &record.spec.phase
            && let Some(times) = lease.times
        {
            let owner = &record.spec.owner.id;
            expiry
                .with_label_values(&[owner.namespace(), owner.name()])
                .set(seconds(times.expires_at));
        }
    });
    for (state, count) in counts {
        leases.with_label_values(&[state]).set(count);
    }
}

/// What an alert needs to tell apart: after T2 the server of the lease has not answered since T1. With the default T1 and T2 that is
/// three eighths of the lease time; a server may send others.
fn state(lease: &LeaseSpec, now: Micros) -> &'static str {
    match &lease.phase {
        LeasePhase::Pending => "pending",
        LeasePhase::Bound(held) if held.is_expired(now) => "expired",
        LeasePhase::Bound(held) if held.times.is_some_and(|it| now >= it.rebind_at) => "rebinding",
        LeasePhase::Bound(_) => "bound",
        LeasePhase::Releasing(_) => "releasing",
        LeasePhase::Released(_) => "released",
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "seconds since 1970 with microseconds fit to the microsecond until the year 2100"
)]
fn seconds(time: Micros) -> f64 {
    time.0 as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use harvester_lb_ipam::dhcp::{Identity, Lease, LeaseTimes};
    use harvester_lb_ipam::{Owner, Uid};

    use super::*;

    #[test]
    fn dhc_1_states_of_leases() {
        let lease = Lease {
            address: Ipv4Addr::new(10, 0, 0, 1),
            server: Ipv4Addr::new(10, 0, 0, 2),
            server_hardware: None,
            mask: None,
            router: None,
            times: Some(LeaseTimes {
                renew_at: Micros(50),
                rebind_at: Micros(87),
                expires_at: Micros(100),
            }),
        };
        let endless = Lease {
            times: None,
            ..lease
        };
        let cases = [
            (LeasePhase::Pending, 0, "pending"),
            (LeasePhase::Bound(lease), 86, "bound"),
            (LeasePhase::Bound(lease), 87, "rebinding"),
            (LeasePhase::Bound(lease), 99, "rebinding"),
            (LeasePhase::Bound(lease), 100, "expired"),
            (LeasePhase::Bound(endless), 1000, "bound"),
            (LeasePhase::Releasing(lease), 1000, "releasing"),
            (LeasePhase::Released(lease.address), 0, "released"),
        ];
        for (phase, now, expected) in cases {
            let spec = LeaseSpec {
                owner: Owner::new("ns", "web", "1"),
                phase,
                interface: "eth0".to_owned(),
                is_chosen: false,
                hardware: Identity::new(&Uid::new("1"), None).hardware,
                wanted: None,
                bound_at: None,
            };
            let told = state(&spec, Micros(now));
            assert_eq!(told, expected, "{spec:?}");
            assert!(STATES.contains(&told));
        }
    }
}
