use super::*;
use proptest::prelude::*;

#[test]
fn uid_is_compact_for_a_uuid_and_keeps_any_other_text() {
    let uuid = "0f5a3b1c-9d2e-4c7b-8a6f-00112233aabb";
    assert!(matches!(Uid::new(uuid).0, UidRepr::Uuid(_)));
    for text in [
        uuid,
        "0F5A3B1C-9D2E-4C7B-8A6F-00112233AABB",
        "0f5a3b1c-9d2e-4c7b-8a6f-00112233aab",
        "0f5a3b1c_9d2e-4c7b-8a6f-00112233aabb",
        "0f5a3b1c9d2e4c7b8a6f00112233aabb----",
        "ééééééééééééééééééééééééééééé",
        "",
        "x",
    ] {
        assert_eq!(Uid::new(text).to_string(), text);
    }
    assert!(Uid::new("").is_empty());
    assert!(!Uid::new("x").is_empty());
}

#[test]
fn owner_id_splits_and_refuses_what_is_none() {
    let id = OwnerId::parse("default/cluster1-lb-3").unwrap();
    assert_eq!((id.namespace(), id.name()), ("default", "cluster1-lb-3"));
    assert_eq!(id, OwnerId::new("default", "cluster1-lb-3"));
    for text in ["", "a", "/a", "a/", "a/b/c", "a /b", "a/b c"] {
        assert!(OwnerId::parse(text).is_none(), "{text:?}");
    }
}

proptest! {
    #[test]
    fn uid_gives_back_its_text(text in "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|.{0,40}") {
        prop_assert_eq!(Uid::new(&text).to_string(), text);
    }
}
