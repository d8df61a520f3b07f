//! Parts of the attacks: how a value is set, and values with a meaning.

use fastrand::Rng;
use serde_json::{Value, json};

use crate::kind::Targets;
use crate::values::{self, pick};

/// Sets a value at a place, and creates the objects on the path.
pub(super) fn put(object: &mut Value, place: &str, value: Value) -> String {
    let mut at = object;
    for key in place.split('/').skip(1) {
        let key = key.replace("~1", "/");
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[key];
    }
    *at = value;
    place.to_owned()
}

/// An address that another object has, or that no object can have.
pub(super) fn address(rng: &mut Rng, targets: &Targets) -> String {
    match rng.u8(..4) {
        0 => values::text(rng),
        1 => values::address(rng),
        _ => pick(rng, &targets.addresses),
    }
}

pub(super) fn id(rng: &mut Rng, targets: &Targets) -> String {
    match rng.u8(..4) {
        0 => values::text(rng),
        _ => format!(
            "{}/{}",
            pick(rng, &targets.namespaces),
            pick(rng, &targets.names)
        ),
    }
}

pub(super) fn time(rng: &mut Rng) -> String {
    let times = [
        "9999-12-31T23:59:59.999999Z",
        "1969-12-31T23:59:59Z",
        "-9999-01-02T01:59:59Z",
        "0001-01-01T00:00:00Z",
    ];
    if rng.bool() {
        values::text(rng)
    } else {
        times[rng.usize(..4)].to_owned()
    }
}
