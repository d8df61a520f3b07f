//! What is read of the metadata of any object.

use harvester_lb_object::{Key, Version};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

/// Namespace and name of an object.
pub fn key(meta: &ObjectMeta) -> Key {
    Key::new(
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    )
}

/// The resource version of an object; see [`Version::parse`].
pub fn version(meta: &ObjectMeta) -> Version {
    Version::parse(meta.resource_version.as_deref())
}

/// The value of an annotation.
pub fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    let annotations = meta.annotations.as_ref()?;
    annotations.get(name).map(String::as_str)
}

/// The finalizers without the given ones, or `None` if it has none of them.
pub fn finalizers_without(meta: &ObjectMeta, given: &[&str]) -> Option<Vec<String>> {
    let all = meta.finalizers.as_ref()?;
    let kept: Vec<String> = all
        .iter()
        .filter(|f| !given.contains(&f.as_str()))
        .cloned()
        .collect();
    (kept.len() != all.len()).then_some(kept)
}

/// An object of a kind, or what is left of one that cannot be decoded.
pub type Decoded<K> = Result<K, Undecodable>;

/// What is left of an object that cannot be decoded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Undecodable {
    /// Which field is wrong, and how; short.
    pub error: String,
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// The object as it is, for whoever must know some of it all the same; null if it is nested too deeply for that.
    pub object: Value,
}

impl Undecodable {
    /// The texts at a path of field names. Lists on the way and at its end are walked through; what is of another type is
    /// passed over.
    pub fn texts(&self, path: &[&str]) -> Vec<&str> {
        fn walk<'a>(value: &'a Value, path: &[&str], found: &mut Vec<&'a str>) {
            match (value, path) {
                (Value::Array(items), _) => items.iter().for_each(|item| walk(item, path, found)),
                (Value::String(text), []) => found.push(text),
                (Value::Object(fields), [first, rest @ ..]) => {
                    if let Some(field) = fields.get(*first) {
                        walk(field, rest, found);
                    }
                }
                _ => {}
            }
        }
        let mut found = Vec::new();
        walk(&self.object, path, &mut found);
        found
    }
}
