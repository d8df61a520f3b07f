use harvester_lb_api::{IPAllocation, IPPool};
use harvester_lb_fixtures::{self as fixtures, record, stored, subnet};
use harvester_lb_ipam::allocation::{GiveUp, Step};
use harvester_lb_ipam::{Ledger, Phase, RecordSpec, Settings};

use super::*;

/// The pool `p` of a subnet.
fn pool(of: &str) -> Pool {
    let pool = fixtures::pool("p", &[subnet(of)]);
    Pool::valid(serde_json::from_value::<IPPool>(pool).unwrap())
}

#[test]
fn run_1_a_pool_is_not_written_before_all_it_says_is_imported() {
    let mut leader = leader_of_one_pool();
    let spec = |addr: &str, pool: &str| RecordSpec {
        addr: addr.parse().unwrap(),
        pool: pool.into(),
        owner: harvester_lb_ipam::Owner::new("ns", "a", "a-1"),
        phase: Phase::Bound,
        bound_at: Micros(1),
        released_at: None,
        group: None,
    };
    let (of_p, of_q) = (spec("172.20.2.2", "p"), spec("172.20.3.2", "q"));
    leader.ledger.import([of_p.clone(), of_q.clone()]);
    assert_eq!(leader.ledger.unimported("p"), std::slice::from_ref(&of_p));
    assert_eq!(
        leader.ledger.unimported_pools(),
        BTreeSet::from(["p".into(), "q".into()])
    );
    leader.imported(of_p.addr);
    assert!(leader.ledger.unimported("p").is_empty());
    let dirty: Vec<PoolName> = leader
        .take_dirty()
        .into_iter()
        .map(|(pool, _)| pool)
        .collect();
    assert_eq!(dirty, ["p".into()], "now its status may be written");
    assert_eq!(leader.ledger.unimported("q"), [of_q]);
}

#[test]
fn gc_2_the_removals_that_are_remembered_are_bounded() {
    let mut leader = leader_of_one_pool();
    for n in 0..REMOVED_CLUSTERS + 5 {
        let at = Micros(i64::try_from(n).unwrap());
        leader.guest_cluster_removed(&Key::new("ns", format!("gc{n}")), at);
    }
    assert_eq!(leader.removed_clusters.len(), REMOVED_CLUSTERS);
    assert!(!leader.removed_clusters.contains_key(&Key::new("ns", "gc4")));
    let last = Key::new("ns", format!("gc{}", REMOVED_CLUSTERS + 4));
    leader.guest_cluster_removed(&last, Micros(0));
    let at = i64::try_from(REMOVED_CLUSTERS + 4).unwrap();
    assert_eq!(
        leader.removed_clusters[&last],
        Micros(at),
        "the last one counts"
    );
}

/// A leader with the pool `p`, which has 172.20.2.2 only.
fn leader_of_one_pool() -> LeaderState {
    let mut leader = LeaderState::new(Ledger::new(Settings::default()));
    leader.set_pool(&Key::new("", "p"), &pool("172.20.2.0/30"));
    leader.take_dirty();
    leader
}

/// The IPAllocation of 172.20.2.2 in a version; with another name it is unreadable.
fn allocation(version: u64, phase: &str, is_readable: bool) -> Allocation {
    let name = if is_readable {
        "172.20.2.2"
    } else {
        "172.20.2.3"
    };
    let mut object = record("172.20.2.2", "p", phase, ("n", "a", "u"));
    object["metadata"]["name"] = name.into();
    let object: IPAllocation = serde_json::from_value(stored(object, "r", version)).unwrap();
    Allocation::decoded(&object)
}

#[test]
fn pool_3_a_pool_that_is_empty_or_full_is_told_apart() {
    let mut leader = leader_of_one_pool();
    for (version, phase) in [(1, "Bound"), (2, "Released")] {
        leader.observe_allocation("172.20.2.2", &allocation(version, phase, true));
        assert_eq!(leader.take_dirty(), [("p".into(), true)], "{phase}");
    }
    leader.set_pool(&Key::new("", "p"), &pool("172.20.2.0/29"));
    leader.observe_allocation("172.20.2.2", &allocation(3, "Bound", true));
    assert_eq!(leader.take_dirty(), [("p".into(), false)], "one of five");
}

/// A live read may be overtaken by the watch.
#[test]
fn ipa_1_an_unreadable_copy_from_before_blocks_nothing() {
    let mut leader = leader_of_one_pool();
    leader.observe_allocation("172.20.2.2", &allocation(6, "Bound", true));
    let unreadable = allocation(5, "Bound", false);
    assert!(matches!(unreadable, Allocation::Unreadable { .. }));
    leader.observe_allocation("172.20.2.2", &unreadable);
    assert_eq!(leader.ledger.counts().blocked, 0);
    leader.observe_allocation("172.20.2.2", &allocation(7, "Bound", false));
    assert_eq!(leader.ledger.counts().blocked, 1);
    leader.forget("172.20.2.2", harvester_lb_object::Version(7));
    assert_eq!(leader.ledger.counts().blocked, 0);
}

