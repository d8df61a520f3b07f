//! The API server is away: it refuses connections, or takes them and says nothing.

use std::sync::Arc;
use std::time::Duration;

use harvester_lb_e2e::World;
use harvester_lb_e2e::seeds::soaks;
use harvester_lb_testkit::proxy::{Away, Proxy};

use crate::course::Course;

/// For how long.
fn away() -> Duration {
    Duration::from_secs(if soaks() { 300 } else { 30 })
}

async fn goes_away(world: Arc<World>, ns: &'static str, how: Away) -> anyhow::Result<()> {
    let course = Course::open(&world, ns).await?;
    let requests = |proxy: &Proxy| proxy.counts().values().sum::<u64>();
    course
        .endure_with(
            &format!("away {:?}, {how:?}", away()),
            away(),
            |proxy| {
                proxy.go_away(how);
                requests(proxy)
            },
            |proxy, before| {
                proxy.come_back();
                // Refused connections are no requests.
                (requests(proxy) - before).max(u64::from(how == Away::Refused))
            },
        )
        .await?;
    course.close().await
}

pub async fn alc_8_api_server_refuses_connections(world: Arc<World>) -> anyhow::Result<()> {
    goes_away(world, "refusing", Away::Refused).await
}

pub async fn alc_8_api_server_says_nothing(world: Arc<World>) -> anyhow::Result<()> {
    goes_away(world, "silent", Away::Silent).await
}
