//! Order of waking and serving when there are too few addresses.

use super::*;

#[test]
fn alc_7_a_status_does_not_jump_the_queue() {
    let mut fixture = Fixture::new(&[pool("p", &[range("172.20.1.0/30", "", "")])]);
    fixture.bind("172.20.1.2", "p", "x", "x");
    waits(fixture.decide(&lb("a")));
    fixture.delete("x");
    waits(fixture.decide(&with_status(lb("b"), "p", "172.20.1.2")));
    assert_eq!(names(fixture.ledger.take_wakes()), ["a"]);
    assert_eq!(fixture.ask(&lb("a")), Some(ip("172.20.1.2")));
}

#[test]
fn sel_7_waiting_are_selected_anew_before_anybody_is_served() {
    let mut fixture = Fixture::new(&[]);
    waits(fixture.decide(&lb("a")));
    waits(fixture.decide(&lb("b")));
    fixture
        .ledger
        .set_pool(pool("p", &[range("172.20.1.0/30", "", "")]));
    // A new load balancer is decided about before the wakes are handled.
    waits(fixture.decide(&lb("c")));
    assert_eq!(names(fixture.ledger.take_wakes()), ["a"]);
    assert_eq!(fixture.outdated(), ["b"]);
    assert_eq!(fixture.ask(&lb("a")), Some(ip("172.20.1.2")));
}

#[test]
fn sel_7_a_change_of_a_pool_names_those_whose_explanation_it_alters_and_no_other() {
    let for_team = |name: &str, project: &str| PoolSpec {
        selector: Selector {
            scope: vec![Tuple::new(project, "*", "*")],
            ..Selector::default()
        },
        ..pool(name, &[range("172.20.1.0/30", "x", "")])
    };
    let mut fixture = Fixture::new(&[for_team("p", "p1")]);
    let of_team = |name: &str, project: &str| Request {
        requirement: Requirement::new("", project, "", ""),
        ..lb(name)
    };
    waits(fixture.decide(&of_team("a", "p1")));
    waits(fixture.decide(&of_team("b", "p2")));
    waits(fixture.decide(&in_pool(lb("c"), "q")));
    assert!(!fixture.ledger.may_have_outdated());
    // Its ranges are invalid for another reason now: that concerns the load balancers that it matches.
    fixture.ledger.set_pool(PoolSpec {
        ranges: PoolRanges::parse(&[range("172.20.1.0/30", "y", "")]),
        ..for_team("p", "p1")
    });
    assert_eq!(fixture.outdated(), ["a"]);
    waits(fixture.decide(&of_team("a", "p1")));
    // A pool that one load balancer names, and that those naming none consider.
    fixture.ledger.set_pool(for_team("q", "p3"));
    assert_eq!(fixture.outdated(), ["a", "b", "c"]);
    waits(fixture.decide(&of_team("a", "p1")));
    // In batches, oldest first, each once.
    fixture.ledger.remove_pool("q");
    let mut named = Vec::new();
    while fixture.ledger.may_have_outdated() {
        named.extend(names(fixture.ledger.take_outdated_explanations(1, 1)));
    }
    assert_eq!(named, ["a"], "the others have not asked since");
}

#[test]
fn fairness_enlisted_are_woken_oldest_first() {
    let mut fixture = Fixture::new(&[pool("p", &[range("172.20.1.0/29", "", "")])]);
    fixture.bind("172.20.1.4", "p", "holder", "holder-1");
    for (name, created) in [("x", 3), ("y", 1), ("z", 2), ("holder", 9)] {
        fixture.ledger.enlist(Request {
            created: Micros(created),
            ..lb(name)
        });
    }
    assert_eq!(fixture.ledger.counts().waiting, 3);
    assert_eq!(
        names(fixture.ledger.take_wakes()),
        ["holder", "y", "z", "x"]
    );
    assert_eq!(
        fixture.ask(&Request {
            created: Micros(1),
            ..lb("y")
        }),
        Some(ip("172.20.1.5"))
    );
}

#[test]
fn fairness_a_waiter_that_leaves_lets_the_next_in() {
    let mut fixture = Fixture::new(&[pool("p", &[range("172.20.1.0/30", "", "")])]);
    fixture.bind("172.20.1.2", "p", "x", "x");
    waits(fixture.decide(&lb("a")));
    waits(fixture.decide(&lb("b")));
    fixture.delete("x");
    waits(fixture.decide(&lb("b")));
    assert_eq!(names(fixture.ledger.take_wakes()), ["a"]);
    fixture.ledger.withdraw(&OwnerId::new("ns", "a"));
    assert_eq!(names(fixture.ledger.take_wakes()), ["b"]);
    // Recreated under the same name it is another load balancer, and must not wait for its predecessor.
    assert_eq!(fixture.ask(&lb_uid("b", "b-2")), Some(ip("172.20.1.2")));
}

