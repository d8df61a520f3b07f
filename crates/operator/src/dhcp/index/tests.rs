use std::time::Duration;

use harvester_lb_controller_kit::backoff::Backoff;
use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_core::dhcp::claim::Claim;
use harvester_lb_core::dhcp::record::{LeasePhase, LeaseSpec};
use harvester_lb_core::dhcp::upkeep::ClientView;
use harvester_lb_fixtures as fixtures;
use harvester_lb_ipam::dhcp::{HardwareAddress, Lease, LeaseTimes, StateName};
use harvester_lb_object::Version;

use super::*;
use crate::dhcp::views::Entry;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 168, 100, 7);
const HARDWARE: HardwareAddress = HardwareAddress([2, 0, 0, 0, 0, 1]);

/// That of a leader.
fn index() -> Index {
    let index = standby();
    index.begin_term();
    index
}

fn standby() -> Index {
    let backoff = Backoff {
        base: Duration::from_secs(1),
        cap: Duration::from_secs(1),
    };
    let policy = RetryPolicy {
        resync: Duration::from_secs(30),
        refused: backoff,
        unavailable: backoff,
    };
    Index::new(Arc::default(), policy)
}

/// The uids that are due.
async fn due(index: &Index) -> Vec<String> {
    let mut due = Vec::new();
    while index.due.depth() > 0 {
        let key = index.due.next().await.unwrap();
        due.push(key.0.uid.to_string());
        index.due.done(&key, &Ok(Requeue::AwaitChange));
    }
    due.sort();
    due
}

fn lb(uid: &str, claim: Claim) -> LbView {
    LbView {
        owner: Owner::new("shop", "web", uid),
        claim,
    }
}

fn lease() -> Lease {
    Lease {
        address: ADDRESS,
        server: Ipv4Addr::new(192, 168, 100, 1),
        server_hardware: None,
        mask: None,
        router: None,
        times: None,
    }
}

fn expired() -> Lease {
    Lease {
        times: Some(LeaseTimes {
            renew_at: Micros(1),
            rebind_at: Micros(2),
            expires_at: Micros(3),
        }),
        ..lease()
    }
}

fn lease_record(uid: &str, version: u64) -> RecordView {
    RecordView::Lease(LeaseRecord {
        spec: LeaseSpec {
            owner: Owner::new("shop", "web", uid),
            phase: LeasePhase::Pending,
            interface: "eth0".to_owned(),
            is_chosen: false,
            hardware: HARDWARE,
            wanted: None,
            bound_at: None,
        },
        version: Version(version),
        uid: Uid::new("r"),
    })
}

fn put_record(index: &Index, key: &Key, version: u64, record: RecordView) {
    let store = &index.stores.records;
    if let Some(change) = store.written(key, Version(version), record) {
        index.record_changed(key, &change);
    }
}

#[tokio::test]
async fn dhc_4_a_load_balancer_made_anew_is_another_one() {
    let index = index();
    let key = Key::new("shop", "web");
    for (version, uid, expected) in [(1, "a", vec!["a"]), (2, "b", vec!["a", "b"])] {
        let lb = lb(uid, Claim::None);
        let change = index.stores.lbs.written(&key, Version(version), lb);
        index.lb_changed(&key, &change.unwrap());
        assert_eq!(due(&index).await, expected);
    }
    assert_eq!(index.lb(&Owner::new("shop", "web", "a")), None);
    assert!(index.lb(&Owner::new("shop", "web", "b")).is_some());
    // The same again is no news: a status was written.
    let same = lb("b", Claim::None);
    let change = index.stores.lbs.written(&key, Version(3), same);
    index.lb_changed(&key, &change.unwrap());
    assert!(due(&index).await.is_empty());
}

