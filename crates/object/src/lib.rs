//! Which object, and which version of it. Pure, and knows no Kubernetes library: allocation, stores and decisions share
//! these two values, so that nothing has to be converted between them.

use std::fmt;
use std::sync::Arc;

/// Namespace and name of an object, as client-go's `ObjectKey`. Cheap to clone; sorts by namespace, then by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The namespace, empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl Key {
    /// A key from its parts.
    pub fn new(namespace: impl AsRef<str>, name: impl AsRef<str>) -> Self {
        Self {
            namespace: Arc::from(namespace.as_ref()),
            name: Arc::from(name.as_ref()),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// A resource version. Versions of one kind are ordered (KEP-5504).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(pub u64);

impl Version {
    /// Reads `metadata.resourceVersion`. A text that is no number, or none, is older than every other, so that such an
    /// object is always taken as news.
    pub fn parse(text: Option<&str>) -> Self {
        Self(text.and_then(|v| v.parse().ok()).unwrap_or_default())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_as_kubectl_writes_it() {
        assert_eq!(Key::new("shop", "web").to_string(), "shop/web");
        assert_eq!(Key::new("", "pool").to_string(), "pool");
        assert!(Key::new("a", "z") < Key::new("b", "a"));
    }

    #[test]
    fn a_version_that_is_no_number_is_the_oldest() {
        assert_eq!(Version::parse(Some("17")), Version(17));
        for text in [None, Some(""), Some("x"), Some("-1")] {
            assert_eq!(Version::parse(text), Version(0), "{text:?}");
        }
    }
}
