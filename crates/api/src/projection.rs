//! The digest by which the operator recognizes its own writes of a pool's address maps (IPA-1).

use std::collections::BTreeMap;

/// Digest of a pool's `allocated` and `allocatedHistory`, for the annotation
/// [`ANNOTATION_PROJECTION`](crate::keys::ANNOTATION_PROJECTION). An absent map counts as empty.
///
/// 64-bit FNV-1a over the entries in order. It distinguishes the operator's own write from a foreign one and is no
/// protection against forgery: a client that may write the pool may write the annotation too.
pub fn digest(
    allocated: Option<&BTreeMap<String, String>>,
    history: Option<&BTreeMap<String, String>>,
) -> String {
    let mut hash = Fnv::new();
    for map in [allocated, history] {
        for (address, id) in map.into_iter().flatten() {
            // Neither addresses nor ids contain a line feed, so the encoding is unambiguous.
            hash.write(address.as_bytes());
            hash.write(b"\n");
            hash.write(id.as_bytes());
            hash.write(b"\n");
        }
        hash.write(b"\n");
    }
    format!("{:016x}", hash.0)
}

struct Fnv(u64);

impl Fnv {
    const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn ipa_1_digest_tells_the_maps_apart() {
        let a = map(&[("10.0.0.2", "shop/web")]);
        let b = map(&[("10.0.0.2", "shop/api")]);
        let empty = map(&[]);
        assert_eq!(digest(Some(&a), None), digest(Some(&a), Some(&empty)));
        assert_ne!(digest(Some(&a), None), digest(None, Some(&a)));
        assert_ne!(digest(Some(&a), None), digest(Some(&b), None));
        assert_ne!(digest(Some(&a), None), digest(None, None));
    }

    #[test]
    fn ipa_1_digest_never_changes_between_releases() {
        // A new release must recognize the writes of the previous one.
        assert_eq!(digest(None, None), "08547e07b5084555");
    }
}
