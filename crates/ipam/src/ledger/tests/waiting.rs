//! Who is woken and served first when there are too few addresses.

use super::*;

#[test]
fn alc_7_a_status_does_not_jump_the_queue() {
    let mut world = World::new(&[pool("p", &[range("172.20.1.0/30", "", "")])]);
    world.bind("172.20.1.2", "p", "x", "x");
    waits(world.decide(&lb("a")));
    world.delete("x");
    waits(world.decide(&with_status(lb("b"), "p", "172.20.1.2")));
    assert_eq!(names(world.ledger.take_wakes()), ["a"]);
    assert_eq!(world.ask(&lb("a")), Some(ip("172.20.1.2")));
}

#[test]
fn sel_7_waiting_are_selected_anew_before_anybody_is_served() {
    let mut world = World::new(&[]);
    waits(world.decide(&lb("a")));
    waits(world.decide(&lb("b")));
    world
        .ledger
        .set_pool(pool("p", &[range("172.20.1.0/30", "", "")]));
    // A newcomer comes before the wakes are handled.
    waits(world.decide(&lb("c")));
    assert_eq!(names(world.ledger.take_wakes()), ["a", "b"]);
    assert_eq!(world.ask(&lb("a")), Some(ip("172.20.1.2")));
}

#[test]
fn fairness_enlisted_are_woken_oldest_first() {
    let mut world = World::new(&[pool("p", &[range("172.20.1.0/29", "", "")])]);
    world.bind("172.20.1.4", "p", "holder", "holder-1");
    for (name, created) in [("x", 3), ("y", 1), ("z", 2), ("holder", 9)] {
        world.ledger.enlist(Request {
            created: Micros(created),
            ..lb(name)
        });
    }
    assert_eq!(world.ledger.counts().waiting, 3);
    assert_eq!(names(world.ledger.take_wakes()), ["holder", "y", "z", "x"]);
    assert_eq!(
        world.ask(&Request {
            created: Micros(1),
            ..lb("y")
        }),
        Some(ip("172.20.1.5"))
    );
}

#[test]
fn fairness_a_waiter_that_leaves_lets_the_next_in() {
    let mut world = World::new(&[pool("p", &[range("172.20.1.0/30", "", "")])]);
    world.bind("172.20.1.2", "p", "x", "x");
    waits(world.decide(&lb("a")));
    waits(world.decide(&lb("b")));
    world.delete("x");
    waits(world.decide(&lb("b")));
    assert_eq!(names(world.ledger.take_wakes()), ["a"]);
    world.ledger.withdraw(&OwnerId::new("ns", "a"));
    assert_eq!(names(world.ledger.take_wakes()), ["b"]);
    // Made anew under the same name it is another one, and must not wait for itself.
    assert_eq!(world.ask(&lb_uid("b", "b-2")), Some(ip("172.20.1.2")));
}

#[test]
fn alc_5_nobody_waits_behind_one_that_does_not_ask() {
    let mut world = World::new(&[pool("p", &[range("172.20.1.0/30", "", "")])]);
    assert!(world.ask(&lb("holder")).is_some());
    waits(world.decide(&lb("a")));
    waits(world.decide(&lb("b")));
    // `a` was edited so that it cannot be served: it keeps what it claims, but not its place.
    world.ledger.dequeue(&OwnerId::new("ns", "a"));
    world.delete("holder");
    assert_eq!(names(world.ledger.take_wakes()), ["b"]);
    assert_eq!(world.ask(&lb("b")), Some(ip("172.20.1.2")));
}

#[test]
fn ops_6_answers_to_long_requirements_are_not_kept() {
    let mut world = World::new(&[pool("p", &[range("172.20.1.0/29", "", "")])]);
    let asks = |name: &str, project: String| Request {
        requirement: Requirement {
            project,
            ..Requirement::default()
        },
        ..lb(name)
    };
    let kept = |world: &World| {
        world
            .ledger
            .selected
            .iter()
            .map(FxHashMap::len)
            .sum::<usize>()
    };
    // Each tenant may write 256 KiB of annotations, and does so in every load balancer anew.
    for n in 0..3 {
        let address = world.ask(&asks(&format!("long{n}"), "x".repeat(200_000 + n)));
        assert!(address.is_some(), "it is served all the same");
    }
    assert_eq!(kept(&world), 0);
    // The namespace of the load balancer, `ns`, is a part of the requirement.
    assert!(world.ask(&asks("over", "x".repeat(1023))).is_some());
    assert_eq!(kept(&world), 0);
    assert!(world.ask(&asks("fits", "x".repeat(1022))).is_some());
    assert_eq!(kept(&world), 1);
}
