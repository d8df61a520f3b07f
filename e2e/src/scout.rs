//! A second client, which checks whether an address is served before the first one counts answers.
//!
//! While no backend is ready, a connection is sent to the dummy endpoint and never established, and the node's
//! conntrack keeps it for two minutes. A later connection from the same port of the same client would match that entry
//! and fail with it. So the client that checks must not be the one that counts.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use anyhow::ensure;
use harvester_lb_testkit::{Tally, burst, eventually};

use crate::world::{SOON, World};

/// Requests of one check.
const LOOK: usize = 40;

impl World {
    /// One check: this number of requests from the scout.
    pub async fn look(&self, vip: Ipv4Addr, port: u16) -> anyhow::Result<Tally> {
        let scout = self
            .scout
            .get_or_try_init(|| async { self.cluster.add_vm("scout") })
            .await?;
        Ok(burst(scout.netns(), vip, port, LOOK, 4).await)
    }

    /// Waits until exactly these machines answer at an address, in two consecutive checks in which no request fails.
    pub async fn answered_by(
        &self,
        vip: Ipv4Addr,
        port: u16,
        names: &[&str],
    ) -> anyhow::Result<()> {
        let wanted: BTreeSet<&str> = names.iter().copied().collect();
        eventually(
            &format!("{vip}:{port} is answered by {names:?}"),
            SOON,
            || async {
                for _ in 0..2 {
                    let tally = self.look(vip, port).await?;
                    ensure!(
                        tally.failures.is_empty(),
                        "{} requests failed: {:?}",
                        tally.failures.len(),
                        tally.failures.first()
                    );
                    let seen: BTreeSet<&str> = tally.by_body.keys().map(String::as_str).collect();
                    ensure!(seen == wanted, "answered by {seen:?}");
                }
                Ok(Some(()))
            },
        )
        .await
    }
}
