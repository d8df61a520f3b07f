use std::collections::BTreeMap;

use fastrand::Rng;
use harvester_lb_ipam::{PoolRanges, Selector};
use serde_json::{Value, json};

use super::*;
use crate::pool_spec::{ranges_of, selector_of};

fn spec(value: &Value) -> IPPoolSpec {
    serde_json::from_value(value.clone()).unwrap()
}

/// Every violation, by comparing a pool with each of the others in turn (PV-1 to PV-3, PV-5 to PV-8).
fn naive(name: &str, own: &IPPoolSpec, all: &BTreeMap<String, IPPoolSpec>) -> Vec<PoolViolation> {
    let others = || all.iter().filter(|(other, _)| *other != name);
    let mut found = ParsedPool::of(own).range_violations();
    if let Ok(ranges) = PoolRanges::parse(&ranges_of(own)) {
        for (pool, other) in others() {
            let Ok(theirs) = PoolRanges::parse(&ranges_of(other)) else {
                continue;
            };
            let first = ranges.overlaps(&theirs).into_iter().next();
            found.extend(first.map(|(index, at)| PoolViolation::Overlap {
                index,
                range: shown(&ranges.ranges()[index]),
                pool: pool.clone(),
                other: shown(&theirs.ranges()[at]),
            }));
        }
    }
    let selector = |spec: &IPPoolSpec| spec.selector.as_ref().map(selector_of).unwrap_or_default();
    let own = selector(own);
    let others: Vec<(&String, Selector)> = others().map(|(n, s)| (n, selector(s))).collect();
    if own.is_global() {
        let second = others.iter().find(|(_, other)| other.is_global());
        found.extend(second.map(|(pool, _)| PoolViolation::SecondGlobal {
            pool: (*pool).clone(),
        }));
        return found;
    }
    for later in 0..own.scope.len() {
        let overlaps = |earlier: &usize| own.scope[*earlier].overlaps(&own.scope[later]);
        let earlier = (0..later).find(overlaps);
        found.extend(earlier.map(|earlier| own_scopes(&own.scope, earlier, later)));
    }
    let others = || others.iter().filter(|(_, other)| !other.is_global());
    if own.priority != 0 {
        let same = others().find(|(_, other)| other.priority == own.priority);
        found.extend(same.map(|(pool, _)| PoolViolation::DuplicatePriority {
            priority: own.priority,
            pool: (*pool).clone(),
        }));
        return found;
    }
    for (pool, other) in others() {
        if other.priority != 0 || other.network != own.network {
            continue;
        }
        let meets = |tuple: &Tuple| other.scope.iter().any(|theirs| theirs.overlaps(tuple));
        let index = own.scope.iter().position(meets);
        found.extend(index.map(|index| PoolViolation::Scopes {
            index,
            tuple: shown_tuple(&own.scope[index]),
            pool: (*pool).clone(),
        }));
    }
    found
}

fn own_scopes(scope: &[Tuple], earlier: usize, later: usize) -> PoolViolation {
    PoolViolation::OwnScopes {
        earlier,
        earlier_tuple: shown_tuple(&scope[earlier]),
        later,
        later_tuple: shown_tuple(&scope[later]),
    }
}

fn one_of<T: Clone>(rng: &mut Rng, all: &[T]) -> T {
    all[rng.usize(..all.len())].clone()
}

