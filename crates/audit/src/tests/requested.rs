//! Requested addresses (REQ-1 to REQ-4). The pool has 10.0.0.2 of LoadBalancer a, 10.0.0.3 of b, and 10.0.0.4, which is free.

use super::*;

const KEY: &str = keys::ANNOTATION_REQUESTED_ADDRESS;

fn asks(lb: &mut LoadBalancer, address: &str) {
    let annotations = lb.metadata.annotations.get_or_insert_default();
    annotations.insert(KEY.to_owned(), address.to_owned());
}

/// One that waits for an address, and says this.
fn asking(all: &mut Snapshot, name: &str, address: &str, message: &str) {
    let mut lb = waiting(name, "RequestedAddressUnavailable", message);
    asks(&mut lb, address);
    all.load_balancers.push(lb);
}

/// LoadBalancer a, which asks for another address, with the condition that says so, or without.
fn a_asks(all: &mut Snapshot, address: &str, is_told: bool) {
    let lb = &mut all.load_balancers[0];
    asks(lb, address);
    if is_told {
        let conditions = lb.status.as_mut().unwrap().conditions.as_mut().unwrap();
        let told = json!({
            "type": "RequestedAddress", "status": "False", "reason": "RequestedAddressUnavailable",
            "message": "10.0.0.2 is served meanwhile",
        });
        conditions.push(made(told));
    }
}

#[test]
fn req_3_who_waits_for_what_is_taken_or_asks_for_what_it_has_is_right() {
    let held = "pool p: 10.0.0.3 is held by LoadBalancer n/b";
    for (what, change) in [
        (
            "held",
            &(|all: &mut Snapshot| asking(all, "w", "10.0.0.3", held)) as &dyn Fn(&mut Snapshot),
        ),
        ("another one asks for it too", &|all| {
            for name in ["w", "x"] {
                asking(
                    all,
                    name,
                    "10.0.0.4",
                    "pool p: 10.0.0.4 is requested by another",
                );
            }
        }),
        ("outside of the pool", &|all| {
            asking(
                all,
                "w",
                "10.9.0.4",
                "pool p: 10.9.0.4 is in none of its ranges",
            );
        }),
        ("it has it", &|all| a_asks(all, "10.0.0.2", false)),
        ("it has another one meanwhile", &|all| {
            a_asks(all, "10.0.0.3", true);
        }),
        ("the pool allocates nothing", &|all| {
            asking(
                all,
                "w",
                "10.0.0.4",
                "pool p: its annotation exclude is invalid",
            );
            let annotations = all.pools[0].metadata.annotations.get_or_insert_default();
            annotations.insert(keys::ANNOTATION_EXCLUDE.to_owned(), "x".to_owned());
            status(all).conditions = made(condition("InvalidExclude", ""));
        }),
    ] {
        let mut all = well();
        change(&mut all);
        assert_eq!(audit(&all).findings, [], "{what}");
    }
}

#[test]
fn req_3_req_4_what_is_wrong_is_named() {
    is_named(&[
        (
            |all| {
                asking(
                    all,
                    "w",
                    "10.0.0.4",
                    "pool p: 10.0.0.4 is held by LoadBalancer n/b",
                );
            },
            "REQ-3",
            "LoadBalancer n/w (REQ-3): requests 10.0.0.4 of IPPool p, which is free",
        ),
        (
            |all| a_asks(all, "10.0.0.4", true),
            "REQ-3",
            "LoadBalancer n/a (REQ-3): requests 10.0.0.4 of IPPool p, which is free",
        ),
        (
            |all| asking(all, "w", "10.0.0.3", "full"),
            "REQ-3",
            "LoadBalancer n/w (REQ-3): waits for 10.0.0.3",
        ),
        (
            |all| a_asks(all, "10.0.0.3", false),
            "REQ-4",
            "LoadBalancer n/a (REQ-4): has 10.0.0.2",
        ),
        (
            |all| {
                a_asks(all, "10.0.0.2", true);
            },
            "REQ-4",
            "has not what it requests: false",
        ),
        (
            |all| asks(&mut all.load_balancers[0], "x"),
            "section 9",
            "its spec is BadRequest",
        ),
    ]);
}
