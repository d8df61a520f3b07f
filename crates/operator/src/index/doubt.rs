//! Writes whose answer was lost: the API server may do them yet.

use std::time::Duration;

use harvester_lb_object::{Key, Version};
use tokio::time::Instant;

/// Time in which the API server may do a write whose answer was lost: its timeout for requests is a minute.
pub(super) const WRITE_LIFETIME: Duration = Duration::from_secs(75);

/// A write that may be done yet, as long as its object is the copy that it was decided from.
#[derive(Debug)]
pub(super) struct Doubt {
    pub key: Key,
    version: Version,
    pub until: Instant,
}

impl Doubt {
    /// `version`: that of the copy; the least one if there was none.
    pub(super) fn new(key: &Key, version: Version, now: Instant) -> Self {
        Self {
            key: key.clone(),
            version,
            until: now + WRITE_LIFETIME,
        }
    }

    /// Whether it was decided from this version too.
    pub(super) fn is_from(&self, version: Version) -> bool {
        self.version == version
    }

    /// Whether it may be done yet. `is_same`: whether the object still has this version.
    pub(super) fn is_open(&self, is_same: impl Fn(&Key, Version) -> bool, now: Instant) -> bool {
        self.until > now && is_same(&self.key, self.version)
    }
}
