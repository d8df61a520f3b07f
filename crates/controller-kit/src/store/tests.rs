use super::*;

fn key(name: &str) -> Key {
    Key::new("ns", name)
}

#[test]
fn an_older_copy_never_replaces_a_newer_one() {
    let store = Store::default();
    assert_eq!(
        store.watched(&key("a"), Version(5), 5),
        Some(Change::Applied {
            old: None,
            new: Arc::new(5)
        })
    );
    assert_eq!(
        store.written(&key("a"), Version(7), 7),
        Some(Change::Applied {
            old: Some(Arc::new(5)),
            new: Arc::new(7)
        })
    );
    assert_eq!(store.watched(&key("a"), Version(6), 6), None);
    assert_eq!(
        store.watched(&key("a"), Version(7), 7),
        None,
        "the echo of our write"
    );
    assert_eq!(*store.get(&key("a")).unwrap(), 7);
}

#[test]
fn a_late_answer_does_not_bring_a_deleted_object_back() {
    let store = Store::default();
    store.watched(&key("a"), Version(5), 5);
    assert!(store.deleted(&key("a"), Version(8)).is_some());
    assert_eq!(store.written(&key("a"), Version(7), 7), None);
    assert!(store.get(&key("a")).is_none());
}

#[test]
fn an_old_deletion_does_not_remove_a_newer_object() {
    let store = Store::default();
    store.written(&key("a"), Version(9), 9);
    assert!(store.deleted(&key("a"), Version(8)).is_none());
    assert!(store.get(&key("a")).is_some());
}

#[test]
fn a_relist_names_what_is_gone_and_spares_what_was_just_written() {
    let store = Store::default();
    assert!(!store.is_synced());
    store.list_begins();
    store.watched(&key("a"), Version(1), 1);
    store.watched(&key("b"), Version(2), 2);
    assert!(store.list_ends().gone.is_empty());
    assert!(store.is_synced());

    store.list_begins();
    store.written(&key("c"), Version(9), 9);
    store.watched(&key("b"), Version(2), 2);
    let listed = store.list_ends();
    assert_eq!(listed.gone, [(key("a"), Arc::new(1))]);
    assert_eq!(listed.unconfirmed, [(key("c"), Version(9))]);
    assert_eq!(store.len(), 2, "it may have been made after the list");
}

#[test]
fn ipa_3_the_watch_does_not_bring_back_what_a_live_read_did_not_find() {
    let store = Store::default();
    let a = key("a");
    store.watched(&a, stamp("u", 5), 5);
    store.written(&a, stamp("u", 8), 8);
    assert!(store.absent(&a, Version(5)).is_none(), "written meanwhile");
    assert!(store.absent(&a, Version(8)).is_some());
    assert_eq!(store.watched(&a, stamp("u", 7), 7), None);
    assert_eq!(store.written(&a, stamp("u", 8), 8), None, "a late answer");
    assert!(store.deleted(&a, stamp("u", 9)).is_none());
    assert!(store.get(&a).is_none());
    // A later one of the name.
    assert!(store.watched(&a, stamp("v", 10), 10).is_some());
    assert!(store.absent(&a, Version(10)).is_some());
    assert!(store.written(&a, stamp("w", 12), 12).is_some());
    assert_eq!(store.watched(&a, stamp("v", 10), 10), None);
    assert_eq!(*store.get(&a).unwrap(), 12);
    assert!(store.watched(&a, stamp("w", 13), 13).is_some());
    // Two of the name are gone before the watch tells of the first.
    assert!(store.absent(&a, Version(13)).is_some());
    assert!(store.written(&a, stamp("x", 15), 15).is_some());
    assert!(store.absent(&a, Version(15)).is_some());
    assert_eq!(store.watched(&a, stamp("w", 13), 13), None);
    assert!(store.deleted(&a, stamp("w", 14)).is_none());
    assert_eq!(store.watched(&a, stamp("x", 15), 15), None);
    assert!(store.deleted(&a, stamp("x", 16)).is_none());
    assert!(store.inner.read().gone.is_empty());
}

#[test]
fn ipa_3_a_list_that_was_requested_later_tells_what_exists() {
    let store = Store::default();
    for name in ["before", "meanwhile", "restored"] {
        store.watched(&key(name), stamp("u", 5), ());
    }
    store.absent(&key("before"), Version(5));
    store.absent(&key("restored"), Version(5));
    store.list_begins();
    assert!(store.watched(&key("restored"), stamp("u", 4), ()).is_some());
    store.watched(&key("meanwhile"), stamp("u", 5), ());
    store.absent(&key("meanwhile"), Version(5));
    assert_eq!(store.watched(&key("meanwhile"), stamp("u", 5), ()), None);
    let listed = store.list_ends();
    assert!(listed.gone.is_empty() && listed.unconfirmed.is_empty());
    assert_eq!(store.len(), 1);
    // The list may have been made before; then the watch says that it is gone.
    assert_eq!(store.watched(&key("meanwhile"), stamp("u", 6), ()), None);
    assert!(store.deleted(&key("meanwhile"), stamp("u", 7)).is_none());
    assert!(store.inner.read().gone.is_empty());
}

