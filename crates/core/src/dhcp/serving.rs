//! What the operator does about the address of a load balancer of VM type with `ipam: dhcp`, from the record of its lease (DHC-1,
//! DHC-3, DHC-6). Pure.
//!
//! | record | mode `builtin` | mode `kube-vip` |
//! |---|---|---|
//! | none | no Service; one that is kube-vip's stays until there is a record | kube-vip's Service |
//! | Pending | no Service | kube-vip's Service |
//! | Bound | the Service has the leased address until the lease expires, then none | the same, then kube-vip's Service |
//! | Releasing | no Service | no Service until the lease expires, then kube-vip's: perhaps no DHCP process runs any more |
//! | Released | no Service | kube-vip's Service, which asks for the same address |
//!
//! kube-vip's Service has the address 0.0.0.0, for which kube-vip asks a DHCP server (OPS-3). The mode of the two processes is changed
//! one after the other; the record decides, so that the one never serves an address that the other has given back.

use std::net::Ipv4Addr;

use harvester_lb_ipam::Micros;
use harvester_lb_ipam::dhcp::{HardwareAddress, Lease};

use super::Mode;
use super::record::{LeasePhase, LeaseSpec};

/// What kube-vip's DHCP client is to ask for (DHC-6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handed {
    /// The address.
    pub address: Ipv4Addr,
    /// The hardware address under which the server knows it.
    pub hardware: HardwareAddress,
}

/// Who serves a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Serving {
    /// The Service has this address until then; `None`: for ever.
    Leased(Ipv4Addr, Option<Micros>),
    /// kube-vip's DHCP client.
    KubeVip(Option<Handed>),
    /// Nobody: why, and when that ends without a change of the record.
    Waiting(String, Option<Micros>),
}

/// Who serves a load balancer at this time. `is_kube_vips`: its Service is kube-vip's.
pub fn serving(mode: Mode, lease: Option<&LeaseSpec>, is_kube_vips: bool, now: Micros) -> Serving {
    let Some(lease) = lease else {
        return match mode {
            Mode::Builtin if !is_kube_vips => {
                let why = "waiting for the DHCP process to ask for a lease";
                Serving::Waiting(why.to_owned(), None)
            }
            Mode::Builtin | Mode::KubeVip => Serving::KubeVip(None),
        };
    };
    let handed = |address| Handed {
        address,
        hardware: lease.hardware,
    };
    let on = &lease.interface;
    let waiting = |why| Serving::Waiting(why, None);
    let expires_at = |held: &Lease| held.times.map(|times| times.expires_at);
    match (&lease.phase, mode) {
        (LeasePhase::Bound(held), _) if !held.is_expired(now) => {
            Serving::Leased(held.address, expires_at(held))
        }
        (LeasePhase::Bound(held), Mode::Builtin) => waiting(format!(
            "the DHCP lease of {} on interface {on} has expired",
            held.address
        )),
        (LeasePhase::Bound(held), Mode::KubeVip) => Serving::KubeVip(Some(handed(held.address))),
        (LeasePhase::Pending, Mode::Builtin) => {
            waiting(format!("waiting for a DHCP lease on interface {on}"))
        }
        (LeasePhase::Pending, Mode::KubeVip) => Serving::KubeVip(None),
        (LeasePhase::Releasing(held), Mode::KubeVip) if held.is_expired(now) => {
            Serving::KubeVip(Some(handed(held.address)))
        }
        (LeasePhase::Releasing(held), mode) => Serving::Waiting(
            format!(
                "the DHCP lease of {} on interface {on} is being given back",
                held.address
            ),
            expires_at(held).filter(|_| mode == Mode::KubeVip),
        ),
        (LeasePhase::Released(address), Mode::Builtin) => waiting(format!(
            "the DHCP lease of {address} on interface {on} was given back, waiting for another one"
        )),
        (LeasePhase::Released(address), Mode::KubeVip) => Serving::KubeVip(Some(handed(*address))),
    }
}

#[cfg(test)]
mod tests {
    use harvester_lb_ipam::dhcp::LeaseTimes;
    use harvester_lb_ipam::{Owner, Uid};