/// A record of a deleted owner that could not be released and whose address an existing load balancer names.
#[test]
fn run_1_who_waits_for_a_release_is_woken_by_the_return_of_the_owner() {
    let (addr, gone): (IpAddr, Key) = ("172.20.2.2".parse().unwrap(), Key::new("n", "a"));
    let request = harvester_lb_ipam::Request {
        owner: harvester_lb_ipam::Owner::new("ns", "b", "b-1"),
        created: Micros(2),
        pool: None,
        requirement: harvester_lb_ipam::Requirement::default(),
        workload: harvester_lb_ipam::Workload::Cluster,
        status: Some(harvester_lb_ipam::StatusAddress { pool: None, addr }),
        requested: None,
    };
    let waits = |leader: &mut LeaderState| {
        let mut allocation = harvester_lb_ipam::allocation::Allocation::acquire(&request);
        let step = allocation.next(&mut leader.ledger, Micros(3));
        step == Step::GiveUp(GiveUp::Unreleased(cached::id(&gone)))
    };
    let mut leader = leader_of_one_pool();
    leader.observe_allocation("172.20.2.2", &allocation(1, "Bound", true));
    leader.await_release(BTreeSet::from([addr]));
    assert!(!waits(&mut leader), "its owner is not known to be gone");
    let deleted = DeletedLb {
        uid: "u".into(),
        had_service: true,
        final_state_unknown: false,
    };
    leader.deleted_lbs.insert(gone.clone(), deleted);
    leader.await_release(BTreeSet::from([addr]));
    leader.ledger.take_wakes();
    assert!(waits(&mut leader));
    assert!(leader.ledger.take_wakes().is_empty());
    leader.remove_deleted_lb(&gone);
    let woken = leader.ledger.take_wakes();
    assert_eq!(woken, std::slice::from_ref(&request.owner.id));
    assert!(!waits(&mut leader));
}

/// The IPAllocation of a lease of 172.20.2.2, by n/a.
fn lease(phase: &str) -> Allocation {
    let mut object = record("172.20.2.2", "", phase, ("n", "a", "u"));
    object["metadata"]["name"] = "dhcp-u".into();
    object["spec"]["lease"] = serde_json::json!({
        "interface": "eth0", "hardwareAddress": "02:00:00:00:00:01", "clientId": "ff",
        "server": "172.20.2.1",
    });
    let object: IPAllocation = serde_json::from_value(stored(object, "r", 2)).unwrap();
    Allocation::decoded(&object)
}

#[test]
fn dhc_5_a_lease_that_no_service_shows_is_taken_also_after_a_restart() {
    for (phase, is_taken) in [("Bound", true), ("Releasing", true), ("Released", false)] {
        let stores = Stores::default();
        let version = harvester_lb_object::Version(2);
        let p = Key::new("", "p");
        stores.pools.written(&p, version, pool("172.20.2.0/30"));
        let name = Key::new("", "dhcp-u");
        let record = lease(phase);
        assert!(matches!(record, Allocation::Lease(_)));
        stores.allocations.written(&name, version, record);
        let mut leader = LeaderState::from_stores(&stores);
        let addr = "172.20.2.2".parse().unwrap();
        assert_eq!(leader.is_leased(addr), is_taken, "{phase}");
        let request = harvester_lb_ipam::Request {
            owner: harvester_lb_ipam::Owner::new("ns", "b", "b-1"),
            created: Micros(2),
            pool: Some("p".into()),
            requirement: harvester_lb_ipam::Requirement::default(),
            workload: harvester_lb_ipam::Workload::Cluster,
            status: None,
            requested: None,
        };
        let mut allocation = harvester_lb_ipam::allocation::Allocation::acquire(&request);
        let step = allocation.next(&mut leader.ledger, Micros(3));
        assert_eq!(
            matches!(step, Step::Wait { .. }),
            is_taken,
            "{phase}: {step:?}"
        );
        // DHC-4: its load balancer may have been deleted meanwhile, and its Service be left.
        let deleted = leader.deleted_lbs.get(&Key::new("n", "a"));
        assert!(deleted.is_some_and(|it| it.uid == "u" && it.final_state_unknown));
        // Given back.
        if let Allocation::Lease(record) = lease(phase) {
            let key = leader.set_lease(&record.spec, false);
            leader.set_shown(&key, None);
        }
        assert!(!leader.is_leased(addr), "{phase}");
    }
}

/// One that is left alone does not come to act on its role.
#[test]
fn shr_3_a_load_balancer_is_woken_once_for_a_role() {
    let mut leader = leader_of_one_pool();
    let group = Key::new("ns", "a");
    let roles = |is_holder| {
        let role = Role::Member { is_holder };
        BTreeMap::from([("a".to_owned(), role.clone()), ("b".to_owned(), role)])
    };
    let all = ["a", "b"].map(|name| Key::new("ns", name));
    leader.saw_role(&group, "b", roles(true).get("b"));
    assert_eq!(leader.outdated_roles(&group, &roles(true)), all[..1]);
    assert_eq!(leader.outdated_roles(&group, &roles(true)), []);
    assert_eq!(leader.outdated_roles(&group, &roles(false)), all);
    assert_eq!(leader.outdated_roles(&group, &BTreeMap::new()), all);
    assert_eq!(leader.outdated_roles(&group, &BTreeMap::new()), []);
}
