//! Generic changes of JSON.

use fastrand::Rng;
use serde_json::{Map, Value};

use crate::kind::Source;
use crate::{text, values};

/// Most elements to which a list is grown.
const MANY: usize = 3_000;
/// Most bytes that one change adds: an API server accepts requests of up to three mebibytes.
const ROOM: usize = 1 << 20;

/// Applies one change and returns its description.
pub(crate) fn one(rng: &mut Rng, source: Source, large: bool, object: &mut Value) -> String {
    let mut places = Vec::new();
    collect(object, &mut String::new(), &mut places);
    places.retain(|p| is_open(p, source));
    let Some(place) = rng.choice(places.iter()).cloned() else {
        return "nothing".to_owned();
    };
    if large {
        set(object, &place, Value::String(values::large(rng)));
        return format!("{place} is very long");
    }
    match rng.u8(..16) {
        0..=3 => {
            set(object, &place, values::any(rng));
            format!("{place} is anything")
        }
        4..=6 => {
            let value = match object.pointer(&place) {
                Some(Value::String(_)) => Value::String(values::text(rng)),
                Some(Value::Number(_)) => values::number(rng),
                Some(Value::Bool(b)) => Value::Bool(!b),
                _ => values::any(rng),
            };
            set(object, &place, value);
            format!("{place} is another of its type")
        }
        7 | 8 => {
            remove(object, &place);
            format!("{place} is missing")
        }
        9 => {
            set(object, &place, Value::Null);
            format!("{place} is null")
        }
        10 => many(rng, source, object, &places),
        11 => {
            let deep = if rng.bool() {
                text::lists(values::levels(rng))
            } else {
                text::objects(values::levels(rng))
            };
            add(rng, object, &places, deep)
        }
        12 => {
            let value = values::any(rng);
            add(rng, object, &places, value)
        }
        13 => {
            let other = rng.choice(places.iter()).cloned().unwrap_or_default();
            let (a, b) = (
                object.pointer(&place).cloned(),
                object.pointer(&other).cloned(),
            );
            if let (Some(a), Some(b)) = (a, b) {
                set(object, &place, b);
                set(object, &other, a);
            }
            format!("{place} and {other} are exchanged")
        }
        14 if source == Source::FromWatch && rng.u8(..8) == 0 => twice(object, &place),
        _ => {
            let value = object.pointer(&place).cloned().unwrap_or_default();
            set(object, &place, Value::Array(vec![value]));
            format!("{place} is a list of itself")
        }
    }
}

/// Whether a place may be changed: a request whose namespace and name do not match is rejected and tests nothing, and
/// no API server sends an object without metadata.
fn is_open(place: &str, source: Source) -> bool {
    let closed: &[&str] = match source {
        Source::FromWatch => &["", "/metadata", "/apiVersion", "/kind"],
        Source::ToServer => &[
            "",
            "/metadata",
            "/apiVersion",
            "/kind",
            "/metadata/name",
            "/metadata/namespace",
        ],
    };
    // The API server decodes metadata strictly, so their types are always right; `attacks` mutates their values.
    !closed.contains(&place) && (source == Source::ToServer || !place.starts_with("/metadata/"))
}

