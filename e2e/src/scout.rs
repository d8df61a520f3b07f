//! A second client, which looks whether an address is served before the first one counts what it gets.
//!
//! While no backend is ready, a connection is sent to the stand-in and never established, and the node remembers it for
//! two minutes. A later connection from the same port of the same client would meet that memory and fail with it. Who
//! looks must therefore not be who counts.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use anyhow::ensure;
use harvester_lb_testkit::{Tally, burst, eventually};

use crate::world::{SOON, World};

/// Requests of one look.
const LOOK: usize = 40;

impl World {
    /// One look: so many requests from the scout.
    pub async fn look(&self, vip: Ipv4Addr, port: u16) -> anyhow::Result<Tally> {
        let scout = self
            .scout
            .get_or_try_init(|| async { self.cluster.add_vm("scout") })
            .await?;
        Ok(burst(scout.netns(), vip, port, LOOK, 4).await)
    }

    /// Waits until exactly these machines answer at an address, in two looks in a row in which no request fails.
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