    use super::*;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 168, 100, 210);

    fn spec(phase: LeasePhase) -> LeaseSpec {
        LeaseSpec {
            owner: Owner::new("ns", "web", "1"),
            phase,
            interface: "mgmt-br".to_owned(),
            is_chosen: false,
            hardware: hardware(),
            wanted: None,
            bound_at: None,
        }
    }

    fn hardware() -> HardwareAddress {
        harvester_lb_ipam::dhcp::Identity::new(&Uid::new("1"), None).hardware
    }

    fn lease(expires_at: Option<i64>) -> Lease {
        Lease {
            address: ADDRESS,
            server: Ipv4Addr::new(192, 168, 100, 1),
            server_hardware: None,
            mask: None,
            router: None,
            times: expires_at.map(|at| LeaseTimes {
                renew_at: Micros(at / 2),
                rebind_at: Micros(at / 8 * 7),
                expires_at: Micros(at),
            }),
        }
    }

    type Case = (
        Mode,
        Option<LeasePhase>,
        bool,
        Result<Serving, &'static str>,
    );

    #[test]
    fn dhc_3_dhc_6_the_record_decides() {
        use LeasePhase::{Bound, Pending, Released, Releasing};
        use Mode::{Builtin, KubeVip};
        let handed = Some(Handed {
            address: ADDRESS,
            hardware: hardware(),
        });
        // Mode, record, whether the Service is kube-vip's; what the operator does, or a part of why it waits.
        let cases: Vec<Case> = vec![
            (Builtin, None, false, Err("ask for a lease")),
            (Builtin, None, true, Ok(Serving::KubeVip(None))),
            (KubeVip, None, false, Ok(Serving::KubeVip(None))),
            (KubeVip, None, true, Ok(Serving::KubeVip(None))),
            (
                Builtin,
                Some(Pending),
                false,
                Err("waiting for a DHCP lease on interface mgmt-br"),
            ),
            (
                Builtin,
                Some(Pending),
                true,
                Err("waiting for a DHCP lease"),
            ),
            (KubeVip, Some(Pending), false, Ok(Serving::KubeVip(None))),
            (
                Builtin,
                Some(Bound(lease(Some(101)))),
                false,
                Ok(Serving::Leased(ADDRESS, Some(Micros(101)))),
            ),
            (
                KubeVip,
                Some(Bound(lease(Some(101)))),
                true,
                Ok(Serving::Leased(ADDRESS, Some(Micros(101)))),
            ),
            (
                Builtin,
                Some(Bound(lease(None))),
                false,
                Ok(Serving::Leased(ADDRESS, None)),
            ),
            (
                Builtin,
                Some(Bound(lease(Some(100)))),
                false,
                Err("has expired"),
            ),
            (
                Builtin,
                Some(Bound(lease(Some(100)))),
                true,
                Err("has expired"),
            ),
            (
                KubeVip,
                Some(Bound(lease(Some(100)))),
                false,
                Ok(Serving::KubeVip(handed)),
            ),
            (
                Builtin,
                Some(Releasing(lease(Some(101)))),
                false,
                Err("being given back"),
            ),
            (
                KubeVip,
                Some(Releasing(lease(None))),
                true,
                Err("being given back"),
            ),
            // Perhaps no DHCP process runs any more that could write Released.
            (
                KubeVip,
                Some(Releasing(lease(Some(100)))),
                false,
                Ok(Serving::KubeVip(handed)),
            ),
            (
                Builtin,
                Some(Releasing(lease(Some(100)))),
                false,
                Err("being given back"),
            ),
            (
                Builtin,
                Some(Released(ADDRESS)),
                true,
                Err("was given back"),
            ),
            (
                KubeVip,
                Some(Released(ADDRESS)),
                false,
                Ok(Serving::KubeVip(handed)),
            ),
        ];
        for (mode, phase, is_kube_vips, expected) in cases {
            let lease = phase.map(spec);
            let told = serving(mode, lease.as_ref(), is_kube_vips, Micros(100));
            match (told, expected) {
                (Serving::Waiting(why, _), Err(part)) => {
                    assert!(why.contains(part), "{mode:?} {phase:?}: {why}");
                }
                (told, expected) => assert_eq!(Ok(told), expected, "{mode:?} {phase:?}"),
            }
        }
    }

    #[test]
    fn dhc_6_kube_vip_waits_no_longer_than_for_the_expiry() {
        let at = |mode, expires_at| {
            let spec = spec(LeasePhase::Releasing(lease(expires_at)));
            match serving(mode, Some(&spec), false, Micros(100)) {
                Serving::Waiting(_, until) => until,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(at(Mode::KubeVip, Some(101)), Some(Micros(101)));
        assert_eq!(at(Mode::KubeVip, None), None);
        assert_eq!(at(Mode::Builtin, Some(101)), None);
    }
}
