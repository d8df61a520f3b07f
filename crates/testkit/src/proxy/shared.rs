//! State shared by the parts of a proxy.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::mode::Mode;
use super::request::{Seen, Verb};
use super::rules::Rules;

/// A running watch.
pub(crate) struct Watching {
    pub(super) seen: Seen,
    pub(super) cut: Arc<Notify>,
}

/// State shared by the parts of a proxy.
pub(crate) struct Shared {
    pub(super) upstream: kube::Client,
    pub(super) mode: watch::Sender<Mode>,
    pub(super) rules: Mutex<Rules>,
    pub(super) counts: Mutex<BTreeMap<(Verb, String), u64>>,
    /// Notified when a rule is dropped.
    pub(super) changed: Notify,
    pub(super) watching: Mutex<BTreeMap<u64, Watching>>,
    pub(super) next_watch: AtomicU64,
}

impl Shared {
    /// Waits until `wanted` holds for the mode.
    pub(super) async fn until(&self, wanted: impl FnMut(&Mode) -> bool) {
        // An error would mean that the sender is gone, but it is in `self`.
        let _ = self.mode.subscribe().wait_for(wanted).await;
    }

    /// Waits until the rule of this number is dropped.
    pub(super) async fn without(&self, rule: u64) {
        loop {
            let changed = self.changed.notified();
            if !self.rules.lock().holds(rule) {
                return;
            }
            changed.await;
        }
    }
}
