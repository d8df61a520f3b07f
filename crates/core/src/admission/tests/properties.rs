//! What holds for any object and in any world: no panic, an answer that can be sent, an idempotent mutation.

use fastrand::Rng;
use harvester_lb_fixtures::{listener, record};
use serde_json::{Value, json};

use super::world::{World, review_named};
use crate::admission::facts::Lookup;
use crate::admission::{Denial, Request, Response, Subject, Warning, mutate, validate};
use crate::validation::pools::ParsedPool;

/// Rounds per property: a second or less.
const ROUNDS: u64 = 5_000;

fn one_of<'a, T>(rng: &mut Rng, all: &'a [T]) -> &'a T {
    &all[rng.usize(..all.len())]
}

/// A text as it may be anywhere.
fn text(rng: &mut Rng) -> Value {
    json!(one_of(
        rng,
        &[
            "", "*", "a", "b", "vm", "cluster", "pool", "dhcp", "net/v20", "a/b/c", "gc1", "\n",
            "é~/"
        ]
    ))
}

/// Any value, often of the wrong type.
fn odd(rng: &mut Rng) -> Value {
    match rng.u8(..7) {
        0 => Value::Null,
        1 => json!(rng.i64(..)),
        2 => json!([text(rng)]),
        3 => json!({"a": text(rng)}),
        4 => json!(rng.bool()),
        5 => json!(1.5),
        _ => text(rng),
    }
}

/// `usual`, or rarely something odd.
fn mostly(rng: &mut Rng, usual: Value) -> Value {
    if rng.u8(..40) == 0 { odd(rng) } else { usual }
}

fn number(rng: &mut Rng) -> Value {
    let usual = *one_of(rng, &[0, 1, 22, 80, 443, 8080, 65_535, 65_536, -1]);
    mostly(rng, json!(usual))
}

/// An object with some of these fields.
fn fields(rng: &mut Rng, all: Vec<(&str, Value)>) -> Value {
    let some = all.into_iter().filter(|_| rng.u8(..5) > 0);
    let object = some.map(|(name, value)| (name.to_owned(), value)).collect();
    Value::Object(object)
}

fn several(rng: &mut Rng, mut make: impl FnMut(&mut Rng) -> Value) -> Value {
    Value::Array((0..rng.usize(..4)).map(|_| make(rng)).collect())
}

fn metadata(rng: &mut Rng) -> Value {
    let annotations = [
        "loadbalancer.harvesterhci.io/namespace",
        "loadbalancer.harvesterhci.io/network",
        "loadbalancer.harvesterhci.io/cluster",
        "cloudprovider.harvesterhci.io/managementNetwork",
        "loadbalancer.harvesterhci.io/requested-address",
        "loadbalancer.harvesterhci.io/primary-load-balancer",
        "a~/b",
    ]
    .map(|key| (key, text(rng)));
    let labels = [
        "cloudprovider.harvesterhci.io/cluster",
        "loadbalancer.harvesterhci.io/vid",
        "loadbalancer.harvesterhci.io/global-ip-pool",
    ]
    .map(|key| (key, text(rng)));
    let annotations = fields(rng, annotations.into());
    let labels = fields(rng, labels.into());
    let deleted = [Value::Null, Value::Null, json!("2026-01-01T00:00:00Z")];
    let deleted = one_of(rng, &deleted);
    let all = vec![
        ("name", json!("web")),
        ("namespace", json!("shop")),
        ("annotations", mostly(rng, annotations)),
        ("labels", mostly(rng, labels)),
        ("deletionTimestamp", deleted.clone()),
    ];
    fields(rng, all)
}

fn lb_spec(rng: &mut Rng) -> Value {
    let listeners = several(rng, |rng| {
        let protocol = *one_of(rng, &["TCP", "UDP", "", "tcp"]);
        let name = *one_of(rng, &["", "a", "b"]);
        let mut listener = listener(name, protocol, 80, 8080);
        listener["port"] = number(rng);
        listener["backendPort"] = number(rng);
        mostly(rng, listener)
    });
    let check = [
        "port",
        "successThreshold",
        "failureThreshold",
        "periodSeconds",
        "timeoutSeconds",
    ]
    .map(|field| (field, number(rng)));
    let check = fields(rng, check.into());
    let selectors = [json!({"app": ["web"]}), json!({"app": []}), json!(null)];
    let selector = one_of(rng, &selectors).clone();
    let all = vec![
        (
            "workloadType",
            json!(one_of(rng, &["vm", "cluster", "cluster", "x"])),
        ),
        ("ipam", json!(one_of(rng, &["pool", "dhcp"]))),
        ("listeners", mostly(rng, listeners)),
        ("healthCheck", mostly(rng, check)),
        ("backendServerSelector", mostly(rng, selector)),
        ("description", text(rng)),
    ];
    fields(rng, all)
}

