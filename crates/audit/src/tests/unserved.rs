//! Load balancers that are not served, or not to be: what is right about that, and what is named.

use super::*;

/// What is changed, and how.
pub(super) type Changed = (&'static str, fn(&mut Snapshot));

pub(super) fn is_right(changes: &[Changed]) {
    for (what, change) in changes {
        let mut all = well();
        change(&mut all);
        assert_eq!(audit(&all).findings, [], "{what}");
    }
}

/// The address of the first is in its status alone, and its pool cannot tell whether it is its own (EXC-1).
fn held_back(all: &mut Snapshot) {
    all.records.remove(0);
    all.pools[0] = pool(3, &[("10.0.0.3", "n/b")], &[("10.0.0.4", "n/old")]);
    let annotations = all.pools[0].metadata.annotations.as_mut().unwrap();
    annotations.insert(keys::ANNOTATION_EXCLUDE.to_owned(), "10.0.0.x".to_owned());
    let status = status(all);
    status.available = 1;
    status.conditions = made(condition("InvalidExclude", ""));
    let message = "pool p: its annotation exclude is invalid";
    says(&mut all.load_balancers[0], "InvalidExclude", message);
}

#[test]
fn exc_1_what_is_taken_of_an_address_that_is_held_back_is_named() {
    is_named(&[
        (
            |all| {
                held_back(all);
                status(all).available = 2;
            },
            "ALC-11",
            "status.available is 2, 2 of 3 addresses are taken",
        ),
        (
            |all| {
                held_back(all);
                let lb = served("c", cluster_spec(), "10.0.0.2", &[]);
                all.load_balancers.push(lb);
                all.records.push(record("10.0.0.2", "Bound", "c"));
            },
            "ALC-5",
            "LoadBalancer n/a (ALC-5): has no Bound IPAllocation, and status.allocatedAddress is 10.0.0.2",
        ),
    ]);
}

/// A load balancer with a lease that this version cannot read is left alone, whether it can decode the object or not.
#[test]
fn ipa_9_a_load_balancer_with_an_unreadable_lease_is_left_alone() {
    fn leased(all: &mut Snapshot) {
        let status = json!({
            "allocatedAddress": {"ip": keys::DHCP_ADDRESS},
            "conditions": condition("UnsupportedAnnotation", ""),
        });
        let spec = with(vm_spec("web"), json!({"ipam": "dhcp"}));
        all.load_balancers.push(lb("leased", spec, &status));
    }
    fn lease() -> String {
        format!("dhcp-{}", uid("leased"))
    }
    is_right(&[
        ("decoded", |all| {
            leased(all);
            let mut record = record("10.0.0.4", "Bound", "leased");
            record.metadata.name = Some(lease());
            all.records.push(record);
        }),
        ("not decoded", |all| {
            leased(all);
            all.undecodable.push(UndecodableObject {
                kind: "IPAllocation",
                namespace: String::new(),
                name: lease(),
                error: "spec.phase: unknown variant".to_owned(),
            });
        }),
    ]);
    is_named(&[(leased, "DHC-1", "LoadBalancer n/leased")]);
}

/// Who lacks something, or is kept from it by somebody else, is rightly not Ready.
#[test]
fn not_to_be_ready_can_be_right() {
    fn nobody_is_served(all: &mut Snapshot) {
        all.slices[0].endpoints = vec![made(json!({
            "addresses": [keys::DUMMY_ENDPOINT_ADDRESS], "conditions": {"ready": true},
        }))];
        all.load_balancers[1]
            .status
            .as_mut()
            .unwrap()
            .backend_servers = None;
    }
    is_right(&[
        ("not announced", |all| {
            all.announcing = false;
            all.services[0].status = None;
            let lb = &mut all.load_balancers[1];
            lb.status.as_mut().unwrap().address = None;
            says(lb, "WaitingForExternalIP", "");
        }),
        ("no machine", |all| {
            all.cluster.as_mut().unwrap().machines.clear();
            nobody_is_served(all);
            says(&mut all.load_balancers[1], "NoBackend", "");
        }),
        ("a machine without an address", |all| {
            all.cluster.as_mut().unwrap().machines[0].status = None;
            nobody_is_served(all);
            says(&mut all.load_balancers[1], "BackendsWithoutIP", "");
        }),
        ("a health check that fails", |all| {
            let lb = &mut all.load_balancers[1];
            lb.spec.health_check = made(json!({"port": 8080}));
            says(lb, "BackendsUnhealthy", "");
            let mut endpoints = vec![fixtures::endpoint(MACHINE, "n", "vm", "uid-of-vm")];
            endpoints[0]["conditions"]["ready"] = false.into();
            endpoints.push(json!({"addresses": [keys::DUMMY_ENDPOINT_ADDRESS]}));
            all.slices[0].endpoints = made(json!(endpoints));
        }),
        ("somebody else's Service", |all| {
            all.services[0] = made(json!({"metadata": {"namespace": "n", "name": "b"}}));
            all.slices.clear();
            says(&mut all.load_balancers[1], "NameConflict", "");
        }),
        ("an address of a pool with exclusions", held_back),
        ("an address of a pool of which nothing is known", |all| {
            held_back(all);
            all.pools[0].spec.ranges[0].subnet = "10.0.0.0".into();
            let status = status(all);
            (status.total, status.available) = (0, 0);
            status.conditions = made(condition("InvalidRanges", ""));
            says(
                &mut all.load_balancers[0],
                "PoolInvalid",
                "pool p: its ranges are invalid",
            );
        }),
        ("a spec that is refused", |all| {
            let lb = &mut all.load_balancers[1];
            lb.spec.backend_server_selector = made(json!({"app": []}));
            says(lb, "InvalidSelector", "");
        }),
    ]);
}

#[test]
fn waiting_for_a_full_pool_is_no_wrong() {
    let mut all = well();
    let message = "pool p: all addresses are taken";
    all.load_balancers
        .push(waiting("w", "NoAvailableIP", message));
    all.records.truncate(2);
    all.pools[0] = pool(2, &[("10.0.0.2", "n/a"), ("10.0.0.3", "n/b")], &[]);
    let report = audit(&all);
    assert_eq!(report.findings, []);
    let [waiting] = &report.waiting[..] else {
        panic!("{:?}", report.waiting)
    };
    assert_eq!(
        (&waiting.lb, &*waiting.reason),
        (&Key::new("n", "w"), "NoAvailableIP")
    );
}

/// With an invalid spec the Service is not made anew if kube-vip does not follow it (BE-6).
#[test]
fn ipa_3_what_the_service_of_an_invalid_one_still_shows_stays_bound() {
    let is_named = |is_invalid: bool| {
        let mut all = well();
        all.records[1].spec.owner.uid = "before".into();
        if is_invalid {
            all.load_balancers[1].spec.listeners = None;
        }
        let findings = audit(&all).findings;
        findings.iter().any(|it| it.rule == "IPA-3")
    };
    assert!(is_named(false));
    assert!(!is_named(true));
}
