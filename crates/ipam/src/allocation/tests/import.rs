//! Addresses that are not imported yet, and records whose release is awaited (RUN-1).

use super::*;

#[test]
fn run_1_an_address_that_is_not_imported_yet_stays_taken() {
    let mut fixture = Fixture::new(&[]);
    fixture.ledger.import([spec(2, "x", "x-1", Phase::Bound)]);
    // Its holder is being deleted, or requests an address of another pool, so it has no claim. The address is not free
    // nevertheless.
    let a = lb("a");
    let steps = ["create .3 Fresh", "done .3 written"];
    let conflicts = fixture.plays(Allocation::acquire(&a), executed, &steps);
    assert_eq!(conflicts, 1);
    assert_eq!(fixture.ledger.counts().claimed, 1);
    // Its holder can have it, and another load balancer as soon as a record names that one.
    fixture.ledger.withdraw(&lb_uid("x", "x-1").owner.id);
    let steps = ["verify .2", "create .2 Recorded", "done .2 written"];
    fixture.acquires(&named("x", 2), &steps);

    let mut fixture = Fixture::new(&[]);
    let of_map = [
        spec(2, "x", "x-1", Phase::Bound),
        spec(3, "x", "", Phase::Released),
    ];
    fixture.ledger.import(of_map);
    assert_eq!(fixture.ledger.imported(at(2)), Some("p".into()));
    assert_eq!(fixture.ledger.imported(at(2)), None);
    fixture.acquires(&a, &["create .2 Fresh", "done .2 written"]);
    fixture.acquires(&lb("b"), &["create .3 Fresh", "done .3 written"]);
}

/// The pool has one address, whose holder only a map names.
#[test]
fn run_1_the_last_address_that_is_not_imported_is_waited_for() {
    let mut fixture = Fixture::new(&[]);
    let one = range("172.20.1.0/29", "172.20.1.2", "172.20.1.2");
    fixture.ledger.set_pool(pool("p", &[one]));
    fixture.ledger.import([spec(2, "x", "x-1", Phase::Bound)]);
    fixture.acquires(&lb("a"), &["wait NoAvailableIP"]);
}

/// The record of a deleted owner, of an address that an existing load balancer names.
#[test]
fn run_1_who_waits_for_a_release_sends_nothing_and_is_woken_by_its_end() {
    let (a, x) = (named("a", 2), lb("x").owner.id);
    let waiting = || {
        let mut fixture = Fixture::new(&[spec(2, "x", "x-1", Phase::Bound)]);
        fixture.ledger.await_release(at(2));
        fixture.ledger.take_wakes();
        fixture.acquires(&a, &["give up, ns/x is gone"]);
        fixture.keeps(&a, &["give up, ns/x is gone"]);
        assert_eq!(fixture.ledger.take_wakes(), []);
        fixture
    };
    let woken = |fixture: &mut Fixture, steps: &[&str]| {
        let wakes = fixture.ledger.take_wakes();
        assert!(wakes.contains(&a.owner.id), "{wakes:?}");
        fixture.acquires(&a, steps);
    };

    let mut fixture = waiting();
    fixture.server.store(spec(2, "x", "x-1", Phase::Released));
    fixture.server.sync(&mut fixture.ledger);
    woken(
        &mut fixture,
        &["verify .2", "replace .2 Recorded", "done .2 written"],
    );

    let mut fixture = waiting();
    fixture.server.store(spec(2, "a", "a-1", Phase::Bound));
    fixture.server.sync(&mut fixture.ledger);
    woken(&mut fixture, &["done .2 held"]);

    // Deleted by hand; the remaining claim is withdrawn when the deletion is observed.
    let mut fixture = waiting();
    fixture.server.records.clear();
    fixture.server.read(&mut fixture.ledger, at(2));
    fixture.ledger.withdraw(&x);
    woken(
        &mut fixture,
        &["verify .2", "create .2 Recorded", "done .2 written"],
    );

    // Its owner exists after all.
    let mut fixture = waiting();
    fixture.ledger.stop_awaiting(&x);
    let steps = ["read .2", "create .3 Fresh", "done .3 written lost .2"];
    woken(&mut fixture, &steps);

    // Unchanged, it blocks neither another load balancer nor its owner.
    let mut fixture = waiting();
    fixture.ledger.stop_awaiting(&lb("y").owner.id);
    fixture.server.store(spec(2, "x", "x-1", Phase::Bound));
    fixture.server.sync(&mut fixture.ledger);
    assert_eq!(fixture.ledger.take_wakes(), []);
    fixture.acquires(&a, &["give up, ns/x is gone"]);
    fixture.acquires(&lb("b"), &["create .3 Fresh", "done .3 written"]);
    fixture.acquires(&named("x", 2), &["done .2 held"]);

    // A record that was released meanwhile is not waited for.
    let mut fixture = Fixture::new(&[spec(2, "x", "x-1", Phase::Released)]);
    fixture.ledger.await_release(at(2));
    fixture.acquires(&a, &["verify .2", "replace .2 Recorded", "done .2 written"]);
}
