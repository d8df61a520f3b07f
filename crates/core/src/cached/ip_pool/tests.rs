use serde_json::{Value, json};

use super::*;
use crate::cached::tests::object;

fn pool(annotation: Option<&str>, allocated: &Value, history: &Value) -> Pool {
    Pool::valid(object(json!({
        "metadata": {
            "name": "p",
            "annotations": annotation.map(|a| json!({keys::ANNOTATION_PROJECTION: a})),
        },
        "spec": {"ranges": [{"subnet": "172.20.1.0/29"}]},
        "status": {
            "total": 5, "available": 4, "lastAllocated": "172.20.1.2",
            "allocated": allocated, "allocatedHistory": history,
        },
    })))
}

#[test]
fn ipa_1_maps_that_this_operator_wrote_are_not_kept() {
    let allocated = json!({"172.20.1.2": "shop/web"});
    let history = json!({"172.20.1.3": "shop/api"});
    let map = |of: &Value| object::<BTreeMap<String, String>>(of.clone());
    let digest = projection::digest(Some(&map(&allocated)), Some(&map(&history)));

    let ours = pool(Some(&digest), &allocated, &history);
    assert!(ours.is_our_projection());
    assert!(ours.foreign_maps.is_none());
    assert_eq!(ours.digest, digest);
    assert_eq!(ours.counters, Some((5, 4, "172.20.1.2".into())));

    for (what, annotation) in [
        ("absent", None),
        ("empty", Some("")),
        ("another", Some("0000000000000000")),
    ] {
        let foreign = pool(annotation, &allocated, &history);
        assert!(!foreign.is_our_projection(), "{what}");
        let maps = foreign.foreign_maps.unwrap();
        assert_eq!(maps.allocated, map(&allocated), "{what}");
        assert_eq!(maps.history, map(&history), "{what}");
    }

    let swapped = pool(Some(&digest), &history, &allocated);
    assert!(
        swapped.foreign_maps.is_some(),
        "held and remembered are two things"
    );
    let emptied = pool(Some(&digest), &json!(null), &json!({}));
    assert!(!emptied.is_our_projection());
    assert!(emptied.foreign_maps.is_none(), "there is nothing to import");
}

#[test]
fn ipa_1_a_pool_without_status() {
    let fresh = Pool::valid(object(
        json!({"metadata": {"name": "p"}, "spec": {"ranges": []}}),
    ));
    assert_eq!(fresh.counters, None);
    assert_eq!(fresh.conditions, []);
    assert!(fresh.foreign_maps.is_none());
    assert_eq!(fresh.digest, projection::digest(None, None));
}