fn pool_spec(rng: &mut Rng) -> Value {
    let ranges = several(rng, |rng| {
        let address = |rng: &mut Rng| json!(format!("10.0.{}.{}", rng.u8(..4), rng.u8(..40)));
        let subnet = format!("10.0.{}.{}/{}", rng.u8(..4), rng.u8(..40), rng.u8(20..34));
        let usual = *one_of(
            rng,
            &["10.0.0.0/16", "10.0.1.0/24", "10.0.2.0/30", "fd00::/120"],
        );
        let subnet = if rng.bool() {
            json!(usual)
        } else {
            json!(subnet)
        };
        let all = vec![
            ("rangeStart", address(rng)),
            ("rangeEnd", address(rng)),
            ("gateway", address(rng)),
        ];
        let mut range = fields(rng, all);
        range["subnet"] = mostly(rng, subnet);
        range
    });
    let scope = several(rng, |rng| {
        let part = |rng: &mut Rng| json!(one_of(rng, &["*", "*", "", "a", "b"]));
        let all = vec![
            ("project", part(rng)),
            ("namespace", part(rng)),
            ("guestCluster", part(rng)),
        ];
        fields(rng, all)
    });
    let priority = json!(rng.i64(-1..3));
    let selector = vec![
        ("priority", mostly(rng, priority)),
        (
            "network",
            json!(one_of(rng, &["", "net/v20", "net/v30", "x"])),
        ),
        ("scope", mostly(rng, scope)),
    ];
    let selector = fields(rng, selector);
    let all = vec![
        ("ranges", mostly(rng, ranges)),
        ("selector", mostly(rng, selector)),
    ];
    fields(rng, all)
}

/// A world that knows some of the facts.
fn world(rng: &mut Rng) -> World {
    let mut world = if rng.u8(..5) == 0 {
        World::unlisted()
    } else {
        World::default()
    };
    let lookups = [
        Lookup::Found("c:p".to_owned()),
        Lookup::NotFound,
        Lookup::Failed("e".to_owned()),
        Lookup::Unread,
    ];
    world
        .namespaces
        .insert("shop".to_owned(), one_of(rng, &lookups).clone());
    let lookups = [
        Lookup::Found(Ok(20)),
        Lookup::Found(Err("is odd".to_owned())),
        Lookup::NotFound,
        Lookup::Unread,
    ];
    world.vlan("net/v20", one_of(rng, &lookups).clone());
    world.instance(
        "shop",
        "gc1-a",
        &json!({"harvesterhci.io/creator": "docker-machine-driver-harvester"}),
        &["net/v20"],
    );
    for name in ["p", "q", "r"] {
        let spec = pool_spec(rng);
        let pool = json!({"metadata": {"name": name}, "spec": spec});
        if serde_json::from_value::<harvester_lb_api::IPPool>(pool.clone()).is_ok() {
            world.pool(&pool);
        }
        let address = format!("10.0.{}.{}", rng.u8(..4), rng.u8(..40));
        world.record(&record(&address, name, "Bound", ("shop", "web", "u")));
    }
    if rng.bool() {
        let neighbours: Vec<Value> = ["a", "b", "web"]
            .map(|name| {
                let mut metadata = metadata(rng);
                metadata["name"] = json!(name);
                let spec = lb_spec(rng);
                json!({"metadata": metadata, "spec": spec})
            })
            .into();
        world.neighbours(&neighbours, rng.bool());
    }
    world
}