#[tokio::test]
async fn dhc_4_a_service_wakes_all_records_of_its_name() {
    let index = index();
    let of = |uid| record_key(&Uid::new(uid));
    put_record(&index, &of("a"), 1, lease_record("a", 1));
    let RecordView::Lease(mut other) = lease_record("b", 2) else {
        panic!("it is a lease");
    };
    other.spec.hardware = HardwareAddress([2, 0, 0, 0, 0, 2]);
    put_record(&index, &of("b"), 2, RecordView::Lease(other));
    assert_eq!(due(&index).await, ["a", "b"]);
    let (key, services) = (Key::new("shop", "web"), &index.stores.services);
    let change = services.written(&key, Version(3), ServiceView::default());
    index.service_changed(&key, &change.unwrap());
    assert_eq!(due(&index).await, ["a", "b"]);
    let gone = index.stores.records.forget(&of("a"), Version(9));
    index.record_changed(&of("a"), &gone.unwrap());
    assert_eq!(due(&index).await, ["a"]);
    let change = services.forget(&key, Version(9));
    index.service_changed(&key, &change.unwrap());
    assert_eq!(due(&index).await, ["b"]);
}

fn client(uid: &str) -> Entry {
    Entry {
        owner: Owner::new("shop", "web", uid),
        view: ClientView {
            interface: "eth0".to_owned(),
            hardware: HARDWARE,
            lease: Some(lease()),
            is_asking: false,
            loss: None,
            declined: None,
        },
        state: StateName::Bound,
    }
}

#[tokio::test]
async fn dhc_5_a_pool_that_takes_a_leased_address_wakes_its_client() {
    let index = index();
    index.views.set(client("a"));
    let of_pool = |phase| {
        let object = fixtures::record("192.168.100.7", "lan", phase, ("shop", "other", "u-9"));
        let object: IPAllocation = serde_json::from_value(object).unwrap();
        RecordView::decoded(&object)
    };
    assert_eq!(of_pool("Released"), None, "history");
    let key = Key::new("", "192.168.100.7");
    put_record(&index, &key, 1, of_pool("Bound").unwrap());
    assert_eq!(due(&index).await, ["a"]);
    assert!(index.is_held_by_pool(ADDRESS));
    assert!(!index.is_held_by_pool(Ipv4Addr::new(192, 168, 100, 8)));
}

#[tokio::test]
async fn dhc_5_of_two_leases_of_one_address_the_one_that_was_recorded_first_keeps_it() {
    let index = index();
    let put = |version, uid: &str, phase, bound_at, hardware| {
        let RecordView::Lease(mut record) = lease_record(uid, version) else {
            panic!("it is a lease");
        };
        record.spec.owner = Owner::new("shop", uid, uid);
        record.spec.phase = phase;
        record.spec.bound_at = bound_at;
        record.spec.hardware = hardware;
        let key = record_key(&Uid::new(uid));
        put_record(&index, &key, version, RecordView::Lease(record));
    };
    let holder = |uid: &str| match index.holder(&Uid::new(uid), ADDRESS) {
        None => String::new(),
        Some(Holder::Pool) => "pool".to_owned(),
        Some(Holder::Lease { lb, is_twin }) => format!("{} {is_twin}", lb.id),
    };
    let other = HardwareAddress([2, 0, 0, 0, 0, 2]);
    let bound = || LeasePhase::Bound(lease());
    put(1, "a", LeasePhase::Pending, None, HARDWARE);
    put(2, "b", bound(), Some(Micros(20)), HARDWARE);
    due(&index).await;
    assert_eq!(
        (holder("a"), holder("b")),
        ("shop/b true".to_owned(), String::new())
    );
    // Both are recorded: the time decides, then the uid, so that only one of them goes.
    put(3, "a", bound(), Some(Micros(10)), other);
    assert_eq!(due(&index).await, ["a", "b"]);
    assert_eq!(
        (holder("a"), holder("b")),
        (String::new(), "shop/a false".to_owned())
    );
    put(4, "a", bound(), Some(Micros(20)), other);
    assert_eq!(
        (holder("a"), holder("b")),
        (String::new(), "shop/a false".to_owned())
    );
    put(5, "a", LeasePhase::Releasing(lease()), None, other);
    assert_eq!(
        (holder("a"), holder("b")),
        ("shop/b false".to_owned(), String::new())
    );
    // One that has expired is nobody's any more.
    put(
        6,
        "b",
        LeasePhase::Bound(expired()),
        Some(Micros(20)),
        HARDWARE,
    );
    assert_eq!(
        (holder("a"), holder("b")),
        (String::new(), "shop/a false".to_owned())
    );
}

