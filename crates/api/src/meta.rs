//! Metadata of any object, and objects that cannot be decoded.

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

/// The finalizers without the given ones; `None` if the object has none of these.
pub fn finalizers_without(meta: &ObjectMeta, given: &[&str]) -> Option<Vec<String>> {
    let all = meta.finalizers.as_ref()?;
    let kept: Vec<String> = all
        .iter()
        .filter(|f| !given.contains(&f.as_str()))
        .cloned()
        .collect();
    (kept.len() != all.len()).then_some(kept)
}

/// An object of kind `K`, or the parts that can be read of one that cannot be decoded.
pub type Decoded<K> = Result<K, Undecodable>;

/// An object that cannot be decoded into its type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Undecodable {
    /// The decoder's error, shortened: the field and what is wrong with it.
    pub error: String,
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// The raw object, for single fields that are needed nevertheless; null if it is nested too deeply.
    pub object: Value,
}

impl Undecodable {
    /// All strings at a path of field names. Lists on the path and at its end are traversed; values of other types are
    /// skipped.
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
