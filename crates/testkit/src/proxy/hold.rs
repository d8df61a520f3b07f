//! Holding requests.

use std::sync::Arc;

use anyhow::Context;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::fault::Frequency;
use super::held::{Held, Moment, PATIENCE};
use super::request::Match;
use super::rule::Rule;
use super::rules::Effect;
use super::shared::Shared;

/// Most requests that one [`Hold`] holds before the test takes them; more wait.
const CAUGHT: usize = 64;

/// Holds requests until it is dropped. Those that the test has taken stay held.
#[derive(Debug)]
pub struct Hold {
    rule: Rule,
    caught: mpsc::Receiver<Held>,
}

impl Hold {
    pub(super) fn set(shared: &Arc<Shared>, matching: Match, moment: Moment, times: u32) -> Self {
        let (sender, caught) = mpsc::channel(CAUGHT);
        let effect = Effect::Hold(moment, sender);
        Self {
            rule: Rule::set(shared, matching, Frequency::times(times), effect),
            caught,
        }
    }

    /// Waits until a request is held, 60 s at most.
    pub async fn arrived(&mut self) -> anyhow::Result<Held> {
        let held = timeout(PATIENCE, self.caught.recv()).await;
        held.context("no such request within 60 s")?
            .context("the proxy is gone")
    }

    /// A request that is held by now, if there is one.
    pub fn try_arrived(&mut self) -> Option<Held> {
        self.caught.try_recv().ok()
    }

    /// Number of requests that it has held.
    pub fn hits(&self) -> u64 {
        self.rule.hits()
    }
}