#[tokio::test]
async fn dhc_1_a_lease_that_is_about_to_end_holds_up_its_twin() {
    let index = index();
    let spec = |uid: &str, phase| {
        let RecordView::Lease(mut record) = lease_record(uid, 1) else {
            panic!("it is a lease");
        };
        record.spec.phase = phase;
        record
    };
    let put = |version, record: LeaseRecord| {
        let key = record_key(&record.spec.owner.uid);
        put_record(&index, &key, version, RecordView::Lease(record));
    };
    let new = spec("new", LeasePhase::Pending);
    let waits = || index.ending_twin(&new.spec).is_some();
    let (key, lbs) = (Key::new("shop", "web"), &index.stores.lbs);
    put(1, new.clone());
    assert!(!waits(), "its own record");
    // By the phase of the other one: whether it waits if the load balancer of that is gone, stays as it is, and asks for nothing.
    let phases = [
        (LeasePhase::Pending, [true, false, false]),
        (LeasePhase::Bound(lease()), [true, false, false]),
        (LeasePhase::Bound(expired()), [false, false, false]),
        (LeasePhase::Releasing(lease()), [true, false, true]),
        (LeasePhase::Releasing(expired()), [false, false, false]),
        (LeasePhase::Released(ADDRESS), [false, false, false]),
    ];
    let mut version = 2;
    for (phase, [if_gone, if_it_stays, if_it_ends]) in phases {
        version += 4;
        put(version, spec("old", phase));
        assert_eq!(waits(), if_gone, "{phase:?}");
        for (claim, expected) in [(Claim::Unchanged, if_it_stays), (Claim::None, if_it_ends)] {
            version += 1;
            let change = lbs.written(&key, Version(version), lb("old", claim));
            due(&index).await;
            index.lb_changed(&key, &change.unwrap());
            assert_eq!(due(&index).await, ["new", "old"], "{phase:?}");
            assert_eq!(waits(), expected, "{phase:?}");
        }
        lbs.forget(&key, Version(version + 1));
    }
    // One that was edited is that of a load balancer all the same.
    let mut edited = spec("old", LeasePhase::Bound(lease()));
    edited.spec.owner = Owner::new("shop", "edited", "old");
    put(80, edited);
    assert!(waits());
    lbs.written(&key, Version(81), lb("old", Claim::None));
    assert!(!waits());
    lbs.forget(&key, Version(82));
    // Of another interface, or with another hardware address, it is another client.
    put(90, spec("old", LeasePhase::Releasing(lease())));
    assert!(waits());
    let mut other = new.spec.clone();
    other.interface = "eth1".to_owned();
    assert_eq!(index.ending_twin(&other), None);
    other.interface = "eth0".to_owned();
    other.hardware = HardwareAddress([2, 0, 0, 0, 0, 2]);
    assert_eq!(index.ending_twin(&other), None);
}

#[tokio::test]
async fn dhc_1_the_end_of_a_lease_wakes_its_twin() {
    let other_hardware = HardwareAddress([2, 0, 0, 0, 0, 2]);
    let spec = |phase, hardware| {
        let RecordView::Lease(mut record) = lease_record("old", 1) else {
            panic!("it is a lease");
        };
        record.spec.phase = phase;
        record.spec.hardware = hardware;
        record
    };
    let releasing = || LeasePhase::Releasing(lease());
    for (before, after, wakes) in [
        (releasing(), Some((LeasePhase::Pending, HARDWARE)), true),
        (releasing(), Some((releasing(), other_hardware)), true),
        (LeasePhase::Pending, None, true),
        (
            LeasePhase::Bound(lease()),
            Some((releasing(), HARDWARE)),
            false,
        ),
        (
            LeasePhase::Pending,
            Some((LeasePhase::Bound(lease()), HARDWARE)),
            false,
        ),
    ] {
        let index = index();
        put_record(
            &index,
            &record_key(&Uid::new("new")),
            1,
            lease_record("new", 1),
        );
        let old = record_key(&Uid::new("old"));
        put_record(&index, &old, 2, RecordView::Lease(spec(before, HARDWARE)));
        for has_client in [false, true] {
            due(&index).await;
            if has_client {
                let mut new = client("new");
                new.view.lease = None;
                index.views.set(new);
            }
            let version = if has_client { 5 } else { 3 };
            if let Some((phase, hardware)) = &after {
                let record = RecordView::Lease(spec(*phase, *hardware));
                put_record(&index, &old, version, record);
            } else {
                let gone = index.stores.records.forget(&old, Version(version));
                index.record_changed(&old, &gone.unwrap());
            }
            let due = due(&index).await.contains(&"new".to_owned());
            assert_eq!(due, wakes && !has_client, "{before:?} {after:?}");
            put_record(
                &index,
                &old,
                version + 1,
                RecordView::Lease(spec(before, HARDWARE)),
            );
        }
    }
}

