//! Excluded, requested and shared addresses, and kube-vip's annotations, once more on Harvester's definitions of LoadBalancer and
//! IPPool, without the webhook (API-1).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use anyhow::ensure;
use harvester_lb_api::{IPAllocation, Phase};
use harvester_lb_e2e::definitions::Definitions;
use harvester_lb_e2e::world::SOON;
use harvester_lb_e2e::{Test, World};
use harvester_lb_testkit::eventually;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};

use super::exclusions::{self, exc_1_nothing_new_from_a_pool_with_an_invalid_list};
use super::requested::{self, req_1_what_is_no_address_of_a_pool_is_refused};
use super::sharing::{self, shr_1_what_no_edit_of_others_cures_is_refused};
use super::{kube_vip_annotations, sharing_changes};

/// Beginnings of the names of the namespaces and pools of these tests.
const OURS: [&str; 4] = ["exc", "req", "shr", "kva"];

pub(crate) fn tests() -> Vec<Test> {
    let refused = harvester_lb_e2e::tests![
        exc_1_nothing_new_from_a_pool_with_an_invalid_list,
        req_1_what_is_no_address_of_a_pool_is_refused,
        shr_1_what_no_edit_of_others_cures_is_refused,
    ];
    let all = [
        exclusions::tests(),
        requested::tests(),
        sharing::tests(),
        sharing_changes::tests(),
        kube_vip_annotations::tests(),
        refused,
    ];
    all.into_iter()
        .flatten()
        .map(|test| Test {
            name: format!("{}_with_harvester_s_definitions", test.name).leak(),
            ..test
        })
        .collect()
}

pub(crate) fn last() -> Vec<Test> {
    harvester_lb_e2e::tests![api_1_the_definitions_are_harvester_s_to_the_end]
}

async fn api_1_the_definitions_are_harvester_s_to_the_end(world: Arc<World>) -> anyhow::Result<()> {
    Definitions::of_harvester().are_stored(&world).await
}

fn is_ours(name: &str) -> bool {
    OURS.iter().any(|it| name.starts_with(it))
}

/// Removes what these tests have left on our definitions, and replaces these.
pub(crate) fn definitions(
    world: Arc<World>,
) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>> {
    Box::pin(async move {
        let namespaces = world.namespaces();
        let names = async || {
            let all = namespaces.list(&ListParams::default()).await?;
            let all = all.iter().map(ResourceExt::name_any);
            anyhow::Ok(all.filter(|it| is_ours(it)).collect::<Vec<_>>())
        };
        for name in names().await? {
            namespaces.delete(&name, &DeleteParams::default()).await?;
        }
        eventually("the namespaces are gone", 4 * SOON, || async {
            let left = names().await?;
            ensure!(left.is_empty(), "{left:?}");
            Ok(Some(()))
        })
        .await?;
        // Their addresses are all released, and are forgotten with their pools.
        for pool in world.pools().list(&ListParams::default()).await? {
            if is_ours(&pool.name_any()) {
                let name = pool.name_any();
                world
                    .pools()
                    .delete(&name, &DeleteParams::default())
                    .await?;
            }
        }
        eventually("no address is allocated", SOON, || async {
            let records = world.records().list(&ListParams::default()).await?;
            let mut ours = records.items;
            ours.retain(|it| is_ours(&it.spec.pool));
            let is_bound = |it: &IPAllocation| it.spec.phase == Phase::Bound;
            ensure!(!ours.iter().any(is_bound), "{ours:?}");
            for record in ours {
                let name = record.name_any();
                world
                    .records()
                    .delete(&name, &DeleteParams::default())
                    .await?;
            }
            Ok(Some(()))
        })
        .await?;
        Definitions::of_harvester().apply(&world).await
    })
}
