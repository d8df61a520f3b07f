//! The API server is unavailable: it refuses connections, or accepts them and does not answer.

use std::sync::Arc;
use std::time::Duration;

use harvester_lb_e2e::World;
use harvester_lb_e2e::seeds::soaks;
use harvester_lb_testkit::proxy::{Match, Proxy, Unavailable};

use super::fault_run::FaultRun;

/// Duration of the outage.
fn duration(how: Unavailable) -> Duration {
    match how {
        _ if soaks() => Duration::from_mins(5),
        Unavailable::Refused => Duration::from_secs(6),
        // Longer than the timeout of a request: each times out once.
        Unavailable::Silent => Duration::from_secs(18),
    }
}

pub async fn alc_8_api_server_is_unavailable(world: Arc<World>) -> anyhow::Result<()> {
    let run = FaultRun::open(&world, "away").await?;
    let requests = |proxy: &Proxy| proxy.counts().values().sum::<u64>();
    let watches = |proxy: &Proxy| proxy.watches(&Match::any()) as u64;
    for (name, how) in [
        ("it refuses connections", Unavailable::Refused),
        ("it says nothing", Unavailable::Silent),
    ] {
        let begins = |proxy: &Proxy| {
            let watched = watches(proxy);
            proxy.make_unavailable(how);
            (requests(proxy), watched)
        };
        let ends = |proxy: &Proxy, (before, watched): (u64, u64)| {
            let hits = match how {
                Unavailable::Silent => requests(proxy) - before,
                // Refused connections are not counted as requests: the watches that ran were hit, if none of them is
                // left.
                Unavailable::Refused if watches(proxy) == 0 => watched,
                Unavailable::Refused => 0,
            };
            proxy.make_available();
            hits
        };
        let name = format!("{name} for {:?}", duration(how));
        run.endure_with(&name, duration(how), begins, ends).await?;
    }
    run.close().await
}
