//! DHCP leases (DHC-1 to DHC-5).

use super::sharing::{foreign, shares_with};
use super::unserved::is_right;
use super::*;

/// The record of the lease of the second load balancer.
fn lease(phase: &str, address: &str) -> IPAllocation {
    let mut lease = record(address, phase, "b");
    lease.metadata.name = Some(format!("dhcp-{}", uid("b")));
    lease.spec.pool = String::new();
    lease.spec.lease = Some(made(json!({
        "interface": "mgmt-br", "hardwareAddress": "02:00:00:00:00:01", "clientId": "ff",
        "server": "192.168.7.1",
    })));
    lease
}

/// The second load balancer has this address by DHCP, from a lease or by kube-vip.
fn leased(all: &mut Snapshot, address: &str, asks: &str) {
    let lb = &mut all.load_balancers[1];
    lb.spec.ipam = Some(harvester_lb_api::Ipam::Dhcp);
    let status = lb.status.as_mut().unwrap();
    status.address = Some(address.to_owned());
    status.allocated_address = made(json!({"ip": keys::DHCP_ADDRESS}));
    all.records.remove(1);
    all.pools[0] = pool(3, &[("10.0.0.2", "n/a")], &[("10.0.0.4", "n/old")]);
    all.services[0] = service("b", asks);
    all.services[0].status = made(fixtures::announced(address));
}

/// It waits for a lease, and has no Service.
fn waits(all: &mut Snapshot) {
    leased(all, "", "");
    all.services.clear();
    all.slices.clear();
    let lb = &mut all.load_balancers[1];
    lb.status.as_mut().unwrap().address = None;
    lb.status.as_mut().unwrap().backend_servers = None;
    says(lb, "WaitingForLease", "why");
}

const LEASED: &str = "192.168.7.7";

#[test]
fn dhc_1_what_is_right_about_leases() {
    is_right(&[
        ("kube-vip's", |all| leased(all, LEASED, "0.0.0.0")),
        ("kube-vip's beside a lease that is asked for", |all| {
            leased(all, LEASED, "0.0.0.0");
            all.records.push(lease("Pending", ""));
        }),
        ("bound", |all| {
            leased(all, LEASED, LEASED);
            all.records.push(lease("Bound", LEASED));
            let lb = &mut all.load_balancers[1];
            tells(lb, "AddressAllocated", "True", "192.168.7.7 by DHCP");
        }),
        ("expired", |all| {
            waits(all);
            all.records.push(lease("Bound", LEASED));
        }),
        ("asked for", |all| {
            waits(all);
            all.records.push(lease("Pending", ""));
        }),
        ("no record", waits),
        (
            "that of an earlier one, which kube-vip announces, and the spec is refused",
            |all| {
                let b = served("b", vm_spec("web"), "10.0.0.3", &[]);
                all.load_balancers[1] = b;
                let lb = &mut all.load_balancers[1];
                lb.spec.listeners = None;
                lb.status.as_mut().unwrap().address = Some(LEASED.to_owned());
                says(lb, "InvalidListener", "why");
                all.services[0].status = made(fixtures::announced(LEASED));
                let mut before = lease("Bound", LEASED);
                before.metadata.name = Some("dhcp-before".to_owned());
                before.spec.owner.uid = "before".to_owned();
                all.records.push(before);
            },
        ),
        (
            "a foreign Service, and it may not share an address",
            |all| {
                waits(all);
                all.services.push(foreign("b"));
                shares_with(all, "b");
                let why = "annotation: the load balancer itself";
                says(&mut all.load_balancers[1], "InvalidPrimary", why);
            },
        ),
        ("given back", |all| {
            waits(all);
            all.records.push(lease("Releasing", LEASED));
        }),
    ]);
}

#[test]
fn dhc_3_wrongs_of_leases_are_named() {
    is_named(&[
        (
            |all| {
                leased(all, LEASED, LEASED);
                all.records.push(lease("Releasing", LEASED));
            },
            "section 8.2",
            "LoadBalancer n/b (section 8.2): has address ",
        ),
        (
            |all| leased(all, LEASED, LEASED),
            "section 8.2",
            "spec.loadBalancerIP of its Service is \"192.168.7.7\"",
        ),
        (
            |all| {
                leased(all, LEASED, LEASED);
                all.records.push(lease("Bound", "192.168.7.8"));
            },
            "section 8.2",
            "has address 192.168.7.8",
        ),
        (
            |all| {
                leased(all, "192.168.7.8", LEASED);
                all.records.push(lease("Bound", LEASED));
            },
            "REL-4",
            "has address 192.168.7.7, announced is \"192.168.7.8\"",
        ),
        (
            |all| {
                waits(all);
                says(&mut all.load_balancers[1], "NoAvailableIP", "");
            },
            "DHC-1",
            "uses DHCP and has no Service",
        ),
        (
            |all| {
                waits(all);
                let status = all.load_balancers[1].status.as_mut().unwrap();
                status.address = Some(LEASED.to_owned());
            },
            "DHC-3",
            "waits for a lease, and status.address is",
        ),
        (
            |all| {
                let mut gone = lease("Bound", LEASED);
                gone.metadata.name = Some("dhcp-before".to_owned());
                gone.spec.owner.uid = "before".to_owned();
                all.records.push(gone);
            },
            "DHC-4",
            "IPAllocation dhcp-before (DHC-4): is the DHCP lease of LoadBalancer n/b, which does not exist",
        ),
        // DHC-5: the address is taken.
        (
            |all| {
                leased(all, "10.0.0.3", "10.0.0.3");
                all.records.push(lease("Bound", "10.0.0.3"));
            },
            "ALC-11",
            "status.available",
        ),
    ]);
}