fn collect(value: &Value, path: &mut String, places: &mut Vec<String>) {
    places.push(path.clone());
    let length = path.len();
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                path.push('/');
                path.push_str(&key.replace('~', "~0").replace('/', "~1"));
                collect(value, path, places);
                path.truncate(length);
            }
        }
        // The elements of a list have the same schema.
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate().take(3) {
                path.push('/');
                path.push_str(&index.to_string());
                collect(value, path, places);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// Sets the value at a place, if there is one.
pub(crate) fn set(object: &mut Value, place: &str, value: Value) {
    if let Some(there) = object.pointer_mut(place) {
        *there = value;
    }
}

fn parent(place: &str) -> Option<(&str, String)> {
    let (parent, last) = place.rsplit_once('/')?;
    Some((parent, last.replace("~1", "/").replace("~0", "~")))
}

fn remove(object: &mut Value, place: &str) {
    let Some((parent, last)) = parent(place) else {
        return;
    };
    match object.pointer_mut(parent) {
        Some(Value::Object(map)) => {
            map.remove(&last);
        }
        Some(Value::Array(list)) => {
            let index = last.parse().unwrap_or(usize::MAX);
            if index < list.len() {
                list.remove(index);
            }
        }
        _ => {}
    }
}

/// Grows a list or a map.
pub(crate) fn many(rng: &mut Rng, source: Source, object: &mut Value, places: &[String]) -> String {
    let full = |p: &&String| match object.pointer(p) {
        Some(Value::Array(list)) => !list.is_empty(),
        Some(Value::Object(map)) => !map.is_empty() && p.split('/').count() > 2,
        _ => false,
    };
    let places: Vec<String> = places.iter().filter(full).cloned().collect();
    let Some(place) = rng.choice(places.iter()) else {
        return "nothing".to_owned();
    };
    let size = object.pointer(place).map_or(0, |v| text::render(v).0.len());
    let mut count = [2, 10, 10, 30, 30, 300, 300, MANY][rng.usize(..8)];
    // Rarely, where each object takes the API server a long time.
    if source == Source::ToServer && count >= 300 && rng.u8(..8) > 0 {
        count = 60;
    }
    let count = count.min(ROOM / size.max(1));
    match object.pointer_mut(place) {
        Some(Value::Array(list)) => {
            let distinct = rng.bool();
            for n in list.len()..count {
                let mut item = list[n % list.len().min(3)].clone();
                if distinct {
                    number_it(&mut item, n);
                }
                list.push(item);
            }
        }
        Some(Value::Object(map)) => {
            let value = map.values().next().cloned().unwrap_or_default();
            for n in map.len()..count {
                map.insert(format!("more-{n}"), value.clone());
            }
        }
        _ => {}
    }
    format!("{place} has {count} elements")
}

/// Makes the elements of a list unique, which validation may require.
fn number_it(item: &mut Value, n: usize) {
    match item {
        // A marked text stands for other JSON; a suffix would make it unreadable.
        Value::String(text) if !text::is_mark(text) => text.push_str(&n.to_string()),
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                match value {
                    Value::String(text) if key == "name" || key == "type" => {
                        *text = format!("n{n}");
                    }
                    Value::String(text) if key == "subnet" => {
                        *text = format!("10.{}.{}.0/28", 70 + n / 256 % 100, n % 256);
                    }
                    Value::Number(port) if port.is_i64() => *value = (n + 1).into(),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

/// Adds an unknown field to an object, or overwrites a known one.
fn add(rng: &mut Rng, object: &mut Value, places: &[String], value: Value) -> String {
    let objects = |p: &&String| object.pointer(p).is_some_and(Value::is_object);
    let objects: Vec<String> = places.iter().filter(objects).cloned().collect();
    let place = rng.choice(objects.iter()).cloned().unwrap_or_default();
    let known = [
        "spec",
        "status",
        "ranges",
        "owner",
        "items",
        "data",
        "conditions",
    ];
    let key = if rng.bool() {
        known[rng.usize(..known.len())].to_owned()
    } else {
        values::text(rng)
    };
    if let Some(Value::Object(map)) = object.pointer_mut(&place)
        && !(place.is_empty() && ["metadata", "kind", "apiVersion"].contains(&&*key))
    {
        map.insert(key.clone(), value);
    }
    format!("{place} has {key:?} besides")
}

/// Writes a key twice.
fn twice(object: &mut Value, place: &str) -> String {
    if let Some((parent, last)) = parent(place)
        && last.chars().all(|c| c.is_ascii_alphanumeric())
        && let Some(Value::Object(map)) = object.pointer_mut(parent)
    {
        let value = map.get(&last).cloned().unwrap_or_default();
        let mut doubled: Map<String, Value> = Map::new();
        std::mem::swap(map, &mut doubled);
        doubled.insert(text::key_again(&last), value);
        *map = doubled;
    }
    format!("{place} is there twice")
}
