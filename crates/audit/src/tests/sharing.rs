//! Shared addresses (SHR-1): what is said of one that does not get the address that it asks for.

use super::unserved::is_right;
use super::*;

/// A Service of another owner.
pub(super) fn foreign(name: &str) -> Service {
    let mut service = service(name, "10.0.0.99");
    service.metadata.labels = None;
    service.metadata.owner_references = None;
    service
}

/// The second load balancer asks for the address of this one.
pub(super) fn shares_with(all: &mut Snapshot, primary: &str) {
    let annotations = [(keys::ANNOTATION_PRIMARY, primary)];
    all.load_balancers[1].metadata.annotations = Some(map(&annotations));
}

/// The second load balancer asks for the address of the first, which is of its type, and has none, for this reason.
fn refused(all: &mut Snapshot, reason: &str) {
    all.load_balancers[0] = served("a", vm_spec("web"), "10.0.0.2", &[MACHINE]);
    all.services[0] = service("a", "10.0.0.2");
    all.slices[0] = slice("a");
    all.records.remove(1);
    all.pools[0] = pool(3, &[("10.0.0.2", "n/a")], &[("10.0.0.4", "n/old")]);
    shares_with(all, "a");
    let lb = &mut all.load_balancers[1];
    let status = lb.status.as_mut().unwrap();
    (
        status.address,
        status.allocated_address,
        status.backend_servers,
    ) = (None, None, None);
    says(lb, reason, "why");
}

/// The Service of the first is another owner's.
fn its_service_is_foreign(all: &mut Snapshot) {
    all.services[0] = foreign("a");
    all.slices.clear();
    let lb = &mut all.load_balancers[0];
    lb.status.as_mut().unwrap().address = None;
    says(lb, "NameConflict", "why");
}

/// The address of the first is an IPv6 address, which it has had since it was of another type.
fn its_address_is_ipv6(all: &mut Snapshot) {
    let ip = "fd00::2";
    all.records[0] = record(ip, "Bound", "a");
    all.records[0].metadata.name = Some("fd00-0000-0000-0000-0000-0000-0000-0002".to_owned());
    all.load_balancers[0] = served("a", vm_spec("web"), ip, &[]);
    all.load_balancers[0].status.as_mut().unwrap().address = None;
    says(&mut all.load_balancers[0], "AddressFamilyMismatch", "why");
    let why = "no longer an address of its pool";
    tells(&mut all.load_balancers[0], "AddressOutOfPool", "True", why);
    all.services.clear();
    all.slices.clear();
    all.pools.clear();
    all.records.truncate(1);
}

/// The first was made after one of its name and of another type, whose address `c` shares and has by now.
fn its_name_is_that_of_an_earlier_one(all: &mut Snapshot) {
    all.load_balancers[0] = lb("a", vm_spec("web"), &json!({}));
    says(&mut all.load_balancers[0], "NameConflict", "why");
    let mut c = served("c", cluster_spec(), "10.0.0.2", &[]);
    let annotations = map(&[(keys::ANNOTATION_PRIMARY, "a")]);
    c.metadata.annotations = Some(annotations.clone());
    tells(&mut c, "AddressShared", "True", "why");
    let told = c.status.as_mut().unwrap().conditions.as_mut().unwrap();
    told[1].reason = Some("Holder".to_owned());
    all.load_balancers.push(c);
    all.records[0] = record("10.0.0.2", "Bound", "c");
    all.records[0].metadata.annotations = Some(annotations);
    all.pools[0] = pool(3, &[("10.0.0.2", "n/c")], &[("10.0.0.4", "n/old")]);
    all.services.clear();
    all.slices.clear();
}

#[test]
fn shr_1_why_one_may_not_share_an_address() {
    is_right(&[
        (
            "they share the address of an earlier one of another type",
            |all| {
                refused(all, "InvalidPrimary");
                its_name_is_that_of_an_earlier_one(all);
            },
        ),
        ("the Service of the primary is foreign", |all| {
            refused(all, "NameConflict");
            its_service_is_foreign(all);
        }),
        ("the primary has an IPv6 address", |all| {
            refused(all, "InvalidPrimary");
            its_address_is_ipv6(all);
        }),
    ]);
}

#[test]
fn shr_1_reasons_that_do_not_hold_are_named() {
    is_named(&[
        (
            |all| refused(all, "NameConflict"),
            "SHR-1",
            "does not share the address of \"a\", and the reason is NameConflict, which does not hold",
        ),
        (
            |all| refused(all, "InvalidPrimary"),
            "SHR-1",
            "the reason is InvalidPrimary, which does not hold",
        ),
    ]);
}