/// A spec in a small universe, so that pools often conflict. `apart`: ranges of this pool conflict with others rarely.
fn any_spec(rng: &mut Rng, apart: u8) -> IPPoolSpec {
    let ranges: Vec<Value> = (0..rng.usize(..4))
        .map(|n| match rng.u8(..12) {
            0 => json!({"subnet": one_of(rng, &["10.0.0.0/8", "fd00::/64", "10.0.3.0/24", "nonsense"])}),
            1 => json!({"subnet": format!("fd00::{:x}/124", u32::from(rng.u8(..8)) * 16)}),
            _ => {
                let start = 20 * u8::try_from(n).unwrap() + rng.u8(2..24);
                let end = start + rng.u8(..8);
                let subnet = if rng.u8(..3) == 0 { rng.u8(..4) } else { apart };
                json!({
                    "subnet": format!("10.0.{subnet}.0/24"),
                    "rangeStart": format!("10.0.{subnet}.{start}"),
                    "rangeEnd": format!("10.0.{subnet}.{end}"),
                })
            }
        })
        .collect();
    let part = |rng: &mut Rng| one_of(rng, &["*", "", "a", "b", "c"]);
    let scope: Vec<Value> = (0..rng.usize(..4))
        .map(|_| match rng.u8(..8) {
            0 => json!({"project": "*", "namespace": "*", "guestCluster": "*"}),
            _ => json!({"project": part(rng), "namespace": part(rng), "guestCluster": part(rng)}),
        })
        .collect();
    spec(&json!({
        "description": rng.u8(..2).to_string(),
        "ranges": ranges,
        "selector": {
            "priority": one_of(rng, &[0, 0, 0, 1, 2]), "network": one_of(rng, &["", "net/a"]), "scope": scope,
        },
    }))
}

#[test]
fn pv_3_and_pv_8_the_index_equals_a_comparison_with_each_pool() {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 0..300 {
        let mut rng = Rng::with_seed(seed);
        let mut index = PoolIndex::default();
        let mut all: BTreeMap<String, IPPoolSpec> = BTreeMap::new();
        for step in 0..60 {
            let number = rng.u8(..12);
            let name = format!("p{number}");
            match rng.u8(..6) {
                0 => {
                    index.remove(&name);
                    all.remove(&name);
                }
                1 => {
                    // The same once more, as a write of the status is.
                    if let Some(spec) = all.get(&name) {
                        index.set(&name, &ObjectMeta::default(), spec);
                    }
                }
                _ => {
                    let spec = any_spec(&mut rng, number + 10);
                    index.set(&name, &ObjectMeta::default(), &spec);
                    all.insert(name, spec);
                }
            }
            assert_eq!(index.len(), all.len());
            let apart = rng.u8(10..22);
            let candidate = any_spec(&mut rng, apart);
            for name in ["p0", "p1", "new"] {
                let found = index.validate(name, &ParsedPool::of(&candidate));
                let expected = naive(name, &candidate, &all);
                assert_eq!(
                    found, expected,
                    "seed {seed}, step {step}, {name}: {candidate:?}"
                );
                for violation in found {
                    *seen.entry(violation.rule()).or_default() += 1;
                }
            }
        }
        for name in all.keys() {
            index.remove(name);
        }
        assert!(index.is_empty());
        assert!(index.globals.is_empty() && index.priorities.is_empty());
        assert_eq!(
            format!("{:?}", index.intervals),
            format!("{:?}", Intervals::default())
        );
        assert_eq!(
            format!("{:?}", index.tuples),
            format!("{:?}", TupleIndex::default())
        );
    }
    let rules = ["PV-1", "PV-2", "PV-3", "PV-5", "PV-6", "PV-7", "PV-8"];
    assert!(
        rules
            .iter()
            .all(|rule| seen.get(rule).is_some_and(|n| *n > 100)),
        "{seen:?}"
    );
}

#[test]
fn pv_6_overlaps_in_a_large_scope() {
    // Comparing each pair of these would take minutes.
    let count = 100_000;
    let tuple =
        |n: usize| json!({"project": "p", "namespace": format!("n{n}"), "guestCluster": "*"});
    let mut scope: Vec<Value> = (0..count).map(tuple).collect();
    let own = |scope: &[Value]| {
        let spec =
            spec(&json!({"ranges": [{"subnet": "10.0.0.0/24"}], "selector": {"scope": scope}}));
        ParsedPool::of(&spec).scope_violations()
    };
    assert_eq!(own(&scope), []);
    scope.push(json!({"project": "*", "namespace": "n77", "guestCluster": "c"}));
    assert_eq!(
        own(&scope)[0].to_string(),
        format!(
            "spec.selector.scope[{count}] is {{\"*\", \"n77\", \"c\"}}, which matches what spec.selector.scope[77], {{\"p\", \"n77\", \"*\"}}, matches: make them disjoint"
        )
    );
    assert_eq!(own(&scope).len(), 1);
    let same = vec![json!({}); count];
    assert_eq!(own(&same).len(), LISTED);
}