fn stamp(uid: &str, version: u64) -> Stamp {
    Stamp::of(
        &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
            uid: Some(uid.to_owned()),
            resource_version: Some(version.to_string()),
            ..Default::default()
        },
    )
}

#[test]
fn run_3_a_list_that_is_behind_what_was_known_is_told_of() {
    let store = Store::default();
    store.list_begins();
    for name in ["same", "back", "other", "written"] {
        store.watched(&key(name), stamp("u", 50), ());
    }
    assert_eq!(store.list_ends().older, []);
    store.watched(&key("same"), stamp("u", 60), ());

    store.list_begins();
    store.watched(&key("same"), stamp("u", 60), ());
    store.watched(&key("back"), stamp("u", 40), ());
    store.watched(&key("other"), stamp("v", 40), ());
    // Written after the list was made; nothing else is known of it.
    store.written(&key("written"), stamp("u", 70), ());
    store.watched(&key("written"), stamp("u", 50), ());
    let listed = store.list_ends();
    assert_eq!(listed.older, [(key("back"), stamp("u", 50))]);
    // Of many, a few are enough as proof.
    store.list_begins();
    let many: Vec<Key> = (0..100).map(|n| key(&format!("m{n}"))).collect();
    for name in &many {
        store.written(name, stamp("u", 80), ());
    }
    store.list_ends();
    store.list_begins();
    for name in &many {
        store.watched(name, stamp("u", 30), ());
    }
    assert_eq!(store.list_ends().older.len(), OLDER);
}

#[test]
fn run_3_only_an_older_copy_of_the_same_object_proves_it() {
    let proven = |was, now| crate::Restored::proven("Service", &key("a"), was, now);
    assert!(proven(stamp("u", 50), stamp("u", 40)).is_some());
    assert!(proven(Version(50).into(), stamp("u", 40)).is_some());
    for now in [
        stamp("u", 50),
        stamp("u", 51),
        stamp("v", 40),
        Version::default().into(),
    ] {
        assert_eq!(proven(stamp("u", 50), now), None, "{now:?}");
    }
}

#[test]
fn namespaces_are_apart_and_in_order() {
    let store = Store::default();
    for (namespace, name) in [("b", "1"), ("a", "2"), ("a", "1"), ("ab", "0")] {
        store.watched(&Key::new(namespace, name), Version(1), ());
    }
    let names: Vec<String> = store
        .in_namespace("a")
        .iter()
        .map(|(k, _)| k.to_string())
        .collect();
    assert_eq!(names, ["a/1", "a/2"]);
}

#[test]
fn ipa_7_what_is_known_to_be_gone() {
    let store = Store::default();
    let is_gone = |store: &Store<()>, version| store.is_gone(&key("a"), stamp("u", version));
    assert!(!is_gone(&store, 5), "nothing is known");
    store.list_begins();
    store.watched(&key("b"), stamp("w", 9), ());
    assert!(!is_gone(&store, 5), "the list may have it");
    store.list_ends();
    assert!(is_gone(&store, 5) && !is_gone(&store, 10));
    store.written(&key("a"), stamp("u", 10), ());
    assert!(!is_gone(&store, 10) && !is_gone(&store, 5));
    store.absent(&key("a"), Version(10));
    assert!(is_gone(&store, 12) && !store.is_gone(&key("a"), stamp("v", 12)));
    store.deleted(&key("a"), stamp("u", 13));
    assert!(is_gone(&store, 12));
}

#[test]
fn forgets_only_what_a_live_read_has_refuted() {
    let store = Store::default();
    store.watched(&key("a"), Version(5), 5);
    assert!(store.forget(&key("a"), Version(4)).is_none());
    assert!(store.forget(&key("a"), Version(5)).is_some());
}

/// A new leader reads an object live while a list is in progress that has yet to name it.
#[test]
fn run_5_a_live_read_counts_while_a_list_is_in_progress() {
    let store = Store::default();
    for name in ["a", "b"] {
        store.watched(&key(name), Version(40), 40);
    }
    store.list_begins();
    store.watched(&key("a"), Version(60), 60);
    assert!(store.written(&key("b"), Version(50), 50).is_some());
    assert_eq!(store.version(&key("b")), Version(50));
    // What the list has named is as new as the list.
    assert!(store.written(&key("a"), Version(55), 55).is_none());
    // Whether it is there still, a read after the list tells.
    let listed = store.list_ends();
    assert_eq!(listed.unconfirmed, [(key("b"), Version(50))]);
    assert!(store.written(&key("b"), Version(55), 55).is_none());
}
