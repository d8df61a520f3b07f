//! Identity and version of a copy of an object, and the proof that resource versions went backwards.

use std::hash::BuildHasher;

use harvester_lb_api::meta;
use harvester_lb_object::{Key, Version};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use rustc_hash::FxBuildHasher;

/// Identifies a copy of an object: uid and resource version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Its resource version.
    pub version: Version,
    /// Hash of its uid, to save memory; 0 if it is not known.
    uid: u64,
}

impl Stamp {
    /// The stamp of an object by its metadata.
    pub fn of(meta: &ObjectMeta) -> Self {
        Self {
            version: meta::version(meta),
            uid: meta
                .uid
                .as_deref()
                .map_or(0, |uid| FxBuildHasher.hash_one(uid).max(1)),
        }
    }

    /// Whether this is a copy of the same object, whose uid is known.
    pub fn is_same_object(self, other: Self) -> bool {
        self.uid != 0 && self.uid == other.uid
    }

    /// Whether this is an older copy of the same object, as far as the uids are known. An object that is recreated
    /// under the same name has a newer version than its predecessor ever had; an older version means a restored backup
    /// (RUN-3).
    pub fn is_before(self, other: Self) -> bool {
        let same = self.uid == other.uid || self.uid == 0 || other.uid == 0;
        same && self.version < other.version && self.version != Version::default()
    }
}

impl From<Version> for Stamp {
    fn from(version: Version) -> Self {
        Self { version, uid: 0 }
    }
}

/// The API server holds something older than before: its storage was restored from a backup (RUN-3). Nothing that was
/// learned before is valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} is at version {now} and was at {was} before: what the API server stores was restored from a backup. This process exits, to start again from the present state"
)]
pub struct Restored {
    /// Kind and name of the object, or the list.
    pub what: String,
    /// The resource version seen before.
    pub was: Version,
    /// The resource version seen now.
    pub now: Version,
}

impl Restored {
    /// The proof, if a live read of the object (`now`) returned an older copy than was known (`was`).
    pub fn proven(kind: &str, key: &Key, was: Stamp, now: Stamp) -> Option<Self> {
        now.is_before(was).then(|| Self {
            what: format!("{kind} {key}"),
            was: was.version,
            now: now.version,
        })
    }

    /// The proof, if a list of a kind is at an older version than was known of that kind when the list was requested
    /// (`was`). The list has to be consistent, so that it is at the version of the storage. A version that is no number
    /// proves nothing, of the list or of the objects.
    pub fn proven_by_list(kind: &str, was: Version, list: Option<&str>) -> Option<Self> {
        let now = Version::parse(list);
        (now < was && now != Version::default()).then(|| Self {
            what: format!("the list of {kind}"),
            was,
            now,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_3_a_list_that_is_behind_what_was_known_proves_it() {
        let cases = [
            (50, Some("49"), true),
            (50, Some("1"), true),
            (50, Some("50"), false),
            (50, Some("51"), false),
            // No object is known, or none whose version is a number.
            (0, Some("7"), false),
            (50, None, false),
            (50, Some(""), false),
            (50, Some("0"), false),
            (50, Some("4x"), false),
            (50, Some("-1"), false),
        ];
        for (was, list, proves) in cases {
            let proof = Restored::proven_by_list("IPAllocation", Version(was), list);
            assert_eq!(proof.is_some(), proves, "{was} {list:?}");
        }
        let proof = Restored::proven_by_list("IPAllocation", Version(50), Some("49"));
        let text = proof.unwrap().to_string();
        let wanted = "the list of IPAllocation is at version 49 and was at 50 before";
        assert!(text.starts_with(wanted), "{text}");
    }
}