#[tokio::test]
async fn dhc_4_a_service_that_shows_a_leased_address_wakes_who_has_it() {
    let index = index();
    for (name, uid) in [("web", "a"), ("another", "b")] {
        let RecordView::Lease(mut record) = lease_record(uid, 1) else {
            panic!("it is a lease");
        };
        record.spec.owner = Owner::new("shop", name, uid);
        record.spec.phase = LeasePhase::Releasing(lease());
        let key = record_key(&Uid::new(uid));
        put_record(&index, &key, 1, RecordView::Lease(record));
    }
    due(&index).await;
    // One that names an address of which its load balancer has no lease holds up nobody.
    let (key, services) = (Key::new("shop", "stranger"), &index.stores.services);
    let shows = ServiceView {
        shown: vec![ADDRESS],
        ..ServiceView::default()
    };
    services.written(&key, Version(2), shows);
    assert!(index.services_with(ADDRESS).is_empty());
    let (key, services) = (Key::new("shop", "another"), &index.stores.services);
    let shows = ServiceView {
        shown: vec![ADDRESS],
        ..ServiceView::default()
    };
    let change = services.written(&key, Version(2), shows);
    index.service_changed(&key, &change.unwrap());
    assert_eq!(due(&index).await, ["a", "b"]);
    assert_eq!(index.services_with(ADDRESS), std::slice::from_ref(&key));
    let change = services.forget(&key, Version(9));
    index.service_changed(&key, &change.unwrap());
    assert_eq!(due(&index).await, ["a", "b"]);
    assert!(index.services_with(ADDRESS).is_empty());
}

#[tokio::test]
async fn dhc_1_a_record_that_can_be_read_again_wakes_its_load_balancer() {
    let index = index();
    let (key, record) = (Key::new("shop", "web"), record_key(&Uid::new("a")));
    let stores = &index.stores;
    stores.lbs.written(&key, Version(1), lb("a", Claim::None));
    let unreadable = RecordView::UnreadableLease("spec.lease is missing".to_owned());
    put_record(&index, &record, 2, unreadable);
    assert!(due(&index).await.is_empty());
    let gone = stores.records.forget(&record, Version(2));
    index.record_changed(&record, &gone.unwrap());
    assert_eq!(due(&index).await, ["a"]);
    index.begin_term();
    assert_eq!(due(&index).await, ["a"]);
    // The load balancer is gone too, and its client is left.
    let unreadable = RecordView::UnreadableLease("spec.lease is missing".to_owned());
    put_record(&index, &record, 4, unreadable);
    index.views.set(client("a"));
    stores.lbs.forget(&key, Version(5));
    let gone = stores.records.forget(&record, Version(4));
    index.record_changed(&record, &gone.unwrap());
    assert_eq!(due(&index).await, ["a"]);
}

