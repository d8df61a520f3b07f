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

/// The API server holds an older copy of an object than before: its storage was restored from a backup (RUN-3). Nothing
/// that was learned before is valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{kind} {key} is at version {now} and was at {was} before: what the API server stores was restored from a backup. This process exits, to start again from the present state"
)]
pub struct Restored {
    /// The kind of the object.
    pub kind: String,
    /// Its name.
    pub key: Key,
    /// The resource version seen before.
    pub was: Version,
    /// The resource version seen now.
    pub now: Version,
}

impl Restored {
    /// The proof, if a live read of the object (`now`) returned an older copy than was known (`was`).
    pub fn proven(kind: &str, key: &Key, was: Stamp, now: Stamp) -> Option<Self> {
        now.is_before(was).then(|| Self {
            kind: kind.to_owned(),
            key: key.clone(),
            was: was.version,
            now: now.version,
        })
    }
}
