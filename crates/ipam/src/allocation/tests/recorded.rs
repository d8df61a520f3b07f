//! What the status names and what records say of it: recorded, confirmed by a live read, or lost (IPA-6 to IPA-8, REQ-4).

use super::*;

/// The record that is found may come from an earlier attempt, and its release may have been decided since.
#[test]
fn ipa_6_a_record_whose_answer_was_lost_is_not_said_to_be_written() {
    let mut fixture = Fixture::new(&[]);
    let lost = |_: &mut Server, _: &Step| Answer::Lost;
    let a = lb("a");
    fixture.plays(Allocation::acquire(&a), lost, &["create .2 Fresh"]);
    fixture.acquires(&a, &["create .2 Fresh", "done .2 held"]);
}

#[test]
fn ipa_7_before_the_address_of_the_status_is_lost_its_record_is_read() {
    // The ledger's record is stale: the address was released since.
    let a = named("a", 2);
    let mut fixture = Fixture::new(&[spec(2, "x", "x-1", Phase::Bound)]);
    fixture.server.store(spec(2, "a", "a-1", Phase::Bound));
    fixture.acquires(&a, &["read .2", "done .2 held"]);
    assert_eq!(fixture.ledger.counts().reserved, 0);

    let mut fixture = Fixture::new(&[spec(2, "x", "x-1", Phase::Bound)]);
    fixture.server.store(spec(2, "x", "x-1", Phase::Released));
    let steps = [
        "read .2",
        "verify .2",
        "replace .2 Recorded",
        "done .2 written",
    ];
    fixture.acquires(&a, &steps);

    let mut fixture = Fixture::new(&[spec(2, "x", "x-1", Phase::Bound)]);
    let steps = ["read .2", "create .3 Fresh", "done .3 written lost .2"];
    fixture.acquires(&a, &steps);

    // Its own record of another address does not spare the read: that may come from a late write.
    let held = [
        spec(2, "x", "x-1", Phase::Bound),
        spec(4, "a", "a-1", Phase::Bound),
    ];
    let mut fixture = Fixture::new(&held);
    fixture.acquires(&a, &["read .2", "done .4 held lost .2"]);

    // The read is also required before it ends without any address.
    let all = (2..7).map(|last| spec(last, "x", "x-1", Phase::Bound));
    let mut fixture = Fixture::new(&all.collect::<Vec<_>>());
    fixture.acquires(&a, &["read .2", "wait NoAvailableIP"]);
}

#[test]
fn ipa_7_an_old_copy_of_a_record_is_read_before_a_further_one_is_kept() {
    // An earlier load balancer of the name had .2; the ledger has not heard that this one has taken it over.
    let known = [
        spec(2, "a", "a-0", Phase::Bound),
        spec(3, "a", "a-1", Phase::Bound),
    ];
    let a = named("a", 2);
    let mut fixture = Fixture::new(&known);
    fixture.server.store(spec(2, "a", "a-1", Phase::Bound));
    fixture.acquires(&a, &["read .2", "done .2 held extra .3"]);

    let mut fixture = Fixture::new(&known);
    fixture.acquires(&a, &["read .2", "done .3 held extra .2"]);
}

#[test]
fn ipa_7_an_old_copy_of_a_record_of_another_pool_is_read_before_the_address_is_lost() {
    // The load balancer had .2 of pool p, and has it of pool q by now, which was deleted since.
    let a = Request {
        pool: Some("q".into()),
        status: Some(StatusAddress {
            pool: Some("q".into()),
            addr: at(2),
        }),
        ..lb("a")
    };
    let known = spec(2, "a", "a-1", Phase::Bound);
    let of_q = RecordSpec {
        pool: "q".into(),
        ..known.clone()
    };
    let mut fixture = Fixture::new(std::slice::from_ref(&known));
    fixture.server.store(of_q);
    fixture.acquires(&a, &["read .2", "done .2 held"]);

    let mut fixture = Fixture::new(&[known]);
    fixture.acquires(&a, &["read .2", "wait PoolNotFound extra .2"]);
}

#[test]
fn req_4_one_that_is_recorded_first_is_told_at_once_what_becomes_of_its_request() {
    // A restored load balancer: its status names .2, and it requests .4.
    let asks = Request {
        requested: Some(at(4)),
        ..named("a", 2)
    };
    let recorded = ["verify .2", "create .2 Recorded"];
    let mut fixture = Fixture::new(&[spec(4, "x", "x-1", Phase::Bound)]);
    let steps = [&recorded[..], &["done .2 written unserved"]].concat();
    fixture.acquires(&asks, &steps);

    let mut fixture = Fixture::new(&[]);
    let steps = [
        &recorded[..],
        &["create .4 Moved", "done .4 written extra .2"],
    ]
    .concat();
    fixture.acquires(&asks, &steps);

    // It has the address that it requests, from another pool than it names.
    let of_other_pool = Request {
        pool: Some("missing".into()),
        status: Some(StatusAddress {
            pool: Some("p".into()),
            addr: at(4),
        }),
        ..asks
    };
    let mut fixture = Fixture::new(&[]);
    fixture.ledger.set_shown(&of_other_pool.owner.id, &[at(4)]);
    let steps = [
        "verify .4",
        "create .4 Recorded",
        "done .4 written unserved",
    ];
    fixture.acquires(&of_other_pool, &steps);
}

#[test]
fn ipa_6_nothing_is_recorded_for_a_status_that_names_it_no_more() {
    let a = named("a", 2);
    let mut fixture = Fixture::new(&[spec(2, "a", "a-1", Phase::Released)]);
    let changed = |_: &mut Server, _: &Step| Answer::Refused;
    fixture.plays(Allocation::acquire(&a), changed, &["verify .2"]);
    assert_eq!(fixture.server.records[&at(2)].spec.phase, Phase::Released);
}

#[test]
fn ipa_7_a_record_is_confirmed_once() {
    let mut fixture = Fixture::new(&[spec(2, "x", "x-1", Phase::Bound)]);
    let steps = [
        "read .2",
        "create .3 Fresh",
        "create .4 Fresh",
        "done .4 written lost .2",
    ];
    let conflicts = fixture.plays(Allocation::acquire(&named("a", 2)), faster(&["y"]), &steps);
    assert_eq!(conflicts, 1, "a live read is no conflict");
}

#[test]
fn ipa_7_what_its_own_records_say_needs_no_confirmation() {
    let own = [2, 3].map(|last| spec(last, "a", "a-1", Phase::Bound));
    let mut fixture = Fixture::new(&own);
    fixture.acquires(&named("a", 3), &["done .3 held extra .2"]);
}

#[test]
fn ipa_8_a_record_that_cannot_be_read_is_not_read_again() {
    let a = named("a", 2);
    let mut fixture = Fixture::new(&[]);
    fixture.ledger.block_name("172.20.1.2", Version(9));
    fixture.acquires(&a, &["wait RecordUnreadable"]);
    // Nor if the address belongs to another load balancer as well.
    let mut fixture = Fixture::new(&[spec(2, "x", "x-1", Phase::Bound)]);
    fixture.ledger.block_name("172.20.1.2", Version(9));
    fixture.acquires(&a, &["create .3 Fresh", "done .3 written lost .2"]);
}
