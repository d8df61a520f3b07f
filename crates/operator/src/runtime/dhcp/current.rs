//! The context of the current term, for what outlives terms: watches, metrics, `/readyz`.

use std::sync::Arc;

use harvester_lb_controller_kit::lease::Leadership;
use parking_lot::RwLock;

use crate::dhcp::context::{Context, Process};

/// The current term. It includes the time as a standby before it.
pub(super) struct Current(RwLock<Arc<Context>>);

impl Current {
    /// The first term of a process.
    pub(super) fn new(process: &Process) -> Self {
        Self(RwLock::new(Arc::new(Context::new(process))))
    }

    /// Its context. A watch updates its store before it asks, so a term that begins in between reads the change from there.
    pub(super) fn get(&self) -> Arc<Context> {
        Arc::clone(&self.0.read())
    }

    /// Its right to write and to send.
    pub(super) fn leadership(&self) -> Arc<Leadership> {
        Arc::clone(&self.get().leadership)
    }

    /// The next term begins, without clients.
    pub(super) fn next_term(&self, process: &Process) {
        *self.0.write() = Arc::new(Context::new(process));
    }
}
