//! Identity and `resourceVersion` of Kubernetes objects, and what their names may be. Depends on no Kubernetes library, so that the
//! allocation ledger, the caches and the pure logic share these without conversions.

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
    /// The key of `namespace` and `name`.
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

/// Whether a text is a DNS label (RFC 1123), as names of Namespaces, Services and their ports are.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

/// Whether a text is a DNS subdomain, as names of most objects are. As with Kubernetes, its parts may be longer than a
/// label.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_part)
}

/// Whether a text is a DNS label but for its length.
fn is_part(text: &str) -> bool {
    let is_inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    !text.is_empty() && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// A `metadata.resourceVersion`. Versions of objects of one kind are ordered (KEP-5504).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(pub u64);

impl Version {
    /// Parses `metadata.resourceVersion`. An absent or non-numeric one becomes 0, so that every other version of the
    /// object counts as newer.
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
    fn a_dns_label_has_at_most_63_letters_digits_and_hyphens() {
        for (text, is_one) in [
            ("a", true),
            ("a-b9", true),
            ("9", true),
            ("", false),
            ("-a", false),
            ("a-", false),
            ("A", false),
            ("a.b", false),
            ("a/b", false),
            ("a_b", false),
            ("ä", false),
            (&"a".repeat(63), true),
            (&"a".repeat(64), false),
        ] {
            assert_eq!(is_dns_label(text), is_one, "{text}");
        }
    }

    #[test]
    fn a_dns_subdomain_has_at_most_253_characters_in_parts_of_any_length() {
        for text in ["v20", "a.b-c.d9", &"a".repeat(64), &"a".repeat(253)] {
            assert!(is_dns_subdomain(text), "{text}");
        }
        let none = [
            "", ".", "a/b", "a..b", "..", "A", "-a.b", "a.b-", "a?x=y", "a%2fb", "a\nb",
        ];
        for text in none.into_iter().chain([&*"a".repeat(254)]) {
            assert!(!is_dns_subdomain(text), "{text}");
        }
    }

    #[test]
    fn a_version_that_is_no_number_is_the_oldest() {
        assert_eq!(Version::parse(Some("17")), Version(17));
        for text in [None, Some(""), Some("x"), Some("-1")] {
            assert_eq!(Version::parse(text), Version(0), "{text:?}");
        }
    }
}
