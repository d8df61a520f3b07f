//! The API server is unavailable: it refuses connections, or accepts them and does not answer.

use std::sync::Arc;
use std::time::Duration;

use harvester_lb_e2e::World;
use harvester_lb_e2e::seeds::soaks;
use harvester_lb_testkit::proxy::{Away, Match, Proxy};

use super::fault_run::FaultRun;

/// Duration of the outage.
fn away(how: Away) -> Duration {
    match how {
        _ if soaks() => Duration::from_mins(5),
        Away::Refused => Duration::from_secs(6),
        // Longer than the timeout of a request: each times out once.
        Away::Silent => Duration::from_secs(18),
    }
}

pub async fn alc_8_api_server_is_away(world: Arc<World>) -> anyhow::Result<()> {
    let run = FaultRun::open(&world, "away").await?;
    let requests = |proxy: &Proxy| proxy.counts().values().sum::<u64>();
    let watches = |proxy: &Proxy| proxy.watches(&Match::any()) as u64;
    for (name, how) in [
        ("it refuses connections", Away::Refused),
        ("it says nothing", Away::Silent),
    ] {
        let begins = |proxy: &Proxy| {
            let watched = watches(proxy);
            proxy.go_away(how);
            (requests(proxy), watched)
        };
        let ends = |proxy: &Proxy, (before, watched): (u64, u64)| {
            let hits = match how {
                Away::Silent => requests(proxy) - before,
                // Refused connections are not counted as requests: the watches that ran were hit, if none of them is
                // left.
                Away::Refused if watches(proxy) == 0 => watched,
                Away::Refused => 0,
            };
            proxy.come_back();
            hits
        };
        let name = format!("{name} for {:?}", away(how));
        run.endure_with(&name, away(how), begins, ends).await?;
    }
    run.close().await
}