#[test]
fn alc_5_nobody_waits_behind_one_that_does_not_ask() {
    let mut fixture = Fixture::new(&[pool("p", &[range("172.20.1.0/30", "", "")])]);
    assert!(fixture.ask(&lb("holder")).is_some());
    waits(fixture.decide(&lb("a")));
    waits(fixture.decide(&lb("b")));
    // `a` was edited so that it cannot be served: it keeps its claims, but not its place in the queue.
    fixture.ledger.dequeue(&lb("a").owner);
    fixture.delete("holder");
    assert_eq!(names(fixture.ledger.take_wakes()), ["b"]);
    assert_eq!(fixture.ask(&lb("b")), Some(ip("172.20.1.2")));
}

/// A younger load balancer that can use IPv6 does not get an IPv4 address that an older one waits for.
#[test]
fn be_7_the_ipv4_address_that_an_older_one_waits_for_is_left_to_it() {
    let ranges = [range("10.0.0.0/30", "", ""), range("fd10:5::/125", "", "")];
    let mut fixture = Fixture::new(&[pool("p", &ranges)]);
    assert_eq!(fixture.ask(&guest("x")), Some(ip("10.0.0.2")));
    waits(fixture.decide(&lb("a")));
    fixture.delete("x");
    // Younger ones of cluster type are decided about first: one without an address, one that had the address before,
    // and one whose status names it.
    assert_eq!(fixture.ask(&guest("b")), Some(ip("fd10:5::2")));
    let again = Request {
        owner: Owner::new("ns", "x", "x-2"),
        ..guest("x")
    };
    assert_eq!(fixture.ask(&again), Some(ip("fd10:5::3")));
    let named = with_status(guest("c"), "p", "10.0.0.2");
    assert_eq!(fixture.ask(&named), Some(ip("fd10:5::4")));
    assert_eq!(names(fixture.ledger.take_wakes()), ["a"]);
    assert_eq!(fixture.ask(&lb("a")), Some(ip("10.0.0.2")));
}

/// The opposite: a load balancer that cannot use a free address blocks no other, and the others are served by age.
#[test]
fn be_7_an_older_one_of_cluster_type_comes_first_in_both_families() {
    let ranges = [range("10.0.0.0/30", "", ""), range("fd10:5::/126", "", "")];
    let mut fixture = Fixture::new(&[pool("p", &ranges)]);
    for name in ["x", "y", "z"] {
        assert!(fixture.ask(&guest(name)).is_some());
    }
    for request in [guest("a"), lb("b"), guest("c")] {
        waits(fixture.decide(&request));
    }
    fixture.delete("x");
    assert_eq!(names(fixture.ledger.take_wakes()), ["a"]);
    waits(fixture.decide(&lb("b")));
    fixture.delete("y");
    // The addresses that `a` does not take go to the others, to each one that it can use.
    assert_eq!(names(fixture.ledger.take_wakes()), Vec::<String>::new());
    assert_eq!(fixture.ask(&guest("a")), Some(ip("10.0.0.2")));
    assert_eq!(names(fixture.ledger.take_wakes()), ["c"]);
    assert_eq!(fixture.ask(&guest("c")), Some(ip("fd10:5::2")));
}

#[test]
fn ops_6_answers_to_long_requirements_are_not_kept() {
    let mut fixture = Fixture::new(&[pool("p", &[range("172.20.1.0/29", "", "")])]);
    let asks = |name: &str, project: String| Request {
        requirement: Requirement {
            project,
            ..Requirement::default()
        },
        ..lb(name)
    };
    let kept = |fixture: &Fixture| {
        fixture
            .ledger
            .selected
            .iter()
            .map(FxHashMap::len)
            .sum::<usize>()
    };
    // A tenant may write 256 KiB of annotations, different ones in every load balancer.
    for n in 0..3 {
        let address = fixture.ask(&asks(&format!("long{n}"), "x".repeat(200_000 + n)));
        assert!(address.is_some(), "it is served all the same");
    }
    assert_eq!(kept(&fixture), 0);
    // The namespace of the load balancer, `ns`, is a part of the requirement.
    assert!(fixture.ask(&asks("over", "x".repeat(1023))).is_some());
    assert_eq!(kept(&fixture), 0);
    assert!(fixture.ask(&asks("fits", "x".repeat(1022))).is_some());
    assert_eq!(kept(&fixture), 1);
}

#[test]
fn sel_7_who_waits_behind_others_is_told_when_nothing_is_free_any_more_however_often_that_changed()
{
    let mut fixture = Fixture::new(&[pool("p", &[range("10.0.0.0/24", "10.0.0.10", "10.0.0.10")])]);
    let aged = |name: &str, created| Request {
        created: Micros(created),
        ..in_pool(lb(name), "p")
    };
    let (old, young) = (aged("old", 1), aged("young", 2));
    fixture.ledger.enlist(old.clone());
    let Decision::Wait { explanation, .. } = fixture.decide(&young) else {
        panic!()
    };
    let behind = "pool p: older load balancers wait for its free addresses";
    assert_eq!(explanation.to_string(), behind);
    // Reserved and given up before anybody was told.
    fixture.decide(&old);
    fixture.ledger.abandon(&old.owner.id, ip("10.0.0.10"));
    fixture.ledger.enlist(old.clone());
    assert_eq!(
        fixture.outdated(),
        ["old"],
        "as nothing changed for the young one"
    );
    assert_eq!(fixture.ask(&old), Some(ip("10.0.0.10")));
    assert_eq!(fixture.outdated(), ["young"]);
}