#[tokio::test]
async fn dhc_2_recorded_leases_without_a_client_are_counted_by_interface() {
    let index = index();
    let put = |version, uid: &str, interface: &str, phase| {
        let RecordView::Lease(mut record) = lease_record(uid, version) else {
            panic!("it is a lease");
        };
        record.spec.interface = interface.to_owned();
        record.spec.phase = phase;
        let key = record_key(&Uid::new(uid));
        put_record(&index, &key, version, RecordView::Lease(record));
    };
    let without = |with: &'static str| {
        let has_client = move |uid: &Uid| with.contains(&uid.to_string());
        ["eth0", "eth1"].map(|interface| index.leases_without(interface, has_client))
    };
    put(1, "a", "eth0", LeasePhase::Bound(lease()));
    put(2, "b", "eth0", LeasePhase::Releasing(lease()));
    put(3, "c", "eth0", LeasePhase::Pending);
    put(4, "d", "eth1", LeasePhase::Released(ADDRESS));
    assert_eq!(without(""), [2, 0]);
    assert_eq!(without("ac"), [1, 0]);
    put(5, "d", "eth1", LeasePhase::Bound(lease()));
    put(6, "a", "eth1", LeasePhase::Bound(lease()));
    put(7, "b", "eth0", LeasePhase::Pending);
    assert_eq!(without(""), [0, 2]);
    let key = record_key(&Uid::new("d"));
    let gone = index.stores.records.forget(&key, Version(9));
    index.record_changed(&key, &gone.unwrap());
    assert_eq!(without(""), [0, 1]);
}

/// Nobody would take it: a load balancer that is long gone would stay in it.
#[tokio::test]
async fn run_5_a_standby_queues_nothing() {
    let index = standby();
    put_record(&index, &record_key(&Uid::new("a")), 1, lease_record("a", 1));
    assert!(due(&index).await.is_empty());
    index.begin_term();
    assert_eq!(due(&index).await, ["a"]);
}

#[tokio::test]
async fn ipa_9_the_load_balancer_of_a_record_that_names_another_one_is_due_when_that_is_right_again()
 {
    let index = index();
    let (key, record) = (Key::new("shop", "web"), record_key(&Uid::new("a")));
    let stores = &index.stores;
    stores.lbs.written(&key, Version(1), lb("a", Claim::None));
    assert_eq!(
        index.lb_of_uid(&Uid::new("a")),
        Some(lb("a", Claim::None).owner)
    );
    assert_eq!(index.lb_of_uid(&Uid::new("b")), None);
    let RecordView::Lease(mut edited) = lease_record("a", 2) else {
        panic!("it is a lease");
    };
    edited.spec.owner.id = OwnerId::new("shop", "api");
    put_record(&index, &record, 2, RecordView::Lease(edited));
    due(&index).await;
    put_record(&index, &record, 3, lease_record("a", 3));
    let due = due(&index).await;
    assert!(due.contains(&"a".to_owned()), "{due:?}");
}

#[tokio::test]
async fn dhc_5_what_kube_vip_announces_for_a_load_balancer_is_its_own() {
    let index = index();
    let id = |name: &str| OwnerId::new("shop", name);
    let (key, services) = (Key::new("shop", "web"), &index.stores.services);
    let put = |version, service| {
        let change = services.written(&key, Version(version), service);
        index.service_changed(&key, &change.unwrap());
    };
    assert!(!index.is_announced_for(&id("web"), ADDRESS));
    let shown = vec![ADDRESS];
    put(
        1,
        ServiceView {
            shown,
            ..ServiceView::default()
        },
    );
    assert!(index.is_announced_for(&id("web"), ADDRESS));
    assert!(!index.is_announced_for(&id("api"), ADDRESS));
    // kube-vip sees later than this process that the Service shows it no more, or is gone.
    let other = Ipv4Addr::new(192, 168, 100, 8);
    let kube_vips = |shown: &[Ipv4Addr]| ServiceView {
        is_kube_vips: true,
        shown: shown.to_vec(),
        kube_vip_address: Some(other),
        ..ServiceView::default()
    };
    put(2, kube_vips(&[]));
    assert!(index.is_announced_for(&id("web"), ADDRESS));
    assert!(!index.is_announced_for(&id("web"), other), "a wish");
    put(3, kube_vips(&[other]));
    let change = services.forget(&key, Version(3));
    index.service_changed(&key, &change.unwrap());
    assert!(index.is_announced_for(&id("web"), other));
}
