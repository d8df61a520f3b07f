//! Shared by the tests of the steps: a case and its parts. The tests are in one module per subject, all orders of events in `world`.

use harvester_lb_ipam::dhcp::{Conflict, HardwareAddress, HardwareAddressError};
use harvester_lb_ipam::{Owner, Uid};

use super::*;

mod acquire;
mod conflict;
mod mode;
mod moves;
mod release;
mod world;

const A: Ipv4Addr = Ipv4Addr::new(192, 168, 100, 7);
const B: Ipv4Addr = Ipv4Addr::new(192, 168, 100, 8);
const NOW: Micros = Micros(1_770_000_000_000_000);
const OTHER_HARDWARE: HardwareAddress = HardwareAddress([2, 0, 0, 0, 0, 9]);

fn owner() -> Owner {
    Owner::new("shop", "web", "6f1c6f0a-3f0e-4b57-9d4e-1f2f3a4b5c6d")
}

fn interfaces() -> Interfaces {
    by_default(true)
}

fn by_default(is_chosen: bool) -> Interfaces {
    Interfaces {
        default: "eth0".to_owned(),
        is_chosen,
        allowed: "eth1".parse().unwrap(),
    }
}

fn claims(interface: Option<&str>) -> Claim {
    Claim::Lease {
        interface: interface.map(ToOwned::to_owned),
        hardware: Ok(None),
    }
}

fn lb(claim: Claim) -> LbView {
    LbView {
        owner: owner(),
        claim,
    }
}

fn lease(address: Ipv4Addr) -> Lease {
    Lease {
        address,
        server: Ipv4Addr::new(192, 168, 100, 1),
        server_hardware: None,
        mask: None,
        router: None,
        times: None,
    }
}

fn record(phase: LeasePhase) -> LeaseSpec {
    LeaseSpec {
        owner: owner(),
        phase,
        interface: "eth0".to_owned(),
        is_chosen: true,
        hardware: Identity::new(&owner().uid, None).hardware,
        wanted: None,
        bound_at: None,
    }
}

fn client(lease: Option<Lease>) -> ClientView {
    ClientView {
        interface: "eth0".to_owned(),
        hardware: Identity::new(&owner().uid, None).hardware,
        lease,
        is_asking: false,
        loss: None,
        declined: None,
    }
}

struct Case {
    mode: Mode,
    claim: Option<Claim>,
    record: Option<LeaseSpec>,
    client: Option<ClientView>,
    is_kube_vips: bool,
    is_served: bool,
    holder: Option<Holder>,
    ending_twin: Option<Owner>,
    interfaces: Interfaces,
}

impl Case {
    fn of(claim: Option<Claim>, record: Option<LeasePhase>, client: Option<ClientView>) -> Self {
        Self {
            mode: Mode::Builtin,
            claim,
            record: record.map(self::record),
            client,
            is_kube_vips: false,
            is_served: false,
            holder: None,
            ending_twin: None,
            interfaces: interfaces(),
        }
    }

    fn step(&self) -> Step {
        let lb = self.claim.clone().map(lb);
        let situation = Situation {
            mode: self.mode,
            interfaces: &self.interfaces,
            lb: lb.as_ref(),
            record: self.record.as_ref(),
            client: self.client.as_ref(),
            is_kube_vips: self.is_kube_vips,
            is_served: self.is_served,
            holder: self.holder.as_ref(),
            ending_twin: self.ending_twin.as_ref(),
        };
        decide(&situation, NOW)
    }
}

fn asks() -> Claim {
    claims(None)
}

fn pending(wanted: Option<Ipv4Addr>) -> LeaseSpec {
    LeaseSpec {
        wanted,
        ..record(LeasePhase::Pending)
    }
}

fn bound_now(address: Ipv4Addr) -> LeaseSpec {
    LeaseSpec {
        bound_at: Some(NOW),
        ..record(LeasePhase::Bound(lease(address)))
    }
}
