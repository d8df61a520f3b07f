//! The store of what a takeover has left to be done: what is to become a record, and what could not be released.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::types::{OwnerId, RecordSpec};

/// What is left to be done.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    /// By address, what is to become its record.
    pub(crate) unimported: BTreeMap<IpAddr, RecordSpec>,
    /// By address, whose record is in the way.
    pub(crate) unreleased: BTreeMap<IpAddr, Unreleased>,
}

/// A record that should have been released and is not yet.
#[derive(Debug)]
pub(crate) struct Unreleased {
    /// Who is gone.
    pub(crate) holder: OwnerId,
    /// Who asked meanwhile; they are woken when that ends.
    pub(crate) waiting: BTreeSet<OwnerId>,
}
