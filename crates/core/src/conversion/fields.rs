//! JSON objects and lists whose values stay the text that they are in the request.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// Most fields of an object that is taken apart; a LoadBalancer has ten at most. Bounds the memory of hostile input.
const MOST: usize = 256;

/// The fields of a JSON object in their order, their values as JSON.
///
/// Of a repeated name all values stay until one of its name is set or taken; the last one counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Fields<'a> {
    /// Takes an object apart.
    ///
    /// # Errors
    /// It is no JSON object, or has more than [`MOST`] fields.
    pub(super) fn parse(json: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json)
    }

    /// The value of a field; `None` if it is absent or null.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let mut named = self.0.iter().rev().filter(|(n, _)| n == name);
        let value = named.next().map(|(_, value)| &**value);
        value.filter(|value| *value != "null")
    }

    /// As [`Fields::get`], for as long as the parsed text lives; `None` also if the field was set since.
    pub(super) fn parsed(&self, name: &str) -> Option<&'a str> {
        let mut named = self.0.iter().rev().filter(|(n, _)| n == name);
        match named.next() {
            Some((_, Cow::Borrowed(value))) if *value != "null" => Some(value),
            _ => None,
        }
    }

    /// Removes a field. Returns its value, unless that is null.
    pub(super) fn take(&mut self, name: &str) -> Option<Cow<'a, str>> {
        let mut taken = None;
        self.0.retain_mut(|(n, value)| {
            let is_named = n == name;
            if is_named {
                taken = Some(std::mem::take(value));
            }
            !is_named
        });
        taken.filter(|value| *value != "null")
    }

    /// Removes fields.
    pub(super) fn remove(&mut self, names: &[&str]) {
        self.0.retain(|(name, _)| !names.contains(&&**name));
    }

    /// Sets the value of a field, at its present place or at the end.
    pub(super) fn set(&mut self, name: &'static str, json: impl Into<Cow<'a, str>>) {
        let at = self.0.iter().position(|(n, _)| n == name);
        self.remove(&[name]);
        let at = at.unwrap_or(self.0.len());
        self.0.insert(at, (name.into(), json.into()));
    }

    /// Whether it has no field.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The object as JSON.
    pub(super) fn to_json(&self) -> String {
        let members = self.0.iter().map(|(_, value)| value.len() + 16);
        let mut out = String::with_capacity(members.sum::<usize>() + 2);
        out.push('{');
        for (index, (name, value)) in self.0.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            out.push_str(&quoted(name));
            out.push(':');
            out.push_str(value);
        }
        out.push('}');
        out
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OfObject)
    }
}

struct OfObject;

impl<'de> Visitor<'de> for OfObject {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
        let mut fields = Vec::new();
        while let Some((name, value)) = map.next_entry::<&'de RawValue, &'de RawValue>()? {
            if fields.len() == MOST {
                return Err(A::Error::custom(format!("it has more than {MOST} fields")));
            }
            let name = text(name.get()).ok_or_else(|| A::Error::custom("a name is no text"))?;
            fields.push((name, Cow::Borrowed(value.get())));
        }
        Ok(Fields(fields))
    }
}

/// The text that a JSON string stands for; `None` if the value is no string.
pub(super) fn text(json: &str) -> Option<Cow<'_, str>> {
    let plain = json.strip_prefix('"')?.strip_suffix('"')?;
    if plain.contains('\\') {
        serde_json::from_str(json).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(plain))
    }
}

/// A text as a JSON string.
pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// A JSON list that is written element by element.
#[derive(Debug)]
pub(super) struct List(String);

impl List {
    pub(super) fn new() -> Self {
        Self("[".to_owned())
    }

    pub(super) fn push(&mut self, json: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(json);
    }

    pub(super) fn into_json(mut self) -> String {
        self.0.push(']');
        self.0
    }
}

/// Calls `f` with each element of a JSON list. Returns `false` if the value is no list; then `f` was not called.
pub(super) fn each<'a>(json: &'a str, f: impl FnMut(&'a str)) -> bool {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    json.starts_with('[') && deserializer.deserialize_seq(OfList(f)).is_ok()
}

struct OfList<F>(F);

impl<'de, F: FnMut(&'de str)> Visitor<'de> for OfList<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        while let Some(element) = seq.next_element::<&'de RawValue>()? {
            (self.0)(element.get());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_order_and_text_and_the_last_of_a_name_counts() {
        let json = r#"{"a": 1e400, "b\u0031":[1, 2],"a":"x","c" : null}"#;
        let mut fields = Fields::parse(json).unwrap();
        assert_eq!(fields.get("a"), Some("\"x\""));
        assert_eq!(fields.get("b1"), Some("[1, 2]"));
        assert_eq!(fields.parsed("b1"), Some("[1, 2]"));
        assert_eq!(fields.parsed("c"), None);
        assert_eq!(fields.get("c"), None);
        assert_eq!(fields.get("d"), None);
        assert_eq!(
            fields.to_json(),
            r#"{"a":1e400,"b1":[1, 2],"a":"x","c":null}"#
        );
        fields.set("a", "2");
        fields.set("d", "3".to_owned());
        assert_eq!(fields.to_json(), r#"{"a":2,"b1":[1, 2],"c":null,"d":3}"#);
        assert_eq!(fields.take("b1").as_deref(), Some("[1, 2]"));
        assert_eq!(fields.take("c"), None);
        assert_eq!(fields.to_json(), r#"{"a":2,"d":3}"#);
        fields.remove(&["a", "d"]);
        assert!(fields.is_empty());
    }

    #[test]
    fn fields_of_no_object_or_of_too_many_are_an_error() {
        for json in ["null", "[]", "1", "\"{}\"", "{\"a\":}", "{\"\\ud800\":1}"] {
            assert!(Fields::parse(json).is_err(), "{json}");
        }
        let many = |n: usize| format!("{{{}}}", vec!["\"a\":0"; n].join(","));
        assert!(Fields::parse(&many(MOST)).is_ok());
        assert!(Fields::parse(&many(MOST + 1)).is_err());
    }

    #[test]
    fn text_is_that_of_strings_only() {
        let cases = [
            (r#""a""#, Some("a")),
            (r#""""#, Some("")),
            (r#""\u0061\"""#, Some("a\"")),
            (r#""\ud800""#, None),
            ("1", None),
            ("null", None),
            ("\"", None),
        ];
        for (json, expected) in cases {
            assert_eq!(text(json).as_deref(), expected, "{json}");
        }
    }

    #[test]
    fn each_visits_the_elements_of_lists_only() {
        let collected = |json: &'static str| {
            let mut all = Vec::new();
            each(json, |element| all.push(element)).then_some(all)
        };
        assert_eq!(collected("[1, {\"a\": [2]} ,\"]\"]").unwrap().len(), 3);
        assert_eq!(collected("[]"), Some(vec![]));
        assert_eq!(collected("{\"a\":1}"), None);
        let mut list = List::new();
        each("[1, 2]", |element| list.push(element));
        assert_eq!(list.into_json(), "[1,2]");
        assert_eq!(List::new().into_json(), "[]");
    }
}