#[test]
fn pv_3_and_pv_8_the_pools_named_are_bounded() {
    let mut index = PoolIndex::default();
    let wide = json!({"project": "*", "namespace": "*", "guestCluster": "*"});
    let narrow = json!({"project": "p", "namespace": "*", "guestCluster": "c"});
    let all = spec(&json!({
        "ranges": [{"subnet": "10.0.0.0/24"}], "selector": {"scope": [wide, narrow]},
    }));
    for number in 0..2 * LISTED {
        index.set(&format!("p{number}"), &ObjectMeta::default(), &all);
    }
    let parsed = ParsedPool::of(&all);
    assert_eq!(index.range_violations("own", &parsed).len(), LISTED);
    let scopes = index.scope_violations("own", &parsed);
    assert_eq!(scopes.len(), LISTED + 1, "and PV-6");
    for number in 0..2 * LISTED {
        index.remove(&format!("p{number}"));
    }
    assert_eq!(index.validate("own", &parsed).len(), 1);
}

#[test]
fn req_3_a_pool_that_has_an_address_and_never_allocates_it_says_why() {
    let excluding = |list: &str| ObjectMeta {
        annotations: Some([(keys::ANNOTATION_EXCLUDE.to_owned(), list.to_owned())].into()),
        ..ObjectMeta::default()
    };
    let of = |subnet: &str| spec(&json!({"ranges": [{"subnet": subnet}]}));
    let said = |index: &PoolIndex, named: Option<&str>, addr: &str| {
        let refusals = index.refusals(named, addr.parse().unwrap())?;
        let texts = refusals
            .iter()
            .map(|it| format!("{}: {}", it.pool, it.verdict));
        Some(texts.collect::<Vec<_>>().join("; "))
    };
    let mut index = PoolIndex::default();
    let wide = of("10.0.0.0/24");
    index.set("wide", &excluding("10.0.0.9-10.0.0.12"), &wide);
    // The webhook was off.
    index.set("narrow", &excluding("10.0.0.9"), &of("10.0.0.8/29"));
    for (named, addr, expected) in [
        (None, "10.0.0.7", None),
        (None, "10.0.0.10", None),
        (
            Some("wide"),
            "10.0.0.10",
            Some("wide: 10.0.0.10 is excluded by its annotation exclude"),
        ),
        (Some("narrow"), "10.0.0.10", None),
        (
            None,
            "10.0.0.9",
            Some(
                "narrow: 10.0.0.9 is excluded by its annotation exclude; wide: 10.0.0.9 is excluded by its annotation exclude",
            ),
        ),
        (
            None,
            "10.0.0.1",
            Some("wide: 10.0.0.1 is a gateway of its ranges"),
        ),
        (None, "10.0.1.1", Some("")),
        (Some("narrow"), "10.0.0.1", Some("")),
        (Some("other"), "10.0.0.7", Some("")),
    ] {
        let found = said(&index, named, addr);
        assert_eq!(found.as_deref(), expected, "{named:?} {addr}");
    }
    // The list alone has changed, or is invalid.
    index.set("wide", &ObjectMeta::default(), &wide);
    assert_eq!(said(&index, Some("wide"), "10.0.0.10"), None);
    index.set("wide", &excluding("10.0.0.10"), &wide);
    assert!(said(&index, Some("wide"), "10.0.0.10").is_some());
    index.set("wide", &excluding("10.0.0.10, x"), &wide);
    assert_eq!(said(&index, Some("wide"), "10.0.0.10"), None);
}
