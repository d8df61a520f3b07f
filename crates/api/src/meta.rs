//! What is read of the metadata of any object.

use harvester_lb_object::{Key, Version};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::error_boundary::InvalidObject;

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
pub type Decoded<K> = Result<K, InvalidObject>;