/// A request about random objects, and the new object.
fn any_request(rng: &mut Rng) -> (Request, Value) {
    let is_pool = rng.bool();
    let kind = if is_pool { "IPPool" } else { "LoadBalancer" };
    let object = |rng: &mut Rng| {
        let spec = if is_pool {
            pool_spec(rng)
        } else {
            lb_spec(rng)
        };
        let metadata = metadata(rng);
        let all = vec![
            ("metadata", mostly(rng, metadata)),
            ("spec", mostly(rng, spec)),
        ];
        if rng.u8(..10) == 0 {
            fields(rng, all)
        } else {
            json!({"metadata": all[0].1, "spec": all[1].1})
        }
    };
    let operation = *one_of(rng, &["CREATE", "UPDATE", "UPDATE", "DELETE"]);
    let new = object(rng);
    let old = match (operation, rng.u8(..4)) {
        ("CREATE", _) => Value::Null,
        (_, 0) => new.clone(),
        _ => object(rng),
    };
    (review_named(operation, kind, "p", &new, &old), new)
}

#[test]
fn wm_1_a_mutation_is_idempotent() {
    let mut patched = 0;
    for seed in 0..ROUNDS {
        let mut rng = Rng::with_seed(seed);
        let world = world(&mut rng);
        let (mut request, object) = any_request(&mut rng);
        let Ok(patch) = mutate(&request, &world) else {
            continue;
        };
        if patch.is_empty() {
            continue;
        }
        patched += 1;
        let operations: json_patch::Patch =
            serde_json::from_value(serde_json::to_value(&patch).unwrap()).unwrap();
        let mut after = object.clone();
        json_patch::patch(&mut after, &operations).unwrap();
        let kind = match &request.subject {
            Subject::IPPool(_) => "IPPool",
            _ => "LoadBalancer",
        };
        // The stored object is the same for both.
        let again = review_named("CREATE", kind, "p", &after, &Value::Null);
        replace_object(&mut request, again);
        let again = mutate(&request, &world).unwrap();
        assert!(
            again.is_empty(),
            "seed {seed}: {patch:?}, {again:?}, {object}"
        );
    }
    assert!(patched > 500, "{patched}");
}

/// Replaces the new object of a request by that of another.
fn replace_object(request: &mut Request, other: Request) {
    match (&mut request.subject, other.subject) {
        (Subject::LoadBalancer(change), Subject::LoadBalancer(other)) => {
            change.object = other.object;
        }
        (Subject::IPPool(change), Subject::IPPool(other)) => change.object = other.object,
        other => panic!("{other:?}"),
    }
}

#[test]
fn val_1_any_request_gets_an_answer_that_can_be_sent() {
    let mut seen = [0, 0, 0];
    for seed in 0..ROUNDS {
        let mut rng = Rng::with_seed(seed);
        let world = world(&mut rng);
        let (request, _) = any_request(&mut rng);
        let body = match validate(&request, &world) {
            Ok(warnings) => {
                seen[0] += 1;
                assert!(warnings.len() <= Warning::MOST);
                assert!(warnings.iter().all(|w| w.as_str().len() <= Warning::LIMIT));
                Response::Allowed(&warnings).to_bytes(&request)
            }
            Err(Denial::Refused(refusal)) => {
                seen[1] += 1;
                assert!(refusal.message().len() <= 1024, "seed {seed}");
                Response::Refused(&refusal).to_bytes(&request)
            }
            Err(Denial::NotReady(_)) => {
                seen[2] += 1;
                continue;
            }
        };
        let answer: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(answer["response"]["uid"], "r-1", "seed {seed}");
    }
    assert!(seen.iter().all(|count| *count > 50), "{seen:?}");
}

/// A pool is admitted only if its ranges can be used and overlap with no other pool, whatever else is wrong with the request.
#[test]
fn pv_3_no_admitted_pool_shares_addresses() {
    let mut admitted = 0;
    for seed in 0..ROUNDS {
        let mut rng = Rng::with_seed(seed);
        let world = world(&mut rng);
        let object = json!({"metadata": {"name": "p"}, "spec": pool_spec(&mut rng)});
        let request = review_named("CREATE", "IPPool", "p", &object, &Value::Null);
        if validate(&request, &world).is_err() {
            continue;
        }
        admitted += 1;
        let pool: harvester_lb_api::IPPool = serde_json::from_value(object).unwrap();
        let parsed = ParsedPool::of(&pool.spec);
        assert!(
            parsed.ranges().unwrap().own_overlaps().is_empty(),
            "seed {seed}"
        );
        assert!(
            world.pools.range_violations("p", &parsed).is_empty(),
            "seed {seed}"
        );
    }
    assert!(admitted > 50, "{admitted}");
}
