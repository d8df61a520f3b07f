//! The difference between two objects as a JSON merge patch (RFC 7386).
//!
//! A write to an object with several writers is computed from the observed object: equal fields are not sent, removed
//! fields become `null`, and no difference means no write (REC-5). With the observed resource version as a precondition
//! (IPA-5) the result is the desired object or a conflict.

use serde::Serialize;
use serde_json::{Map, Value};

/// The merge patch that turns `from` into `to`; `None` if they are equal. Lists are replaced as a whole, and a `null` in
/// `to` counts as absent.
pub fn diff(from: &Value, to: &Value) -> Option<Value> {
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => {
            let mut patch = Map::new();
            for (key, value) in to {
                match from.get(key) {
                    Some(present) => {
                        if let Some(change) = diff(present, value) {
                            patch.insert(key.clone(), change);
                        }
                    }
                    None if value.is_null() => {}
                    None => {
                        patch.insert(key.clone(), value.clone());
                    }
                }
            }
            for key in from.keys() {
                if !to.contains_key(key) {
                    patch.insert(key.clone(), Value::Null);
                }
            }
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        _ => (from != to).then(|| to.clone()),
    }
}

/// The merge patch that turns one object into another; `None` if they are equal. See [`diff`].
pub fn difference<T: Serialize>(from: &T, to: &T) -> Option<Value> {
    let value = |of: &T| serde_json::to_value(of).unwrap_or(Value::Null);
    diff(&value(from), &value(to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// RFC 7386, section 2.
    fn apply(target: &Value, patch: &Value) -> Value {
        let Value::Object(patch) = patch else {
            return patch.clone();
        };
        let mut out = target.as_object().cloned().unwrap_or_default();
        for (key, value) in patch {
            if value.is_null() {
                out.remove(key);
            } else {
                let present = out.get(key).cloned().unwrap_or(Value::Null);
                out.insert(key.clone(), apply(&present, value));
            }
        }
        Value::Object(out)
    }

    #[test]
    fn says_only_what_differs() {
        let cases = [
            (json!({"a": 1}), json!({"a": 1}), None),
            (json!({"a": 1}), json!({"a": 2}), Some(json!({"a": 2}))),
            (
                json!({"a": 1, "b": 2}),
                json!({"a": 1}),
                Some(json!({"b": null})),
            ),
            (
                json!({}),
                json!({"a": {"b": 1}}),
                Some(json!({"a": {"b": 1}})),
            ),
            (
                json!({"a": {"b": 1, "c": 2}}),
                json!({"a": {"b": 1, "c": 3}}),
                Some(json!({"a": {"c": 3}})),
            ),
            (
                json!({"a": [1, 2]}),
                json!({"a": [2, 1]}),
                Some(json!({"a": [2, 1]})),
            ),
            (
                json!({"a": [1]}),
                json!({"a": {"b": 1}}),
                Some(json!({"a": {"b": 1}})),
            ),
            (json!({}), json!({"a": null}), None),
        ];
        for (from, to, expected) in cases {
            assert_eq!(diff(&from, &to), expected, "{from} -> {to}");
        }
    }

    #[test]
    fn applied_to_the_one_it_gives_the_other() {
        let all = [
            json!({}),
            json!({"a": 1}),
            json!({"a": {"b": [1, {"c": 2}], "d": "x"}}),
            json!({"a": {"b": [1, {"c": 3}], "e": {"f": true}}}),
            json!({"e": {"f": true}, "a": "text"}),
        ];
        for from in &all {
            for to in &all {
                match diff(from, to) {
                    None => assert_eq!(from, to),
                    Some(patch) => assert_eq!(&apply(from, &patch), to, "{from} -> {to}"),
                }
            }
        }
    }
}
