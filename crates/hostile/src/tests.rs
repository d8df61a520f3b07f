use std::collections::BTreeSet;

use fastrand::Rng;
use serde_json::{Value, json};

use super::*;

fn targets() -> Targets {
    let text = |all: &[&str]| all.iter().map(ToString::to_string).collect();
    Targets {
        namespaces: text(&["calm"]),
        names: text(&["lb"]),
        uids: text(&["u"]),
        addresses: text(&["10.1.0.2"]),
        pools: text(&["p"]),
        subnets: text(&["10.1.0.0/24"]),
    }
}

#[test]
fn the_same_seed_gives_the_same_objects() {
    for kind in Kind::ALL {
        let objects = |seed| -> Vec<String> {
            let mut generator = Generator::new(seed, kind, Source::FromWatch, targets());
            (0..50)
                .map(|_| generator.mutant("loud", "a").text)
                .collect()
        };
        assert_eq!(objects(7), objects(7));
        assert_ne!(objects(7), objects(8));
    }
}

/// Every kind of change occurs.
#[test]
fn there_is_something_of_everything() {
    let mut all_rejected = 0;
    for source in [Source::FromWatch, Source::ToServer] {
        for kind in Kind::ALL {
            let mut generator = Generator::new(1, kind, source, targets());
            let mut words = BTreeSet::new();
            let (mut longest, mut rejected_by_decoder, mut deepest) = (0, 0_usize, 0);
            // Long objects are rare, and rarer there.
            let objects = match source {
                Source::FromWatch => 3_000,
                Source::ToServer => 4_000,
            };
            for _ in 0..objects {
                let mutant = generator.mutant("loud", "a");
                words.extend(
                    mutant
                        .what
                        .iter()
                        .map(|w| w.split(' ').skip(1).collect::<String>()),
                );
                longest = longest.max(mutant.text.len());
                rejected_by_decoder += usize::from(mutant.rejected_by_decoder);
                let depth = mutant
                    .text
                    .split("[[[[")
                    .count()
                    .max(mutant.text.split("{\"f:a\":").count());
                deepest = deepest.max(depth);
                let readable = serde_json::from_str::<Value>(&mutant.text).is_ok();
                let deep = mutant.text.contains(&"[".repeat(100))
                    || mutant.text.contains(&"{\"f:a\":".repeat(100));
                assert!(
                    readable || deep || mutant.rejected_by_decoder,
                    "{}",
                    mutant.text
                );
                if source == Source::ToServer {
                    assert!(mutant.text.contains(r#""name":"a""#));
                }
            }
            for word in [
                "isanything",
                "ismissing",
                "isnull",
                "isverylong",
                "isanotherofitstype",
                "isalistofitself",
            ] {
                assert!(
                    words.contains(word),
                    "{kind:?} {source:?}: no {word} among {} words",
                    words.len()
                );
            }
            let long = match source {
                Source::FromWatch => 200_000,
                Source::ToServer => 20_000,
            };
            assert!(
                longest > long && deepest > 1_000,
                "{kind:?}: {longest} {deepest}"
            );
            // More of them would be wasted: an object that cannot arrive tests nothing.
            assert!(
                rejected_by_decoder < objects / 10,
                "{kind:?} {source:?}: {rejected_by_decoder} of {objects}"
            );
            all_rejected += rejected_by_decoder;
        }
    }
    assert!(all_rejected > 0);
}

/// Every annotation occurs in valid objects. An attacker empties it, makes it long and writes control characters into it.
#[test]
fn annotations_occur_valid_and_attacked() {
    let has_any = |kind: &Kind| !annotations(*kind).is_empty();
    for kind in Kind::ALL.into_iter().filter(has_any) {
        let mut generator = Generator::new(1, kind, Source::FromWatch, targets());
        let all_of = |mut object: Value| object["metadata"]["annotations"].take();
        let valid: Vec<Value> = (0..2_000)
            .map(|_| all_of(generator.valid("loud", "a")))
            .collect();
        // One that is nested too deep cannot be read here.
        let mutants = (0..4_000).map(|_| serde_json::from_str(&generator.mutant("loud", "a").text));
        let mutants: Vec<Value> = mutants
            .filter_map(|object| Some(all_of(object.ok()?)))
            .collect();
        let texts = |all: &[Value], key: &str| -> Vec<String> {
            let texts = all
                .iter()
                .filter_map(|annotations| annotations[key].as_str());
            texts.map(str::to_owned).collect()
        };
        let mut attacked = Vec::new();
        for key in annotations(kind) {
            assert!(texts(&valid, key).len() >= 40, "{kind:?}: {key} is rare");
            attacked.extend(texts(&mutants, key));
        }
        let is_there = |is_it: fn(&str) -> bool| attacked.iter().any(|it| is_it(it));
        assert!(is_there(str::is_empty), "{kind:?}: none is empty");
        assert!(is_there(|it| it.len() > 10_000), "{kind:?}: none is long");
        assert!(
            is_there(|it| it.contains(char::is_control)),
            "{kind:?}: all are plain"
        );
    }
}

#[test]
fn what_no_tree_can_hold_is_written_out() {
    let object = json!({
        "a": text::number("1e309"), "b": [text::lists(2)], text::key_again("a"): text::objects(1), "c": "\u{1}x",
    });
    let (text, rejected_by_decoder) = text::render(&object);
    assert!(rejected_by_decoder);
    assert_eq!(
        text,
        r#"{"a":{"f:a":1},"a":1e309,"b":[[[1]]],"c":"\u0001x"}"#
    );
    assert!(!text::render(&json!({"a": text::number("-0")})).1);
}

/// Making the elements of a list unique leaves marked texts alone: `-0` must not become `-01`.
#[test]
fn what_is_made_many_stays_readable() {
    let mut rng = Rng::with_seed(1);
    for _ in 0..50 {
        let mut object = json!({"spec": {"list": [text::number("-0"), "a"]}});
        mutate::many(
            &mut rng,
            Source::FromWatch,
            &mut object,
            &["/spec/list".to_owned()],
        );
        let (text, _) = text::render(&object);
        assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text}");
    }
}
