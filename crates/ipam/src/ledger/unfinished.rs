//! Store of the work left over from a takeover: records to create, and records that could not be released.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::types::{OwnerId, RecordSpec};

/// Work left over from a takeover.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    /// Records to create, by address.
    pub(crate) unimported: BTreeMap<IpAddr, RecordSpec>,
    /// Records that could not be released, by address.
    pub(crate) unreleased: BTreeMap<IpAddr, Unreleased>,
}

/// A record that is still to be released.
#[derive(Debug)]
pub(crate) struct Unreleased {
    /// Its owner, which is gone.
    pub(crate) holder: OwnerId,
    /// Load balancers that requested the address; they are woken after the release.
    pub(crate) waiting: BTreeSet<OwnerId>,
}
